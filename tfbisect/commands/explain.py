"""`explain`: what the knowledge base says of an op."""

import argparse
import sys

from tfbisect.commands._shared import PROGRAM, write
from tfbisect.errors import Usage

HELP = "say what is known about an op: why it may differ, and the cure"


def add(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("op", nargs="?", metavar="OP_TYPE", help="for example ResourceScatterSub")
    parser.add_argument("--list", action="store_true", help="list what is known")


def run(options: argparse.Namespace) -> int:
    """Run it; -> the exit status."""
    from tfbisect import knowledge

    if options.list:
        write(sys.stdout, "".join(f"{op_type}\n" for op_type in knowledge.known_op_types()))
        return 0
    if options.op is None:
        raise Usage("explain", found="no op type", expected="one", hint=f"{PROGRAM} explain --list")
    write(sys.stdout, knowledge.explain(options.op) + "\n")
    return 0
