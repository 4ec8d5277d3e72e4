"""`report`: the JSON of a comparison in, a report in another format out. Needs no traces."""

import argparse
from pathlib import Path

from tfbisect.commands._shared import PROGRAM, check_free, check_not_input, formats, report

HELP = "make a report of a result that was written as JSON; needs no traces"


def add(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("result", metavar="RESULT", help=f"what `{PROGRAM} compare a.h5 b.h5 -o result.json` wrote")
    parser.add_argument(
        "--format", choices=formats(), help="of the report (default: by the name of FILE, else terminal)"
    )
    parser.add_argument(
        "-o", dest="output", metavar="FILE", help="write the report to a file (html: RESULT with .html unless given)"
    )
    parser.add_argument("--force", action="store_true", help="replace FILE if it exists")


def run(options: argparse.Namespace) -> int:
    """Run it; -> the exit status of the comparison."""
    from tfbisect.result import load

    source = Path(options.result)
    output = Path(options.output) if options.output else None
    if output is None and options.format == "html":
        output = source.with_suffix(".html")  # nobody reads a page in a terminal
    if output is not None:
        check_not_input(output, [source])
        check_free(output, options.force)
    return report(load(source), options.format, output, options.force)
