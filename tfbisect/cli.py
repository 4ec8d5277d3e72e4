"""The command line: parse, call, print, exit. The only place that catches errors.

Exit status: 0 identical (or done), 1 diverged, 2 inconclusive or an error; `record` ends with the program's own.
"""

import argparse
import os
import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn

from tfbisect import commands
from tfbisect.commands._shared import ERROR, PROGRAM, say
from tfbisect.errors import TfbisectError, Usage, printable
from tfbisect.version import __version__

INTERRUPTED = 130
BROKEN_PIPE = 141


def run() -> NoReturn:
    """What `python -m tfbisect` and the console script call."""
    sys.exit(main())


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; -> the exit status. Errors become one message on standard error, never a traceback."""
    try:
        options = _parser().parse_args(argv)
        command: commands.Command = options.command
        status = command.run(options)
        if command.flush:
            sys.stdout.flush()
        return status
    except TfbisectError as error:
        say(f"{error.message} [{error.code}]\n  next: {error.hint}")
        return ERROR
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader went away (`| head`): let nothing be flushed into the closed pipe as the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except OSError as error:
        say(f"{printable(error.strerror or error)}: {printable(error.filename or 'input or output')} [system]")
        return ERROR
    except Exception:
        # Not Python's own exit status 1: that means "diverged" here.
        say("internal error, this is a fault of tfbisect; what follows helps to mend it")
        traceback.print_exc()
        return ERROR


class _Parser(argparse.ArgumentParser):
    """Errors in the form of all others: what, and what to type next."""

    def error(self, message: str) -> NoReturn:
        raise Usage(message, hint=f"{self.prog} --help")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog=PROGRAM,
        description="Names the TensorFlow op that diverged first between two runs of the same program.",
        epilog="Exit status: 0 identical, 1 diverged, 2 inconclusive or an error; of record: the program's own.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"tfbisect {__version__}")
    parser.set_defaults(parser=parser)  # for commands that tell of the others
    known = parser.add_subparsers(title="commands", metavar="COMMAND", required=True, parser_class=_Parser)
    for command in commands.members():
        description = command.help[0].upper() + command.help[1:] + "."
        sub = known.add_parser(command.name, help=command.help, description=description, allow_abbrev=False)
        sub.set_defaults(command=command)
        command.add(sub)
    return parser
