"""Turns a comparison into text: one module a format, found by listing this folder.

Knows no files and prints nothing: the command line opens, announces and cleans up. A format `x` is a module `x.py` or
`x_report.py` here with `render(comparison, page) -> str`; modules whose names begin with "_" are helpers.
"""

import importlib
import importlib.util
import pkgutil
from dataclasses import dataclass
from pathlib import Path
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
    """The format that a file's name asks for: `result.json` is JSON; text for people otherwise."""
    suffix = "" if path is None else path.suffix.lower().removeprefix(".")
    return suffix if suffix in formats() else "terminal"


def render(comparison: Comparison, format: str, page: Page) -> str:
    """The comparison as text in one of `formats()`, ending in a newline. Raises Usage for another format."""
    for name in (format, format + _SUFFIX):
        if format in formats() and importlib.util.find_spec(f"{__name__}.{name}") is not None:
            return cast(str, importlib.import_module(f"{__name__}.{name}").render(comparison, page))
    raise Usage("format", found=format, expected="one of " + ", ".join(formats()))
