"""Words, numbers and bars for people, and the way from rich to a plain string.

Every string that comes from a trace goes through `safe`: no markup, no control characters.
"""

import io
import os
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tfbisect.errors import printable
from tfbisect.model import Difference, Source
from tfbisect.reporters import Page

Block = Text | Padding

LABEL_WIDTH = 10
ULP_TOLD = 10**7  # beyond it the relative difference says more


def safe(text: object, page: Page, limit: int = 0) -> str:
    """`text` on one line without control characters, in ASCII if the page wants it, cut to `limit` (0: whole)."""
    line = printable(text)
    if not page.unicode:
        line = line.encode("ascii", "backslashreplace").decode("ascii")
    if limit and len(line) > limit:
        dots = "…" if page.unicode else "..."
        line = line[: limit - len(dots)].rstrip() + dots
    return line


def tails(texts: Sequence[str], room: int, page: Page) -> list[str]:
    """Texts cut to `room` characters each so that where they differ is seen: a common beginning goes first."""
    common = len(os.path.commonprefix(list(texts)))
    if max(map(len, texts)) > room and common > room // 2:
        dots = "…" if page.unicode else "..."
        texts = [dots + text[common - room // 4 :] for text in texts]
    return [safe(text, page, room) for text in texts]


def count(number: int, what: str) -> str:
    """`1 op`, `1,234 ops`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def place(source: Source, short: bool = True) -> str:
    """`train.py:41`: what an editor or a terminal can jump to."""
    return f"{source.base if short else source.file}:{source.line}"


def device(name: str) -> str:
    """`CPU:0` of `/job:localhost/replica:0/task:0/device:CPU:0`."""
    return name.rsplit("/device:", 1)[-1]


def size(difference: Difference) -> str:
    """How large a difference is, as one would say it."""
    if difference.kind == "shape":
        return "the shapes differ: nothing to compare element by element"
    if difference.kind == "dtype":
        return "the types differ: nothing to compare element by element"
    verb = "differs" if difference.differing == 1 else "differ"
    parts = [f"{difference.differing:,} of {count(difference.elements, 'element')} {verb}"]
    if difference.kind == "nan_payload":
        parts[0] += " in the payload of NaN only"
    elif difference.kind == "zero_sign":
        parts[0] += " in the sign of zero only"
    elif difference.max_ulp is not None:
        parts[0] += f", at most {difference.max_ulp:,} ulp" if difference.max_ulp < ULP_TOLD else ", by many ulp"
    measures = [("absolute", difference.max_abs), ("relative", difference.max_rel)]
    if difference.kind == "values" and any(value is not None for _, value in measures):
        parts.append("(" + ", ".join(f"{name} {value:.2g}" for name, value in measures if value is not None) + ")")
    if difference.nonfinite:
        parts.append(f"({difference.nonfinite:,} NaN or infinite)")
    if difference.first_index:
        parts[-1] += ","
        parts.append("first at [" + ", ".join(str(i) for i in difference.first_index) + "]")
    return " ".join(parts)


def bar(fraction: float, width: int, page: Page) -> str:
    """At least one cell for anything above zero."""
    cells = max(1, round(fraction * width)) if fraction > 0 else 0
    return ("█" if page.unicode else "#") * cells


def rows(pairs: Iterable[tuple[str, Text | str]], indent: int = 2) -> Padding:
    """A label on the left, text that wraps in its own column on the right; an empty label continues the one above."""
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(min_width=LABEL_WIDTH, style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for label, text in pairs:
        grid.add_row(Text(label), text if isinstance(text, Text) else Text(text))
    return Padding(grid, (0, 0, 0, indent))


def columns(cells: Sequence[Sequence[Text | str]], indent: int = 2, right: Sequence[int] = ()) -> Padding:
    """A small table without lines; the columns numbered in `right` are set flush right."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    for i in range(max(map(len, cells), default=0)):
        grid.add_column(justify="right" if i in right else "left", overflow="fold")
    for row in cells:
        grid.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in row))
    return Padding(grid, (0, 0, 0, indent))


def sections(parts: Iterable[Iterable[Block]], page: Page) -> str:
    """Parts as one text, an empty line between those that have something to say."""
    blocks: list[Block] = []
    for part in map(list, parts):
        if blocks and part:
            blocks.append(Text(""))
        blocks += part
    return to_string(blocks, page)


def to_string(blocks: Iterable[Block], page: Page) -> str:
    """Blocks as text of the page's width, without spaces at the ends of lines, ending in a newline."""
    stream = io.StringIO()
    console = Console(
        file=stream,
        width=page.width,
        force_terminal=page.colour,
        color_system="standard" if page.colour else None,
        no_color=not page.colour,
        markup=False,
        emoji=False,
        highlight=False,
        legacy_windows=False,
        _environ={},  # width and colour are the page's business, not the environment's
    )
    for block in blocks:
        console.print(block, soft_wrap=False)
    return "".join(line.rstrip() + "\n" for line in stream.getvalue().splitlines())
