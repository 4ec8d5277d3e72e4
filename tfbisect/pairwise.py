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
from tfbisect.bisector import Findings, What, bisect
from tfbisect.categories import flattened
from tfbisect.culprits import Portraits, shown
from tfbisect.drawing import drawn
from tfbisect.errors import EmptyTrace, SchemeMismatch, Unrelated, Usage
from tfbisect.job import processes, task_of
from tfbisect.model import Comparison, Coverage, EnvironmentDifference, Json, Opaque
from tfbisect.provenance import Run
from tfbisect.tables import Trace

UNRELATED = 0.1  # share of calls below which traces of other programs have nothing to do with each other
SHOWN = 200  # culprits that are told of in full
EXAMPLES = 3
TOLD = 1000  # undecided differences whose texts are counted
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
    recording, remarks = cheap.told(a, b)
    comparison = Comparison(
        verdict=_verdict(a, b, findings, calls, coverage),
        runs=(describe(a), describe(b)),
        warnings=(*remarks, *_contradicted(contradicted), *_warnings(a, b, findings, calls, coverage)),
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
    opaque = opaque_of((*alignment.a.trace.opaque, *alignment.b.trace.opaque))
    return Coverage(alignment.compared, alignment.unpaired_events(), undecided, opaque)


def _check_schemes(a: Trace, b: Trace) -> None:
    one, two = a.info.get("digest"), b.info.get("digest")
    if one != two:
        raise SchemeMismatch("digests", found=f"{one} in {a.path}, {two} in {b.path}", expected="one scheme")


def _steps_recorded(each: Trace) -> str | None:
    """The steps that were recorded op by op, as `record --steps` took them; None: all."""
    steps = each.options.get("steps")
    return None if steps is None else str(steps)


def check_steps(traces: Sequence[Trace]) -> None:
    """Calls are paired by their order, so other steps would be taken for each other. Raises Usage."""
    a = traces[0]
    for b in traces[1:]:
        one, two = _steps_recorded(a), _steps_recorded(b)
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


def opaque_of(items: Iterable[Opaque]) -> tuple[Opaque, ...]:
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
    run, steps = findings.equality.a, portraits.steps[0]
    calls = Counter(
        run.event_call[pair[0]]
        for pair, judged in zip(findings.equality.pairs, findings.judgements, strict=True)
        if judged.what == What.RECEIVER
    )
    counts: Counter[int | None] = Counter()
    for call, count in calls.items():
        counts[steps.step(call) if call >= 0 else None] += count
    return tuple(sorted(counts.items(), key=lambda item: (item[0] is None, item[0] or 0)))


# ---------------------------------------------------------------------------------------------------------------------
# Warnings
# ---------------------------------------------------------------------------------------------------------------------


def _warnings(a: Trace, b: Trace, findings: Findings, calls: tuple[int, ...], coverage: Coverage) -> list[str]:
    found = [f"run {letter}: {problem}" for letter, each in (("A", a), ("B", b)) for problem in each.problems]
    steps = _steps_recorded(a)
    if steps is not None:
        found.append(f"only steps {steps} were recorded; calls are counted from the first one recorded")
    found += _hidden(findings)
    found += _undecided(findings)
    found += not_listed(len(findings.suspects))
    alignment = findings.equality.alignment
    if any(calls):
        found.append(
            f"{calls[0]} calls in run A and {calls[1]} in run B have no partner in the other run: "
            f"{_examples(alignment)}"
        )
    elif coverage.unmatched:
        found.append(f"{coverage.unmatched} values have no partner in the other run: other branches, loops or ops ran")
    if alignment.by_text:
        moved = "lines have other numbers in the two runs (edited, or run from another place)"
        found.append(f"{moved}: they were matched by their text")
    found += _other_program(alignment)
    if findings.file_names:
        found.append(
            f"{len(findings.file_names)} differing values are names of files and reach only ops that save, load or log"
        )
    for letter, each in (("A", a), ("B", b)):
        dropped = {what: count for what, count in each.dropped.items() if not what.startswith("values")}
        found += [f"run {letter}: {count} {what} were dropped" for what, count in sorted(dropped.items())]
    if coverage.opaque and not findings.differing:
        found.append(f"{len(coverage.opaque)} things ran unseen: what they did is not known to be equal")
    return found


def not_listed(culprits: int) -> list[str]:
    """A warning where there are more than SHOWN."""
    return [f"{culprits - SHOWN} more culprits are not listed"] if culprits > SHOWN else []


def _other_program(alignment: Alignment) -> list[str]:
    """What speaks against two runs of one program: hardly a call that corresponds, lines of other text."""
    paired = sum(other >= 0 for other in alignment.call_to_b)
    smaller = min(len(alignment.call_to_a), len(alignment.call_to_b))
    found = []
    if paired < UNRELATED * smaller:
        found.append(f"only {paired} of {smaller} calls correspond: are these traces of one program?")
    lines = {}
    a, b = alignment.a.trace, alignment.b.trace
    partners = np.asarray(alignment.call_to_b, np.int64)
    rows = np.flatnonzero(partners >= 0)
    kinds = [each.calls[key][at] for key in ("stack", "graph") for each, at in ((a, rows), (b, partners[rows]))]
    for one, two, graph, other in np.unique(np.stack(kinds), axis=1).T.tolist():
        if a.graphs[graph].name != b.graphs[other].name:
            continue  # a value of Python's, say, has the line of what took it first
        mine, theirs = a.source(one), b.source(two)
        if mine is not None and theirs is not None and mine.text and theirs.text and mine.text != theirs.text:
            lines[mine.line] = (mine.text.strip(), theirs.text.strip())
    if lines:
        line, (mine_text, their_text) = min(lines.items())
        also = f", and {len(lines) - 1} more lines" if len(lines) > 1 else ""
        found.append(f"the program was edited between the runs: line {line} is {mine_text} and {their_text}{also}")
    return found


def _contradicted(names: tuple[str, ...]) -> list[str]:
    text = "grouping by inputs contradicts that these diverged on equal inputs, so they are not blamed: "
    return [text + ", ".join(names[:SHOWN])] if names else []


def _examples(alignment: Alignment) -> str:
    """A few of the calls without partner, as text."""
    texts: Counter[str] = Counter()
    for run, calls in zip((alignment.a, alignment.b), alignment.unpaired_calls, strict=True):
        for call in calls[:100]:
            texts[_call_text(run, call)] += 1
    shown = [text for text, _ in texts.most_common(EXAMPLES)]
    return ", ".join(shown) + (", ..." if len(texts) > EXAMPLES else "")


def _call_text(run: Run, call: int) -> str:
    source = run.trace.source(int(run.trace.calls["stack"][call]))
    return run.flow(call).graph.name + (f" at line {source.line}" if source is not None else "")


def _undecided(findings: Findings) -> list[str]:
    """Differences that no op can be blamed for, the first of them by name, and where they likely come from."""
    run = findings.equality.a
    texts: Counter[str] = Counter()
    for number in findings.undecided[:TOLD]:
        text = _op_text(run, findings.equality.pairs[number][0])
        texts[f"{text}: {findings.judgements[number].reason}{_likely(findings, text)}"] += 1
    shown = list(texts.items())[:EXAMPLES]
    found = [f"undecided: {text}" + (f" ({times} times)" if times > 1 else "") for text, times in shown]
    left = len(findings.undecided) - sum(times for _, times in shown)
    return [*found, f"undecided: {left} more differences"] if left else found


def _likely(findings: Findings, text: str) -> str:
    """The first culprit as the likely origin of an undecided difference, whose own text tells nothing new."""
    if not findings.suspects:
        return ""
    first = findings.suspects[0]
    origin = _op_text((findings.equality.a, findings.equality.b)[first.side], first.row)
    return f"; likely origin: {origin}" if origin != text else ""


def _op_text(run: Run, row: int) -> str:
    name, op_type, source = shown(run, row)
    return op_type + (f" {name}" if name != op_type else "") + (f" at line {source.line}" if source is not None else "")


def _hidden(findings: Findings) -> list[str]:
    """Culprits right behind something unseen: the blame may belong one hop higher."""
    found = []
    for suspect in findings.suspects[:EXAMPLES]:
        run = (findings.equality.a, findings.equality.b)[suspect.side]
        flow, index, _slot, _kind = run.node_of(suspect.row)
        node = flow.nodes[index]
        if run.hidden(node):
            found.append(f"{node.op} {node.name} hides what ran inside it: the op to blame is one of those")
            continue
        above = [flow.nodes[edge.src] for edge in node.inputs]
        unseen = next((each for each in above if run.hidden(each)), None)
        if unseen is not None:
            found.append(
                f"{unseen.op} {unseen.name} stands just above {node.op} {node.name} and was not seen: "
                "the blame may belong one hop higher"
            )
    return found
