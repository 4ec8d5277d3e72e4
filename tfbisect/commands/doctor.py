"""`doctor`: the environment, what is supported here, and which settings of determinism are on."""

import argparse
import sys

from tfbisect.commands._shared import ERROR, write
from tfbisect.errors import printable
from tfbisect.version import __version__

HELP = "show the environment, what is supported here, and the settings that decide whether programs repeat"
_WIDTH = 24


def add(parser: argparse.ArgumentParser) -> None:
    """No options."""


def run(options: argparse.Namespace) -> int:
    """Run it; -> 0 if programs can be recorded here, else 2."""
    from tfbisect.recorder import private, support

    found = support.examine()
    tensorflow = found.packages["tensorflow"] or "not installed"
    tried = "tried" if tensorflow in private.TRIED else f"not tried: {', '.join(private.TRIED)} were"
    rows = [("tfbisect", __version__), ("system", found.system), ("tensorflow", f"{tensorflow} ({tried})")]
    rows += [(name, version or "not installed") for name, version in found.packages.items() if name != "tensorflow"]
    rows += [("devices", ", ".join(found.devices) or "unknown"), ("CUDA", found.cuda), ("XLA", found.xla)]
    hooks = len(private.NAMES) - len(found.missing)
    rows += [("private names", f"{hooks} of {len(private.NAMES)} are there"), ("recording", found.recording)]
    lines = [f"{name:<{_WIDTH}}{printable(value)}\n" for name, value in rows]
    lines.append("\nsettings of determinism here (a program can set others)\n")
    width = max(_WIDTH, *map(len, found.settings)) + 2
    for name, value in found.settings.items():
        lines.append(f"  {name:<{width}}{'not set' if value is None else printable(value)}\n")
    lines += [f"\nproblem: {printable(problem)}\n" for problem in found.problems]
    lines.append("\nnext: pip install tensorflow==2.21\n" if found.problems else "\nprograms can be recorded here\n")
    write(sys.stdout, "".join(lines))
    return ERROR if found.problems else 0
