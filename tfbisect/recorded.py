"""A recorded run for looking things up: columns as lists, events by place, links, graphs, iteration paths, lines.

Follows nothing further than one step: that is `provenance`. Calls are named by their row in `trace.calls`, events by
theirs in `trace.events`.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tfbisect.flow import Flow
from tfbisect.model import Graph, GraphKind, Node, NodeFlag, SiteKind, Source
from tfbisect.places import Places
from tfbisect.tables import Trace

Array = npt.NDArray[np.generic]
Column = Sequence[int]
"""One number for each row. A view of an array: a list of so many numbers takes five times the memory."""


class Recorded:
    """A trace and quick ways to ask it. Columns give plain numbers: NumPy's are slow to touch one by one."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.graph_of: list[int] = trace.calls["graph"].tolist()
        self.parent_row: list[int] = rows_of(trace.calls["id"], trace.calls["parent"]).tolist()
        self._flows: list[Flow | None] = [None] * len(trace.graphs)
        self._last: dict[int, dict[tuple[tuple[str, ...], int], int]] = {}
        digest = trace.info.get("digest")
        schemes = digest if isinstance(digest, dict) else {}
        self.schemes = {key: str(schemes.get(key, key)) for key in ("graph", "host")}

    # -- columns -----------------------------------------------------------------------------------------------------

    @cached_property
    def site_rows(self) -> list[tuple[int, int, int, int, int]]:
        """(graph, node, slot, kind, dtype) of each site."""
        rows: list[tuple[int, int, int, int, int]] = self.trace.sites.tolist()
        return rows

    @cached_property
    def event_site(self) -> Column:
        return column(self.trace.events["site"])

    @cached_property
    def event_path(self) -> Column:
        return column(self.trace.events["path"])

    @cached_property
    def event_digest(self) -> Column:
        return column(self.trace.events["digest"])

    @cached_property
    def event_shape(self) -> Column:
        return column(self.trace.events["shape"])

    @cached_property
    def event_call(self) -> Column:
        """The row of each event's call; -1 for constants."""
        return column(self.trace.events.call_row)

    @cached_property
    def _places(self) -> Places:
        return Places(self.trace.events, len(self.trace.calls), loops=False)

    @cached_property
    def _places_in_loops(self) -> Places:
        return Places(self.trace.events, len(self.trace.calls), loops=True)

    @cached_property
    def _constant_rows(self) -> dict[int, int]:
        """{site: event row} of constants"""
        first, sites = self.trace.events.called, self.trace.events["site"]
        return {site: row for row, site in enumerate(sites[first:].tolist(), first)}

    @cached_property
    def links(self) -> dict[tuple[int, int], tuple[int, int]]:
        """{(call row, argument): (row of the producing call, result)}; row -1: a host value; -2: not recorded."""
        table = self.trace.links
        rows = rows_of(self.trace.calls["id"], table["call"]).tolist()
        sources = rows_of(self.trace.calls["id"], table["src_call"])
        sources[(sources < 0) & (table["src_call"] >= 0)] = -2
        keys = zip(rows, table["arg"].tolist(), strict=True)
        return dict(zip(keys, zip(sources.tolist(), table["src_ret"].tolist(), strict=True), strict=True))

    @cached_property
    def first_calls(self) -> dict[int, int]:
        """{graph: its first call}"""
        return {graph: call for call, graph in reversed(list(enumerate(self.graph_of)))}

    @cached_property
    def takers(self) -> dict[tuple[int, int], list[tuple[int, int]]]:
        """{(call, result): (call, argument) of all that take it}"""
        found: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for taker, made in self.links.items():
            if made[0] >= 0:
                found.setdefault(made, []).append(taker)
        return found

    @cached_property
    def first_takers(self) -> dict[int, tuple[int, int]]:
        """{call that stands for a value of Python's: (row of the first call that takes it, argument)}"""
        hosts = [graph for graph in set(self.graph_of) if is_host_value(self.trace.graphs[graph])]
        host = np.isin(np.asarray(self.graph_of, np.int64), hosts)
        found: dict[int, tuple[int, int]] = {}
        for taker, (source, _result) in self.links.items() if hosts else ():
            if source >= 0 and host[source] and taker < found.get(source, (taker[0] + 1, 0)):
                found[source] = taker
        return found

    @cached_property
    def _graph_sites(self) -> dict[int, dict[tuple[int, int, int], int]]:
        found: dict[int, dict[tuple[int, int, int], int]] = {}
        for site, (graph, node, slot, kind, _dtype) in enumerate(self.site_rows):
            if kind == SiteKind.OUTPUT and self.trace.graphs[graph].nodes[node].flags & NodeFlag.PASSED:
                continue  # it was recorded, and is compared with a run in which it was not
            found.setdefault(graph, {}).setdefault((node, slot, kind), site)
        return found

    @cached_property
    def _site_dtypes(self) -> list[int]:
        return [row[4] for row in self.site_rows]

    # -- lookups -----------------------------------------------------------------------------------------------------

    def flow(self, call: int) -> Flow:
        """The graph that a call ran."""
        return self._flows[self.graph_of[call]] or self.flow_of_graph(self.graph_of[call])

    def flow_of_graph(self, graph: int) -> Flow:
        flow = self._flows[graph]
        if flow is None:
            sites = self._graph_sites.get(graph, {})
            flow = self._flows[graph] = Flow(self.trace.graphs[graph], sites, self._site_dtypes)
        return flow

    def row(self, call: int, site: int, path: int) -> int:
        """The event of a site in a call; -1 if there is none."""
        if call < 0 or site < 0:
            return -1
        return self._places_in_loops.row(call, site, path) if path else self._places.row(call, site)

    def rows_at(self, calls: npt.NDArray[np.integer], site: int) -> npt.NDArray[np.int64]:
        """The events of a site outside loops, in many calls; -1 where there is none."""
        return self._places.rows(calls, site)

    def constant(self, site: int) -> int:
        return self._constant_rows.get(site, -1)

    def node_of(self, row: int) -> tuple[Flow, int, int, int]:
        """(graph, node, slot, kind of site) of an event."""
        graph, node, slot, kind, _dtype = self.site_rows[self.event_site[row]]
        return self.flow_of_graph(graph), node, slot, kind

    def node(self, row: int) -> Node:
        flow, node, _slot, _kind = self.node_of(row)
        return flow.nodes[node]

    def dtype(self, row: int) -> int:
        return self.site_rows[self.event_site[row]][4]

    def host_value(self, row: int) -> bool:
        """Whether an event is a value that Python handed in, and not something an op computed."""
        site = self.event_site[row]
        if not self._is_argument[site]:
            return self._is_host_value[site]
        flow, node, _slot, _kind = self.node_of(row)
        return self.links.get((self.event_call[row], flow.nodes[node].index), (-2, 0))[0] == -1

    @cached_property
    def _is_argument(self) -> list[bool]:
        return [kind == SiteKind.ARG for _graph, _node, _slot, kind, _dtype in self.site_rows]

    @cached_property
    def _is_host_value(self) -> list[bool]:
        hosts = {graph for graph in {row[0] for row in self.site_rows} if is_host_value(self.trace.graphs[graph])}
        return [graph in hosts for graph, *_ in self.site_rows]

    @cached_property
    def is_computed(self) -> list[bool]:
        """For each site whether an op computes its events, so that Python can fetch what it computed."""
        computed = (SiteKind.OUTPUT, SiteKind.WRITE)
        return [row[3] in computed and not host for row, host in zip(self.site_rows, self._is_host_value, strict=True)]

    def scheme(self, row: int) -> str:
        """The digest scheme of an event: graphs and the host have one each."""
        return self.site_scheme(self.event_site[row])

    def site_scheme(self, site: int) -> str:
        """The digest scheme of a site's events."""
        graph, _node, _slot, kind, _dtype = self.site_rows[site]
        in_graph = kind in (SiteKind.OUTPUT, SiteKind.WRITE) and self.flow_of_graph(graph).graph.kind == GraphKind.TWIN
        return self.schemes["graph" if in_graph else "host"]

    def source(self, row: int) -> Source | None:
        """The user's line that an event belongs to."""
        flow, node, _slot, _kind = self.node_of(row)
        return self.source_of(self.event_call[row], flow, node)

    def source_of(self, call: int, flow: Flow, node: int) -> Source | None:
        return self.source_of_stack(call, flow, flow.nodes[node].stack)

    def source_of_stack(self, call: int, flow: Flow, stack: int) -> Source | None:
        """The line of a stack in the function that a call ran; that of the caller if it is no line of the function."""
        if call >= 0 and (flow.graph.kind == GraphKind.EAGER or not stack or self._is_first_caller(flow, stack)):
            stack = int(self.trace.calls["stack"][call]) or stack
        return self.trace.source(stack)

    def _is_first_caller(self, flow: Flow, stack: int) -> bool:
        """Whether a stack ends in the line that first called the function: the op is in no line of the user's.

        Such a function (Keras's train step) may be called again from elsewhere; its ops keep the stack of the tracing.
        """
        own, first = self.trace.source(stack), self._first_callers.get(flow.graph.id)
        return own is not None and first is not None and (own.file, own.line) == (first.file, first.line)

    @cached_property
    def _first_callers(self) -> dict[int, Source | None]:
        found: dict[int, Source | None] = {}
        for graph, stack in zip(self.graph_of, self.trace.calls["stack"].tolist(), strict=True):
            if graph not in found:
                found[graph] = self.trace.source(stack)
        return found

    # -- iteration paths ---------------------------------------------------------------------------------------------

    @cached_property
    def _paths(self) -> list[tuple[int, ...]]:
        """Iteration paths by id. Those that no event has get ids of their own."""
        used = self.trace.events["path"]
        return [self.trace.iteration(i) for i in range(int(used.max()) + 1 if len(used) else 1)]

    @cached_property
    def _path_ids(self) -> dict[tuple[int, ...], int]:
        return {items: i for i, items in reversed(list(enumerate(self._paths)))}

    def path(self, path: int) -> tuple[int, ...]:
        return self._paths[path] if path else ()

    def path_id(self, items: tuple[int, ...]) -> int:
        if not items:
            return 0
        found = self._path_ids.get(items)
        if found is None:
            found = self._path_ids[items] = len(self._paths)
            self._paths.append(items)
        return found

    def cut(self, path: int, depth: int) -> int:
        """The path of the surrounding loop at a depth."""
        items = self.path(path)
        return path if len(items) <= depth else self.path_id(items[:depth])

    def trips(self, call: int, frame: tuple[str, ...], path: int) -> int:
        """The number of the last iteration of a loop, in which its condition was false; -1: nothing is known of it.

        path: the surrounding iteration.
        """
        found = self._last.get(call)
        if found is None:
            found = self._last[call] = {}
            span = self.trace.events_of(int(self.trace.calls["id"][call]))
            for row in range(span.start, span.stop):
                if self.event_path[row]:
                    items = self.path(self.event_path[row])
                    outer = self.node(row).frame, self.path_id(items[:-1])
                    found[outer] = max(items[-1], found.get(outer, -1))
        return found.get((frame, path), -1)


def is_host_value(graph: Graph) -> bool:
    """Whether calls of a graph stand for values that Python handed in."""
    return graph.op >= 0 and bool(graph.nodes[graph.op].flags & NodeFlag.HOSTVALUE)


def rows_of(ids: Array, wanted: Array) -> npt.NDArray[np.int64]:
    """Where each wanted number is among the sorted ids; -1 for those that are not there."""
    if not len(ids):
        return np.full(len(wanted), -1, np.int64)
    numbers = wanted.astype(np.uint64)  # -1 becomes a number that no call has
    at = np.searchsorted(ids, numbers)
    at[at == len(ids)] = 0
    at[ids[at] != numbers] = -1
    return at


def column(values: npt.NDArray[Any]) -> Column:
    """A column as plain numbers, which are quick to touch one by one and take no memory beside the array's."""
    view: Column = (values if values.dtype.isnative else values.astype(values.dtype.newbyteorder("="))).data
    return view
