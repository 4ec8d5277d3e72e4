"""Two loaded traces -> what differed first, where and why: aligned, bisected, checked, told.

Puts the parts together; each part decides for itself. More than two runs are `manyruns`, tolerances `tolerance`.
"""

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from tfbisect import cheap, crosscheck
from tfbisect.alignment import Alignment, pair
from tfbisect.bisector import Findings, bisect
from tfbisect.categories import flattened
from tfbisect.culprits import Portraits
from tfbisect.drawing import drawn
from tfbisect.errors import EmptyTrace, SchemeMismatch, Unrelated, Usage
from tfbisect.job import processes, task_of
from tfbisect.judgements import What
from tfbisect.model import Comparison, Coverage, EnvironmentDifference, Json, Opaque
from tfbisect.reach import tally
from tfbisect.remarks import SHOWN, UNRELATED, not_blamed, steps_recorded, warnings_of
from tfbisect.tables import Trace

# What is never the same in two runs, or is tfbisect's own business.
_OWN = re.compile(
    r"^((pid|time|hostname|tfbisect|cwd|program|options|digest|end)(\.|$)|environment\.(TFBISECT_|TF_CONFIG$))"
)


class Pair(NamedTuple):
    """Two runs compared: the answer, and what it was made of: `suspects` are the answer's culprits, in order.

    contradicted: names of ops that are not blamed, because grouping by inputs says otherwise.
    """

    comparison: Comparison
    findings: Findings
    contradicted: tuple[str, ...]


def compare_pair(a: Trace, b: Trace) -> Pair:
    """Compare two loaded traces. Raises EmptyTrace, SchemeMismatch and Unrelated.

    Of two traces of one worker of a job nobody knows what the other workers put into collective ops: see `workers`.
    """
    found = told(*crosscheck.settle(bisect(aligned(a, b))))
    count = max(processes(a.info), processes(b.info))
    if count < 2 or found.comparison.verdict == "identical":
        return found
    text = f"{task_of(a.info) or 'this'} is one of {count} workers: compare the folders with the traces of all of them"
    comparison = replace(found.comparison, warnings=(text, *found.comparison.warnings))
    return found._replace(comparison=comparison)


def told(findings: Findings, contradicted: tuple[str, ...]) -> Pair:
    """What was found, as an answer."""
    alignment = findings.equality.alignment
    a, b = alignment.a.trace, alignment.b.trace
    environment, info = environment_of(a.info, b.info), flattened(a.info)
    portraits = Portraits(findings, {item.key: (item.values[0], item.values[1]) for item in environment}, info)
    culprits = tuple(portraits.culprit(suspect, rank) for rank, suspect in enumerate(findings.suspects[:SHOWN]))
    calls = tuple(map(len, alignment.unpaired_calls))
    coverage = coverage_of(alignment, len(findings.undecided))
    extra, events = drawn(findings, portraits)
    recording, cheaply = cheap.told(a, b)
    comparison = Comparison(
        verdict=_verdict(a, b, findings, calls, coverage),
        runs=(describe(a), describe(b)),
        warnings=(
            *cheaply,
            *not_blamed(contradicted),
            *warnings_of(findings, coverage, findings.undecided, agree=not findings.differing, values=False),
        ),
        environment=environment,
        coverage=coverage,
        culprits=culprits,
        receivers_by_step=_receivers(findings, portraits),
        extra={**recording, **extra},
        events=events,
    )
    return Pair(comparison, findings, contradicted)


def aligned(a: Trace, b: Trace, *, by_name: bool = False) -> Alignment:
    """Two traces paired, once it is sure that they can be. Raises EmptyTrace, SchemeMismatch and Unrelated.

    by_name: ops of other types are paired where they have one name, see `alignment.pair`.
    """
    for each in (a, b):
        if not len(each.calls) or not len(each.events):
            why = f" ({each.problems[0]})" if each.problems else ""
            raise EmptyTrace(
                f"trace {each.path}",
                found=f"no recorded op{why}",
                hint=f"python -m tfbisect info {os.fspath(each.path)}",
            )
    _check_schemes(a, b)
    check_steps((a, b))
    found = pair(*cheap.common(a, b), by_name=by_name)
    _check_related(found)
    return found


def coverage_of(alignment: Alignment, undecided: int) -> Coverage:
    """How much of two runs was compared."""
    opaque = _opaque_of((*alignment.a.trace.opaque, *alignment.b.trace.opaque))
    return Coverage(alignment.compared, alignment.unpaired_events(), undecided, opaque)


def coverages_together(coverages: Sequence[Coverage]) -> Coverage:
    """Of several pairs of runs, added up; what ran unseen once each."""
    return Coverage(
        sum(coverage.compared for coverage in coverages),
        sum(coverage.unmatched for coverage in coverages),
        sum(coverage.undecided for coverage in coverages),
        _opaque_of(item for coverage in coverages for item in coverage.opaque),
    )


def _check_schemes(a: Trace, b: Trace) -> None:
    one, two = a.info.get("digest"), b.info.get("digest")
    if one != two:
        raise SchemeMismatch("digests", found=f"{one} in {a.path}, {two} in {b.path}", expected="one scheme")


def check_steps(traces: Sequence[Trace]) -> None:
    """Calls are paired by their order, so other steps would be taken for each other. Raises Usage."""
    a = traces[0]
    for b in traces[1:]:
        one, two = steps_recorded(a), steps_recorded(b)
        if one != two:
            found = f"steps {one or 'all'} in {a.path}, steps {two or 'all'} in {b.path}"
            hint = f"python -m tfbisect record --steps {one or two} program.py"
            raise Usage("traces of other steps", found=found, expected="the same steps in both", hint=hint)


def _check_related(alignment: Alignment) -> None:
    a, b = alignment.a.trace, alignment.b.trace
    names = [_program(each) for each in (a, b)]
    paired = sum(other >= 0 for other in alignment.call_to_b)
    smaller = min(len(a.calls), len(b.calls))
    if names[0] != names[1] and paired < UNRELATED * smaller:
        found = f"{names[0]} and {names[1]}, and {paired} of {smaller} calls that correspond"
        raise Unrelated(f"traces {a.path} and {b.path}", found=found, expected="two runs of one program")


def _program(each: Trace) -> str:
    argv = each.info.get("argv")
    return os.path.basename(str(argv[0])) if isinstance(argv, list) and argv else ""


def describe(each: Trace) -> Json:
    """What a report says of a run."""
    info = each.info
    run: Json = {"path": str(each.path), "complete": each.complete, "exit": each.end.get("exit") if each.end else None}
    run |= {"calls": len(each.calls), "events": len(each.events)}
    for key in ("program", "argv", "cwd", "time", "versions", "tfbisect"):
        if key in info:
            run[key] = info[key]
    return run


def environment_of(*runs: Mapping[str, Any]) -> tuple[EnvironmentDifference, ...]:
    """The settings that are not the same in all runs, of which it takes `Trace.info`."""
    infos = list(map(flattened, runs))
    return tuple(
        EnvironmentDifference(key, tuple(info.get(key) for info in infos))
        for key in sorted(set().union(*infos))
        if any(info.get(key) != infos[0].get(key) for info in infos) and not _OWN.match(key)
    )


def _opaque_of(items: Iterable[Opaque]) -> tuple[Opaque, ...]:
    """What ran unseen in some of several runs, once each, with the largest of the counts."""
    found: dict[tuple[str, str, str], Opaque] = {}
    for item in items:
        key = item.name, item.op_type, item.reason
        if key not in found or found[key].count < item.count:
            found[key] = item
    return tuple(found.values())


def _verdict(a: Trace, b: Trace, findings: Findings, calls: tuple[int, ...], coverage: Coverage) -> str:
    if findings.suspects:
        return "diverged"
    if findings.differing or not coverage.compared:
        return "inconclusive"
    if any(calls) or not (a.complete and b.complete):
        return "inconclusive"  # what one run only did, or what was lost, cannot be called equal
    return "identical"


def _receivers(findings: Findings, portraits: Portraits) -> tuple[tuple[int | None, int], ...]:
    steps, calls = portraits.steps[0], len(findings.equality.a.graph_of)
    counts: Counter[int | None] = Counter()
    received = findings.equality.calls[findings.judgements.whats == What.RECEIVER]
    times = tally(received, calls + 1)  # at last those of constants, which are in no call
    for call, count in zip(np.flatnonzero(times).tolist(), times[times > 0].tolist(), strict=True):
        counts[steps.step(call) if call < calls else None] += count
    return tuple(sorted(counts.items(), key=lambda item: (item[0] is None, item[0] or 0)))
