"""`info`: what a trace holds."""

import argparse
import sys

from tfbisect.commands._shared import page, regex, write

HELP = "show what a trace holds"


def add(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("trace", metavar="TRACE")
    parser.add_argument("--ops", metavar="REGEX", help="list the ops whose name or type matches, with lines and counts")


def run(options: argparse.Namespace) -> int:
    """Run it; -> the exit status."""
    from tfbisect.reporters.terminal import render_trace
    from tfbisect.trace import load

    pattern = regex("--ops", options.ops) if options.ops is not None else None
    write(sys.stdout, render_trace(load(options.trace), pattern, page(sys.stdout)))
    return 0
