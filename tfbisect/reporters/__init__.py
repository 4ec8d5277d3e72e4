"""Turns a comparison into text: one module a format, found by listing this folder.

Knows no files and prints nothing: the command line opens, announces and cleans up. A format `x` is a module `x.py` or
`x_report.py` here with `render(comparison, page) -> str`; modules whose names begin with "_" are helpers.
"""

import importlib
import importlib.util
import pkgutil
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import cast

from tfbisect.errors import Usage
from tfbisect.model import Comparison

_SUFFIX = "_report"


@dataclass(frozen=True, slots=True)
class Page:
    """What the text is written for: `width` in columns; without `unicode` only ASCII may appear."""

    width: int = 80
    colour: bool = False
    unicode: bool = True


def formats() -> tuple[str, ...]:
    """The names of the formats, without importing any of them."""
    names = (info.name for info in pkgutil.iter_modules(__path__) if not info.name.startswith("_"))
    return tuple(sorted(name.removesuffix(_SUFFIX) for name in names))


def guess_format(path: Path | None) -> str:
    """The format that a file's name asks for: `result.json` is JSON; text for people otherwise.

    A format's name is a suffix for it, and so are the `SUFFIXES` that its module names.
    """
    suffix = "" if path is None else path.suffix.lower().removeprefix(".")
    if not suffix or suffix in formats():
        return suffix or "terminal"
    return next((name for name in formats() if suffix in getattr(_module(name), "SUFFIXES", ())), "terminal")


def render(comparison: Comparison, format: str, page: Page) -> str:
    """The comparison as text in one of `formats()`, ending in a newline. Raises Usage for another format."""
    if format not in formats():
        raise Usage("format", found=format, expected="one of " + ", ".join(formats()))
    return cast(str, _module(format).render(comparison, page))


def _module(format: str) -> ModuleType:
    plain = f"{__name__}.{format}"
    return importlib.import_module(plain if importlib.util.find_spec(plain) is not None else plain + _SUFFIX)
