"""`compare`: traces in, a report out."""

import argparse
import shlex
import sys
from pathlib import Path

from tfbisect.commands._shared import PROGRAM, check_free, check_not_input, formats, report, say
from tfbisect.errors import Usage, printable

HELP = "compare traces: which op diverged first, where and why"


def add(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("traces", nargs="+", metavar="TRACE", help="two traces or more of the same program")
    parser.add_argument(
        "--format", choices=formats(), help="of the report (default: by the name of FILE, else terminal)"
    )
    parser.add_argument(
        "--rtol",
        type=float,
        default=0.0,
        metavar="X",
        help="numbers are equal within X times the larger one (two traces)",
    )
    parser.add_argument("--atol", type=float, default=0.0, metavar="X", help="numbers are equal within X")
    parser.add_argument("--ulp", type=int, default=0, metavar="N", help="numbers are equal within N floats")
    parser.add_argument("-o", dest="output", metavar="FILE", help="write the report to a file")
    parser.add_argument("--force", action="store_true", help="replace FILE if it exists")


def run(options: argparse.Namespace) -> int:
    """Run it; -> the exit status."""
    from tfbisect import progress
    from tfbisect.comparison import compare

    if len(options.traces) < 2:
        raise Usage(
            "compare",
            found="one trace",
            expected="two or more",
            hint=f"{PROGRAM} compare {shlex.join(options.traces)} b.h5",
        )
    output = Path(options.output) if options.output else None
    if output is not None:
        check_not_input(output, [Path(trace) for trace in options.traces])
        check_free(output, options.force)
    twice = [trace for number, trace in enumerate(options.traces) if trace in options.traces[:number]]
    if twice:
        say(f"{printable(twice[0])} is given more than once: a run is always equal to itself")
    what = f"comparing {len(options.traces)} traces"
    with progress.shown(sys.stderr, lambda: what):
        result = compare(*options.traces, rtol=options.rtol, atol=options.atol, ulp=options.ulp)
    return report(result, options.format, output, options.force)
