"""Two runs of a job of several processes, a trace for each worker: which worker differed first, or whether all did.

Pairs workers by their tasks, compares each pair (`pairwise`), and puts the answers into one. `bisector` has looked at
all workers' inputs of a collective op before; what is not known of one of them leaves the others undecided.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import NamedTuple

from tfbisect import crosscheck
from tfbisect.alignment import Alignment
from tfbisect.bisector import Findings, Suspect, bisect_workers
from tfbisect.collectives import is_collective
from tfbisect.drawing import DRAWN
from tfbisect.errors import EmptyTrace, Usage
from tfbisect.files import READERS
from tfbisect.job import Job, processes, task_of
from tfbisect.judgements import Judgement, What
from tfbisect.model import Comparison, Culprit, EnvironmentDifference, Json, NodeFlag, SiteKind
from tfbisect.outcomes import MANY_RUNS, CrossCheck, ManyRuns, RunPair, doubt
from tfbisect.pairwise import Pair, aligned, check_steps, coverages_together, describe, told
from tfbisect.tables import Trace

WORKERS = "workers"
_LAST = 2**62  # behind all ops of a call
LATE = "an earlier difference on another worker may have come here through Python or files"


def compare_workers(a: Sequence[Trace], b: Sequence[Trace], names: tuple[str, str]) -> Comparison:
    """Compare two runs of one job, each given by its workers' traces; names: of the runs.

    The answer has all keys of that of two traces. A culprit's `task` is its worker and `tasks` are all that differ at
    this op by themselves; `workers` says what became of each. Raises Usage where two traces are of one worker or no
    worker has a trace in both runs, and what `compare_pair` raises.
    """
    sides = (_by_task(a, names[0]), _by_task(b, names[1]))
    common = sorted(sides[0].keys() & sides[1].keys(), key=_natural)
    if not common:
        found = f"{', '.join(sides[0]) or 'none'} in {names[0]}, {', '.join(sides[1]) or 'none'} in {names[1]}"
        hint = "python -m tfbisect run --workers 2 program.py"
        raise Usage("workers", found=found, expected="traces of the same workers in both", hint=hint)
    return _Merged(sides, common, names).comparison()


def jobs_together(pairs: Sequence[Comparison]) -> Comparison:
    """One answer of several runs, each compared with the first: that of the first pair that differs, which says so;
    where none does, how much doubt they leave."""
    if len(pairs) == 1:
        return pairs[0]
    verdicts = [pair.verdict for pair in pairs]
    for verdict in ("diverged", "inconclusive"):
        if verdict in verdicts:
            shown = verdicts.index(verdict)
            text = f"{len(pairs) + 1} runs: of {len(pairs)} compared with run 1, {verdicts.count(verdict)} {verdict}"
            text += f"; shown is run {shown + 2}, as run B"
            return replace(pairs[shown], warnings=(text, *pairs[shown].warnings))
    runs = tuple(range(len(pairs) + 1))
    compared = [pair.coverage.compared for pair in pairs]
    many = ManyRuns(
        outcomes=(runs,),
        pairs=tuple(RunPair((0, n), "identical", count, 0) for n, count in enumerate(compared, 1)),
        outputs=((1, compared[0]),),
        culprits=(),
        doubt=doubt(len(pairs), len(pairs)),
        cross_check=CrossCheck(0, 0, 0, 0, (), ()),
    )
    return replace(
        pairs[0],
        runs=(pairs[0].runs[0], *(pair.runs[1] for pair in pairs)),
        warnings=tuple(dict.fromkeys(text for pair in pairs for text in pair.warnings)),
        environment=_settings(pairs),
        coverage=coverages_together([pair.coverage for pair in pairs]),
        extra={**pairs[0].extra, MANY_RUNS: many.to_json()},
    )


def _settings(pairs: Sequence[Comparison]) -> tuple[EnvironmentDifference, ...]:
    """The settings that are not the same in all runs, of what each pair of the first run and another tells."""
    told = [{item.key: item.values for item in pair.environment} for pair in pairs]
    first = {key: values[0] for each in reversed(told) for key, values in each.items()}
    return tuple(
        EnvironmentDifference(key, (value, *(each.get(key, (value, value))[1] for each in told)))
        for key, value in sorted(first.items())
    )


def _by_task(traces: Iterable[Trace], name: str) -> dict[str, Trace]:
    found: dict[str, Trace] = {}
    for trace in traces:
        task = task_of(trace.info) or PurePath(trace.path).stem
        if task in found:
            hint = "put the traces of each run into a folder of their own"
            files = f"{found[task].path} and {trace.path}"
            raise Usage(f"run {name}", found=f"two traces of {task}: {files}", expected="one of each worker", hint=hint)
        found[task] = trace
    return found


def _natural(task: str) -> list[object]:
    """Sorts worker:10 behind worker:9."""
    parts = re.split(r"([0-9]{1,9})", task)  # numbers stand between texts
    return [int(part) if number % 2 else part for number, part in enumerate(parts)]


class _Blamed(NamedTuple):
    """A culprit of one worker, and where it stands among all: tier, moment, worker, place."""

    worker: int
    order: tuple[object, ...]
    suspect: Suspect
    culprit: Culprit


@dataclass
class _Merged:
    """The answers on each worker, put into one."""

    sides: tuple[dict[str, Trace], dict[str, Trace]]
    common: list[str]
    names: tuple[str, str]
    tasks: list[str] = field(default_factory=list)  # those that could be compared
    lost: list[str] = field(default_factory=list)  # what is said of the others

    def comparison(self) -> Comparison:
        alignments = self._alignments()
        counts = [max(self._processes(side), len(self.sides[side])) for side in (0, 1)]
        every, job = bisect_workers(alignments, counts)
        settled = [crosscheck.settle(findings) for findings in every]
        kept = _without_late([findings for findings, _ in settled], job)
        pairs = [told(findings, names) for findings, (_, names) in zip(kept, settled, strict=True)]
        blamed = self._blamed(pairs, job)
        culprits = tuple(self._culprit(group, pairs) for group in blamed)
        shown = blamed[0][0].worker if blamed else 0
        return Comparison(
            verdict=self._verdict(pairs, bool(culprits)),
            runs=tuple(map(self._run, (0, 1))),
            warnings=tuple(self._warnings(pairs, counts)),
            environment=self._environment(pairs),
            coverage=coverages_together([pair.comparison.coverage for pair in pairs]),
            culprits=culprits,
            receivers_by_step=_steps(pairs),
            extra={**_drawn(pairs[shown].comparison, blamed, shown), WORKERS: self._told(pairs)},
        )

    def _alignments(self) -> list[Alignment]:
        found = []
        check_steps([trace for side in self.sides for trace in side.values()])
        for task in self.common:
            try:
                found.append(aligned(self.sides[0][task], self.sides[1][task]))
                self.tasks.append(task)
            except EmptyTrace as error:
                if len(self.common) == 1:
                    raise
                self.lost.append(f"{task} is left out: {error.message}")
        if not found:
            raise EmptyTrace("the traces of all workers", found="no recorded op")
        return found

    def _processes(self, side: int) -> int:
        return max(processes(trace.info) for trace in self.sides[side].values())

    # -- culprits ----------------------------------------------------------------------------------------------------

    def _blamed(self, pairs: Sequence[Pair], job: Job) -> list[list[_Blamed]]:
        """The culprits of all workers in one order; those of several workers that are one op in one execution stand
        together."""
        found = []
        for worker, pair in enumerate(pairs):
            for suspect, culprit in zip(pair.findings.suspects, pair.comparison.culprits, strict=False):
                order = suspect.tier, job.moment(worker, suspect.place[:2]), worker, suspect.place
                found.append(_Blamed(worker, order, suspect, culprit))
        groups: dict[object, list[_Blamed]] = {}
        for each in sorted(found, key=lambda blamed: blamed.order):
            culprit = each.culprit
            key = culprit.op_type, *_moment(culprit), culprit.category, culprit.extra.get("only_in")
            groups.setdefault(key, []).append(each)
        return list(groups.values())

    def _culprit(self, group: Sequence[_Blamed], pairs: Sequence[Pair]) -> Culprit:
        """The culprit of the first worker of a group, with all its workers."""
        first = group[0]
        tasks = [self.tasks[each.worker] for each in sorted(group, key=lambda each: each.worker)]
        extra = {**first.culprit.extra, "task": tasks[0], "tasks": tasks}
        explanation = first.culprit.explanation
        equality = pairs[first.worker].findings.equality
        run = equality.runs[first.suspect.side]
        if len(self.tasks) > 1 and is_collective(run.node(first.suspect.row).op) and first.suspect.finding is None:
            explanation = f"what {_all(len(self.tasks))} put into it is bit-identical in both runs, what it gave is not"
        downstream = sum(each.culprit.downstream for each in group)
        return replace(first.culprit, extra=extra, explanation=explanation, downstream=downstream)

    # -- the rest of the answer --------------------------------------------------------------------------------------

    def _verdict(self, pairs: Sequence[Pair], named: bool) -> str:
        if named:
            return "diverged"
        alike = all(pair.comparison.verdict == "identical" for pair in pairs)
        return "identical" if alike and not self.lost and not self._missing() else "inconclusive"

    def _missing(self) -> list[str]:
        found = []
        for side, letter in enumerate("AB"):
            other = self.sides[1 - side]
            lacking = sorted(other.keys() - self.sides[side].keys(), key=_natural)
            found += [f"run {letter} has no trace of {task}, which the other run has" for task in lacking]
            count = self._processes(side)
            if count > len(self.sides[side]) and not lacking:
                found.append(f"run {letter} was made by {count} workers, and has traces of {len(self.sides[side])}")
        return found

    def _warnings(self, pairs: Sequence[Pair], counts: Sequence[int]) -> Iterable[str]:
        yield from (f"{text}: what went through collective ops may be undecided" for text in self._missing())
        yield from self.lost
        if counts[0] != counts[1]:
            yield f"run A was made by {counts[0]} workers and run B by {counts[1]}"
        texts: dict[str, list[str]] = {}
        for task, pair in zip(self.tasks, pairs, strict=True):
            for warning in pair.comparison.warnings:
                texts.setdefault(warning, []).append(task)
        for warning, tasks in texts.items():
            yield warning if len(tasks) == len(self.tasks) else f"{', '.join(tasks)}: {warning}"

    def _environment(self, pairs: Sequence[Pair]) -> tuple[EnvironmentDifference, ...]:
        found: dict[EnvironmentDifference, list[str]] = {}
        for task, pair in zip(self.tasks, pairs, strict=True):
            for item in pair.comparison.environment:
                same = next((each for each in found if each == item), item)
                found.setdefault(same, []).append(task)
        return tuple(
            item if len(tasks) == len(self.tasks) else replace(item, key=f"{item.key} ({', '.join(tasks)})")
            for item, tasks in found.items()
        )

    def _run(self, side: int) -> Json:
        every = {task: describe(trace) for task, trace in self.sides[side].items()}
        told = [{"task": task, **every[task]} for task in sorted(every, key=_natural)]
        run: Json = {**every[self.tasks[0]], "path": self.names[side]}
        run |= {key: sum(each[key] for each in told) for key in ("calls", "events")}
        run |= {"complete": all(each["complete"] for each in told), WORKERS: told}
        return run

    def _told(self, pairs: Sequence[Pair]) -> list[Json]:
        found: list[Json] = []
        for task, pair in zip(self.tasks, pairs, strict=True):
            coverage, own = pair.comparison.coverage, len(pair.findings.suspects)
            # What came through collective ops alone is no verdict on this worker.
            state = pair.comparison.verdict if own or not pair.findings.differing else "received"
            if state == "received" and pair.findings.undecided:
                state = "inconclusive"
            told: Json = {"task": task, "state": state, "differing": pair.findings.differing, "culprits": own}
            told |= {key: getattr(coverage, key) for key in ("compared", "unmatched", "undecided")}
            found.append(told | {"traces": [side[task].path for side in self.sides]})
        return found


def _without_late(every: list[Findings], job: Job) -> list[Findings]:
    """The findings without what a difference on another worker may have led to through Python or files, since processes
    can talk to each other in ways that nobody records; and without differences that die out, where what reaches a
    result is undecided on some worker."""
    sources = [_Source(worker, findings, job) for worker, findings in enumerate(every)]
    found = []
    for worker, findings in enumerate(every):
        others = [source for source in sources if source.worker != worker]
        late = [
            suspect
            for suspect in findings.suspects
            if any(other.may_lead_to(findings, suspect, job.moment(worker, suspect.place[:2])) for other in others)
        ]
        found.append(_undecided(findings, late))
    live = [findings.effects.to_results.united(findings.effects.to_outputs) for findings in found]
    open_ones = any(not here.isdisjoint(each.undecided) for here, each in zip(live, found, strict=True))
    if open_ones and all(suspect.tier == 2 for findings in found for suspect in findings.suspects):
        return [replace(findings, suspects=[]) for findings in found]
    return found


class _Source:
    """What differs on a worker, as far as others may have learned of it."""

    def __init__(self, worker: int, findings: Findings, job: Job) -> None:
        self.worker = worker
        # Python knows what a call gave when all collective ops in it are done.
        none = findings.known >= len(findings.equality.a.graph_of)
        self._known = None if none else job.moment(worker, (findings.known, (_LAST,)))
        self._culprits = {_op(findings, each): job.moment(worker, each.place[:2]) for each in findings.suspects}

    def may_lead_to(self, findings: Findings, suspect: Suspect, moment: int) -> bool:
        """Whether a culprit of another worker may come from here, though no collective op brought it.

        Nobody knows which of two at the same moment was first; but what differs in the same op is of each one's own.
        """
        run, op = findings.equality.runs[suspect.side], _op(findings, suspect)
        if run.node(suspect.row).op in READERS:  # files may hold any difference, whether Python saw it or not
            return any(here <= moment for other, here in self._culprits.items() if other != op)
        if self._known is None or not _by_python(findings, suspect):
            return False
        return self._known < moment or (self._known == moment and op not in self._culprits)


def _by_python(findings: Findings, suspect: Suspect) -> bool:
    """Whether Python had a hand in a culprit: in its value, in what ran, or out of sight."""
    run = findings.equality.runs[suspect.side]
    flow, number, _slot, kind = run.node_of(suspect.row)
    if suspect.number < 0 or suspect.finding is not None or kind == SiteKind.CONST or run.host_value(suspect.row):
        return True
    return bool(flow.nodes[number].flags & (NodeFlag.HOST | NodeFlag.OPAQUE))


def _op(findings: Findings, suspect: Suspect) -> object:
    return crosscheck.op_of(findings.equality.runs[suspect.side], suspect.row)


def _undecided(findings: Findings, suspects: Sequence[Suspect]) -> Findings:
    if not suspects:
        return findings
    numbers = {suspect.number for suspect in suspects if suspect.number >= 0}
    judged = findings.judgements.replaced(dict.fromkeys(numbers, Judgement(What.UNDECIDED, reason=LATE)))
    rest = [suspect for suspect in findings.suspects if suspect not in suspects]
    return replace(findings, suspects=rest, judgements=judged, undecided=sorted({*findings.undecided, *numbers}))


def _moment(culprit: Culprit) -> tuple[object, ...]:
    source = culprit.source
    line = (source.file, source.line) if source is not None else None  # eager ops are named by their type alone
    return culprit.function, culprit.name, culprit.slot, line, culprit.call, culprit.step, culprit.iteration


def _all(count: int) -> str:
    return "both workers" if count == 2 else f"all {count} workers"


def _steps(pairs: Sequence[Pair]) -> tuple[tuple[int | None, int], ...]:
    counts: Counter[int | None] = Counter()
    for pair in pairs:
        for step, count in pair.comparison.receivers_by_step:
            counts[step] += count
    return tuple(sorted(counts.items(), key=lambda item: (item[0] is None, item[0] or 0)))


def _drawn(comparison: Comparison, blamed: Sequence[Sequence[_Blamed]], worker: int) -> Json:
    """What a page draws of one worker, its culprits numbered as they are in the answer."""
    own = [(rank, each.culprit) for rank, group in enumerate(blamed) for each in group if each.worker == worker]
    rank = {_moment(culprit): number for number, culprit in reversed(own)}
    extra: Json = {key: comparison.extra[key] for key in DRAWN}
    for node in extra["graph"]["nodes"]:
        if node["culprit"] is not None:
            node["culprit"] = rank.get(_moment(comparison.culprits[node["culprit"]]))
    return extra
