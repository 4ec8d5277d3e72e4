"""Receivers, found many at a time: ops of functions whose inputs lie in the same call, and of which one differs.

A shortcut of `bisector`, which judges the rest and would say the same of these. Array work: of a long run that diverged
early nearly every event is one of them.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from tfbisect.collectives import is_collective
from tfbisect.equality import Equality
from tfbisect.flow import CALLS, Way
from tfbisect.model import GraphKind, NodeFlag, SiteKind

Ints = npt.NDArray[np.int64]

FEW = 2000  # differences up to which it is not worth it
_OTHERS = NodeFlag.HOST | NodeFlag.HOSTVALUE | NodeFlag.OPAQUE


def plain_receivers(equality: Equality, alike: Callable[[int, int], bool]) -> dict[int, tuple[int, ...]]:
    """{number of a difference: those that went into it}. alike: whether graphs of A and B are the same op by op."""
    alignment, run, other = equality.alignment, equality.a, equality.b
    rows, others = alignment.rows_a[alignment.differs], alignment.rows_b[alignment.differs]
    found: dict[int, tuple[int, ...]] = {}
    if len(rows) <= FEW:
        return found
    events = run.trace.events
    numbers = np.full(len(events), -1, np.int64)
    numbers[rows] = np.arange(len(rows))
    paired = np.asarray(alignment.event_to_b) >= 0
    graphs = other.trace.sites["graph"][other.trace.events["site"][others]].astype(np.int64)
    keys = graphs * len(run.site_rows) + events["site"][rows]
    keys[(events["path"][rows] != 0) | (np.asarray(run.event_call)[rows] < 0)] = -1  # loops, constants: left
    order = np.argsort(keys, kind="stable")
    starts = np.flatnonzero(np.diff(keys[order], prepend=-1))
    for chosen in np.split(order, starts)[1:]:
        graph, site = divmod(int(keys[chosen[0]]), len(run.site_rows))
        inputs = _inputs(equality, site, graph, alike)
        if inputs is None:
            continue
        calls = np.asarray(run.event_call)[rows[chosen]]
        at = np.stack([_rows(equality, way, value, calls) for way, value in inputs], axis=1)
        known = np.all((at >= 0) & paired[at], axis=1)
        edges = np.where(at >= 0, numbers[at], -1)
        known &= np.any(edges >= 0, axis=1)
        for number, above in zip(chosen[known].tolist(), edges[known].tolist(), strict=True):
            found[number] = tuple(edge for edge in above if edge >= 0)
    return found


def _inputs(
    equality: Equality, site: int, graph_b: int, alike: Callable[[int, int], bool]
) -> list[tuple[int, int]] | None:
    """Where the events of an op's inputs are; None for ops that take something else as well."""
    run = equality.a
    graph, number, _slot, kind, _dtype = run.site_rows[site]
    flow = run.flow_of_graph(graph)
    node = flow.nodes[number]
    if kind != SiteKind.OUTPUT or flow.graph.kind not in (GraphKind.TWIN, GraphKind.SOURCE):
        return None
    if node.flags & _OTHERS or node.op in CALLS or is_collective(node.op):
        return None
    ways = flow.ways(number)
    if not ways or any(way not in (Way.HERE, Way.ENTRY, Way.CONSTANT) for _, way, _ in ways):
        return None
    return [(way, value) for _, way, value in ways] if alike(graph, graph_b) else None


def _rows(equality: Equality, way: int, value: int, calls: Ints) -> Ints:
    if way == Way.CONSTANT:
        return np.full(len(calls), equality.a.constant(value), np.int64)
    return equality.a.rows_at(calls, value)
