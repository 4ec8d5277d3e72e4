"""Which differences are culprits: events whose inputs are bit-equal in both runs and whose bits differ.

Judges and ranks; what is shown of a culprit is made by `comparison`.
"""

import enum
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

from tfbisect import circles
from tfbisect.alignment import Alignment
from tfbisect.collectives import is_collective
from tfbisect.effects import Effects
from tfbisect.equality import EQUAL, UNKNOWN, Equality, Finding, Outcome, Status, combined
from tfbisect.files import READERS, Saved
from tfbisect.flow import CALLS, OVERWRITES, STRING, VARIANT, Flow, Way
from tfbisect.job import Job, processes
from tfbisect.model import OP_BY_OP, GraphKind, Node, NodeFlag, SiteKind
from tfbisect.pipelines import Pipelines
from tfbisect.provenance import Handle, Kind, Ref, Run, Write
from tfbisect.receivers import plain_receivers
from tfbisect.seen import Seen, only_asked
from tfbisect.stores import Stores
from tfbisect.written import Change, Written

MANY = 2000  # unpaired results that are looked at
_FILLS = re.compile(r"LookupTable(Import|Insert)|InitializeTable(V2)?$")  # a table with keys and values
_STRUCTURE = ("edge", "attrs", "extra", "written")  # findings that a function was written otherwise
_HOST, _WRITER = int(NodeFlag.HOST), int(NodeFlag.WRITER)


class What(enum.Enum):
    """What a differing event is."""

    RECEIVER = enum.auto()
    CULPRIT = enum.auto()
    UNDECIDED = enum.auto()
    QUIET = enum.auto()  # differs in nothing that matters: the derived digest of a list or dataset


class Judgement(NamedTuple):
    """What a differing event is, and what it comes from."""

    what: What
    edges: tuple[int, ...] = ()
    finding: Finding | None = None
    entry: bool = False  # takes a variable that nothing recorded wrote before
    reason: str = ""  # undecided: why


@dataclass(frozen=True)
class Suspect:
    """A culprit. `number`: the differing event, or -1 where one run only has the op; then the event of `side`."""

    number: int
    side: int
    row: int
    finding: Finding | None
    entry: bool
    contained: bool
    tier: int  # 0 reaches a result, 1 reaches a value that Python may have used, 2 dies out
    place: tuple[Any, ...]  # order of execution
    change: Change | None = None  # what the function that the op is in was written otherwise by
    repeats: int = 1  # of the same op, at other times, as culprit


@dataclass
class Findings:
    """What the bisection of two runs found."""

    suspects: list[Suspect]
    judgements: list[Judgement]
    equality: Equality
    effects: Effects
    file_names: set[int]
    undecided: list[int]
    notes: list[str] = field(default_factory=list)
    known: int = 0  # the call of A with the first difference that Python may have known; beyond all if there is none

    @property
    def differing(self) -> int:
        """Differing events that count."""
        quiet = sum(judged.what == What.QUIET for judged in self.judgements)
        return len(self.judgements) - quiet - len(self.file_names)


def bisect(alignment: Alignment) -> Findings:
    """Judge every difference of two aligned runs and rank the culprits.

    If they are of one of several processes, what the others put into a collective op is not known.
    """
    counts = [processes(run.trace.info) for run in (alignment.a, alignment.b)]
    return bisect_workers([alignment], counts)[0][0]


def bisect_workers(alignments: Sequence[Alignment], counts: Sequence[int]) -> tuple[list[Findings], Job]:
    """Judge every difference of two runs of a job, of each worker by itself, but for what workers do together.

    alignments: of each worker's two traces. counts: how many processes made each run together.
    """
    each = [_Bisection(alignment) for alignment in alignments]
    job = Job([bisection.equality for bisection in each], counts)
    for worker, bisection in enumerate(each):
        bisection.judge(job, worker)
    reached = job.reached([bisection.edges for bisection in each])
    return [bisection.findings(there) for bisection, there in zip(each, reached, strict=True)], job


class _Bisection:
    """Of one worker: `judge`, which looks at all workers' inputs of collective ops, and then `findings`."""

    _job: Job
    _worker: int

    def __init__(self, alignment: Alignment) -> None:
        self.alignment = alignment
        self.a, self.b = alignment.a, alignment.b
        self.equality = Equality(alignment)
        self.written = Written(alignment)
        self._saved = Saved(self.equality)
        self.pairs = self.equality.pairs
        self._stores = Stores(self.equality)
        self.judged: list[Judgement] = []
        self._pipelines = Pipelines(self.a, self.pairs)
        self._alike_graphs: dict[tuple[int, int], bool] = {}
        self._shuffled: set[int] = set()  # undecided values of Python's that are data in another order

    def judge(self, job: Job, worker: int) -> None:
        """What each difference is, as far as its inputs tell."""
        self._job, self._worker = job, worker
        plain = plain_receivers(self.equality, self._alike)
        for number in range(len(self.pairs)):
            edges = plain.get(number)
            self.judged.append(self._judge(number) if edges is None else Judgement(What.RECEIVER, edges))

    @property
    def edges(self) -> list[tuple[int, ...]]:
        """For each difference those that it comes from."""
        return [judged.edges for judged in self.judged]

    def findings(self, elsewhere: tuple[Collection[int], Collection[int]] = ((), ())) -> Findings:
        """The culprits, ranked. elsewhere: the differences that reach results, and outputs, of other workers."""
        starts = self._circles()
        effects = Effects(self.equality, self.edges, elsewhere)
        names = effects.file_names
        quiet = {number for number, judged in enumerate(self.judged) if judged.what == What.QUIET}
        seen = Seen(self.equality, effects, self.edges, names | quiet)
        self._settle_host_values(names, seen)
        self._break_circles(starts, seen)
        effects = Effects(self.equality, self.edges, elsewhere)
        suspects = self._suspects(effects, names, seen)
        suspects += self._structure_at_results(seen, suspects)
        undecided = [n for n, judged in enumerate(self.judged) if judged.what == What.UNDECIDED and n not in names]
        live = effects.to_results | effects.to_outputs
        if all(suspect.tier == 2 for suspect in suspects) and not live.isdisjoint(undecided):
            # What reaches the results is undecided: what dies out is not its name, unless Python looked at it before.
            first = min(self._asked(self.pairs[number][0]) for number in live.intersection(undecided))
            # Data in another order may as well have been shuffled without looking: then nobody can say.
            known = [each for each in suspects if self._known(each, first, effects, seen) and not self._shuffled]
            suspects = [replace(each, tier=1, contained=False) for each in known]
        ranked = _ranked(suspects, self._kin)
        heard = seen.first(0, dead=True)
        return Findings(ranked, self.judged, self.equality, effects, names, undecided, known=heard)

    # -- one difference ----------------------------------------------------------------------------------------------

    def _judge(self, number: int) -> Judgement:
        row, other = self.pairs[number]
        kind, dtype = self.a.site_rows[self.a.event_site[row]][3:5]
        if kind == SiteKind.CONST and dtype != self.b.dtype(other):
            return Judgement(What.CULPRIT, finding=Finding("attrs", 0, row))
        if kind == SiteKind.CONST:
            return self._constant(row, other)
        if self._host(row, other):
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
            change = self.written.change(*graphs, self._names(row, other))
            itself = change is not None and self.written.name(change) == self.a.node(row).name
            if change is not None and not (judged.what == What.CULPRIT and itself):
                return Judgement(What.CULPRIT, finding=Finding("written", 0, row))
        return judged

    def _names(self, row: int, other: int) -> tuple[str, str]:
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
        same = self._alike(graph_a, graph_b)
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

    def _alike(self, graph_a: int, graph_b: int) -> bool:
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
        alike = self._alike(self.a.graph_of[source], self.b.graph_of[partner])
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
        for number, (row, _) in enumerate(self.pairs):
            call = self.a.event_call[row]
            if call >= 0 and self.a.parent_row[call] >= 0 and self._computed(row):
                found.setdefault(self.a.parent_row[call], []).append(number)
        return found

    def _computed(self, row: int) -> bool:
        """Whether an op computed an event's value: Python could have fetched it."""
        return self.a.is_computed[self.a.event_site[row]]

    def _changed(self, row: int, other: int) -> bool:
        one, two = self.a.node(row), self.b.node(other)
        return one.attrs != two.attrs or one.op != two.op

    def _known(self, suspect: Suspect, call: int, effects: Effects, seen: Seen) -> bool:
        """Whether Python may have known what came of a culprit before it made what a call takes."""
        if suspect.number < 0:
            return False
        return seen.known_before({suspect.number} | effects.below([suspect.number]), call)

    # -- ops in another order ----------------------------------------------------------------------------------------

    def _circles(self) -> list[int]:
        """The receivers with which circles begin that explain nothing but themselves."""
        edges = [*(judged.edges for judged in self.judged), *self.equality.mixtures]
        judged = enumerate(self.judged)
        grounded = [n for n, each in judged if each.what != What.RECEIVER or each.finding is not None]
        grounded += self._job.elsewhere(self._worker)
        return circles.starts(edges, grounded, len(self.pairs), lambda n: self._place(0, self.pairs[n][0]))

    def _break_circles(self, firsts: Sequence[int], seen: Seen) -> None:
        """The first of each circle is where that order began, unless Python may have chosen it."""
        for number in firsts:
            row = self.pairs[number][0]
            if seen.first(0) < self.a.event_call[row]:
                reason = "an earlier difference may have led Python to run ops in another order"
                self.judged[number] = Judgement(What.UNDECIDED, reason=reason)
            else:
                self.judged[number] = Judgement(What.CULPRIT, finding=Finding("circle", 0, row))

    # -- what Python had a hand in -----------------------------------------------------------------------------------

    def _settle_host_values(self, names: set[int], seen: Seen) -> None:
        """A value of Python's that differs is a culprit only if Python knew of no difference before it."""
        first, lasting = seen.first(0, dead=True), seen.first(0)
        if not any(self._asked(self.pairs[n][0]) > first for n in self._handed_in(names)):
            return
        known: dict[tuple[int, int], int] = {}
        wired: dict[tuple[int, int], int] = {}
        for number, (row, other) in enumerate(self.pairs):
            judged, finding = self.judged[number], self.judged[number].finding
            constant = self.a.site_rows[self.a.event_site[row]][3] == SiteKind.CONST
            if judged.what == What.CULPRIT and number not in names:
                late = first < self._asked(row)
                if finding is not None and finding.what == "host":
                    # The same value, taken once more, is the same culprit.
                    late = wired.setdefault((finding.row, finding.other), number) == number and late
                elif finding is None and self._host(row, other):
                    digests = self.a.event_digest[row], self.b.event_digest[other]
                    if late and not constant and digests in known:  # bit for bit what differed before
                        self.judged[number] = Judgement(What.RECEIVER, (known[digests],))
                        continue
                else:
                    late = False
                if late:
                    if finding is None and self._asked(row) <= lasting and seen.reordered(row, other):
                        self._shuffled.add(number)
                    reason = "Python may have made it from an earlier difference"
                    self.judged[number] = Judgement(What.UNDECIDED, reason=reason)
            if not constant and self.a.scheme(row) == self.a.schemes["host"]:
                known.setdefault((self.a.event_digest[row], self.b.event_digest[other]), number)

    def _handed_in(self, names: set[int]) -> list[int]:
        """The culprits so far that are values of Python's, or ops that took another one."""
        return [
            number
            for number, judged in enumerate(self.judged)
            if judged.what == What.CULPRIT and number not in names
            and (judged.finding.what == "host" if judged.finding is not None else self._host(*self.pairs[number]))
        ]  # fmt: skip

    def _host(self, row: int, other: int) -> bool:
        constant = self.a.site_rows[self.a.event_site[row]][3] == SiteKind.CONST
        return constant or (self.a.host_value(row) and self.b.host_value(other))

    def _asked(self, row: int) -> int:
        """The call for which Python had made a value at the latest."""
        call = self.a.event_call[row]
        return call if call >= 0 else self._first_call(0, self.a.node_of(row)[0].graph.id)

    def _first_call(self, side: int, graph: int) -> int:
        return (self.a, self.b)[side].first_calls.get(graph, 0)

    # -- culprits ----------------------------------------------------------------------------------------------------

    def _suspects(self, effects: Effects, names: set[int], seen: Seen) -> list[Suspect]:
        found = []
        firsts = seen.first(0), seen.first(1)
        for number, judged in enumerate(self.judged):
            if number in names or (judged.what != What.CULPRIT and judged.finding is None):
                continue
            finding = judged.finding
            if finding is None or finding.what == "host":
                found.append(self._suspect(number, judged, effects))
            elif self._by_python(number, finding, firsts):
                if judged.what == What.CULPRIT:
                    reason = "an earlier difference may have led Python to run other ops"
                    self.judged[number] = judged._replace(what=What.UNDECIDED, finding=None, reason=reason)
            else:
                found.append(self._suspect(number, judged, effects))
        return found

    def _by_python(self, number: int, finding: Finding, firsts: Sequence[int]) -> bool:
        """Whether other ops ran because Python decided so after an earlier difference."""
        row = self.pairs[number][0]
        if finding.what == "circle":
            return False
        if finding.what in ("order", "state"):
            writes = enumerate(finding.writers)
            return any(self._python_ordered(number, side, write, firsts[side]) for side, write in writes)
        side, at = (finding.side, finding.row) if finding.what == "extra" else (0, row)
        run = (self.a, self.b)[side]
        call, flow = run.event_call[at], run.node_of(at)[0]
        if call < 0 or flow.graph.kind in OP_BY_OP or finding.what == "written":
            paired = call < 0 or (self.alignment.call_to_a if side else self.alignment.call_to_b)[call] >= 0
            call = self._first_call(side, flow.graph.id) if paired else call
        return firsts[side] < call

    def _python_ordered(self, number: int, side: int, write: Write | None, first: int) -> bool:
        """Whether a write is one run's only, or stands on the other side of what reads it, by a decision of Python's
        that came after a difference."""
        if write is None:
            return False
        partner = (self.alignment.call_to_a if side else self.alignment.call_to_b)[write.call]
        if partner < 0:
            return first < write.call
        mine = (self.a, self.b)[side].event_call[self.pairs[number][side]]
        theirs = (self.b, self.a)[side].event_call[self.pairs[number][1 - side]]
        return (write.call < mine) != (partner < theirs) and first < min(write.call, mine)

    def _suspect(self, number: int, judged: Judgement, effects: Effects) -> Suspect:
        finding, row = judged.finding, self.pairs[number][0]
        side, shown = 0, number
        if finding is not None and finding.what == "extra":
            side, row, shown = finding.side, finding.row, -1
        tier = 0 if number in effects.to_results else 1 if number in effects.to_outputs else 2
        # An op of one run only stands before what took its value.
        place = (
            min(self._place(0, self.pairs[number][0]), self._place(side, row))
            if side == 0
            else self._place(0, self.pairs[number][0])
        )
        names = self._names(*self.pairs[number])
        change = self._change(side, row, names) if finding is not None and finding.what in _STRUCTURE else None
        return Suspect(shown, side, row, finding, judged.entry, tier == 2, tier, place, change)

    def _change(self, side: int, row: int, names: tuple[str, str] = ("", "")) -> Change | None:
        """What was written otherwise in the function that has an event, if both runs called it in this place.

        names: of the op that differs, in A and in B.
        """
        run = (self.a, self.b)[side]
        flow, call = run.node_of(row)[0], run.event_call[row]
        if flow.graph.kind in (GraphKind.EAGER, GraphKind.ENTRY):
            return None
        call = call if call >= 0 else self._first_call(side, flow.graph.id)
        other = (self.alignment.call_to_a if side else self.alignment.call_to_b)[call]
        if other < 0:
            return None
        there = (self.b, self.a)[side].graph_of[other]
        return self.written.change(*((there, flow.graph.id) if side else (flow.graph.id, there)), names)

    def _place(self, side: int, row: int) -> tuple[Any, ...]:
        """The order of execution: by call, and within it by the graph's order, loop by loop."""
        run = (self.a, self.b)[side]
        flow, node, slot, kind = run.node_of(row)
        call = run.event_call[row]
        if call < 0:  # a constant is as early as the first op that takes it
            call = self._first_call(side, flow.graph.id)
            node = min(flow.consumers[node], key=lambda taker: flow.position[taker], default=node)
        return call, flow.moment(node, run.path(run.event_path[row])), kind == SiteKind.WRITE, slot

    def _kin(self, suspect: Suspect) -> Any:
        """What culprits have in common that are one op at different times, or one change of a function."""
        run = (self.a, self.b)[suspect.side]
        flow, number, _slot, kind = run.node_of(suspect.row)
        if suspect.change is not None:
            written = (self.a, self.b)[suspect.change.side].trace.graphs[suspect.change.graph]
            node = written.nodes[suspect.change.node]
            if suspect.change.what == "constant":
                return self._line_of_constant(suspect.change.side, node, flow)
            return "written", suspect.change.what, node.op, node.attrs
        if kind == SiteKind.CONST:
            return self._line_of_constant(suspect.side, flow.nodes[number], flow)
        batch = self._batch(suspect) if suspect.finding is None else None
        if batch is not None:
            return batch
        if flow.graph.kind == GraphKind.EAGER:
            stack = int(run.trace.calls["stack"][run.event_call[suspect.row]])
            return suspect.side, flow.graph.name, stack
        if suspect.finding is not None and suspect.finding.what in _STRUCTURE:
            return "structure", flow.graph.name
        if suspect.finding is not None and suspect.finding.what == "state" and self._by_extra_calls(suspect.finding):
            return "state", flow.graph.name
        return suspect.side, flow.graph.name, flow.nodes[number].name

    def _line_of_constant(self, side: int, node: Node, flow: Flow) -> Any:
        """The constants of a line are one culprit, be they seen themselves or in what was made of them."""
        source = (self.a, self.b)[side].trace.source(node.stack)
        return "constant", (source.file, source.line) if source is not None else flow.graph.name

    def _batch(self, suspect: Suspect) -> Any:
        """What arrays of Python's have in common that one function takes together, row for row: they are one batch."""
        run = (self.a, self.b)[suspect.side]
        taker = run.first_takers.get(run.event_call[suspect.row])
        shape = run.trace.shape(run.event_shape[suspect.row])
        if taker is None or not shape or run.flow(taker[0]).graph.kind == GraphKind.EAGER:
            return None
        return "batch", run.flow(taker[0]).graph.name, shape[0]

    def _by_extra_calls(self, finding: Finding) -> bool:
        """Whether the writes that a read saw are those of calls of one run only: all that they set up is one cause."""
        partners = (self.alignment.call_to_b, self.alignment.call_to_a)
        found = zip(finding.writers, partners, strict=True)
        return any(write is not None and calls[write.call] < 0 for write, calls in found)

    # -- functions of other structure --------------------------------------------------------------------------------

    def _structure_at_results(self, seen: Seen, known: Sequence[Suspect]) -> list[Suspect]:
        """Where one run executed other ops and no paired event differs: looks at what functions gave and wrote."""
        if any(suspect.tier == 0 for suspect in known):
            return []
        firsts = seen.first(0), seen.first(1)
        found: list[Suspect] = []
        for call, other in enumerate(self.alignment.call_to_b):
            graphs = (self.a.graph_of[call], self.b.graph_of[other]) if other >= 0 else (0, 0)
            if other < 0 or self.alignment.nodes(*graphs).same:
                continue
            for outcome in self._results(call, other):
                finding = outcome.finding
                if finding is None or finding.what != "extra" or outcome.edges:
                    continue
                run = (self.a, self.b)[finding.side]
                if firsts[finding.side] < self._first_call(finding.side, run.node_of(finding.row)[0].graph.id):
                    continue
                place = (call, *self._place(finding.side, finding.row)[1:])
                change = self._change(finding.side, finding.row)
                found.append(Suspect(-1, finding.side, finding.row, finding, False, False, 0, place, change))
            if found or call > MANY:
                break
        return found

    def _results(self, call: int, other: int) -> Iterator[Outcome]:
        a, b = self.a, self.b
        for result in a.flow(call).graph.results:
            one, two = a.result(call, result), b.result(other, result)
            if one is not None and two is not None:
                yield self.equality.compare(one, two)
        mine, theirs = _by_handle(a, call), _by_handle(b, other)
        for handle, writes in mine.items():
            for partner, others in theirs.items():
                if self.equality.same_handle(handle, partner):
                    yield self.equality.events(a.latest(writes).row, b.latest(others).row)


def _by_handle(run: Run, call: int) -> dict[Handle, list[Write]]:
    found: dict[Handle, list[Write]] = {}
    for handle, write in run.writes_in.get(call, ()):
        found.setdefault(handle, []).append(write)
    return found


def _ranked(suspects: list[Suspect], key: Callable[[Suspect], Any]) -> list[Suspect]:
    """By how far they reach, then by order of execution; the first of each op stands for all its repeats."""
    firsts: dict[Any, Suspect] = {}
    repeats: Counter[Any] = Counter()
    for suspect in sorted(suspects, key=lambda suspect: (suspect.tier, suspect.place)):
        which = key(suspect)
        firsts.setdefault(which, suspect)
        repeats[which] += 1
    return [replace(suspect, repeats=repeats[which]) for which, suspect in firsts.items()]
