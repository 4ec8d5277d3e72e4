"""`cure`: the cheapest settings that make a program's runs identical, found by trial."""

import argparse
import json
import re
import sys
import tempfile
from pathlib import Path

from tfbisect.commands._shared import PROGRAM, add_program, page, program_of, say, write
from tfbisect.errors import Usage

HELP = "find by trial the cheapest settings that make the runs of a program identical"
STATUS = {"cured": 0, "not cured": 1, "repeats": 2, "unfinished": 2}


def add(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("--max-runs", type=int, default=30, metavar="N", help="runs at most, in all (default: 30)")
    parser.add_argument(
        "--pairs", type=int, default=3, metavar="K", help="pairs of runs that must be identical (default: 3)"
    )
    parser.add_argument(
        "--env-b", action="append", default=[], metavar="NAME=VALUE",
        help="an environment variable of the second run of each pair, for runs that differ across settings",
    )  # fmt: skip
    parser.add_argument("--format", choices=("terminal", "json"), default="terminal", help="of the result")
    add_program(parser)


def run(options: argparse.Namespace) -> int:
    """Run it; -> 0 cured, 1 not cured, 2 nothing to cure or runs used up."""
    from tfbisect import comparison, cure, trials
    from tfbisect.reporters import _cure

    name, *arguments = program_of(options)
    request = trials.Request(
        Path(name), tuple(arguments), dict(map(_variable, options.env_b)), options.max_runs, options.pairs
    )
    with tempfile.TemporaryDirectory(prefix="tfbisect-", ignore_cleanup_errors=True) as folder:
        found = cure.find_cure(request, Path(folder), comparison.compare, say)
    if options.format == "json":
        write(sys.stdout, json.dumps(found.to_json(), indent=2) + "\n")
    else:
        write(sys.stdout, _cure.render(found, page(sys.stdout)))
    return STATUS[found.verdict]


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise Usage(f"--env-b {text}", found=text, expected="NAME=VALUE", hint=f"{PROGRAM} cure --env-b MODE=fast ...")
    return name, value
