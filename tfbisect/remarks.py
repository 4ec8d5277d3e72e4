"""What a comparison of two runs has to say beside its answer: what was not seen, not paired, lost or left out.

Bit for bit and within a tolerance alike. Decides nothing.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from tfbisect.alignment import Alignment
from tfbisect.bisector import Findings
from tfbisect.culprits import shown
from tfbisect.model import Coverage
from tfbisect.provenance import Run
from tfbisect.tables import Trace

UNRELATED = 0.1  # share of calls below which traces of other programs have nothing to do with each other
SHOWN = 200  # culprits that are told of in full
EXAMPLES = 3
TOLD = 1000  # undecided differences whose texts are counted


def warnings_of(
    findings: Findings, coverage: Coverage, undecided: Sequence[int], *, agree: bool, values: bool
) -> list[str]:
    """All warnings that do not depend on how values were compared, each a sentence.

    undecided: the undecided differences to tell of. agree: whether nothing differs that counts. values: whether it
    matters which values were kept.
    """
    alignment = findings.equality.alignment
    a, b = alignment.a.trace, alignment.b.trace
    found = [f"run {letter}: {problem}" for letter, each in (("A", a), ("B", b)) for problem in each.problems]
    steps = steps_recorded(a)
    if steps is not None:
        found.append(f"only steps {steps} were recorded; calls are counted from the first one recorded")
    found += _hidden(findings)
    found += _undecided(findings, undecided)
    found += not_listed(len(findings.suspects))
    found += _unpaired(alignment, coverage)
    if alignment.by_text:
        moved = "lines have other numbers in the two runs (edited, or run from another place)"
        found.append(f"{moved}: they were matched by their text")
    found += _other_program(alignment)
    if findings.file_names:
        found.append(
            f"{len(findings.file_names)} differing values are names of files and reach only ops that save, load or log"
        )
    for letter, each in (("A", a), ("B", b)):
        dropped = {what: count for what, count in each.dropped.items() if values or not what.startswith("values")}
        found += [f"run {letter}: {count} {what} were dropped" for what, count in sorted(dropped.items())]
    if coverage.opaque and agree:
        found.append(f"{len(coverage.opaque)} things ran unseen: what they did is not known to be equal")
    return found


def steps_recorded(each: Trace) -> str | None:
    """The steps that were recorded op by op, as `record --steps` took them; None: all."""
    steps = each.options.get("steps")
    return None if steps is None else str(steps)


def not_listed(culprits: int) -> list[str]:
    """A warning where there are more than SHOWN."""
    return [f"{culprits - SHOWN} more culprits are not listed"] if culprits > SHOWN else []


def not_blamed(names: tuple[str, ...]) -> list[str]:
    """A warning where ops are not blamed because grouping by inputs says otherwise."""
    text = "grouping by inputs contradicts that these diverged on equal inputs, so they are not blamed: "
    return [text + ", ".join(names[:SHOWN])] if names else []


def _unpaired(alignment: Alignment, coverage: Coverage) -> list[str]:
    calls = tuple(map(len, alignment.unpaired_calls))
    if any(calls):
        text = f"{calls[0]} calls in run A and {calls[1]} in run B have no partner in the other run: "
        return [text + _examples(alignment)]
    if coverage.unmatched:
        return [f"{coverage.unmatched} values have no partner in the other run: other branches, loops or ops ran"]
    return []


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


def _undecided(findings: Findings, numbers: Sequence[int]) -> list[str]:
    """Some differences that no op can be blamed for, the first of them by name, and where they likely come from."""
    run = findings.equality.a
    texts: Counter[str] = Counter()
    for number in numbers[:TOLD]:
        text = _op_text(run, findings.equality.pairs[number][0])
        texts[f"{text}: {findings.judgements[number].reason}{_likely(findings, text)}"] += 1
    shown = list(texts.items())[:EXAMPLES]
    found = [f"undecided: {text}" + (f" ({times} times)" if times > 1 else "") for text, times in shown]
    left = len(numbers) - sum(times for _, times in shown)
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
