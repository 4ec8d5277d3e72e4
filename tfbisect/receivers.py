"""Receivers, found many at a time: ops of functions whose inputs lie in the same call, and of which one differs.

A shortcut of `bisector`, which judges the rest and would say the same of these. Array work: of a long run that diverged
early nearly every event is one of them.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tfbisect.collectives import is_collective
from tfbisect.equality import Equality
from tfbisect.flow import CALLS, Way
from tfbisect.model import GraphKind, NodeFlag, SiteKind
from tfbisect.reach import Bools

Ints = npt.NDArray[np.integer]

FEW = 2000  # differences up to which it is not worth it
BLOCK = 1 << 18  # differences that are looked at together
_OTHERS = NodeFlag.HOST | NodeFlag.HOSTVALUE | NodeFlag.OPAQUE


class Part(NamedTuple):
    """Some neighbouring differences, from number `first` on."""

    first: int
    plain: Bools  # whether each is a plain receiver
    counts: Ints  # how many differences went into each that is
    items: Ints  # these, one behind the other


def plain_receivers(equality: Equality, alike: Callable[[int, int], bool]) -> Iterator[Part]:
    """The plain receivers among all differences. alike: whether graphs of A and B are the same op by op."""
    count = len(equality.pairs)
    inputs = _Inputs(equality, alike)
    for low in range(0, count, BLOCK):
        size = min(BLOCK, count - low)
        if count > FEW:
            yield inputs.of(low, size)
        else:
            yield Part(low, np.zeros(size, np.bool_), np.zeros(size, np.int32), np.zeros(0, np.int32))


class _Inputs:
    def __init__(self, equality: Equality, alike: Callable[[int, int], bool]) -> None:
        self._equality, self._alike = equality, alike
        self._run, self._other = equality.a, equality.b
        self._partners = np.asarray(equality.alignment.event_to_b)
        self._known: dict[tuple[int, int], list[tuple[int, int]] | None] = {}

    def of(self, low: int, size: int) -> Part:
        """The plain receivers among `size` differences."""
        found, lengths = np.zeros(size, np.bool_), np.zeros(size, np.int32)
        edges = list(self._groups(low, low + size))
        for chosen, above in edges:
            found[chosen] = True
            lengths[chosen] = np.count_nonzero(above >= 0, axis=0)
        starts = np.cumsum(lengths) - lengths
        items = np.empty(int(lengths.sum()), np.int32)
        for chosen, above in edges:
            place = starts[chosen]
            for row in above:
                some = row >= 0
                items[place[some]] = row[some]
                place += some
        return Part(low, found, lengths, items)

    def _groups(self, low: int, high: int) -> Iterator[tuple[Ints, Ints]]:
        """(plain receivers of one op, counted from `low`; the numbers of their inputs, -1 for what is equal)."""
        run, other, numbers = self._run, self._other, self._equality.number_of.array
        rows, others = self._equality.pairs.rows[low:high], self._equality.pairs.others[low:high]
        sites = run.trace.events["site"][rows].astype(np.int64)
        calls = np.asarray(run.event_call)[rows]
        graphs = other.trace.sites["graph"][other.trace.events["site"][others]].astype(np.int64)
        keys = graphs * len(run.site_rows) + sites
        keys[(run.trace.events["path"][rows] != 0) | (calls < 0)] = -1  # loops, constants: left
        order = np.argsort(keys, kind="stable")
        starts = np.flatnonzero(np.diff(keys[order], prepend=-1))
        for chosen in np.split(order, starts)[1:]:
            graph, site = divmod(int(keys[chosen[0]]), len(run.site_rows))
            inputs = self._of_op(site, graph)
            if inputs is None:
                continue
            at = np.stack([self._rows(way, value, calls[chosen]) for way, value in inputs])
            known = np.all((at >= 0) & (self._partners[at] >= 0), axis=0)
            above = np.where(at >= 0, numbers[at], -1)
            known &= np.any(above >= 0, axis=0)
            yield chosen[known], above[:, known]

    def _of_op(self, site: int, graph_b: int) -> list[tuple[int, int]] | None:
        key = site, graph_b
        if key not in self._known:
            self._known[key] = self._ways(site, graph_b)
        return self._known[key]

    def _ways(self, site: int, graph_b: int) -> list[tuple[int, int]] | None:
        """Where the events of an op's inputs are; None for ops that take something else as well."""
        graph, number, _slot, kind, _dtype = self._run.site_rows[site]
        flow = self._run.flow_of_graph(graph)
        node = flow.nodes[number]
        if kind != SiteKind.OUTPUT or flow.graph.kind not in (GraphKind.TWIN, GraphKind.SOURCE):
            return None
        if node.flags & _OTHERS or node.op in CALLS or is_collective(node.op):
            return None
        ways = flow.ways(number)
        if not ways or any(way not in (Way.HERE, Way.ENTRY, Way.CONSTANT) for _, way, _ in ways):
            return None
        return [(way, value) for _, way, value in ways] if self._alike(graph, graph_b) else None

    def _rows(self, way: int, value: int, calls: Ints) -> Ints:
        """The events of an input in some calls; -1 where there is none."""
        if way == Way.CONSTANT:
            return np.full(len(calls), self._run.constant(value), np.int64)
        return self._run.rows_at(calls, value)
