"""The commands of the command line: one module each, found by listing this folder.

A command `x` is a module `x.py` here with `HELP` (one line), `add(parser)` and `run(options)` -> exit status.
Modules whose names begin with "_" are helpers. Each command loads only what it needs, when it runs: `record` shares its
process with the program, which must be the first to import and configure numpy and TensorFlow.
"""

import argparse
import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass

_FIRST = ("run", "record", "compare")


@dataclass(frozen=True, slots=True)
class Command:
    """One command: how it is told, what it takes and what it does. `flush`: it writes to standard output itself."""

    name: str
    help: str
    add: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]
    flush: bool


def members() -> list[Command]:
    """All commands: those that most people type first, then by name."""
    names = [info.name for info in pkgutil.iter_modules(__path__) if not info.name.startswith("_")]
    order = {name: rank for rank, name in enumerate(_FIRST)}
    return [_load(name) for name in sorted(names, key=lambda name: (order.get(name, len(order)), name))]


def _load(name: str) -> Command:
    module = importlib.import_module(f"{__name__}.{name}")
    return Command(name, module.HELP, module.add, module.run, getattr(module, "FLUSH", True))
