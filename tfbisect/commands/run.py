"""`run`: a program recorded in fresh processes, and its runs compared."""

import argparse
import sys
from pathlib import Path

from tfbisect.commands._shared import (
    Watch,
    add_recording,
    check_values,
    folder_for,
    formats,
    program_of,
    report,
    say,
    settle,
)

HELP = "record a program in fresh processes, and compare the runs"


def add(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument(
        "--times", type=int, default=2, metavar="N", help="runs at most, until one differs (default: 2)"
    )
    parser.add_argument("--all", action="store_true", help="go on to N runs when one differs, and compare them all")
    parser.add_argument("-o", dest="output", metavar="DIR", help="keep the traces in this folder")
    parser.add_argument("--format", choices=formats(), help="of the report; not terminal: the programs print to stderr")
    add_recording(parser)


def run(options: argparse.Namespace) -> int:
    """Run it; -> the exit status."""
    from tfbisect import comparison, orchestrator, progress

    check_values(options.values)
    name, *arguments = program_of(options)
    program = orchestrator.Program(
        orchestrator.check_program(Path(name)),
        tuple(arguments),
        options.values,
        options.xla,
        options.data,
        output_to_stderr=options.format not in (None, "terminal"),  # standard output then holds the report alone
    )
    with folder_for(options.output) as folder:
        watch = Watch(folder)
        compare = watch.watched(comparison.compare)
        with progress.shown(sys.stderr, watch):
            outcome = orchestrator.find_divergence(
                program, folder, options.times, compare, say, force=options.force, every=options.all
            )
            if options.values != "none":
                outcome = orchestrator.measure(program, outcome, folder, compare, say)
        status = report(outcome.comparison, options.format, None, False)
        settle(folder, outcome, given=options.output is not None)
    return status
