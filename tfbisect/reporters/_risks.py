"""The ops of one trace that are known to vary, as text for people."""

from collections.abc import Iterator, Sequence
from typing import Protocol

from rich.text import Text

from tfbisect.model import Source
from tfbisect.reporters import Page
from tfbisect.reporters._text import Block, columns, count, place, rows, safe, to_string
from tfbisect.tables import Trace

SHOWN_OPS = 8


class _Op(Protocol):
    @property
    def op_type(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def source(self) -> Source | None: ...
    @property
    def runs(self) -> int: ...


class _Risk(Protocol):
    @property
    def title(self) -> str: ...
    @property
    def why(self) -> str: ...
    @property
    def condition(self) -> str: ...
    @property
    def cure(self) -> str: ...
    @property
    def source(self) -> str: ...
    @property
    def ops(self) -> Sequence[_Op]: ...


def render_risks(risks: Sequence[_Risk], trace: Trace, page: Page) -> str:
    """Each reason with its ops, lines, cure and source. Ends in a newline."""
    return to_string(_blocks(risks, trace, page), page)


def _blocks(risks: Sequence[_Risk], trace: Trace, page: Page) -> Iterator[Block]:
    ops = {(op.name, op.source) for risk in risks for op in risk.ops}
    if risks:
        head = f"{count(len(ops), 'op')} known to vary on this device with these settings"
        yield Text(head, style="bold")
    else:
        yield Text("No op of this trace is known to vary on its device with these settings.", style="bold")
        yield Text("That is no promise: an op that nothing is known of may vary too.")
    for risk in risks:
        yield Text("")
        yield Text(safe(risk.title, page), style="bold")
        yield columns([_line(op, page) for op in risk.ops[:SHOWN_OPS]])
        if len(risk.ops) > SHOWN_OPS:
            yield Text(f"  and {len(risk.ops) - SHOWN_OPS:,} more")
        pairs = [("why", risk.why), ("if", risk.condition), ("change", risk.cure), ("source", risk.source)]
        yield rows([(label, safe(text, page)) for label, text in pairs if text])
    if trace.opaque:
        yield Text("")
        yield Text(f"{count(len(trace.opaque), 'thing')} ran unseen and could not be looked at.")


def _line(op: _Op, page: Page) -> list[Text | str]:
    where = safe(place(op.source), page) if op.source is not None else ""
    name = safe(op.name, page, limit=40) if op.name != op.op_type else ""
    return [safe(op.op_type, page), where, f"ran {op.runs:,}x", name]
