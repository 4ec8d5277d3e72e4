"""Where a value of a run came from: through forwarders, loops, branches, calls and variables, to recorded events.

Looks at one run only and judges nothing. Every walk is iterative, and what is found once is remembered.
"""

import bisect
import itertools
import operator
import re
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from tfbisect.flow import (
    CALLS,
    EXITS,
    IGNORES_STATE,
    MERGES,
    NEXTS,
    PARTIAL_WRITE,
    SWITCHES,
    VARIANT,
    Flow,
    Role,
)
from tfbisect.model import OP_BY_OP, Edge, GraphKind, Node, NodeFlag, SiteKind
from tfbisect.recorded import Recorded
from tfbisect.tables import Trace

# Ops that fill a resource which holds no bytes of its own that could be recorded: what they take is what it gives.
_FEEDERS = re.compile(
    r"^(MakeIterator|LookupTable(Import|Insert)(V2)?|InitializeTable(V2|FromTextFile(V2)?)?|TensorArray(Write|Scatter)V3|"
    r"QueueEnqueue(Many)?(V2)?)$"
)
QUEUES = re.compile("^QueueEnqueue")


# Walks that are not made again, and calls whose writes are not sorted again: a long run would fill the memory.
REMEMBERED, CALLS_REMEMBERED = 100_000, 1000
NESTED = 1000  # writes after a call that are looked through for those of calls inside it


class Ref(NamedTuple):
    """An output in one execution: row of the call, node, output slot, loop iteration (a path id of the `Run`)."""

    call: int
    node: int
    slot: int
    path: int


class Kind:
    """What a `Terminal` is."""

    EVENT, FORWARD, HANDLE, UNKNOWN = range(4)


class Terminal(NamedTuple):
    """Where a value comes from: an event (`row`), a choice or mixture of values (`ref`), an identity (`ref`)."""

    kind: int
    row: int
    ref: Ref


class Parts(NamedTuple):
    """What a FORWARD is made of: the values, what chose them, and which choice it was (a loop's: its iterations)."""

    values: tuple[Ref, ...]
    choosers: tuple[Ref, ...]
    choice: int


Handle = tuple[int, int, int] | tuple[str]
"""The identity of a variable, iterator or table: (row of the call, node, slot) that made it, or a name in a graph."""


class Write(NamedTuple):
    """A variable after an op wrote it. row -1: it may have been written, and nothing was recorded."""

    call: int
    node: int
    path: int
    row: int


class Run(Recorded):
    """A recorded run with what it takes to walk it."""

    def __init__(self, trace: Trace) -> None:
        super().__init__(trace)
        self._terminals: dict[Ref, Terminal] = {}
        self._alive: dict[tuple[int, int, int], bool | None] = {}
        self._own_writes: dict[int, dict[Handle, tuple[list[tuple[int, ...]], list[Write]]]] = {}
        self._write_calls: dict[Handle, list[int]] = {}
        self._states: dict[tuple[int, int, int, Handle], Write | None] = {}

    # -- values ------------------------------------------------------------------------------------------------------

    def input_ref(self, call: int, flow: Flow, node: int, edge: Edge, path: int) -> Ref:
        """The output that an input edge leads to, in the iteration it comes from."""
        frame = flow.nodes[edge.src].frame
        items = len(self.path(path))
        if len(frame) < items:
            path = self.cut(path, len(frame))
        elif len(frame) > items:  # out of a loop: its last iteration
            last = self.trips(call, frame, path)
            path = self.path_id((*self.path(path), max(last, 0)))
        return Ref(call, edge.src, edge.slot, path)

    def argument(self, call: int, argument: int) -> Ref | None:
        """The result of another call that an argument is; None for a host value or when it was not recorded."""
        source, result = self.links.get((call, argument), (-2, 0))
        return self.result(source, result) if source >= 0 else None

    def made(self, call: int, result: int) -> int:
        """The event of a call's result; -1 if it is none, or a choice of several."""
        key = call, result
        found = self._made.get(key)
        if found is None:
            ref = self.result(call, result)
            terminal = self.terminal(ref) if ref is not None else None
            found = terminal.row if terminal is not None and terminal.kind == Kind.EVENT else -1
            self._made[key] = found
        return found

    def taken(self, call: int) -> list[int]:
        """The digests of what a function took, by argument; resources left out."""
        flow = self.flow(call)
        sites = [flow.sites.get((node, 0, SiteKind.ARG), -1) for node in flow.graph.args.values()]
        rows = [self.row(call, site, 0) for site in sites if site >= 0]
        return [self.event_digest[row] for row in rows if row >= 0]

    @cached_property
    def _made(self) -> dict[tuple[int, int], int]:
        """What `made` knows, with the outputs of eager ops to begin with: result k is output k of the one op."""
        eager = np.zeros(len(self.site_rows), np.bool_)
        for site, (number, node, slot, kind, dtype) in enumerate(self.site_rows):
            graph = self.trace.graphs[number]
            if graph.kind == GraphKind.EAGER and kind == SiteKind.OUTPUT and node == graph.op and dtype != VARIANT:
                retval = graph.results.get(slot)
                eager[site] = retval is None or graph.nodes[retval].inputs[:1] == (Edge(node, slot),)
        rows = np.flatnonzero(eager[self.trace.events["site"]])
        calls = self.trace.events.call_row[rows].tolist()
        slots = self.trace.sites["slot"][self.trace.events["site"][rows]].tolist()
        return dict(zip(zip(calls, slots, strict=True), rows.tolist(), strict=True))

    def result(self, call: int, result: int) -> Ref | None:
        """What a call's result is within its graph."""
        flow = self.flow(call)
        retval = flow.graph.results.get(result)
        if retval is None:
            op = flow.graph.op
            return Ref(call, op, result, 0) if op >= 0 else None
        if (retval, 0, SiteKind.OUTPUT) in flow.sites:
            return Ref(call, retval, 0, 0)
        data = flow.data_inputs(retval)
        return self.input_ref(call, flow, retval, data[0], 0) if data else None

    def terminal(self, ref: Ref) -> Terminal:
        """Where a value comes from: through arguments, results and forwarders to an event or a choice."""
        known = self._terminals
        found = known.get(ref)
        passed: dict[Ref, None] = {}
        at: Ref | None = ref
        while found is None and at is not None:
            passed[at] = None
            found, at = self._step(at)
            if found is None and at is not None:
                # A circle is not of TensorFlow's making: a damaged trace.
                found = Terminal(Kind.UNKNOWN, -1, at) if at in passed else known.get(at)
        assert found is not None
        if len(known) > REMEMBERED:
            known.clear()
        for each in passed:
            known[each] = found
        return found

    def _step(self, ref: Ref) -> tuple[Terminal | None, Ref | None]:
        """One step towards the terminal: it, or where to go on."""
        call, _node, _slot, path = ref
        flow = self.flow(call)
        target = flow.target(ref.node, ref.slot)
        here = Ref(call, target.node, target.slot, path)
        row, role = -1, target.role
        if role == Role.EVENT:
            row = self.row(call, target.site, path)
        elif role == Role.CONSTANT:
            row = self.constant(target.site)
        elif role == Role.ARGUMENT:
            row = self.row(call, target.site, 0) if target.site >= 0 else -1
            following = None if row >= 0 else self.argument(call, flow.nodes[target.node].index)
            if following is not None:
                return None, following
        elif role == Role.FORWARD:
            following = self.only_part(here)
            return (None, following) if following is not None else (Terminal(Kind.FORWARD, -1, here), None)
        elif role == Role.HANDLE:
            return Terminal(Kind.HANDLE, -1, here), None
        return Terminal(Kind.EVENT if row >= 0 else Kind.UNKNOWN, row, here), None

    def only_part(self, ref: Ref) -> Ref | None:
        """The part of a FORWARD that has just one and no choosers: the head of a loop, Enter, NextIteration."""
        call, number, _slot, path = ref
        flow = self.flow(call)
        node = flow.nodes[number]
        data = flow.data_inputs(number)
        if node.op in MERGES:
            if not flow.loop_merge(number):
                return None
            items = self.path(path)
            last = items[-1] if items else 0
            for edge in data:
                if (flow.nodes[edge.src].op in NEXTS) == (last > 0):
                    if last:
                        path = self.path_id((*items[:-1], last - 1))
                    return Ref(call, edge.src, edge.slot, path)
            return None
        if len(data) != 1 or node.op in EXITS or node.flags & NodeFlag.PASSED:
            return None
        return self.input_ref(call, flow, number, data[0], path)

    def parts(self, ref: Ref) -> Parts:
        """What a FORWARD is made of."""
        call, number, _slot, path = ref
        flow = self.flow(call)
        node = flow.nodes[number]
        data = flow.data_inputs(number)
        if node.op in EXITS and data:
            value = self.input_ref(call, flow, number, data[0], path)
            frame = flow.nodes[data[0].src].frame
            last = self.path(value.path)[-1] if value.path else 0
            return Parts((value,), self.conditions(call, frame, value.path), last)
        if node.op in MERGES:
            choosers = [self._predicate(call, flow, switch, path) for switch in flow.chooses(number)]
            alive = []
            for place, edge in enumerate(data):
                if self._edge_alive(call, flow, number, edge, path) is not False:
                    alive.append((place, self.input_ref(call, flow, number, edge, path)))
            choice = alive[0][0] if len(alive) == 1 else -1
            return Parts(tuple(ref for _, ref in alive), tuple(choosers), choice)
        if node.op in SWITCHES:
            data = data[:1]
        return Parts(tuple(self.input_ref(call, flow, number, edge, path) for edge in data), (), 0)

    def conditions(self, call: int, frame: tuple[str, ...], path: int) -> tuple[Ref, ...]:
        """The predicates of a loop in an iteration of it."""
        flow = self.flow(call)
        return tuple(
            self.input_ref(call, flow, number, flow.data_inputs(number)[0], path)
            for number in flow.conditions.get(frame, ())
        )

    def _predicate(self, call: int, flow: Flow, switch: int, path: int) -> Ref:
        depth = len(flow.nodes[switch].frame)
        return self.input_ref(call, flow, switch, flow.data_inputs(switch)[1], self.cut(path, depth))

    def predicates(self, call: int, node: int, path: int) -> list[tuple[int, Ref]]:
        """(Switch, predicate) of all branches and loops that decide whether a node runs."""
        flow = self.flow(call)
        switches = sorted({switch for switch, _ in flow.guards[node]})
        return [(switch, self._predicate(call, flow, switch, path)) for switch in switches]

    # -- branches ----------------------------------------------------------------------------------------------------

    def _edge_alive(self, call: int, flow: Flow, node: int, edge: Edge, path: int) -> bool | None:
        ref = self.input_ref(call, flow, node, edge, path)
        alive = self.alive(call, ref.node, ref.path)
        if edge.slot >= 0 and edge.src in flow.switches and alive is not False:
            taken = self._taken(call, flow, edge.src, ref.path)
            if taken is None:
                return None
            return taken == edge.slot
        return alive

    def _taken(self, call: int, flow: Flow, switch: int, path: int) -> int | None:
        """The output that a Switch gave its value to, if its predicate's value was kept."""
        terminal = self.terminal(self._predicate(call, flow, switch, path))
        if terminal.kind != Kind.EVENT:
            return None
        if self.dtype(terminal.row) not in (10, 3, 9):  # bool, int32, int64
            return None
        value = self.trace.value(terminal.row)
        return int(value.reshape(-1)[0]) if value is not None and value.size == 1 else None

    def alive(self, call: int, node: int, path: int) -> bool | None:
        """Whether a node ran in an iteration. None: it cannot be told."""
        known, flow = self._alive, self.flow(call)
        stack = [(node, path)]
        opened: set[tuple[int, int]] = set()
        while stack:
            number, at = stack[-1]
            if (call, number, at) in known:
                stack.pop()
                continue
            needs = [need for need in self._alive_needs(call, flow, number, at) if (call, *need) not in known]
            fresh = [need for need in needs if need not in opened]
            opened.add((number, at))
            if fresh:
                stack += fresh
                continue
            for need in needs:  # a circle: it cannot be told
                known[(call, *need)] = None
            known[call, number, at] = self._alive_here(call, flow, number, at)
            stack.pop()
        return known[call, node, path]

    def _alive_edges(self, flow: Flow, number: int) -> list[Edge]:
        edges = flow.nodes[number].inputs
        if flow.nodes[number].op in MERGES:
            return [edge for edge in edges if flow.nodes[edge.src].op not in NEXTS]
        return list(edges)

    def _witness(self, call: int, flow: Flow, number: int, path: int) -> bool | None:
        """Whether a node has an event in an iteration; None if it never has one."""
        found = None
        for site in flow.sites_by_node.get(number, ()):
            if self.row(call, site, path) >= 0:
                return True
            found = False
        return found

    def _alive_needs(self, call: int, flow: Flow, number: int, path: int) -> list[tuple[int, int]]:
        if flow.nodes[number].op == "_Arg" or self._witness(call, flow, number, path) is not None:
            return []
        refs = [self.input_ref(call, flow, number, edge, path) for edge in self._alive_edges(flow, number)]
        return [(ref.node, ref.path) for ref in refs]

    def _alive_here(self, call: int, flow: Flow, number: int, path: int) -> bool | None:
        """Whether a node ran, once that is known of its inputs."""
        node = flow.nodes[number]
        witness = self._witness(call, flow, number, path)
        if node.op == "_Arg" or witness is not None:
            return witness is not False
        if node.op in MERGES and path and flow.loop_merge(number) and self.path(path)[-1] > 0:
            return self.path(path)[-1] <= self.trips(call, node.frame, self.cut(path, len(node.frame) - 1))
        edges = self._alive_edges(flow, number)
        found = [self._edge_alive(call, flow, number, edge, path) for edge in edges]
        if node.op in MERGES:
            data = [alive for alive, edge in zip(found, edges, strict=True) if edge.slot >= 0]
            return True if True in data else None if None in data else False
        return False if False in found else None if None in found else True

    # -- variables ---------------------------------------------------------------------------------------------------

    def handle(self, terminal: Terminal) -> Handle:
        """The identity behind a HANDLE."""
        call, node, slot, _path = terminal.ref
        graph = self.flow(call).graph
        if graph.kind in OP_BY_OP:
            return (graph.nodes[node].name,)  # made anew in each call: a variable of that name
        return call, node, slot

    @cached_property
    def writes(self) -> dict[Handle, list[Write]]:
        """All writes of each variable, by call."""
        found: dict[Handle, list[Write]] = {}
        written = np.asarray([row[3] == SiteKind.WRITE for row in self.site_rows], np.bool_)
        sites = self.trace.events["site"]
        for row in np.flatnonzero(written[sites]).tolist() if len(written) else []:
            call, path = self.event_call[row], self.event_path[row]
            flow, node, slot, _kind = self.node_of(row)
            handle = self.input_handle(call, flow, node, slot, path)
            if handle is not None:
                found.setdefault(handle, []).append(Write(call, node, path, row))
        for call in self._calls_of(lambda flow: flow.graph.kind == GraphKind.OPAQUE):
            for argument in self.flow(call).graph.args:
                following = self.argument(call, argument)
                terminal = self.terminal(following) if following is not None else None
                if terminal is not None and terminal.kind == Kind.HANDLE:
                    found.setdefault(self.handle(terminal), []).append(Write(call, self.flow(call).graph.op, 0, -1))
        for call in self._calls_of(lambda flow: bool(_silent_writers(flow))):
            flow = self.flow(call)
            for node in _silent_writers(flow):
                handles = (self.input_handle(call, flow, node, at, 0) for at in range(len(flow.data_inputs(node))))
                for handle in {handle for handle in handles if handle is not None}:
                    found.setdefault(handle, []).append(Write(call, node, 0, -1))
        for writes in found.values():
            writes.sort(key=lambda write: write.call)
        return found

    @cached_property
    def writes_in(self) -> dict[int, list[tuple[Handle, Write]]]:
        """{call: the recorded writes in it, with their variables}"""
        found: dict[int, list[tuple[Handle, Write]]] = {}
        for handle, writes in self.writes.items():
            for write in writes:
                if write.row >= 0:
                    found.setdefault(write.call, []).append((handle, write))
        return found

    def input_handle(self, call: int, flow: Flow, node: int, position: int, path: int) -> Handle | None:
        """The identity that a data input of a node is; None if it is none."""
        data = flow.data_inputs(node)
        if position >= len(data):
            return None
        terminal = self.terminal(self.input_ref(call, flow, node, data[position], path))
        return self.handle(terminal) if terminal.kind == Kind.HANDLE else None

    def _calls_of(self, wanted: Callable[[Flow], bool]) -> list[int]:
        graphs = set(self.graph_of)
        chosen = {graph for graph in graphs if wanted(self.flow_of_graph(graph))}
        return [call for call, graph in enumerate(self.graph_of) if graph in chosen]

    @cached_property
    def feeders(self) -> dict[Handle, list[tuple[int, int, int]]]:
        """(call, node, path 0) of the ops that filled a resource which is no variable."""
        found: dict[Handle, list[tuple[int, int, int]]] = {}

        def nodes(flow: Flow) -> list[int]:
            return [i for i, node in enumerate(flow.nodes) if _FEEDERS.match(node.op)]

        for call in self._calls_of(lambda flow: bool(nodes(flow))):
            flow = self.flow(call)
            for node in nodes(flow):
                for position in range(len(flow.data_inputs(node))):
                    handle = self.input_handle(call, flow, node, position, 0)
                    if handle is not None:
                        found.setdefault(handle, []).append((call, node, 0))
        return found

    @staticmethod
    def hidden(node: Node) -> bool:
        """Whether part of what a node did was not recorded."""
        if node.flags & NodeFlag.HOSTVALUE:
            return False
        return bool(node.flags & NodeFlag.OPAQUE and node.op != "Const") or node.op in CALLS

    @staticmethod
    def reads_state(node: Node) -> bool:
        return node.op not in IGNORES_STATE

    def state(self, ref: Ref, handle: Handle) -> Write | None:
        """The last write of a variable before a node ran. None: nothing recorded wrote it before."""
        key = ref.call, ref.node, ref.path, handle
        if key not in self._states:
            if len(self._states) > REMEMBERED:
                self._states.clear()
            self._states[key] = self._state(ref, handle)
        return self._states[key]

    def _state(self, ref: Ref, handle: Handle) -> Write | None:
        writes = self.writes.get(handle)
        if not writes:
            return None
        if ref.call not in self._own_writes:
            if len(self._own_writes) > CALLS_REMEMBERED:
                self._own_writes.clear()
            self._own_writes[ref.call] = self._sorted_writes(ref.call)
        moments, own = self._own_writes[ref.call].get(handle, ((), ()))
        flow = self.flow(ref.call)
        for at in range(bisect.bisect_left(moments, flow.moment(ref.node, self.path(ref.path))) - 1, -1, -1):
            if self._precedes(flow, own[at], ref.node, ref.path):
                return own[at]
        calls = self._write_calls.get(handle)
        if calls is None:
            calls = self._write_calls[handle] = [write.call for write in writes]
        low = bisect.bisect_left(calls, ref.call)
        high = bisect.bisect_right(calls, ref.call, low)
        if flow.hosts and high < len(writes):
            nested = self._nested(writes[high : high + NESTED], flow, ref)
            if nested is not None:
                return nested
        if low == 0:
            return None
        first = bisect.bisect_left(calls, calls[low - 1], 0, low)
        return self.latest(writes[first:low])

    def _sorted_writes(self, call: int) -> dict[Handle, tuple[list[tuple[int, ...]], list[Write]]]:
        """The writes of a call by variable, in an order in which they can have run, and when that is."""
        found: dict[Handle, tuple[list[tuple[int, ...]], list[Write]]] = {}
        own_moments = [(self.moment(write), handle, write) for handle, write in self.writes_in.get(call, ())]
        for moment, handle, write in sorted(own_moments, key=operator.itemgetter(0)):
            moments, own = found.setdefault(handle, ([], []))
            moments.append(moment)
            own.append(write)
        return found

    def moment(self, write: Write) -> tuple[int, ...]:
        return self.flow(write.call).moment(write.node, self.path(write.path))

    def _nested(self, later: Sequence[Write], flow: Flow, ref: Ref) -> Write | None:
        """The last write by a call that a Python callback made which ran before the node, in this very call."""
        above = flow.writes_above[ref.node]
        if not any(above & flow.writer_bit[host] for host in flow.hosts):
            return None
        inner = [write for write in later if self.inside(write.call, ref.call)]
        return self.latest([write for write in inner if write.call == inner[-1].call]) if inner else None

    def inside(self, call: int, outer: int) -> bool:
        """Whether a call ran within another one."""
        while call > outer:
            call = self.parent_row[call]
        return call == outer

    def latest(self, writes: Sequence[Write]) -> Write:
        """The last of several writes in one call."""
        return writes[0] if len(writes) == 1 else max(writes, key=self.moment)

    def _precedes(self, flow: Flow, write: Write, node: int, path: int) -> bool:
        """Whether a write is ordered before a node in the same call, by edges and iterations."""
        if write.node == node and write.path == path:
            return False
        here, there = self._common_loops(flow, node, path, write.node, write.path)
        if there != here:
            return there < here
        return bool(flow.writes_above[node] & flow.writer_bit.get(write.node, 0))

    def _common_loops(
        self, flow: Flow, node: int, path: int, other: int, other_path: int
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The iterations of two nodes in the loops that both are in."""
        frames = zip(flow.nodes[node].frame, flow.nodes[other].frame, strict=False)
        depth = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], frames))
        return self.path(path)[:depth], self.path(other_path)[:depth]

    def is_ordered(self, ref: Ref, write: Write) -> bool:
        """Whether a node of a call ran in an order that is fixed with a write of the same call."""
        flow = self.flow(ref.call)
        if self._precedes(flow, write, ref.node, ref.path):
            return True
        here, there = self._common_loops(flow, ref.node, ref.path, write.node, write.path)
        return here != there or flow.reaches(ref.node, write.node)

    def partial(self, write: Write) -> bool:
        """Whether a write left part of the variable as it was and its event tells of the rest only."""
        return PARTIAL_WRITE.search(self.flow(write.call).nodes[write.node].op) is not None

    def before_write(self, write: Write, handle: Handle) -> Write | None:
        """The write before a write."""
        return self.state(Ref(write.call, write.node, 0, write.path), handle)


def _silent_writers(flow: Flow) -> list[int]:
    """The ops of a v1 Session's graph that write a variable without an event that says what."""
    if flow.graph.kind != GraphKind.SESSION:
        return []
    heard = {node for node, _slot, kind in flow.sites if kind == SiteKind.WRITE}
    return [i for i, node in enumerate(flow.nodes) if node.flags & NodeFlag.WRITER and i not in heard]
