"""`info`: what a trace holds."""

import argparse
import sys

from tfbisect.commands._shared import page, regex, write
from tfbisect.errors import Usage

HELP = "show what a trace holds"


def add(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("trace", metavar="TRACE")
    parser.add_argument(
        "--risks",
        action="store_true",
        help="list the ops that are known to vary on their device with these settings",
    )
    parser.add_argument("--ops", metavar="REGEX", help="list the ops whose name or type matches, with lines and counts")


def run(options: argparse.Namespace) -> int:
    """Run it; -> the exit status."""
    from tfbisect.reporters.terminal import render_trace
    from tfbisect.trace import load

    if options.risks:
        from tfbisect.reporters._risks import render_risks
        from tfbisect.risks import risks

        if options.ops is not None:
            raise Usage("info", found="--risks and --ops", expected="one of them")
        trace = load(options.trace)
        write(sys.stdout, render_risks(risks(trace), trace, page(sys.stdout)))
        return 0
    pattern = regex("--ops", options.ops) if options.ops is not None else None
    write(sys.stdout, render_trace(load(options.trace), pattern, page(sys.stdout)))
    return 0
