"""`record`: one run of a program into a trace."""

import argparse
from pathlib import Path

from tfbisect.commands._shared import (
    ERROR,
    add_recording,
    check_free,
    check_not_input,
    check_values,
    program_of,
    say,
)

HELP = "record one run of a program into a trace"
FLUSH = False  # a program's own output is Python's to flush


def add(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("-o", dest="output", metavar="FILE", help="the trace (default: the program's name with .h5)")
    parser.add_argument(
        "--verify",
        action="store_true",
        help="run the program plainly as well, and say whether both runs left the same variables and output (1: not)",
    )
    add_recording(parser)


def run(options: argparse.Namespace) -> int:
    """Run it; -> the exit status."""
    from tfbisect.orchestrator import check_program
    from tfbisect.recorder import run_program

    name, *arguments = program_of(options)
    program = check_program(Path(name))
    output = Path(options.output or f"{program.stem}.h5")
    check_values(options.values)
    check_not_input(output, [program])
    if options.verify:
        return _verify(options, program, arguments, output)
    return run_program(
        output, program, arguments, values=options.values, force=options.force, xla=options.xla, data=options.data
    )


def _verify(options: argparse.Namespace, program: Path, arguments: list[str], output: Path) -> int:
    from tfbisect import orchestrator, verification

    check_free(output, options.force)
    what = orchestrator.Program(program, tuple(arguments), options.values, options.xla, options.data)
    verified = verification.verify(what, output, force=options.force)
    say(verified.text)
    return verified.status if verified.same else 1 if verified.repeats else ERROR
