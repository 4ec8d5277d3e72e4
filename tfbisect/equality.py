"""Whether a value was the same in both runs and, if not, which recorded difference it comes from.

Blames nothing: `bisector` does. All walks are iterative and remembered.
"""

import enum
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tfbisect.alignment import Alignment
from tfbisect.differences import Numbers, Pairs
from tfbisect.flow import CALLS, EXITS, MERGES, Flow
from tfbisect.model import CallState, NodeFlag, SiteKind, Source
from tfbisect.provenance import Handle, Kind, Ref, Terminal, Write
from tfbisect.reach import gathered
from tfbisect.upstream import above, leaves

MANY = 8  # origins beyond which a difference gets a node of its own in the graph of differences
KEPT = 64  # differences that an explanation names
_PASSED = int(NodeFlag.PASSED)


class Status(enum.IntEnum):
    """What is known of a value. Of several values the largest counts."""

    EQUAL = 0
    ENTRY = 1  # nothing recorded made it: a variable before its first recorded write
    UNKNOWN = 2
    DIFFERS = 3


class Finding(NamedTuple):
    """A difference that no differing event explains.

    what: "extra" (an op of one run only made it), "edge" (equal values, wired otherwise), "host" (Python handed in
    another value), "state" (writes that do not correspond), "order" (the same writes, another one last), "attrs" (an op
    of other attributes), "written" (the function was written otherwise), "circle" (it
    ran before another op in one run and behind it in the other). row: the event that stands for it, in run
    `side` (0 is A); other: one in B, for host values.
    """

    what: str
    side: int = 0
    row: int = -1
    writers: tuple[Write | None, Write | None] = (None, None)
    other: int = -1


class Outcome(NamedTuple):
    """How a value compares; `edges`: the differences that it comes from, by number."""

    status: Status
    edges: tuple[int, ...] = ()
    finding: Finding | None = None


Place = tuple[bool, bool, int, int, bool]
"""Sorts ops that one run has more, see `Equality._place`."""


class Extra(NamedTuple):
    """Why an event has no partner: it follows from differences (`edges`), or from ops of one run only.

    first: (place, row) of the first of these ops; None if there is none.
    """

    edges: frozenset[int] = frozenset()
    first: tuple[Place, int] | None = None
    unknown: bool = False


EQUAL, ENTRY, UNKNOWN = Outcome(Status.EQUAL), Outcome(Status.ENTRY), Outcome(Status.UNKNOWN)


def combined(outcomes: Iterable[Outcome]) -> Outcome:
    """What several values come to."""
    status, finding = Status.EQUAL, None
    edges: list[int] = []
    for outcome in outcomes:
        if outcome.status > status:
            status = outcome.status
        edges += outcome.edges
        finding = finding or outcome.finding
    if len(edges) > 1:
        edges = list(dict.fromkeys(edges))
    return Outcome(status, tuple(edges), finding) if edges or finding else Outcome(status)


class Equality:
    """Compares outputs of two aligned runs. Differences are numbered: first the differing pairs of events, in order,
    then mixtures of many (`mixtures`: the differences each is made of)."""

    def __init__(self, alignment: Alignment) -> None:
        self.alignment = alignment
        self.a, self.b = alignment.a, alignment.b
        self.runs = (self.a, self.b)
        rows = alignment.rows_a[alignment.differs]
        same = alignment.rows_a is alignment.rows_b
        self.pairs = Pairs(rows, rows if same else alignment.rows_b[alignment.differs])
        self.number_of = Numbers(self.pairs, len(self.a.trace.events))
        self.mixtures: list[tuple[int, ...]] = []
        self._mixture_of: dict[tuple[int, ...], int] = {}
        self._forwards: dict[tuple[Terminal, Terminal], Outcome] = {}
        self._extras: dict[tuple[int, int], Extra] = {}
        self._lines: dict[tuple[int, int], set[Any]] = {}  # of a function of a run
        self._equal_states: set[tuple[int, int]] = set()
        self._depth = 0

    # -- bits --------------------------------------------------------------------------------------------------------

    def same_bits(self, row_a: int, row_b: int) -> bool | None:
        """Whether two events hold the same bits; None when their digests are of different schemes."""
        a, b = self.a, self.b
        if a.dtype(row_a) != b.dtype(row_b):
            return False
        one, two = a.event_shape[row_a], b.event_shape[row_b]
        if one and two and a.trace.shape(one) != b.trace.shape(two):
            return False
        if a.scheme(row_a) == b.scheme(row_b):
            return a.event_digest[row_a] == b.event_digest[row_b]
        kept_a, kept_b = a.trace.value(row_a), b.trace.value(row_b)
        return None if kept_a is None or kept_b is None else kept_a.tobytes() == kept_b.tobytes()

    def same_handle(self, a: Handle, b: Handle) -> bool:
        """Whether two identities are the same variable, iterator or table."""
        if len(a) == 1 or len(b) == 1:
            return a == b
        return self.alignment.call_to_b[a[0]] == b[0] and a[2] == b[2]

    # -- values ------------------------------------------------------------------------------------------------------

    @cached_property
    def passed_results(self) -> list[tuple[int, int, tuple[int, ...]]]:
        """(call in A, call in B, the differences that went into it) of eager ops that a cheap recording passed by."""
        found: list[tuple[int, int, tuple[int, ...]]] = []
        graphs = self.a.trace.graphs
        passed = {
            n for n in set(self.a.graph_of) if graphs[n].op >= 0 and graphs[n].nodes[graphs[n].op].flags & _PASSED
        }
        for call in (call for call, graph in enumerate(self.a.graph_of) if graph in passed):
            other = self.alignment.call_to_b[call]
            one, two = self.a.result(call, 0), self.b.result(other, 0) if other >= 0 else None
            if one is not None and two is not None:
                edges = self.compare(one, two).edges
                found += [(call, other, edges)] if edges else []
        return found

    def compare(self, ref_a: Ref, ref_b: Ref) -> Outcome:
        """How an output of A compares with an output of B."""
        one, two = self.a.terminal(ref_a), self.b.terminal(ref_b)
        if one.kind == Kind.EVENT and two.kind == Kind.EVENT:
            return self.events(one.row, two.row)
        if one.kind == Kind.FORWARD and two.kind == Kind.FORWARD:
            return self._forward(one, two)
        return self._leaf(one, two)

    def events(self, row_a: int, row_b: int) -> Outcome:
        """How two events compare."""
        if self.alignment.event_to_b[row_a] == row_b:
            number = self.number_of.get(row_a)
            return EQUAL if number is None else Outcome(Status.DIFFERS, (number,))
        bits = self.same_bits(row_a, row_b)
        return EQUAL if bits else self._mismatch([row_a], [row_b], bits)

    def _leaf(self, one: Terminal, two: Terminal) -> Outcome:
        if one.kind == Kind.UNKNOWN or two.kind == Kind.UNKNOWN:
            return UNKNOWN
        if one.kind == Kind.EVENT and two.kind == Kind.EVENT:
            return self.events(one.row, two.row)
        if one.kind == Kind.HANDLE and two.kind == Kind.HANDLE:
            return EQUAL if self.same_handle(self.a.handle(one), self.b.handle(two)) else UNKNOWN
        if one.kind == Kind.HANDLE or two.kind == Kind.HANDLE:
            return UNKNOWN
        return self._flat(one, two)

    def _forward(self, one: Terminal, two: Terminal) -> Outcome:
        """Compares what two forwarders are made of, part by part."""
        known = self._forwards
        stack = [(one, two)]
        opened: set[tuple[Terminal, Terminal]] = set()
        while stack:
            key = stack[-1]
            if key in known:
                stack.pop()
                continue
            plan = self._plan(*key)
            if isinstance(plan, Outcome):
                known[key] = plan
                stack.pop()
                continue
            needed, alone = plan
            ends = [(self.a.terminal(x), self.b.terminal(y)) for x, y in needed]
            deeper = [
                end
                for end in ends
                if end[0].kind == end[1].kind == Kind.FORWARD and end not in known and end not in opened
            ]
            opened.add(key)
            if deeper:
                stack += deeper
                continue
            # What is still open here is part of a circle, and not known.
            outcome = combined(known.get(end, UNKNOWN) if _both_forward(end) else self._leaf(*end) for end in ends)
            if alone and outcome.status != Status.DIFFERS:
                outcome = UNKNOWN  # another choice was made, and what made it is not known to differ
            known[key] = self._mixed(outcome)
            stack.pop()
        return known[one, two]

    def _mixed(self, outcome: Outcome) -> Outcome:
        if len(outcome.edges) <= MANY:
            return outcome
        number = self._mixture_of.setdefault(outcome.edges, len(self.pairs) + len(self.mixtures))
        if number == len(self.pairs) + len(self.mixtures):
            self.mixtures.append(outcome.edges)
        return outcome._replace(edges=(number,))

    def unmixed(self, numbers: Iterable[int]) -> set[int]:
        """The differing events that differences are made of."""
        found, waiting = set[int](), list(numbers)
        while waiting:
            number = waiting.pop()
            if number >= len(self.pairs):
                waiting += self.mixtures[number - len(self.pairs)]
            else:
                found.add(number)
        return found

    @property
    def calls(self) -> npt.NDArray[np.integer]:
        """The call of A that each difference is in; -1 for constants."""
        return gathered(self.a.trace.events.call_row, self.pairs.rows)

    @property
    def sites(self) -> npt.NDArray[np.integer]:
        """The site in A of each difference."""
        return gathered(self.a.trace.events["site"], self.pairs.rows)

    def digests(self, numbers: npt.NDArray[np.integer]) -> npt.NDArray[np.integer]:
        """The digests in A of some differences."""
        found: npt.NDArray[np.integer] = self.a.trace.events["digest"][self.pairs.rows[numbers]]
        return found

    def at_sites(self, chosen: Sequence[bool]) -> npt.NDArray[np.bool_]:
        """For each difference whether its site in A is one of those chosen."""
        return gathered(np.asarray(chosen, np.bool_), self.sites)

    def _plan(self, one: Terminal, two: Terminal) -> tuple[list[tuple[Ref, Ref]], bool] | Outcome:
        """(pairs of outputs to compare, whether they only tell why another choice was made)"""
        a, b = self.a, self.b
        node_a, node_b = (run.flow(t.ref.call).nodes[t.ref.node] for run, t in ((a, one), (b, two)))
        op_a, op_b = node_a.op, node_b.op
        parts_a, parts_b = a.parts(one.ref), b.parts(two.ref)
        if (node_a.flags | node_b.flags) & _PASSED:
            alike = (op_a, node_a.attrs, one.ref.slot) == (op_b, node_b.attrs, two.ref.slot)
            if not alike or len(parts_a.values) != len(parts_b.values):
                return UNKNOWN
            return list(zip(parts_a.values, parts_b.values, strict=True)), False
        if op_a != op_b:
            return self._flat(one, two)
        if op_a in EXITS and parts_a.choice != parts_b.choice:
            return self.trip_conditions(parts_a.values[0], parts_b.values[0]), True
        if op_a in MERGES:
            choosers = list(zip(parts_a.choosers, parts_b.choosers, strict=False))
            if parts_a.choice != parts_b.choice or len(parts_a.values) != len(parts_b.values):
                return choosers, True
            values = list(zip(parts_a.values, parts_b.values, strict=True))
            return (values if parts_a.choice >= 0 else values + choosers), False
        if len(parts_a.values) != len(parts_b.values):
            return self._flat(one, two)
        return list(zip(parts_a.values, parts_b.values, strict=True)), False

    def trip_conditions(self, inside_a: Ref, inside_b: Ref) -> list[tuple[Ref, Ref]]:
        """The conditions of a loop in the iteration in which only one run went on; the refs lead into its last ones."""
        a, b = self.a, self.b
        last = min(a.path(inside_a.path)[-1:], b.path(inside_b.path)[-1:])
        found = []
        for run, ref in ((a, inside_a), (b, inside_b)):
            frame = run.flow(ref.call).nodes[ref.node].frame
            path = run.path_id((*run.path(ref.path)[:-1], *last))
            found.append(run.conditions(ref.call, frame, path))
        return list(zip(*found, strict=False))

    def _flat(self, one: Terminal, two: Terminal) -> Outcome:
        """Compares values that are put together in other ways: by the events they are made of, in order."""
        leaves_a, leaves_b = leaves(self.a, one), leaves(self.b, two)
        if leaves_a is None or leaves_b is None:
            return UNKNOWN
        if len(leaves_a) == len(leaves_b):
            bits = [self.same_bits(x, y) for x, y in zip(leaves_a, leaves_b, strict=True)]
            if all(bits):
                return EQUAL
        return self._mixed(self._mismatch(leaves_a, leaves_b, False))

    # -- values that do not correspond -------------------------------------------------------------------------------

    def _mismatch(self, rows_a: list[int], rows_b: list[int], bits: bool | None) -> Outcome:
        """Other bits, from events that are not each other's partners."""
        if all(map(self.a.host_value, rows_a)) and all(map(self.b.host_value, rows_b)):
            finding = Finding("host", 0, rows_a[0] if rows_a else -1, other=rows_b[0] if rows_b else -1)
            return Outcome(Status.DIFFERS, (), finding)
        extra_a, extra_b = self._explain_all(0, rows_a), self._explain_all(1, rows_b)
        edges = extra_a.edges | extra_b.edges
        if bits is None and not edges and not self._compiled(rows_a, rows_b):
            return UNKNOWN  # the same function, recorded in two ways
        if edges:
            return Outcome(Status.DIFFERS, tuple(sorted(edges)))
        if extra_a.unknown or extra_b.unknown:
            return UNKNOWN
        if extra_a.first or extra_b.first:
            return Outcome(Status.DIFFERS, (), _first_extra(extra_a, extra_b))
        if bits is None:
            return UNKNOWN
        return Outcome(Status.DIFFERS, (), Finding("edge"))

    def _compiled(self, *rows: list[int]) -> bool:
        """Whether one of these events is the result of a function that XLA compiled."""
        graphs = (
            (run.trace, run.node_of(row)[0].graph.id) for run, each in zip(self.runs, rows, strict=True) for row in each
        )
        return any((hidden := trace.outside(graph)) is not None and hidden.compiled for trace, graph in graphs)

    def instead_of_host_value(self, side: int, ref: Ref) -> Outcome:
        """Why one run took an op's value where the other took one of Python's, if the bits differ."""
        rows = leaves(self.runs[side], self.runs[side].terminal(ref))
        if rows is None:
            return UNKNOWN
        return self._mismatch([], rows, False) if side else self._mismatch(rows, [], False)

    def _explain_all(self, side: int, rows: Iterable[int]) -> Extra:
        return _together(self.explain(side, row) for row in rows)

    def partner(self, side: int, row: int) -> int:
        return self.alignment.event_to_a[row] if side else self.alignment.event_to_b[row]

    def number(self, side: int, row: int) -> int | None:
        """The number of the difference that an event is part of."""
        return self.number_of.get(self.alignment.event_to_a[row] if side else row)

    def explain(self, side: int, row: int) -> Extra:
        """Walks up from an event through what only one run has."""
        known = self._extras
        plans: dict[int, tuple[list[int], bool]] = {}
        stack = [row]
        while stack:
            here = stack[-1]
            if (side, here) in known:
                stack.pop()
                continue
            if here not in plans:
                found = self._explain_one(side, here)
                if found is not None:
                    known[side, here] = found
                    continue
                plans[here] = above(self.runs[side], here)
                deeper = [other for other in plans[here][0] if (side, other) not in known and other not in plans]
                if deeper:
                    stack += deeper
                    continue
            rows, complete = plans[here]
            # A row that is still open is part of a circle: not of TensorFlow's making, and not known.
            parts = [known.get((side, other), Extra(unknown=True)) for other in rows]
            itself = Extra(first=(self._place(side, here), here), unknown=not complete)
            known[side, here] = _together([itself, *parts])
            stack.pop()
        return known[side, row]

    def _explain_one(self, side: int, row: int) -> Extra | None:
        """Why an event differs or has no partner, if that can be told without a look at what went into it."""
        if self.partner(side, row) >= 0:
            number = self.number(side, row)
            return Extra(frozenset() if number is None else frozenset({number}))
        if self.runs[side].host_value(row):
            return Extra()
        why = self._one_run_only(side, row)
        return None if why is None else Extra(frozenset(why.edges), unknown=why.status != Status.DIFFERS)

    def _place(self, side: int, row: int) -> Place:
        """Sorts ops of one run: a call with a hidden inside goes before what stands in its place; then lines that the
        other run's function does not have, since where TensorFlow fuses ops otherwise the same line makes other ops;
        and a constant behind the first op that takes it."""
        run = self.runs[side]
        flow, node, _slot, _kind = run.node_of(row)
        constant = flow.nodes[node].op == "Const"
        takers = flow.consumers[node] if constant else [node]
        at = min((flow.position[taker] for taker in takers), default=0)
        call = run.event_call[row]
        return flow.nodes[node].op not in CALLS, self._has_line(side, call, flow, node), call, at, constant

    def _has_line(self, side: int, call: int, flow: Flow, node: int) -> bool:
        """Whether the function that the other run called in this place has an op of the same line."""
        calls = self.alignment.call_to_a if side else self.alignment.call_to_b
        other = calls[call] if call >= 0 else -1
        line = self.runs[side].trace.source(flow.nodes[node].stack)
        if other < 0 or line is None:
            return True
        run = self.runs[1 - side]
        key = 1 - side, run.graph_of[other]
        if key not in self._lines:
            sources = {run.trace.source(each.stack) for each in run.flow(other).nodes}
            self._lines[key] = {self._line(source) for source in sources if source is not None}
        return self._line(line) in self._lines[key]

    def _line(self, source: Source) -> Any:
        return source.text if self.alignment.by_text else (source.line, source.text)

    def _one_run_only(self, side: int, row: int) -> Outcome | None:
        """Why an op that both runs have ran in one of them only; None if just one has it."""
        run, other = self.runs[side], self.runs[1 - side]
        call, path = run.event_call[row], run.event_path[row]
        calls = self.alignment.call_to_a if side else self.alignment.call_to_b
        flow, node, _slot, kind = run.node_of(row)
        if call < 0 or calls[call] < 0 or kind in (SiteKind.ARG, SiteKind.CONST):
            return None
        there = calls[call]
        graphs = (run.graph_of[call], other.graph_of[there])
        pairs = self.alignment.nodes(*(graphs[::-1] if side else graphs))
        to_other = pairs.to_a if side else pairs.to_b
        if to_other[node] < 0:
            return None
        if other.trace.calls["state"][there] == CallState.FAILED:
            # What an error left undone comes from whatever had gone another way in that call.
            failed = self._differences_in(there if side else call)
            return Outcome(Status.DIFFERS, failed) if failed else UNKNOWN
        if self._depth > 40:
            return UNKNOWN
        self._depth += 1
        try:
            return combined(self._choices(side, call, there, node, to_other, path))
        finally:
            self._depth -= 1

    def _differences_in(self, call: int) -> tuple[int, ...]:
        """The differences in a call of A."""
        span = self.a.trace.events_of(int(self.a.trace.calls["id"][call]))
        return tuple(number for row in range(span.start, span.stop) if (number := self.number_of.get(row)) is not None)

    def _choices(
        self, side: int, call: int, there: int, node: int, to_other: Sequence[int], path: int
    ) -> Iterable[Outcome]:
        """How the loops and branches around a node were decided in both runs."""
        run, other = self.runs[side], self.runs[1 - side]
        frame, items = run.flow(call).nodes[node].frame, run.path(path)
        for depth in range(len(frame)):
            here = [(run, call), (other, there)]
            trips = [one.trips(where, frame[: depth + 1], one.path_id(items[:depth])) for one, where in here]
            if min(trips) < 0:  # the whole loop ran in one run only
                break
            if trips[0] != trips[1]:
                conditions = [
                    one.conditions(where, frame[: depth + 1], one.path_id((*items[:depth], min(trips))))
                    for one, where in here
                ]
                yield from (self._oriented(side, x, y) for x, y in zip(*conditions, strict=False))
                return
        for switch, predicate in run.predicates(call, node, path):
            twin = to_other[switch]
            if twin < 0:
                continue
            theirs = dict(other.predicates(there, to_other[node], other.path_id(items)))
            if twin in theirs:
                yield self._oriented(side, predicate, theirs[twin])

    def _oriented(self, side: int, mine: Ref, theirs: Ref) -> Outcome:
        return self.compare(theirs, mine) if side else self.compare(mine, theirs)

    # -- variables ---------------------------------------------------------------------------------------------------

    def state(self, ref_a: Ref, handle_a: Handle, ref_b: Ref, handle_b: Handle) -> Outcome:
        """How what a variable held before a node ran compares."""
        one, two = self.a.state(ref_a, handle_a), self.b.state(ref_b, handle_b)
        same = self.same_handle(handle_a, handle_b)
        read = self.a.flow(ref_a.call).pure_read(ref_a.node)
        passed: list[tuple[int, int]] = []
        while one is not None and two is not None:
            if one.row < 0 or two.row < 0:
                return UNKNOWN
            if (one.row, two.row) in self._equal_states:
                break
            if self.alignment.event_to_b[one.row] == two.row:
                number = self.number_of.get(one.row)
                if number is not None:
                    return Outcome(Status.DIFFERS, (number,))
                where = self._where(one, two) if self.a.partial(one) else EQUAL
                if where.status == Status.DIFFERS:
                    return where
            else:
                bits = self.same_bits(one.row, two.row)
                if not bits:
                    # What a plain read gives differs, so what it read does.
                    return UNKNOWN if bits is None and not read else self._writers(one, two, same, (handle_a, handle_b))
            passed.append((one.row, two.row))
            if not (self.a.partial(one) or self.b.partial(two)):
                break
            one, two = self.a.before_write(one, handle_a), self.b.before_write(two, handle_b)
        else:
            if (one is None) != (two is None):
                write = one or two
                if write is not None and write.row < 0:
                    return UNKNOWN
                return Outcome(Status.DIFFERS, (), Finding("state", writers=(one, two)))
            return ENTRY if same else UNKNOWN
        self._equal_states.update(passed)
        return EQUAL

    def _where(self, one: Write, two: Write) -> Outcome:
        """How the indices compare that equal rows were written at, and whatever else the ops took."""
        a, b = self.runs
        flows = a.flow(one.call), b.flow(two.call)
        edges = zip(flows[0].data_inputs(one.node), flows[1].data_inputs(two.node), strict=False)
        return combined(
            self.compare(
                a.input_ref(one.call, flows[0], one.node, mine, one.path),
                b.input_ref(two.call, flows[1], two.node, theirs, two.path),
            )
            for mine, theirs in edges
        )

    def _writers(self, one: Write, two: Write, same: bool, handles: tuple[Handle, Handle]) -> Outcome:
        """Last writes that are not each other's partners and left other bits."""
        partner_a, partner_b = self.alignment.event_to_b[one.row], self.alignment.event_to_a[two.row]
        if partner_a >= 0 and partner_b >= 0:
            edges = [n for n in (self.number(0, one.row), self.number(1, two.row)) if n is not None]
            threads = self.a.trace.calls["thread"]
            turns = same and threads[one.call] != threads[self.alignment.call_to_a[two.call]]
            # Threads that take turns in another order see a write of the other one too early or too late.
            if len(edges) == 2 or (edges and not turns):
                return Outcome(Status.DIFFERS, tuple(edges))
            return Outcome(Status.DIFFERS, (), Finding("order" if same else "edge", writers=(one, two)))
        # An op of one run only in a function that both ran is a matter of the function; a call of one run only is not.
        unpaired = [(0, one, partner_a, self.alignment.call_to_b), (1, two, partner_b, self.alignment.call_to_a)]
        inner = [(side, w) for side, w, partner, calls in unpaired if partner < 0 and calls[w.call] >= 0]
        found = [self.explain(side, write.row) for side, write in inner]
        paired = [self.number(side, write.row) for side, write, partner, _calls in unpaired if partner >= 0]
        edges_found = frozenset(n for n in paired if n is not None).union(*(extra.edges for extra in found))
        if edges_found:
            return Outcome(Status.DIFFERS, tuple(sorted(edges_found)))
        if any(extra.unknown for extra in found):
            return UNKNOWN
        sides = [_together(e for (at, _), e in zip(inner, found, strict=True) if at == side) for side in (0, 1)]
        if sides[0].first or sides[1].first:
            return Outcome(Status.DIFFERS, (), _first_extra(*sides))
        alone = [(side, w) for side, w, partner, calls in unpaired if partner < 0 and calls[w.call] < 0]
        if same and len(alone) == 1 and len(paired) == 1:  # one run wrote the variable once more
            side, write = alone[0]
            first = self._first_alone(side, write, (one, two)[1 - side], handles[side])
            return Outcome(Status.DIFFERS, (), Finding("extra", side, first.row))
        return Outcome(Status.DIFFERS, (), Finding("state", writers=(one, two)))

    def _first_alone(self, side: int, last: Write, other: Write, handle: Handle) -> Write:
        """The first of the writes, up to `last`, that one run did after the other one's last write."""
        calls, back = self.alignment.call_to_b, self.alignment.call_to_a
        if side:
            calls, back = back, calls
        since = back[other.call]
        more = [w for w in self.runs[side].writes[handle] if since < w.call <= last.call and calls[w.call] < 0 <= w.row]
        return min(more, key=lambda write: write.call, default=last)


def _together(extras: Iterable[Extra]) -> Extra:
    """What several explanations come to. Differences beyond KEPT are left out: any one tells that there is one."""
    edges: frozenset[int] = frozenset()
    first, unknown = None, False
    for extra in extras:
        if not extra.edges <= edges:
            edges |= extra.edges
            if len(edges) > KEPT:
                edges = frozenset(sorted(edges)[:KEPT])
        if extra.first is not None and (first is None or extra.first < first):
            first = extra.first
        unknown |= extra.unknown
    return Extra(edges, first, unknown)


def _first_extra(a: Extra, b: Extra) -> Finding:
    """The first op of one run only, A's before B's but for calls with a hidden inside and lines of one run only."""
    candidates = [(extra.first[0][:2], side, extra.first[1]) for side, extra in enumerate((a, b)) if extra.first]
    _, side, row = min(candidates)
    return Finding("extra", side, row)


def _both_forward(end: tuple[Terminal, Terminal]) -> bool:
    return end[0].kind == Kind.FORWARD and end[1].kind == Kind.FORWARD
