"""`shadow`: one run of a program in which each pure op executes twice on the same inputs."""

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from tfbisect.commands._shared import add_program, page, program_of, write

HELP = "run a program once with each pure op executed twice, and name those whose results differ"


def add(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument(
        "--format", choices=("terminal", "json"), default="terminal",
        help="of the result; with json the program prints to standard error",
    )  # fmt: skip
    add_program(parser)


def run(options: argparse.Namespace) -> int:
    """Run it; -> 0 no op differed, 1 some did, 2 nothing ran twice; the program's own status if it failed."""
    from tfbisect.orchestrator import check_program
    from tfbisect.recorder import shadow

    name, *arguments = program_of(options)
    with _output_to_stderr() if options.format == "json" else contextlib.nullcontext():
        found, status = shadow.run_program(check_program(Path(name)), arguments)
    if options.format == "json":
        write(sys.stdout, json.dumps(found.to_json(), indent=2) + "\n")
    else:
        from tfbisect.reporters import _shadow

        write(sys.stdout, _shadow.render(found, page(sys.stdout)))
    return status or {"stable": 0, "unstable": 1, "nothing ran twice": 2}[found.verdict]


@contextlib.contextmanager
def _output_to_stderr() -> Iterator[None]:
    """What is written to standard output meanwhile, by C code too, goes to standard error."""
    sys.stdout.flush()
    plain = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(plain, 1)
        os.close(plain)
