"""Which call, op and event of one run is which of the other.

Pairs by what the program is (functions, lines, names, order) and never by arrival; judges nothing. Where order is
chance or tells nothing, as of callbacks and of many calls of which some are missing, values tell calls apart.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tfbisect.eventpairs import common, packed, pair_events, partners
from tfbisect.model import Graph, GraphKind, SiteKind, Source
from tfbisect.nodes import NodePairs, pair_nodes
from tfbisect.pipelines import pair_functions
from tfbisect.provenance import Run
from tfbisect.reasons import REASONS, Why
from tfbisect.recorded import Column, is_host_value
from tfbisect.recorded import column as as_column
from tfbisect.sequences import align, ranks
from tfbisect.strangers import strange_writes
from tfbisect.tables import Trace
from tfbisect.threads import (
    CALLBACK_THREAD,
    entered,
    interchangeable,
    made,
    pair_threads,
    pool,
    reordered,
    shared,
    taken,
    taken_and_made,
)

Ints = npt.NDArray[np.int64]

LEFT_OVER = 2000  # calls of callbacks that are looked at once more
# Made when Python collects garbage, whenever that is; they make no value.
UNORDERED = frozenset({
    "DestroyResourceOp", "DeleteIterator", "DeleteMultiDeviceIterator", "DeleteMemoryCache", "DeleteSeedGenerator",
    "DeleteRandomSeedGenerator", "DestroyTemporaryVariable",
})  # fmt: skip


@dataclass
class Alignment:
    """Two runs, paired. Calls are rows of `trace.calls`, events rows of `trace.events`; -1 stands for no partner."""

    a: Run
    b: Run
    call_to_b: list[int]
    call_to_a: list[int]
    by_text: bool  # lines were matched by their text: the program was edited between the runs
    rows_a: npt.NDArray[np.integer] = field(default_factory=lambda: np.zeros(0, np.int64))  # paired events
    rows_b: npt.NDArray[np.integer] = field(default_factory=lambda: np.zeros(0, np.int64))
    differs: npt.NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_))
    by_name: bool = False  # ops of other types are each other's partners where they have one name
    why: npt.NDArray[np.int8] = field(default_factory=lambda: np.zeros(0, np.int8))  # of calls of A: `Why`
    _nodes: dict[tuple[int, int], NodePairs] = field(default_factory=dict)

    @property
    def compared(self) -> int:
        return len(self.rows_a)

    @cached_property
    def event_to_b(self) -> Column:
        if self.rows_a is self.rows_b and len(self.rows_a) == len(self.a.trace.events):
            return as_column(self.rows_b)  # all of them, one by one
        return as_column(partners(self.rows_a, self.rows_b, len(self.a.trace.events)))

    @cached_property
    def event_to_a(self) -> Column:
        if self.rows_a is self.rows_b and len(self.a.trace.events) == len(self.b.trace.events):
            return self.event_to_b
        return as_column(partners(self.rows_b, self.rows_a, len(self.b.trace.events)))

    def reason(self, call: int, node: int = -1) -> str:
        """Why a call of A, and a node of its graph, has the partner it has."""
        text = REASONS[Why(int(self.why[call]))]
        if self.by_text and self.why[call] in (Why.ORDER, Why.CONTENT, Why.CALLER):
            text = text.replace("lines", "the text of lines")
        other = self.call_to_b[call]
        if other < 0 or node < 0:
            return text
        return f"{text}; {self.nodes(self.a.graph_of[call], self.b.graph_of[other]).reason(node)}"

    @cached_property
    def unpaired_calls(self) -> tuple[list[int], list[int]]:
        """Calls of one run only that ran something: in A, in B.

        What data sets call in TensorFlow's own threads is left out: how far they run ahead is a matter of chance, and
        what the program gets of it is compared where it gets it.
        """
        return _unpaired(self.a, self.call_to_b), _unpaired(self.b, self.call_to_a)

    def unpaired_events(self) -> int:
        """Events of one run only, host values left out: their ops tell of them."""
        return sum(
            int(np.count_nonzero(~host_values(run.trace)[run.trace.events["site"]] & (np.asarray(partner) < 0)))
            for run, partner in ((self.a, self.event_to_b), (self.b, self.event_to_a))
        )

    def nodes(self, graph_a: int, graph_b: int) -> NodePairs:
        """The paired nodes of two graphs that ran in paired calls."""
        key = graph_a, graph_b
        found = self._nodes.get(key)
        if found is None:
            one, two = self.a.trace.graphs[graph_a], self.b.trace.graphs[graph_b]
            if one.structure == two.structure and len(one.nodes) == len(two.nodes):
                numbers = range(len(one.nodes))
                found = NodePairs(numbers, numbers, True, frozenset())
            else:
                arguments = _pair_arguments(self, one, two)
                found = pair_nodes(self.a, one, self.b, two, arguments, any_type=self.by_name)
            self._nodes[key] = found
        return found

    @cached_property
    def first_pair(self) -> dict[tuple[int, int], tuple[int, int]]:
        """{(graph in A, graph in B): the first paired calls of them}"""
        found: dict[tuple[int, int], tuple[int, int]] = {}
        for call, other in enumerate(self.call_to_b):
            if other >= 0:
                found.setdefault((self.a.graph_of[call], self.b.graph_of[other]), (call, other))
        return found


def _unpaired(run: Run, partner: Sequence[int]) -> list[int]:
    quiet = {
        graph
        for graph in set(run.graph_of)
        if run.trace.graphs[graph].kind == GraphKind.ENTRY
        or run.trace.graphs[graph].name in UNORDERED
        or is_host_value(run.trace.graphs[graph])
    }
    threads = run.trace.calls["thread"].tolist()
    return [
        call
        for call, other in enumerate(partner)
        if other < 0
        and run.graph_of[call] not in quiet
        and (threads[call] != CALLBACK_THREAD or run.parent_row[call] >= 0)
    ]


def host_values(trace: Trace) -> npt.NDArray[np.bool_]:
    """For each site whether its events are values that Python handed in."""
    graphs = trace.sites["graph"]
    hosts = [graph for graph in np.unique(graphs).tolist() if is_host_value(trace.graphs[graph])]
    return np.isin(graphs, hosts)


def pair(a: Trace, b: Trace, *, by_name: bool = False) -> Alignment:
    """Pair the calls and events of two traces.

    by_name: also ops of one name and other types, as TensorFlow makes them where it optimizes a graph otherwise. What
    they compute is the same up to rounding, not to the bit.
    """
    run_a, run_b = Run(a), Run(b)
    found = _pair_calls(run_a, run_b, by_text=False, by_name=by_name)
    if _paired_share(found) < 0.3:
        other = _pair_calls(run_a, run_b, by_text=True, by_name=by_name)
        if _paired_share(other) > _paired_share(found):
            found = other
    events = pair_events(run_a, run_b, found.call_to_a, found.nodes, found.first_pair)
    found.rows_a, found.rows_b, found.differs = events
    return found


def _paired_share(found: Alignment) -> float:
    smaller = min(len(found.call_to_b), len(found.call_to_a))
    return sum(other >= 0 for other in found.call_to_b) / smaller if smaller else 1.0


# ---------------------------------------------------------------------------------------------------------------------
# Calls
# ---------------------------------------------------------------------------------------------------------------------


class _Keys:
    """Numbers for what makes calls alike: what ran, and the user's lines that called it."""

    def __init__(self, by_text: bool) -> None:
        self._by_text = by_text
        self._numbers: dict[Any, int] = {}

    def of(self, run: Run) -> Ints:
        """A number for each call; -1 for calls without a place in the program's order."""
        calls = run.trace.calls
        if not len(calls):
            return np.zeros(0, np.int64)
        pairs = calls["graph"].astype(np.int64) << 32 | calls["stack"]
        unique, inverse = np.unique(pairs, return_inverse=True)
        stacks: dict[int, int] = {}
        keys = []
        for item in unique.tolist():
            graph, stack = run.trace.graphs[item >> 32], item & 0xFFFFFFFF
            outside = graph.kind in (GraphKind.ENTRY, GraphKind.SOURCE)
            if outside or graph.name in UNORDERED or is_host_value(graph):
                keys.append(-1)
                continue
            if stack not in stacks:
                stacks[stack] = self._number(self._frames(run.trace, stack))
            keys.append(self._number((graph.name, graph.kind == GraphKind.EAGER, stacks[stack])))
        return np.asarray(keys, np.int64)[inverse.reshape(-1)]

    def _frames(self, trace: Trace, stack: int) -> tuple[Any, ...]:
        """A stack's frames, without the one that began the recording: two recordings begun in one program, at other
        lines, are of the same thing. What ran right there is known by how far it is from where that was."""
        sources = trace.stack(stack)
        begun = trace.options.get("begun")
        if sources and isinstance(begun, list) and [sources[0].file, sources[0].function] == begun[:2]:
            return tuple(map(self._frame, sources[1:])) or (sources[0].line - int(begun[2]),)
        return tuple(map(self._frame, sources))

    def _frame(self, source: Source) -> tuple[Any, ...]:
        line = source.text if self._by_text and source.text else source.line
        return source.base, line, source.function

    def _number(self, key: Any) -> int:
        return self._numbers.setdefault(key, len(self._numbers))


def _pair_calls(a: Run, b: Run, by_text: bool, by_name: bool) -> Alignment:
    keys = _Keys(by_text)
    keys_a, keys_b = keys.of(a), keys.of(b)
    to_b, to_a = np.full(len(keys_a), -1, np.int64), np.full(len(keys_b), -1, np.int64)
    why = np.zeros(len(keys_a), np.int8)
    _pair_top_level(a, b, keys_a, keys_b, to_b, to_a, why)
    _pair_nested(a, b, keys_a, keys_b, to_b, to_a)
    why[(to_b >= 0) & (why == Why.NONE)] = Why.CALLER
    pair_functions(a, b, to_b, to_a)
    why[(to_b >= 0) & (why == Why.NONE)] = Why.CONTENT
    found = Alignment(a, b, to_b.tolist(), to_a.tolist(), by_text, by_name=by_name, why=why)
    _pair_entries(found)
    for call in strange_writes(a, b, found.call_to_b, found.call_to_a):
        found.call_to_a[found.call_to_b[call]], found.call_to_b[call], why[call] = -1, -1, Why.NONE
    _pair_host_values(found)
    return found


def _pair_top_level(
    a: Run, b: Run, keys_a: Ints, keys_b: Ints, to_b: Ints, to_a: Ints, why: npt.NDArray[np.int8]
) -> None:
    sides = []
    for run, keys in ((a, keys_a), (b, keys_b)):
        threads = run.trace.calls["thread"].astype(np.int64)
        threads[run.trace.calls["parent"] >= 0] = CALLBACK_THREAD  # its caller did not end: nobody knows its place
        sides.append((threads, (keys >= 0) & (np.asarray(run.parent_row, np.int64) < 0)))
    (threads_a, mine_a), (threads_b, mine_b) = sides
    rows = [
        {int(thread): np.flatnonzero(mine & (threads == thread)) for thread in np.unique(threads[mine])}
        for threads, mine in ((threads_a, mine_a), (threads_b, mine_b))
    ]
    pairs_of_threads = pair_threads(a, b, keys_a, keys_b, *rows)
    shared = pool(keys_a, rows[0]) & pool(keys_b, rows[1])
    if shared and reordered(a, b, keys_a, keys_b, rows, [pair for pair in pairs_of_threads if pair[0] in shared]):
        pairs_of_threads = [pair for pair in pairs_of_threads if pair[0] not in shared and pair[1] not in shared]
        one_a, one_b = (np.sort(np.concatenate([side[thread] for thread in shared])) for side in rows)
        for i, j in interchangeable(a, b, one_a, one_b, keys_a, keys_b):
            to_b[i], to_a[j], why[i] = j, i, Why.CONTENT
    for one, two in pairs_of_threads:
        rows_a, rows_b = rows[0][one], rows[1][two]
        if one == CALLBACK_THREAD:
            pairs = _by_content(a, b, rows_a, rows_b, keys_a[rows_a], keys_b[rows_b])
        else:
            pairs = align(keys_a[rows_a], keys_b[rows_b], _Likeness(a, b, rows_a, rows_b))
        to_b[rows_a[pairs[0]]], to_a[rows_b[pairs[1]]] = rows_b[pairs[1]], rows_a[pairs[0]]
        why[rows_a[pairs[0]]] = Why.CONTENT if one == CALLBACK_THREAD else Why.ORDER


class _Likeness:
    """How alike two calls of equal key are, in equal events: tells which of many is the extra one.

    The events of a call come in any order.
    """

    def __init__(self, a: Run, b: Run, rows_a: Ints, rows_b: Ints) -> None:
        self._a, self._b, self._rows_a, self._rows_b = a, b, rows_a, rows_b

    def __call__(self, i: int, j: int) -> int:
        one, two = self._digests(self._a, int(self._rows_a[i])), self._digests(self._b, int(self._rows_b[j]))
        return shared(one, two) if len(one) == len(two) else -1

    @staticmethod
    def _digests(run: Run, call: int) -> Any:
        return run.trace.events["digest"][run.trace.events_of(int(run.trace.calls["id"][call]))]


def _by_content(a: Run, b: Run, rows_a: Ints, rows_b: Ints, keys_a: Ints, keys_b: Ints) -> tuple[Ints, Ints]:
    """Calls of callbacks whose order says nothing: by key and all that they took and made.

    What that leaves over, by key and what came into them: of those, what they made of it differs.
    """
    codes: dict[Any, int] = {}

    def paired(mine_a: Ints, mine_b: Ints, content: Callable[[Run, int], Any]) -> tuple[Ints, Ints]:
        sides = []
        for run, rows, keys, mine in ((a, rows_a, keys_a, mine_a), (b, rows_b, keys_b, mine_b)):
            calls = zip(keys[mine].tolist(), rows[mine].tolist(), strict=True)
            contents = [(key, content(run, call)) for key, call in calls]
            numbers = np.asarray([codes.setdefault(each, len(codes)) for each in contents], np.int64)
            sides.append((numbers, ranks(numbers)))
        at_a, at_b = common(*packed(*sides))
        return mine_a[at_a], mine_b[at_b]

    every = np.arange(len(rows_a)), np.arange(len(rows_b))
    found = paired(*every, lambda run, call: (taken(run, call), made(run, call)))
    rest = tuple(np.setdiff1d(all_of_them, some) for all_of_them, some in zip(every, found, strict=True))
    if not all(1 <= len(each) <= LEFT_OVER for each in rest):
        return found
    known = [
        np.asarray([place for place in each if entered(run, int(rows[place]))], np.int64)
        for run, rows, each in ((a, rows_a, rest[0]), (b, rows_b, rest[1]))
    ]
    more = paired(known[0], known[1], entered)
    return np.concatenate((found[0], more[0])), np.concatenate((found[1], more[1]))


def _pair_nested(a: Run, b: Run, keys_a: Ints, keys_b: Ints, to_b: Ints, to_a: Ints) -> None:
    """Calls inside calls (Python callbacks): by their paired parents, key and occurrence."""
    parents_a, parents_b = np.asarray(a.parent_row, np.int64), np.asarray(b.parent_row, np.int64)
    rows_a, rows_b = np.flatnonzero((parents_a >= 0) & (keys_a >= 0)), np.flatnonzero((parents_b >= 0) & (keys_b >= 0))
    while len(rows_a) and len(rows_b):
        ready_a, ready_b = to_b[parents_a[rows_a]] >= 0, to_a[parents_b[rows_b]] >= 0
        now_a, now_b = rows_a[ready_a], rows_b[ready_b]
        if not len(now_a) or not len(now_b):
            return
        group_a, group_b = packed((parents_a[now_a], keys_a[now_a]), (to_a[parents_b[now_b]], keys_b[now_b]))
        rank_a, rank_b = _order_in_groups(a, b, now_a, now_b, group_a, group_b)
        pairs = common(*packed((group_a, rank_a), (group_b, rank_b)))
        if not len(pairs[0]):
            return
        to_b[now_a[pairs[0]]], to_a[now_b[pairs[1]]] = now_b[pairs[1]], now_a[pairs[0]]
        rows_a, rows_b = rows_a[~ready_a], rows_b[~ready_b]


def _order_in_groups(a: Run, b: Run, rows_a: Ints, rows_b: Ints, groups_a: Ints, groups_b: Ints) -> tuple[Ints, Ints]:
    """Ranks within groups, such that calls of TensorFlow's own threads get equal ranks where they took and made the
    same, else where they took the same, else in order."""
    ranks_a, ranks_b = ranks(groups_a), ranks(groups_b)
    loose = a.trace.calls["thread"][rows_a] == CALLBACK_THREAD
    for group in np.unique(groups_a[(ranks_a > 0) & loose]).tolist():
        places_a, places_b = np.flatnonzero(groups_a == group), np.flatnonzero(groups_b == group)
        rest_a, rest_b = list(range(len(places_a))), list(range(len(places_b)))
        calls_a, calls_b = rows_a[places_a].tolist(), rows_b[places_b].tolist()
        rank = 0
        for content in (taken_and_made, taken):
            waiting: dict[Any, list[int]] = {}
            for j in reversed(rest_b):
                waiting.setdefault(content(b, calls_b[j]), []).append(j)
            left: list[int] = []
            for i in rest_a:
                what = content(a, calls_a[i])
                if what and waiting.get(what):
                    ranks_a[places_a[i]] = ranks_b[places_b[waiting[what].pop()]] = rank
                    rank += 1
                else:
                    left.append(i)
            rest_a, rest_b = left, sorted(j for js in waiting.values() for j in js)
        ranks_a[places_a[rest_a]] = rank + np.arange(len(rest_a))
        ranks_b[places_b[rest_b]] = rank + np.arange(len(rest_b))
    return ranks_a, ranks_b


def _pair_entries(found: Alignment) -> None:
    """What was there before recording is what its name says."""
    sides = []
    for run in (found.a, found.b):
        kinds = {graph: run.trace.graphs[graph] for graph in set(run.graph_of)}
        entries = [call for call, graph in enumerate(run.graph_of) if kinds[graph].kind == GraphKind.ENTRY]
        seen: Counter[str] = Counter()
        named = {}
        for call in entries:
            name = kinds[run.graph_of[call]].name
            named[name, seen[name]] = call
            seen[name] += 1
        sides.append(named)
    for key in sides[0].keys() & sides[1].keys():
        found.call_to_b[sides[0][key]], found.call_to_a[sides[1][key]] = sides[1][key], sides[0][key]
        found.why[sides[0][key]] = Why.NAME


def _pair_host_values(found: Alignment) -> None:
    """A value of Python's is paired through the first op that takes it."""
    takers = {taken: source for source, taken in found.b.first_takers.items()}
    for source, (call, argument) in found.a.first_takers.items():
        other = found.call_to_b[call]
        if other < 0:
            continue
        graphs = found.a.graph_of[call], found.b.graph_of[other]
        if not found.nodes(*graphs).same:
            node = found.a.trace.graphs[graphs[0]].args.get(argument, -1)
            partner = found.nodes(*graphs).to_b[node] if node >= 0 else -1
            argument = found.b.trace.graphs[graphs[1]].nodes[partner].index if partner >= 0 else -1
        there = takers.get((other, argument))
        if there is not None:
            found.call_to_b[source], found.call_to_a[there] = there, source
            found.why[source] = Why.TAKER


# ---------------------------------------------------------------------------------------------------------------------
# Arguments of functions that are not the same
# ---------------------------------------------------------------------------------------------------------------------


def _pair_arguments(found: Alignment, a: Graph, b: Graph) -> list[tuple[int, int]]:
    """Arguments of graphs that are not the same: resources by what they are, values by their bits, the rest by number.

    Whatever a function captures may be captured in another order.
    """
    calls = found.first_pair.get((a.id, b.id))
    pairs: list[tuple[int, int]] = []
    rest_a, rest_b = dict(a.args), dict(b.args)
    if calls is not None:
        keys_a, keys_b = _argument_keys(found, 0, calls[0], a), _argument_keys(found, 1, calls[1], b)
        for numbers in [n for n, key in keys_a.items() if keys_b.get(n) == key], list(keys_a):
            for number in numbers:
                other = number if keys_b.get(number) == keys_a[number] else None
                if other is None or other not in rest_b:
                    other = next((n for n, key in keys_b.items() if key == keys_a[number] and n in rest_b), None)
                if number in rest_a and other is not None and other in rest_b:
                    pairs.append((rest_a.pop(number), rest_b.pop(other)))
    pairs += [(rest_a[number], rest_b[number]) for number in rest_a.keys() & rest_b.keys()]
    return pairs


def _argument_keys(found: Alignment, side: int, call: int, graph: Graph) -> dict[int, Any]:
    """What each argument of a call is: the call in B that made a resource, or a value's bits."""
    run = found.b if side else found.a
    sites = run.flow_of_graph(graph.id).sites
    keys: dict[int, Any] = {}
    for number, node in graph.args.items():
        site = sites.get((node, 0, SiteKind.ARG), -1)
        row = run.row(call, site, 0) if site >= 0 else -1
        source, result = run.links.get((call, number), (-2, 0))
        if row >= 0:
            keys[number] = "bits", run.event_digest[row]
        elif site < 0 and source >= 0:
            maker = source if side else found.call_to_b[source]
            if maker >= 0:
                keys[number] = maker, result
    return keys
