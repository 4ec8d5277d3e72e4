"""Three runs and more: which ended alike, how often each culprit shows, and what doubt remains when all agree.

Compares every run with the first, two at a time, so that no more than three traces are held; `pairwise` compares them.
"""

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import xxhash

from tfbisect import trace
from tfbisect.alignment import Alignment, host_values
from tfbisect.bisector import Findings, Suspect
from tfbisect.cheap import is_cheap
from tfbisect.crosscheck import Grouping, Op, differing_ops, op_of
from tfbisect.drawing import DRAWN
from tfbisect.errors import Usage
from tfbisect.judgements import What
from tfbisect.model import Comparison, Culprit, Json
from tfbisect.outcomes import MANY_RUNS, CrossCheck, EventGroups, ManyRuns, RunPair, doubt
from tfbisect.pairwise import Pair, compare_pair, coverages_together, environment_of
from tfbisect.provenance import Run
from tfbisect.remarks import SHOWN, not_listed
from tfbisect.tables import Trace

Ints = npt.NDArray[np.int64]
Path = str | os.PathLike[str]

MORE_PAIRS = 3  # of runs that are compared with each other because grouping shows what the first run hides
NAMED = 10
MORE_EVENTS = 20_000  # events that the first run has not, by which two runs are told apart


def compare_many(paths: Sequence[Path]) -> Comparison:
    """Compare three traces or more. Raises what `trace.load` and `compare_pair` raise.

    The answer has all keys of that of two runs: its culprits are those of all pairs, ranked as those of one, and a
    culprit's `pair` says which runs `difference` and `b` are of.
    """
    return _ManyRuns(paths).comparison()


class _Seen(NamedTuple):
    """A culprit of a pair: the runs, what was found, and the culprit as told."""

    pair: tuple[int, int]
    suspect: Suspect
    culprit: Culprit
    op: Op


@dataclass
class _Outputs:
    """Where the outputs of a run are not those of the first run: rows of the first run and what the output is."""

    rows: Ints
    outputs: Ints
    missing: Ints


@dataclass
class _ManyRuns:
    paths: Sequence[Path]
    pairs: list[RunPair] = field(default_factory=list)
    results: list[Comparison] = field(default_factory=list)
    seen: list[_Seen] = field(default_factory=list)
    outputs: list[_Outputs] = field(default_factory=list)
    endings: list[Any] = field(default_factory=list)  # of each run: equal for runs that ended with the same values
    differing: set[Op] = field(default_factory=set)  # ops of which some output is not the same in a pair
    contradicted: set[str] = field(default_factory=set)

    def comparison(self) -> Comparison:
        first = trace.load(self.paths[0])
        infos = [first.info]
        for number in range(1, len(self.paths)):
            infos.append(self._compare_with(first, number))
        own = Run(first)
        self.endings.insert(0, _Ending((), ()))
        check, extra = self._cross_check(own)
        culprits, told = self._culprits()
        verdict = self._verdict(bool(culprits))
        agreeing = sum(pair.verdict == "identical" for pair in self.pairs[: len(self.paths) - 1])
        many = ManyRuns(
            outcomes=self._outcomes(),
            pairs=tuple(self.pairs),
            outputs=self._histogram(own),
            culprits=told,
            doubt=doubt(len(self.paths) - 1, agreeing),
            cross_check=check,
        )
        shown = self._shown(culprits)
        return Comparison(
            verdict=verdict,
            runs=self._runs(),
            warnings=tuple(self._warnings(check)) + extra,
            environment=environment_of(*infos),
            coverage=coverages_together([result.coverage for result in self.results]),
            culprits=culprits,
            receivers_by_step=shown.receivers_by_step,
            extra={**self._drawn(culprits, shown), MANY_RUNS: many.to_json()},
        )

    # -- pairs -------------------------------------------------------------------------------------------------------

    def _compare_with(self, first: Trace, number: int) -> Json:
        """Compares a run with the first one and lets go of it; -> its `info`."""
        other = trace.load(self.paths[number])
        if is_cheap(other) != is_cheap(first):
            found = f"{self.paths[number if is_cheap(other) else 0]} of --ops suspects among others"
            raise Usage("compare", found=found, expected="three traces or more that hold the same ops")
        pair = compare_pair(first, other)
        self._add((0, number), pair)
        self._note_outputs(pair.findings)
        return other.info

    def _add(self, runs: tuple[int, int], pair: Pair) -> None:
        result, findings, contradicted = pair
        result = replace(result, events=None)  # which would keep the traces of all runs in memory
        self.contradicted.update(contradicted)
        self.results.append(result)
        self.pairs.append(RunPair(runs, result.verdict, result.coverage.compared, findings.differing))
        for suspect, culprit in zip(findings.suspects, result.culprits, strict=False):
            run = (findings.equality.a, findings.equality.b)[suspect.side]
            self.seen.append(_Seen(runs, suspect, culprit, op_of(run, suspect.row)))
        self.differing |= differing_ops(findings.equality.a, findings.equality.pairs.rows)

    def _note_outputs(self, findings: Findings) -> None:
        """Keeps what the run that was compared with the first one made otherwise, and how it ended."""
        equality = findings.equality
        alignment, b = equality.alignment, equality.b
        counts = findings.judgements.whats != What.QUIET
        counts[list(findings.file_names)] = False
        rows = equality.pairs.rows[counts].astype(np.int64)
        outputs = _outputs(b, equality.pairs.others[counts])
        missing = _unmatched(alignment, 0)
        self.outputs.append(_Outputs(rows, outputs, missing))
        lasting = findings.effects.to_results.united(findings.effects.to_outputs)
        ends = lasting.mask[: len(counts)][counts]
        lost = xxhash.xxh3_64_intdigest(missing.tobytes())
        more = _more(b, _unmatched(alignment, 1))
        changed = xxhash.xxh3_64_intdigest(rows[ends].tobytes() + outputs[ends].tobytes()) if ends.any() else ()
        self.endings.append(_Ending(changed, (lost, more) if len(missing) or more else ()))

    # -- all runs ----------------------------------------------------------------------------------------------------

    def _outcomes(self) -> tuple[tuple[int, ...], ...]:
        groups: dict[Any, list[int]] = {}
        for number, ending in enumerate(self.endings):
            groups.setdefault(ending, []).append(number)
        return tuple(map(tuple, groups.values()))

    def _histogram(self, first: Run) -> tuple[tuple[int, int], ...]:
        """(how many distinct outputs, how many events of the first run had that many)"""
        rows = np.concatenate([each.rows for each in self.outputs])
        made = np.concatenate([each.outputs for each in self.outputs])
        total = len(first.trace.events)
        distinct = np.unique(np.stack((rows, made)), axis=1)[0] if len(rows) else rows
        _, others = np.unique(distinct, return_counts=True)
        counts = Counter((others + 1).tolist())
        counts[1] += total - len(others)
        return tuple(sorted(counts.items()))

    def _groups(self, row: int) -> tuple[tuple[tuple[int, ...], ...], tuple[int, ...]]:
        """The runs by their output at an event of the first run; the runs that have no such event."""
        groups: dict[Any, list[int]] = {None: [0]}
        missing = []
        for number, each in enumerate(self.outputs, 1):
            at = np.flatnonzero(each.rows == row)
            if len(at):
                groups.setdefault(int(each.outputs[at[0]]), []).append(number)
            elif np.any(each.missing == row):
                missing.append(number)
            else:
                groups[None].append(number)
        return tuple(map(tuple, groups.values())), tuple(missing)

    def _culprits(self) -> tuple[tuple[Culprit, ...], tuple[EventGroups, ...]]:
        """The culprits of all pairs in the order of one, each once, and which runs had which output there."""
        kinds: dict[Op, list[_Seen]] = {}
        for seen in sorted(self.seen, key=lambda seen: (seen.suspect.tier, seen.pair[0] > 0, seen.suspect.place)):
            kinds.setdefault(seen.op, []).append(seen)
        culprits, told = [], []
        for found in list(kinds.values())[:SHOWN]:
            shown = found[0]
            culprit = replace(shown.culprit, extra={**shown.culprit.extra, "pair": list(shown.pair)})
            culprits.append(culprit)
            paired = shown.pair[0] == 0 and shown.suspect.side == 0
            groups, missing = self._groups(shown.suspect.row) if paired else ((), ())
            numbers = sorted({number for seen in found for number in seen.pair if number})
            told.append(
                EventGroups(
                    op_type=culprit.op_type,
                    name=culprit.name,
                    function=culprit.function,
                    slot=culprit.slot,
                    call=culprit.call,
                    step=culprit.step,
                    iteration=culprit.iteration,
                    source=culprit.source,
                    groups=groups,
                    missing=missing,
                    seen_in=tuple(numbers),
                    pairs=len(self.paths) - 1,
                )
            )
        return tuple(culprits), tuple(told)

    def _verdict(self, named: bool) -> str:
        verdicts = {pair.verdict for pair in self.pairs}
        if "diverged" in verdicts:
            return "diverged" if named else "inconclusive"
        return "inconclusive" if "inconclusive" in verdicts else "identical"

    def _runs(self) -> tuple[Json, ...]:
        return (self.results[0].runs[0], *(result.runs[1] for result in self.results[: len(self.paths) - 1]))

    def _shown(self, culprits: Sequence[Culprit]) -> Comparison:
        """The pair that the first culprit was told of: what a page draws is of two runs."""
        if not culprits:
            return self.results[0]
        pair = tuple(culprits[0].extra["pair"])
        return next(result for each, result in zip(self.pairs, self.results, strict=True) if each.runs == pair)

    def _drawn(self, culprits: Sequence[Culprit], shown: Comparison) -> Json:
        """What a page draws of one pair, its culprits numbered as they are in the answer."""
        rank = {_moment(culprit): number for number, culprit in reversed(list(enumerate(culprits)))}
        extra: Json = {key: shown.extra[key] for key in DRAWN}
        for node in extra["graph"]["nodes"]:
            if node["culprit"] is not None:
                node["culprit"] = rank.get(_moment(shown.culprits[node["culprit"]]))
        return extra

    def _warnings(self, check: CrossCheck) -> Iterable[str]:
        """Those of the pairs, told once each with the runs they are of."""
        texts: dict[str, list[tuple[int, ...]]] = {}
        for pair, result in zip(self.pairs, self.results, strict=True):
            for warning in result.warnings:
                texts.setdefault(warning, []).append(pair.runs)
        for warning, runs in texts.items():
            which = ", ".join(f"{a + 1} and {b + 1}" for a, b in runs[:NAMED])
            more = "" if len(runs) <= NAMED else ", ..."
            yield warning if len(runs) == len(self.pairs) else f"runs {which}{more}: {warning}"
        yield from not_listed(len({seen.op for seen in self.seen}))
        if check.left_out:
            yield f"{check.left_out} events are too many to be grouped by their inputs"

    # -- cross-check -------------------------------------------------------------------------------------------------

    def _cross_check(self, first: Run) -> tuple[CrossCheck, tuple[str, ...]]:
        """Groups over all runs; compares further pairs where the first run hides what others show."""
        if not self.differing:
            return CrossCheck(0, 0, 0, 0, (), ()), ()
        grouping = Grouping()
        for number, path in enumerate(self.paths):
            grouping.add(number, first if not number else Run(trace.load(path)), self.differing)
        several = {group.op: group for group in grouping.several()}
        compared = {pair.runs for pair in self.pairs}
        for _ in range(MORE_PAIRS):
            named = {_whole(seen.op) for seen in self.seen}
            hidden = [_apart(group.outputs) for op, group in several.items() if _whole(op) not in named]
            more = next((runs for runs in hidden if runs is not None and runs not in compared), None)
            if more is None:
                break
            compared.add(more)
            self._add(more, compare_pair(trace.load(self.paths[more[0]]), trace.load(self.paths[more[1]])))
        confirmed = {seen.op for seen in self.seen} & several.keys()
        named = {_whole(seen.op) for seen in self.seen}
        unnamed = [op for op in several if _whole(op) not in named]
        extra = tuple(
            f"{op[2]} {op[1]} gave several outputs for equal inputs, though no compared pair shows it first"
            for op in unnamed[:NAMED]
        )
        check = CrossCheck(
            grouping.checked,
            grouping.not_checkable,
            grouping.left_out,
            len(confirmed),
            tuple(sorted(self.contradicted)),
            tuple(sorted(str(op[1]) for op in unnamed)),
        )
        return check, extra


def _whole(op: Op) -> Op:
    """An op without the number and kind of one of its outputs: named by one, it is named."""
    return (*op[:4], *op[6:])


class _Ending(NamedTuple):
    """How a run ended, told by what is not as in the first run."""

    changed: Any
    unmatched: Any


def _outputs(run: Run, rows: npt.NDArray[np.integer]) -> Ints:
    """A number for the output of each event: of its digest, shape and dtype."""
    events = run.trace.events
    shapes, dtypes = events["shape"][rows], run.trace.sites["dtype"][events["site"][rows]]
    kinds, which = np.unique(shapes.astype(np.int64) << 16 | dtypes, return_inverse=True)
    texts = [f"{run.trace.shape(kind >> 16)} {kind & 0xFFFF}" for kind in kinds.tolist()]
    mixed = np.asarray([xxhash.xxh3_64_intdigest(text.encode()) for text in texts], np.uint64)
    found: Ints = (events["digest"][rows] ^ mixed[which.reshape(-1)]).view(np.int64)  # only equality counts
    return found


def _unmatched(alignment: Alignment, side: int) -> Ints:
    """The events of one run only that count; host values are told of by the ops that take them."""
    run = (alignment.a, alignment.b)[side]
    partner = np.asarray((alignment.event_to_a if side else alignment.event_to_b), np.int64)
    hosts = host_values(run.trace)[run.trace.events["site"]]
    # What data sets call in TensorFlow's own threads runs ahead as far as it happens to.
    counts = np.asarray((alignment.call_to_a if side else alignment.call_to_b), np.int64) >= 0
    counts[alignment.unpaired_calls[side]] = True
    calls = np.asarray(run.event_call, np.int64)
    return np.flatnonzero(~hosts & (partner < 0) & ((calls < 0) | counts[calls]))


def _more(run: Run, rows: Ints) -> Any:
    """A number for what a run did that the first did not, whatever the order; () for nothing."""
    if not len(rows):
        return ()
    digest = xxhash.xxh3_64()
    rows_told = rows[:MORE_EVENTS]
    told = zip(rows_told.tolist(), _outputs(run, rows_told).tolist(), strict=True)
    for text in sorted(f"{op_of(run, row)[:2]} {output}" for row, output in told):
        digest.update(text.encode())
    return len(rows), digest.intdigest()


def _apart(outputs: Sequence[Sequence[int]]) -> tuple[int, int] | None:
    """Two runs other than the first that had other outputs."""
    for place, one in enumerate(outputs):
        for two in outputs[place + 1 :]:
            for x in one:
                for y in two:
                    if x and y and x != y:
                        return min(x, y), max(x, y)
    return None


def _moment(culprit: Culprit) -> tuple[object, ...]:
    return culprit.function, culprit.name, culprit.slot, culprit.call, culprit.iteration
