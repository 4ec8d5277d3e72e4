"""What one difference is by itself: whether it comes from others, begins here, or nobody can say.

Looks one hop up from a differing event; what Python had a hand in, and who is blamed, `bisector` decides.
"""

import re
from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np

from tfbisect.collectives import is_collective
from tfbisect.equality import EQUAL, UNKNOWN, Equality, Finding, Outcome, Status, combined
from tfbisect.files import READERS, Saved
from tfbisect.flow import CALLS, OVERWRITES, STRING, VARIANT, Flow, Way
from tfbisect.job import Job
from tfbisect.judgements import Judgement, What
from tfbisect.model import GraphKind, NodeFlag, SiteKind
from tfbisect.pipelines import Pipelines
from tfbisect.provenance import Kind, Ref
from tfbisect.seen import only_asked
from tfbisect.stores import Stores
from tfbisect.written import Written

_FILLS = re.compile(r"LookupTable(Import|Insert)|InitializeTable(V2)?$")  # a table with keys and values
_HOST, _WRITER = int(NodeFlag.HOST), int(NodeFlag.WRITER)


class Judge:
    """Judges the differences of two aligned runs one by one. written: the changes between their functions; they are of
    the `worker`-th worker of the job."""

    def __init__(self, equality: Equality, written: Written, job: Job, worker: int) -> None:
        self.equality, self.written, self.alignment = equality, written, equality.alignment
        self._job, self._worker = job, worker
        self.a, self.b = equality.a, equality.b
        self.pairs = equality.pairs
        self._saved = Saved(equality)
        self._stores = Stores(equality)
        self._pipelines = Pipelines(self.a, self.pairs)
        self._alike_graphs: dict[tuple[int, int], bool] = {}

    def judge(self, number: int) -> Judgement:
        """What one difference is, by itself."""
        row, other = self.pairs[number]
        kind, dtype = self.a.site_rows[self.a.event_site[row]][3:5]
        if kind == SiteKind.CONST and dtype != self.b.dtype(other):
            return Judgement(What.CULPRIT, finding=Finding("attrs", 0, row))
        if kind == SiteKind.CONST:
            return self._constant(row, other)
        if self.host(row, other):
            made = self._pipelines.before_element(row)
            return Judgement(What.RECEIVER, made) if made else Judgement(What.CULPRIT)
        if kind == SiteKind.ARG:
            return self._verdict(self._argument(row, other))
        outcome = self._inputs(row, other)
        if outcome.status != Status.DIFFERS or outcome.finding is not None:
            # The variables that one run only has are found where they are used.
            if only_asked(self.a, row) and only_asked(self.b, other):
                return Judgement(What.QUIET)
        if dtype == VARIANT and outcome.status != Status.DIFFERS:
            return Judgement(What.QUIET)
        if outcome.status < Status.UNKNOWN and self._changed(row, other):
            return Judgement(What.CULPRIT, finding=Finding("attrs", 0, row))
        graphs = self.a.node_of(row)[0].graph, self.b.node_of(other)[0].graph
        if outcome.status <= Status.UNKNOWN and graphs[0].kind == GraphKind.OPAQUE:
            # What is not known of its inputs are variables that it wrote itself, unseen.
            if self.written.change(graphs[0].id, graphs[1].id) is not None:
                return Judgement(What.CULPRIT, finding=Finding("written", 0, row))
        if is_collective(graphs[0].nodes[self.a.node_of(row)[1]].op):
            return self._verdict(outcome, "what other workers put into it was not recorded")
        if outcome.status < Status.UNKNOWN and not self._job.alone and self._hides_collectives(row):
            reason = "what ran inside it was not seen, and may have taken what other workers made"
            return Judgement(What.UNDECIDED, reason=reason)
        return self._verdict(outcome)

    def _hides_collectives(self, row: int) -> bool:
        """Whether collective ops may have run unseen inside an op."""
        flow, node, _slot, _kind = self.a.node_of(row)
        return flow.graph.kind == GraphKind.OPAQUE or flow.nodes[node].op in CALLS

    def _constant(self, row: int, other: int) -> Judgement:
        """A constant of a function: Python's, unless TensorFlow made it of others."""
        judged = Judgement(What.CULPRIT)
        if self.a.node(row).flags & NodeFlag.OPAQUE:
            judged = Judgement(What.UNDECIDED, reason="TensorFlow made this constant of others that were not recorded")
        elif any(edge.slot >= 0 for edge in self.a.node(row).inputs):
            judged = self._folded(row)
        if judged.what != What.RECEIVER:
            graphs = self.a.node_of(row)[0].graph.id, self.b.node_of(other)[0].graph.id
            change = self.written.change(*graphs, self.names(row, other))
            itself = change is not None and self.written.name(change) == self.a.node(row).name
            if change is not None and not (judged.what == What.CULPRIT and itself):
                return Judgement(What.CULPRIT, finding=Finding("written", 0, row))
        return judged

    def names(self, row: int, other: int) -> tuple[str, str]:
        """The names of the op that made two events."""
        return self.a.node(row).name, self.b.node(other).name

    def _folded(self, row: int) -> Judgement:
        """A constant that was folded from others differs because one of them does."""
        flow, node, _slot, _kind = self.a.node_of(row)
        sites = [flow.sites.get((edge.src, 0, SiteKind.CONST), -1) for edge in flow.data_inputs(node)]
        numbers = [self.equality.number_of.get(self.a.constant(site)) for site in sites if site >= 0]
        edges = tuple(number for number in numbers if number is not None)
        if edges:
            return Judgement(What.RECEIVER, edges)
        return Judgement(What.UNDECIDED, reason="it is folded from equal constants and something that was not recorded")

    def _verdict(self, outcome: Outcome, unknown: str = "an input of it was not recorded") -> Judgement:
        if outcome.edges:
            return Judgement(What.RECEIVER, outcome.edges, outcome.finding)
        if outcome.finding is not None:
            return Judgement(What.CULPRIT, finding=outcome.finding)
        if outcome.status == Status.UNKNOWN:
            return Judgement(What.UNDECIDED, reason=unknown)
        return Judgement(What.CULPRIT, entry=outcome.status == Status.ENTRY)

    def _argument(self, row: int, other: int) -> Outcome:
        """An argument of a call is what the caller made; equal there and different here cannot be."""
        refs = [run.argument(run.event_call[at], run.node(at).index) for run, at in ((self.a, row), (self.b, other))]
        one, two = refs
        if one is None and two is not None and self.a.host_value(row):
            outcome = self.equality.instead_of_host_value(1, two)
        elif two is None and one is not None and self.b.host_value(other):
            outcome = self.equality.instead_of_host_value(0, one)
        elif one is None or two is None:
            return UNKNOWN
        else:
            outcome = self.equality.compare(one, two)
        return outcome if outcome.status == Status.DIFFERS else UNKNOWN

    def _inputs(self, row: int, other: int) -> Outcome:
        """How the inputs of a differing event compare."""
        a, b = self.a, self.b
        graph_a, node_a, _slot, kind, _dtype = a.site_rows[a.event_site[row]]
        graph_b, node_b = b.site_rows[b.event_site[other]][:2]
        flow_a, flow_b = a.flow_of_graph(graph_a), b.flow_of_graph(graph_b)
        call_a, call_b, path = a.event_call[row], b.event_call[other], a.event_path[row]
        ways = flow_a.ways(node_a)
        if len(flow_a.data_inputs(node_a)) != len(flow_b.data_inputs(node_b)):
            return Outcome(Status.DIFFERS, (), Finding("attrs", 0, row))
        if flow_a.nodes[node_a].op in READERS and (saved := self._saved.before(call_a)):
            return Outcome(Status.DIFFERS, saved)
        edges: list[int] = []
        slow: list[Outcome] = []
        same = self.alike(graph_a, graph_b)
        partners, numbers = self.alignment.event_to_b, self.equality.number_of
        walked = -1
        for place, way, value in ways:
            at = -1
            # In functions of equal structure the partner of an input's event is the event of the partner's input.
            if not same or way == Way.WALK:
                pass
            elif way == Way.HERE:
                at = a.row(call_a, value, path)
            elif way == Way.ENTRY:
                at = a.row(call_a, value, 0)
            elif way == Way.CONSTANT:
                at = a.constant(value)
            else:
                at = self._made_alike(call_a, call_b, value)
            if at >= 0 and partners[at] >= 0:
                number = numbers.get(at)
                if number is not None:
                    edges.append(number)
            elif place != walked:
                walked = place
                slow.append(self._input(row, other, flow_a, flow_b, place))
        flags = flow_a.flags[node_a]
        if flags & _HOST or flow_a.nodes[node_a].op in CALLS:
            slow += self._callbacks(call_a)
        if kind == SiteKind.WRITE:
            slow += self._stores.earlier_writes(row, other)
        if is_collective(flow_a.nodes[node_a].op):
            slow += self._job.inputs(self._worker, row, other)
        if not slow:
            return Outcome(Status.DIFFERS, tuple(edges)) if edges else EQUAL
        return combined([Outcome(Status.DIFFERS, tuple(edges)), *slow] if edges else slow)

    def _input(self, row: int, other: int, flow_a: Flow, flow_b: Flow, place: int) -> Outcome:
        """How one input of a differing event compares."""
        a, b = self.a, self.b
        node_a, kind = a.site_rows[a.event_site[row]][1::2]
        node_b = b.site_rows[b.event_site[other]][1]
        call_a, call_b = a.event_call[row], b.event_call[other]
        path_a, path_b = a.event_path[row], b.event_path[other]
        ref_a = a.input_ref(call_a, flow_a, node_a, flow_a.data_inputs(node_a)[place], path_a)
        ref_b = b.input_ref(call_b, flow_b, node_b, flow_b.data_inputs(node_b)[place], path_b)
        one, two = a.terminal(ref_a), b.terminal(ref_b)
        if one.kind != Kind.HANDLE or two.kind != Kind.HANDLE:
            return self.equality.compare(ref_a, ref_b)
        node = flow_a.nodes[node_a]
        overwrites = kind == SiteKind.WRITE and node.op in OVERWRITES
        if overwrites or not (a.reads_state(node) or flow_a.flags[node_a] & _WRITER):
            return EQUAL
        handle_a, handle_b = a.handle(one), b.handle(two)
        made = self._pipelines.before(handle_a, row)
        if made:
            return Outcome(Status.DIFFERS, made)
        queued = self._stores.queued(row, handle_a, handle_b)
        if queued is not None:
            return queued
        return self._behind(Ref(call_a, node_a, 0, path_a), handle_a, Ref(call_b, node_b, 0, path_b), handle_b)

    def alike(self, graph_a: int, graph_b: int) -> bool:
        """Whether two graphs have equal structure, and constants with one partner each."""
        key = graph_a, graph_b
        alike = self._alike_graphs.get(key)
        if alike is None:
            one, two = self.a.trace.graphs[graph_a].structure, self.b.trace.graphs[graph_b].structure
            alike = self._alike_graphs[key] = one == two and not self._shared_constants(graph_a)
        return alike

    def _made_alike(self, call_a: int, call_b: int, argument: int) -> int:
        """The event in A of an argument that partners made in the same way; else -1."""
        source, result = self.a.links.get((call_a, argument), (-2, 0))
        if source < 0 or self.b.links.get((call_b, argument)) != (self.alignment.call_to_b[source], result):
            return -1
        partner = self.alignment.call_to_b[source]
        alike = self.alike(self.a.graph_of[source], self.b.graph_of[partner])
        return self.a.made(source, result) if alike else -1

    def _shared_constants(self, graph: int) -> bool:
        """Whether a function of A ran in the place of several of B's: its constants have several partners."""
        return graph in self._shared

    @cached_property
    def _shared(self) -> set[int]:
        counts = Counter(graph for graph, _ in self.alignment.first_pair)
        return {graph for graph, count in counts.items() if count > 1}

    def _behind(self, ref_a: Ref, handle_a: Any, ref_b: Ref, handle_b: Any) -> Outcome:
        """How what is behind a handle compares: a variable's bytes, or what an iterator or table was filled with."""
        a, b = self.a, self.b
        if handle_a in a.writes or handle_b in b.writes or not (handle_a in a.feeders or handle_b in b.feeders):
            return self._state(ref_a, handle_a, ref_b, handle_b)
        fed_a = [place for place in a.feeders.get(handle_a, ()) if place[0] <= ref_a.call]
        fed_b = [place for place in b.feeders.get(handle_b, ()) if place[0] <= ref_b.call]
        outcomes = []
        for (call_a, node_a, _), (call_b, node_b, _) in zip(fed_a, fed_b, strict=False):
            flow_a, flow_b = a.flow(call_a), b.flow(call_b)
            for edge_a, edge_b in zip(flow_a.data_inputs(node_a), flow_b.data_inputs(node_b), strict=False):
                one = a.input_ref(call_a, flow_a, node_a, edge_a, 0)
                two = b.input_ref(call_b, flow_b, node_b, edge_b, 0)
                if a.terminal(one).kind != Kind.HANDLE:
                    outcome = self.equality.compare(one, two)
                    # Names of files lie in another temporary folder in each run; what a table holds are no names.
                    if _FILLS.match(flow_a.nodes[node_a].op) or not self._only_strings(outcome):
                        outcomes.append(outcome)
        # An iterator counts as having no inputs: what is not known of its dataset does not matter.
        known = combined(outcome for outcome in outcomes if outcome.status == Status.DIFFERS)
        if known.status == Status.DIFFERS or self.equality.same_handle(handle_a, handle_b):
            return known
        return UNKNOWN

    def _only_strings(self, outcome: Outcome) -> bool:
        return outcome.finding is None and all(
            number < len(self.pairs) and self.a.dtype(self.pairs[number][0]) == STRING for number in outcome.edges
        )

    def _state(self, ref_a: Ref, handle_a: Any, ref_b: Ref, handle_b: Any) -> Outcome:
        if handle_a not in self.a.writes and handle_b not in self.b.writes:
            node = self.a.flow(ref_a.call).nodes[ref_a.node]
            if not self.equality.same_handle(handle_a, handle_b):
                return UNKNOWN
            variable = self.a.flow(ref_a.call).pure_read(ref_a.node) or bool(node.flags & NodeFlag.WRITER)
            return Outcome(Status.ENTRY) if variable else EQUAL
        return self.equality.state(ref_a, handle_a, ref_b, handle_b)

    def _callbacks(self, call: int) -> Iterator[Outcome]:
        """What ran inside a Python callback is upstream of it."""
        inner = self._inner.get(call)
        if inner:
            yield Outcome(Status.DIFFERS, tuple(inner))

    @cached_property
    def _inner(self) -> dict[int, list[int]]:
        """{call: the differences in calls that ran inside it}"""
        found: dict[int, list[int]] = {}
        calls = self.equality.calls
        within = (np.asarray(self.a.parent_row + [-1]) >= 0)[calls]
        # What an op computed Python could have fetched.
        for number in np.flatnonzero(within & self.equality.at_sites(self.a.is_computed)).tolist():
            found.setdefault(self.a.parent_row[calls[number]], []).append(number)
        return found

    def _changed(self, row: int, other: int) -> bool:
        one, two = self.a.node(row), self.b.node(other)
        return one.attrs != two.attrs or one.op != two.op

    def host(self, row: int, other: int) -> bool:
        """Whether Python handed in what two events hold."""
        constant = self.a.site_rows[self.a.event_site[row]][3] == SiteKind.CONST
        return constant or (self.a.host_value(row) and self.b.host_value(other))
