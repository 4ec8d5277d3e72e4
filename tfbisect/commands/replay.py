"""`replay`: one op of a trace again, alone, on its recorded inputs."""

import argparse
import importlib
import json
import sys

from tfbisect.commands._shared import quiet, write
from tfbisect.errors import Usage

HELP = "run one op of a trace again, alone, on its recorded inputs: does the kernel itself vary?"


def add(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("trace", metavar="TRACE")
    parser.add_argument(
        "op", metavar="OP", help="`function/node` as a report names it, `OpType at file.py:line`, or an op type"
    )
    parser.add_argument("--times", type=int, default=100, metavar="N", help="how often it runs (default: 100)")
    parser.add_argument(
        "--processes",
        type=int,
        default=5,
        metavar="N",
        help="fresh processes at most, as long as all results are equal (default: 5)",
    )
    parser.add_argument("--call", type=int, metavar="N", help="in this call of its function, from 0")
    parser.add_argument("--step", type=int, metavar="N", help="in this step, from 0")
    parser.add_argument("--iteration", metavar="I[,J...]", help="in this loop iteration, the outermost loop first")
    parser.add_argument("--slot", type=int, metavar="N", help="look at this output alone")
    parser.add_argument("--export", metavar="FILE.py", help="write a script that does the same, its data beside it")
    parser.add_argument("--format", choices=("terminal", "json"), default="terminal", help="of the answer")
    parser.add_argument("--force", action="store_true", help="replace the files of --export if they exist")


def run(options: argparse.Namespace) -> int:
    """Run it; -> the exit status: 0, whatever the outcome."""
    from tfbisect.replayer import replay

    with quiet():
        importlib.import_module("tfbisect.replayer.case")  # TensorFlow says a lot as it starts
    found = replay(
        options.trace,
        options.op,
        times=options.times,
        processes=options.processes,
        call=options.call,
        step=options.step,
        iteration=_iteration(options.iteration),
        slot=options.slot,
        export=options.export,
        force=options.force,
    )
    as_json = options.format == "json"
    write(sys.stdout, json.dumps(found.to_json(), indent=1) + "\n" if as_json else str(found))
    return 0


def _iteration(text: str | None) -> list[int] | None:
    if text is None:
        return None
    try:
        return [int(part) for part in text.split(",") if part.strip()]
    except ValueError as error:
        raise Usage(f"--iteration {text}", found=error, expected="numbers: --iteration 3 or --iteration 2,5") from error
