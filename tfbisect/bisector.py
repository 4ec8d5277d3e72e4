"""Which differences are culprits: events whose inputs are bit-equal in both runs and whose bits differ.

Judges and ranks; what is shown of a culprit is made by `comparison`.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tfbisect import circles
from tfbisect.alignment import Alignment
from tfbisect.effects import Effects
from tfbisect.equality import Equality, Finding, Outcome
from tfbisect.flow import Flow
from tfbisect.job import Job, processes
from tfbisect.judgements import Judgement, Judgements, What, count, judged_by_parts
from tfbisect.judging import Judge
from tfbisect.model import OP_BY_OP, GraphKind, Node, SiteKind
from tfbisect.provenance import Handle, Run, Write
from tfbisect.reach import Links, Marks
from tfbisect.receivers import plain_receivers
from tfbisect.seen import Seen
from tfbisect.written import Change, Written

MANY = 2000  # unpaired results that are looked at
_STRUCTURE = ("edge", "attrs", "extra", "written")  # findings that a function was written otherwise


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
    judgements: Judgements
    equality: Equality
    effects: Effects
    file_names: set[int]
    undecided: list[int]
    notes: list[str] = field(default_factory=list)
    known: int = 0  # the call of A with the first difference that Python may have known; beyond all if there is none

    @property
    def differing(self) -> int:
        """Differing events that count."""
        return len(self.judgements) - count(self.judgements.whats, What.QUIET) - len(self.file_names)


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
    reached = job.reached([bisection.links for bisection in each])
    return [bisection.findings(there) for bisection, there in zip(each, reached, strict=True)], job


class _Bisection:
    """Of one worker: `judge`, which looks at all workers' inputs of collective ops, and then `findings`."""

    judged: Judgements
    _judge: Judge
    _elsewhere: list[int]  # the mixtures that stand for differences of other workers

    def __init__(self, alignment: Alignment) -> None:
        self.alignment = alignment
        self.a, self.b = alignment.a, alignment.b
        self.equality = Equality(alignment)
        self.written = Written(alignment)
        self.pairs = self.equality.pairs
        self._shuffled: set[int] = set()  # undecided values of Python's that are data in another order

    def judge(self, job: Job, worker: int) -> None:
        """What each difference is, as far as its inputs tell."""
        self._judge = Judge(self.equality, self.written, job, worker)
        self.judged = judged_by_parts(plain_receivers(self.equality, self._judge.alike), self._judge.judge)
        self._elsewhere = job.elsewhere(worker)

    @property
    def links(self) -> Links:
        """For each difference those that it comes from."""
        return self.judged.links(self.equality.mixtures)

    def findings(self, elsewhere: tuple[Collection[int], Collection[int]] = ((), ())) -> Findings:
        """The culprits, ranked. elsewhere: the differences that reach results, and outputs, of other workers."""
        links = self.links
        starts = self._circles(links)
        effects = Effects(self.equality, links, elsewhere)
        names = effects.file_names
        silent = self.judged.whats == What.QUIET
        silent[list(names)] = True
        seen = Seen(self.equality, effects, Marks(silent))
        self._settle_host_values(names, seen)
        self._break_circles(starts, seen)
        if self.judged.changes:
            effects = Effects(self.equality, self.links, elsewhere)
        suspects = self._suspects(effects, names, seen)
        suspects += self._structure_at_results(seen, suspects)
        undecided = [number for number in self.judged.numbers(What.UNDECIDED) if number not in names]
        live = [number for number in undecided if number in effects.to_results or number in effects.to_outputs]
        if live and all(suspect.tier == 2 for suspect in suspects):
            # What reaches the results is undecided: what dies out is not its name, unless Python looked at it before.
            first = min(self._asked(self.pairs[number][0]) for number in live)
            # Data in another order may as well have been shuffled without looking: then nobody can say.
            known = [each for each in suspects if self._known(each, first, effects, seen) and not self._shuffled]
            suspects = [replace(each, tier=1, contained=False) for each in known]
        ranked = _ranked(suspects, self._kin)
        heard = seen.first(0, dead=True)
        return Findings(ranked, self.judged, self.equality, effects, names, undecided, known=heard)

    def _known(self, suspect: Suspect, call: int, effects: Effects, seen: Seen) -> bool:
        """Whether Python may have known what came of a culprit before it made what a call takes."""
        if suspect.number < 0:
            return False
        return seen.known_before(effects.below(suspect.number), call)

    # -- ops in another order ----------------------------------------------------------------------------------------

    def _circles(self, links: Links) -> list[int]:
        """The receivers with which circles begin that explain nothing but themselves."""
        grounded = np.zeros(len(links), np.bool_)
        grounded[: len(self.pairs)] = self.judged.whats != What.RECEIVER
        grounded[[*(number for number, _ in self.judged.with_finding()), *self._elsewhere]] = True
        return circles.starts(links, grounded, len(self.pairs), lambda n: self._place(0, self.pairs[n][0]))

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
        for number in self._of_pythons:
            row, other = self.pairs[number]
            judged, finding = self.judged[number], self.judged[number].finding
            constant = self.a.site_rows[self.a.event_site[row]][3] == SiteKind.CONST
            if judged.what == What.CULPRIT and number not in names:
                late = first < self._asked(row)
                if finding is not None and finding.what == "host":
                    # The same value, taken once more, is the same culprit.
                    late = wired.setdefault((finding.row, finding.other), number) == number and late
                elif finding is None and self._judge.host(row, other):
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

    @property
    def _of_pythons(self) -> list[int]:
        """The culprits so far, and what has the bits of one, all digested by the host."""
        culprits = self.judged.numbers(What.CULPRIT)
        by_host = [self.a.site_scheme(site) == self.a.schemes["host"] for site in range(len(self.a.site_rows))]
        at_host = np.flatnonzero(self.equality.at_sites(by_host))
        alike = np.isin(self.equality.digests(at_host), self.equality.digests(np.asarray(culprits, np.int64)))
        return sorted({*culprits, *at_host[alike].tolist()})

    def _handed_in(self, names: set[int]) -> list[int]:
        """The culprits so far that are values of Python's, or ops that took another one."""
        found = []
        for number in self.judged.numbers(What.CULPRIT):
            finding = self.judged[number].finding
            handed = finding.what == "host" if finding is not None else self._judge.host(*self.pairs[number])
            if handed and number not in names:
                found.append(number)
        return found

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
        others = (number for number, _ in self.judged.with_finding())
        for number in sorted({*self.judged.numbers(What.CULPRIT), *others} - names):
            judged = self.judged[number]
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
        names = self._judge.names(*self.pairs[number])
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
