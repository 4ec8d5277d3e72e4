"""A shadow run for people at a terminal: which ops are unstable, what ran once only, what cannot be seen."""

import collections
from collections.abc import Iterator

from rich.padding import Padding
from rich.text import Text

from tfbisect.reporters import Page
from tfbisect.reporters._text import Block, columns, count, device, place, rows, safe, sections
from tfbisect.stability import Shadow

COLOURS = {"unstable": "bold red", "stable": "bold green", "nothing ran twice": "bold yellow"}
OPAQUE = 5
TYPES = 4  # op types that are named with a reason


def render(shadow: Shadow, page: Page) -> str:
    """The result as text, ending in a newline."""
    parts = (_verdict, _unstable, _once, _limits)
    return sections((part(shadow, page) for part in parts), page)


def _verdict(shadow: Shadow, page: Page) -> Iterator[Block]:
    line = Text(shadow.verdict.upper(), style=COLOURS[shadow.verdict])
    text = f"  {count(len(shadow.unstable), 'op')} of {shadow.ops:,} gave other bits for the same inputs"
    line.append(f"{text}; {count(shadow.executions, 'execution')} ran twice", style="default not bold")
    yield line


def _unstable(shadow: Shadow, page: Page) -> Iterator[Block]:
    for op in shadow.unstable:
        pairs = [("op", f"{op.op_type}: {op.differing:,} of {count(op.executions, 'execution')} differed")]
        if op.source is not None:
            pairs += [("line", place(op.source, short=False)), ("", op.source.text.strip())]
        where = f"{op.name} of {op.function}" if op.function else "run eagerly"
        pairs.append(("node", where + (f", on {device(op.device)}" if op.device else "")))
        pairs.append(("why", f"python -m tfbisect explain {op.op_type}"))
        yield rows([(label, safe(text, page)) for label, text in pairs])


def _once(shadow: Shadow, page: Page) -> Iterator[Block]:
    if not shadow.exempt and not shadow.opaque:
        return
    yield Text("Not judged", style="bold")
    reasons: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for each in shadow.exempt:
        reasons[each.reason][each.op_type] += each.count
    cells = []
    for reason, types in sorted(reasons.items(), key=lambda item: -item[1].total()):
        named = ", ".join(name for name, _ in types.most_common(TYPES)) + (", ..." if len(types) > TYPES else "")
        cells.append([f"{types.total():,}", safe(f"{reason}: {named}", page)])
    for opaque in shadow.opaque[:OPAQUE]:
        cells.append([f"{opaque.count:,}", safe(f"{opaque.name}: {opaque.reason}", page)])
    if len(shadow.opaque) > OPAQUE:
        cells.append(["", f"and {len(shadow.opaque) - OPAQUE:,} more that ran unseen"])
    yield columns(cells, right=(0,))


def _limits(shadow: Shadow, page: Page) -> Iterator[Block]:
    yield Text("Not seen this way", style="bold")
    for text in (*shadow.problems, *shadow.limits):
        yield Padding(Text(safe(text, page)), (0, 0, 0, 2))
