"""The ops around the culprits as a graph: what went into them, and what took the difference on, in both directions.

Decides nothing; `bisector` judged each difference and `provenance` knows where values come from.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from tfbisect.bisector import Findings, Suspect
from tfbisect.culprits import shown
from tfbisect.equality import Finding
from tfbisect.flow import Flow
from tfbisect.judgements import What
from tfbisect.model import GraphKind, Json, NodeFlag, SiteKind
from tfbisect.provenance import Kind, Ref, Run, Terminal
from tfbisect.sizes import Sizes, columns
from tfbisect.steps import Steps
from tfbisect.tables import dtype_name

SEEDS = 10  # culprits whose surroundings are told
ABOVE, BELOW, BESIDE = 150, 200, 100  # ops above the culprits, below them, and beside what is below them
WIDE = 40  # neighbours of one op that are followed

STATES = ("culprit", "undecided", "receiver", "unmatched", "unseen", "entry", "equal")
_STATE = {What.CULPRIT: "culprit", What.UNDECIDED: "undecided", What.RECEIVER: "receiver", What.QUIET: "equal"}


class _Place(NamedTuple):
    """An op in one execution: run (0 is A), graph, row of the call (-1: a constant), node, loop iteration."""

    side: int
    graph: int
    call: int
    node: int
    path: int


class Surroundings:
    """The graph around the first culprits. steps: of A and of B."""

    def __init__(self, findings: Findings, steps: Sequence[Steps], sizes: Sizes) -> None:
        self._findings, self._steps, self._sizes = findings, steps, sizes
        self._equality, self._effects = findings.equality, findings.effects
        self._alignment = findings.equality.alignment
        self._runs = (self._equality.a, self._equality.b)
        self._levels: dict[_Place, int] = {}
        self._ranks: dict[_Place, int] = {}
        self._edges: set[tuple[_Place, _Place]] = set()
        self._hidden: dict[_Place, list[int]] = {}  # neighbours above and below that are left out

    def graph(self) -> Json:
        """Nodes by number and edges from producers to consumers; `level`: ops from a culprit, negative above it."""
        seeds: list[tuple[_Place, Suspect]] = []
        for rank, suspect in enumerate(self._findings.suspects[:SEEDS]):
            place = self._of_row(suspect.side, suspect.row)
            if place not in self._ranks:
                self._ranks[place] = rank
                seeds.append((place, suspect))
        for place, _ in seeds:
            self._levels[place] = 0
        self._spread([place for place, _ in seeds], -1, ABOVE)
        for place, suspect in seeds:
            self._attach(place, suspect)
        below = self._spread([place for place, _ in seeds], +1, BELOW)
        self._beside(below)
        self._connect()
        numbers = {place: number for number, place in enumerate(self._levels)}
        self._sizes.measure(number for place in numbers for number in self._numbers(place))
        return {
            "nodes": [self._node(place, number) for place, number in numbers.items()],
            "edges": sorted([numbers[one], numbers[two]] for one, two in self._edges),
        }

    # -- walks -------------------------------------------------------------------------------------------------------

    def _spread(self, start: Iterable[_Place], direction: int, most: int) -> list[_Place]:
        """Walk up or down, nearest first, until there are so many; -> what was found."""
        waiting, found = deque(start), list[_Place]()
        while waiting:
            here = waiting.popleft()
            for other in (self._above(here) if direction < 0 else self._below(here))[:WIDE]:
                if other in self._levels:
                    continue
                if len(found) >= most:
                    return found
                self._levels[other] = self._levels[here] + direction
                found.append(other)
                waiting.append(other)
        return found

    def _attach(self, place: _Place, suspect: Suspect) -> None:
        """What took the value of an op that one run only has: the first differences below it."""
        if suspect.number >= 0 or suspect.finding is None:
            return
        for number, judged in self._findings.judgements.with_finding():
            if judged.finding is not None and _same(judged.finding, suspect.finding):
                other = self._of_row(0, self._equality.pairs[number][0])
                self._levels.setdefault(other, 1)
                self._edges.add((place, other))

    def _beside(self, places: Iterable[_Place]) -> None:
        """The equal inputs of what is below."""
        room = BESIDE
        for place in places:
            for other in self._above(place)[:WIDE]:
                if other not in self._levels and room > 0:
                    self._levels[other] = self._levels[place] - 1
                    room -= 1

    def _connect(self) -> None:
        for place in list(self._levels):
            above, below = self._above(place), self._below(place)
            self._edges.update((other, place) for other in above if other in self._levels and other != place)
            self._edges.update((place, other) for other in below if other in self._levels and other != place)
            self._hidden[place] = [sum(other not in self._levels for other in each) for each in (above, below)]

    def _above(self, place: _Place) -> list[_Place]:
        """The ops that made what an op took, and those whose differences it carries on."""
        run = self._runs[place.side]
        found: dict[_Place, None] = {}
        if place.call >= 0:
            flow = run.flow(place.call)
            for ref in self._inputs(run, flow, place):
                end = run.terminal(ref)
                found[self._of_terminal(place.side, end)] = None
                written = self._writer(run, flow, place, end)
                if written >= 0:
                    found[self._of_row(place.side, written)] = None
        for number in self._numbers(place):
            for edge in self._plain(self._findings.judgements[number].edges):
                found[self._of_row(0, self._equality.pairs[edge][0])] = None
        found.pop(place, None)
        return list(found)

    @staticmethod
    def _inputs(run: Run, flow: Flow, place: _Place) -> list[Ref]:
        node = flow.nodes[place.node]
        if node.op == "_Arg":
            made = run.argument(place.call, node.index)
            return [made] if made is not None else []
        edges = flow.data_inputs(place.node)
        return [run.input_ref(place.call, flow, place.node, edge, place.path) for edge in edges]

    @staticmethod
    def _writer(run: Run, flow: Flow, place: _Place, end: Terminal) -> int:
        """The event of the write that an op saw through a handle; -1 if there is none."""
        if end.kind != Kind.HANDLE or not run.reads_state(flow.nodes[place.node]):
            return -1
        write = run.state(Ref(place.call, place.node, 0, place.path), run.handle(end))
        return write.row if write is not None else -1

    def _below(self, place: _Place) -> list[_Place]:
        """The ops that carry an op's difference on."""
        found: dict[_Place, None] = {}
        for number in self._numbers(place):
            for follower in sorted(self._plain_followers(number))[: 4 * WIDE]:
                found[self._of_row(0, self._equality.pairs[follower][0])] = None
        found.pop(place, None)
        return list(found)

    def _plain(self, edges: Iterable[int]) -> list[int]:
        """Differences by number, mixtures taken apart."""
        events, found, waiting = len(self._equality.pairs), list[int](), list(edges)
        while waiting:
            edge = waiting.pop()
            if edge >= events:
                waiting += self._equality.mixtures[edge - events]
            else:
                found.append(edge)
        return found

    def _plain_followers(self, number: int) -> set[int]:
        events, found, waiting = len(self._equality.pairs), set[int](), list(self._effects.followers[number])
        while waiting:
            follower = waiting.pop()
            if follower >= events:
                waiting += self._effects.followers[follower]
            else:
                found.add(follower)
        return found

    # -- places ------------------------------------------------------------------------------------------------------

    def _of_row(self, side: int, row: int) -> _Place:
        """The op of an event; an op that both runs have is A's."""
        if side == 1 and self._alignment.event_to_a[row] >= 0:
            side, row = 0, self._alignment.event_to_a[row]
        run = self._runs[side]
        graph, node = run.site_rows[run.event_site[row]][:2]
        return _Place(side, graph, run.event_call[row], node, run.event_path[row])

    def _of_terminal(self, side: int, end: Terminal) -> _Place:
        if end.kind == Kind.EVENT:
            return self._of_row(side, end.row)
        call, node, _slot, path = end.ref
        partner = self._alignment.call_to_a[call] if side == 1 else -1
        if partner >= 0 and self._runs[0].graph_of[partner] == self._runs[1].graph_of[call]:
            side, call = 0, partner
        return _Place(side, self._runs[side].graph_of[call], call, node, path)

    def _rows(self, place: _Place) -> list[int]:
        """The events of an op in this execution."""
        run = self._runs[place.side]
        flow = run.flow_of_graph(place.graph)
        kind = SiteKind.CONST if place.call < 0 else SiteKind.ARG
        special = flow.sites.get((place.node, 0, kind), -1)
        if place.call < 0:
            return [run.constant(special)] if special >= 0 else []
        sites = [special] if special >= 0 else flow.sites_by_node.get(place.node, ())
        path = 0 if special >= 0 else place.path
        return [row for site in sites if (row := run.row(place.call, site, path)) >= 0]

    def _numbers(self, place: _Place) -> list[int]:
        """The differences of an op in this execution."""
        if place.side == 1:
            return []
        numbers = (self._equality.number_of.get(row) for row in self._rows(place))
        return [number for number in numbers if number is not None]

    def _state(self, place: _Place) -> str:
        if place in self._ranks:
            return "culprit"
        numbers = self._numbers(place)
        states = [_STATE[self._findings.judgements[number].what] for number in numbers]
        # A culprit that is not among those shown stands for one that is, at another time.
        states = [state for state in states if state != "equal"]
        if states:
            return min(states, key=STATES.index)
        run, rows = self._runs[place.side], self._rows(place)
        flow = run.flow_of_graph(place.graph)
        node = flow.nodes[place.node]
        if rows:
            partner = self._alignment.event_to_a if place.side else self._alignment.event_to_b
            return "equal" if any(partner[row] >= 0 for row in rows) else "unmatched"
        if run.hidden(node) or node.flags & NodeFlag.PASSED:
            return "unseen"
        handle = place.call >= 0 and run.terminal(Ref(place.call, place.node, 0, place.path)).kind == Kind.HANDLE
        return "entry" if handle else "unmatched" if place.side else "equal"

    # -- what is told ------------------------------------------------------------------------------------------------

    def _node(self, place: _Place, number: int) -> Json:
        run, rows = self._runs[place.side], self._rows(place)
        flow = run.flow_of_graph(place.graph)
        node = flow.nodes[place.node]
        if rows and node.op == "_Arg":
            name, op_type, source = shown(run, rows[0])
        else:
            name, op_type, source = node.name, node.op, run.source_of(self._call(place), flow, place.node)
        shape = run.trace.shape(run.event_shape[rows[0]]) if rows else None
        eager = flow.graph.kind in (GraphKind.EAGER, GraphKind.ENTRY)
        steps, above_below = self._steps[place.side], self._hidden[place]
        sizes = [size for each in self._numbers(place) if (size := self._sizes.get(each)) is not None]
        found: dict[str, Any] = {
            "id": number,
            "name": name,
            "op_type": op_type,
            "function": "" if eager else flow.graph.name,
            "state": self._state(place),
            "culprit": self._ranks.get(place),
            "argument": node.op == "_Arg" or bool(node.flags & NodeFlag.HOSTVALUE),
            "only_in": "b" if place.side else None,
            "level": self._levels[place],
            "step": steps.step(place.call) if place.call >= 0 else None,
            "call": steps.ordinal(place.call) if place.call >= 0 else None,
            "iteration": list(run.path(place.path)),
            "device": node.device,
            "source": source.to_json() if source is not None else None,
            "dtype": dtype_name(run.dtype(rows[0])) if rows else None,
            "shape": None if shape is None else list(shape),
            "more_above": above_below[0],
            "more_below": above_below[1],
        }
        return found | columns(sizes[0] if sizes else None)

    def _call(self, place: _Place) -> int:
        return place.call if place.call >= 0 else self._runs[place.side].first_calls[place.graph]


def _same(one: Finding, two: Finding) -> bool:
    return (one.what, one.side, one.row) == (two.what, two.side, two.row)
