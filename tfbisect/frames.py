"""The events of a trace as columns, for tables in memory.

Knows a trace by what it asks of one (`Events`), so that the trace itself can offer it.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from tfbisect.model import NO_CALL, Graph, SiteKind, Source


class Events(Protocol):
    """The part of `tables.Trace` that is needed here."""

    calls: Any
    events: Any
    sites: Any
    graphs: Sequence[Graph]

    def source(self, stack_id: int) -> Source | None:
        """The user's line of a stack."""

    def shape(self, id: int) -> tuple[int, ...] | None:
        """A tensor shape."""

    def iteration(self, id: int) -> tuple[int, ...]:
        """A loop iteration."""

    def dtype(self, site: int) -> str:
        """The element type of a site."""


def columns(trace: Events) -> dict[str, Sequence[Any]]:
    """{name: one value for each event}.

    call (its id; None for constants, which hold for every call of their graph), thread, kind (output, arg, const,
    write), op_type, name, function, slot, dtype, iteration, shape, digest, kept (whether its value was), file, line.
    """
    events = trace.events
    constant = events["call"] == np.uint64(NO_CALL)
    rows = np.searchsorted(trace.calls["id"], events["call"])
    rows[constant] = 0
    sites = [_site(trace, number) for number in range(len(trace.sites))]
    at = events["site"].tolist()
    found: dict[str, Sequence[Any]] = {}
    ids = zip(constant.tolist(), events["call"].tolist(), strict=True)
    found["call"] = [None if none else call for none, call in ids]
    threads = trace.calls["thread"][rows].tolist() if len(trace.calls) else []
    found["thread"] = [None if none else thread for none, thread in zip(constant.tolist(), threads, strict=False)]
    for number, name in enumerate(("kind", "op_type", "name", "function", "slot", "dtype")):
        found[name] = [sites[site][number] for site in at]
    paths = {number: trace.iteration(number) for number in np.unique(events["path"]).tolist()}
    shapes = {number: trace.shape(number) for number in np.unique(events["shape"]).tolist()}
    found["iteration"] = [paths[number] for number in events["path"].tolist()]
    found["shape"] = [shapes[number] for number in events["shape"].tolist()]
    found["digest"] = events["digest"].tolist()
    found["kept"] = (events["value"] > 0).tolist()
    stacks = np.asarray([site[-1] for site in sites], np.int64)[events["site"]] if len(sites) else np.zeros(0, np.int64)
    called = trace.calls["stack"][rows] if len(trace.calls) else stacks
    stacks = np.where((stacks == 0) & ~constant, called, stacks)
    lines = {number: trace.source(number) for number in np.unique(stacks).tolist()}
    sources = [lines[number] for number in stacks.tolist()]
    found["file"] = [None if source is None else source.file for source in sources]
    found["line"] = [None if source is None else source.line for source in sources]
    return found


def _site(trace: Events, number: int) -> tuple[str, str, str, str, int, str, int]:
    graph, index, slot, kind = (int(trace.sites[column][number]) for column in ("graph", "node", "slot", "kind"))
    whole = trace.graphs[graph]
    node = whole.nodes[index]
    function = "" if whole.op >= 0 else whole.name
    return SiteKind(kind).name.lower(), node.op, node.name, function, slot, trace.dtype(number), node.stack
