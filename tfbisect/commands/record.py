"""`record`: one run of a program into a trace."""

import argparse
import subprocess
import sys
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
from tfbisect.errors import Usage

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
    parser.add_argument(
        "--steps", metavar="FIRST:LAST", help="record only these steps op by op, without LAST; `none`: no step"
    )
    parser.add_argument(
        "--against", metavar="TRACE", help="compare with this finished trace of another run, while the program runs"
    )
    parser.add_argument(
        "--stop-at-first",
        action="store_true",
        help="with --against: end the program, with status 1, once it differs",
    )
    # What `bisect` asks for.
    parser.add_argument("--state", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--then-stop", action="store_true", help=argparse.SUPPRESS)
    add_recording(parser)


def run(options: argparse.Namespace) -> int:
    """Run it; -> the exit status."""
    from tfbisect.orchestrator import check_program
    from tfbisect.recorder import run_program
    from tfbisect.recorder.window import Window, Wish

    name, *arguments = program_of(options)
    program = check_program(Path(name))
    output = Path(options.output or f"{program.stem}.h5")
    check_values(options.values)
    against: str | None = options.against
    check_not_input(output, [program, *([Path(against)] if against is not None else [])])
    if options.stop_at_first and against is None:
        raise Usage("--stop-at-first", found="no --against", expected="the trace of another run to compare with")
    window = Window() if options.steps is None else Window.parse(options.steps)
    wish = Wish(window, options.then_stop, options.state, against, options.stop_at_first)
    if against is not None:
        status = _check_trace(against)
        if status:
            return status
    if options.verify:
        if not wish.is_plain:
            raise Usage("--verify", found="--steps or --against beside it", expected="one of them at a time")
        return _verify(options, program, arguments, output)
    return run_program(
        output,
        program,
        arguments,
        values=options.values,
        force=options.force,
        xla=options.xla,
        data=options.data,
        wish=wish,
        ops=options.ops,
    )


def _check_trace(path: str) -> int:
    """Read a trace in a process of its own, which says what is wrong with it; -> its exit status.

    In this one it is read only when the program runs TensorFlow: reading imports numpy, which the program configures.
    """
    command = [sys.executable, "-m", "tfbisect", "info", path]
    return subprocess.run(command, stdout=subprocess.DEVNULL).returncode


def _verify(options: argparse.Namespace, program: Path, arguments: list[str], output: Path) -> int:
    from tfbisect import orchestrator, verification

    check_free(output, options.force)
    what = orchestrator.Program(program, tuple(arguments), options.values, options.xla, options.data, ops=options.ops)
    verified = verification.verify(what, output, force=options.force)
    say(verified.text)
    return verified.status if verified.same else 1 if verified.repeats else ERROR
