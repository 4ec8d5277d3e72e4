"""A culprit in words, for every format that is read by people."""

from collections.abc import Sequence

from tfbisect.model import Comparison, Culprit, ForwardOp, Source
from tfbisect.outcomes import tolerated_of
from tfbisect.reporters import Page
from tfbisect.reporters._text import count, device, place, safe, size

UNRECORDED = 8  # ops above a culprit that were not recorded, as many as are listed
MEANING = {
    "kernel": "got the same bits in both runs and gave other bits",
    "rng": "drew other random numbers, or was given another seed",
    "input": "is where other data came in",
    "state": "read something that was not the same before any recorded op wrote it",
    "host": "took another value from Python",
    "race": "did the same things in another order",
    "environment": "got the same bits but ran under another set-up, and gave other bits",
    "structure": "is the first place where other ops or shapes were executed",
    "unknown": "differs, and nothing above it does",
}


def meaning(comparison: Comparison, category: str) -> str:
    """What makes an op of this category a culprit, as the rest of a sentence that its op type begins."""
    return MEANING[category] if tolerated_of(comparison) is None else "is where the tolerance is passed"


def unrecorded(culprit: Culprit) -> list[str]:
    """The ops above a culprit that a cheap recording passed by, and which may be to blame in its place."""
    found = culprit.extra.get("unrecorded")
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        return []
    texts = []
    for each in found:
        source = each.get("source")
        line = f", {place(Source.from_json(source))}: {source.get('text', '').strip()}" if source else ""
        name = f" {each.get('name')}" if each.get("name") != each.get("op_type") else ""
        texts.append(f"{each.get('op_type')}{name}{line}")
    return texts


def subject(culprit: Culprit) -> str:
    """The op type of a culprit, with a word of those above it that may be to blame in its place."""
    above = len(unrecorded(culprit))
    if not above:
        return culprit.op_type
    return f"{culprit.op_type} (or {'an unrecorded op' if above == 1 else f'one of {above} unrecorded ops'} above it)"


def lines(comparison: Comparison, culprit: Culprit, page: Page) -> str:
    """All that annotations of code hosts and CI systems have room for, on a few lines."""
    found = [f"{subject(culprit)} {meaning(comparison, culprit.category)}.", f"op: {node(culprit)}"]
    if culprit.source is not None:
        found.append(f"line: {place(culprit.source, short=False)}: {culprit.source.text.strip()}")
    if where := workers(culprit, comparison):
        found.append(f"worker: {where}")
    found += [f"when: {when(culprit)}", f"evidence: {evidence(culprit)}", f"size: {amount(culprit)}"]
    found += [f"or: {text}" for text in unrecorded(culprit)[:UNRECORDED]]
    for cause in culprit.causes[:1]:
        found += [f"why: {cause.title} (confidence {cause.confidence})", f"change: {cause.cure}"]
    if culprit.contained:
        found.append("It dies out: no result differs.")
    return "\n".join(safe(line, page) for line in found)


def executed(culprit: Culprit) -> str:
    """The kernel that ran in the place of the op, where TensorFlow fused or replaced it; else nothing."""
    kernel = culprit.extra.get("executed")
    return f"{kernel}: TensorFlow fused the op, or gave it to another kernel" if isinstance(kernel, str) else ""


def seeds(culprit: Culprit) -> str:
    """The seeds of an op that draws random numbers; else nothing."""
    known = culprit.extra.get("seeds")
    if not known or not isinstance(known, list) or not all(isinstance(each, dict) for each in known):
        return ""
    texts = [f"graph seed {each.get('graph')}, op seed {each.get('op')}" for each in known]
    if len(set(texts)) == 1:
        return texts[0]
    return "; ".join(f"run {run}: {text}" for run, text in zip("AB", texts, strict=False))


def workers(culprit: Culprit, comparison: Comparison) -> str:
    """The workers of a job that differ at an op by themselves; nothing where there is one process."""
    tasks, all_of_them = tasks_of(culprit), comparison.extra.get("workers")
    if not tasks or not isinstance(all_of_them, list) or len(all_of_them) < 2:
        return ""
    if len(tasks) == len(all_of_them):
        return f"all {len(tasks)}" if len(tasks) > 2 else "both"
    return f"{' and '.join(tasks)} alone, of {len(all_of_them)}"


def tasks_of(culprit: Culprit) -> list[str]:
    """The tasks of a job that a culprit is of; none where there is one process."""
    tasks = culprit.extra.get("tasks")
    return list(map(str, tasks)) if isinstance(tasks, list) else []


def node(culprit: Culprit) -> str:
    """The op, and where it ran."""
    name = culprit.name if culprit.name != culprit.op_type else ""
    parts = [name or culprit.op_type]
    if culprit.slot > 0:
        parts.append(f"output {culprit.slot}")
    if culprit.device:
        parts.append(f"on {device(culprit.device)}")
    if culprit.replica is not None:
        parts.append(f"replica {culprit.replica}")
    if culprit.thread:
        parts.append(f"thread {culprit.thread}")
    return ", ".join(parts)


def forward(op: ForwardOp) -> str:
    """The forward op that a gradient belongs to."""
    kind = f" ({op.op_type})" if op.op_type else ""
    line = f", {place(op.source)}: {op.source.text.strip()}" if op.source else ""
    return f"{op.name}{kind}{line}"


def when(culprit: Culprit) -> str:
    """Step, call and iteration, in both runs where they are not the same."""

    def moment(step: int | None, call: int | None, iteration: Sequence[int]) -> str:
        parts = [] if step is None else [f"step {step}"]
        if call is not None:
            parts.append(f"call {call}")
        if iteration:
            parts.append("iteration " + ".".join(str(i) for i in iteration))
        return ", ".join(parts) or "once"

    text = moment(culprit.step, culprit.call, culprit.iteration)
    if culprit.function and culprit.call is not None:
        text += f" of {culprit.function}" if not culprit.iteration else f", in {culprit.function}"
    other = culprit.b
    if other is None:
        return text + " (in run A only)"
    if (other.step, other.call, other.iteration) != (culprit.step, culprit.call, culprit.iteration):
        text += f" (in run B: {moment(other.step, other.call, other.iteration)})"
    return text + ", counted from 0"


def evidence(culprit: Culprit) -> str:
    """Why it is one."""
    if culprit.explanation:
        return culprit.explanation
    if not culprit.inputs:
        return "it has no recorded inputs: the difference enters here"
    equal = sum(item.equal for item in culprit.inputs)
    return f"{equal} of {count(len(culprit.inputs), 'input')} bit-identical"


def amount(culprit: Culprit) -> str:
    """How large its difference is."""
    difference = culprit.difference
    if difference is None:
        return "not known: values of this op were not kept"
    basis = f"; {difference.basis}" if difference.basis else ""
    return f"{size(difference)} ({difference.dtype}{basis})"
