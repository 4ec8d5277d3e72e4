"""`completion`: a script with which a shell completes what is typed after `tfbisect`."""

import argparse
import sys

from tfbisect.commands._shared import write
from tfbisect.errors import Usage

HELP = "print a script that lets a shell complete commands, options and files"
SCRIPT = "tfbisect"  # the installed script: a shell completes no modules behind `python -m`
SHELLS = ("bash", "zsh")
_FILES = frozenset({"TRACE", "FILE", "FILE.py", "RESULT", "program.py"})
_FOLDERS = frozenset({"DIR"})


def add(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=", ".join(SHELLS))


def run(options: argparse.Namespace) -> int:
    """Run it; -> the exit status. Raises Usage without shtab."""
    try:
        import shtab
    except ImportError as error:
        raise Usage(
            "completion", found="no shtab, which writes the script", hint="pip install 'tfbisect[completion]'"
        ) from error
    parser: argparse.ArgumentParser = options.parser
    parser.prog = SCRIPT
    _mark(parser, shtab)
    write(sys.stdout, shtab.complete(parser, options.shell) + "\n")
    return 0


def _mark(parser: argparse.ArgumentParser, shtab: object) -> None:
    """Say which words are files and folders."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for sub in action.choices.values():
                _mark(sub, shtab)
        elif action.metavar in _FILES or action.metavar in _FOLDERS:
            kind = "DIRECTORY" if action.metavar in _FOLDERS else "FILE"
            action.complete = getattr(shtab, kind)  # type: ignore[attr-defined]
