"""Sections of the terminal's text for more than two runs, for tolerances and for several workers."""

from collections.abc import Iterator, Sequence

from rich.text import Text

from tfbisect.model import Comparison
from tfbisect.outcomes import GraphDifference, Growth, ManyRuns, Tolerated, many_runs_of, tolerated_of
from tfbisect.reporters import Page
from tfbisect.reporters._text import Block, bar, columns, count, place, rows, safe

PAIRS = 8
CULPRITS = 5
ROWS = 14
GRAPHS = 8
WORKERS = 8
CHANCE = 0.1


def many_runs(comparison: Comparison, page: Page) -> Iterator[Block]:
    """Outcomes, pairs, how often each culprit shows, doubt. Runs are numbered from 1, in the order they were given."""
    many = many_runs_of(comparison)
    if many is None:
        return
    yield Text(f"All {len(comparison.runs)} runs", style="bold")
    pairs: list[tuple[str, Text | str]] = [("outcomes", f"{len(many.outcomes)}: runs {_groups(many.outcomes)}")]
    for number, item in enumerate(many.pairs[:PAIRS]):
        pairs.append(
            ("runs" if not number else "", f"{_numbers(item.runs)}: {item.verdict}{_differing(item.differing)}")
        )
    if len(many.pairs) > PAIRS:
        pairs.append(("", f"and {len(many.pairs) - PAIRS:,} more pairs"))
    for culprit in many.culprits[:CULPRITS]:
        line = f" at {place(culprit.source)}" if culprit.source else ""
        outputs = f": equal outputs: runs {_groups(culprit.groups)}" if culprit.groups else ""
        times = f"{len(culprit.seen_in)} of {culprit.pairs}"
        pairs.append((times, safe(f"{culprit.op_type}{line}{outputs}", page)))
    pairs.append(("doubt", _doubt(many)))
    check = many.cross_check
    if check.checked:
        agree = f"; {check.confirmed} of {count(len(many.culprits), 'culprit')} gave several outputs for equal inputs"
        pairs.append(("grouping", f"{count(check.checked, 'event')} by op and inputs, without alignment{agree}"))
    yield rows(pairs)


def _doubt(many: ManyRuns) -> str:
    doubt = many.doubt
    if doubt.agreeing < doubt.pairs:
        return f"{doubt.pairs - doubt.agreeing} of {count(doubt.pairs, 'pair')} did not agree"
    pairs, unseen = count(doubt.pairs, "pair"), (1 - CHANCE) ** doubt.pairs
    return (
        f"{doubt.agreeing} of {pairs} agree: what 1 in {1 / CHANCE:.0f} shows stays unseen with chance {unseen:.2f}, "
        f"what {100 * doubt.excluded:.0f} in 100 show with chance 0.05"
    )


def _numbers(runs: Sequence[int]) -> str:
    return " and ".join(str(number + 1) for number in runs)


def _groups(groups: Sequence[Sequence[int]]) -> str:
    return " | ".join(" ".join(str(number + 1) for number in group) for group in groups)


def _differing(number: int) -> str:
    return f", {count(number, 'value')} differ" if number else ""


STATES = {
    "identical": "identical",
    "diverged": "differs by itself",
    "received": "received from others",
    "inconclusive": "inconclusive",
}


def workers(comparison: Comparison, page: Page) -> Iterator[Block]:
    """What became of each worker of a job."""
    told = comparison.extra.get("workers")
    known = [each for each in told if isinstance(each, dict)] if isinstance(told, list) else []
    if not known:
        return
    yield Text(count(len(known), "worker"), style="bold")
    cells = []
    for each in known[:WORKERS]:
        state = STATES.get(str(each.get("state")), "inconclusive")
        values = f"{each.get('differing', 0):,} of {each.get('compared', 0):,} values differ"
        cells.append([safe(str(each.get("task")), page, limit=40), state, values])
    yield columns(cells)
    if len(known) > WORKERS:
        yield Text(f"  and {len(known) - WORKERS:,} more")


def tolerance(comparison: Comparison, page: Page) -> Iterator[Block]:
    """How many values are within the tolerance, how the error grows, and which ops the graphs do not share."""
    found = tolerated_of(comparison)
    if found is None:
        return
    yield Text(f"Within rtol {found.rtol:g}, atol {found.atol:g}, ulp {found.ulp}", style="bold")
    counts = f"{found.equal:,} values bit-identical, {found.within:,} within, {found.beyond:,} beyond"
    lost = f", {found.not_measured:,} differ and were not kept" if found.not_measured else ""
    yield rows([("values", counts + lost)])
    if found.growth:
        yield Text("")
        yield Text(
            "How the error grows, from where it enters to the last result (> beyond the tolerance)", style="bold"
        )
        yield columns(_growth(found.growth, page), right=(3, 4, 5))
    yield from _graphs(found, page)


def _growth(growth: Sequence[Growth], page: Page) -> list[list[Text | str]]:
    """The rows of the way: its two ends and where the tolerance is passed, with what is left out counted."""
    first = next((number for number, item in enumerate(growth) if not item.within), None)
    kept = set(range(len(growth)))
    if len(growth) > ROWS:
        half = ROWS // 2
        kept = {*range(half), *range(len(growth) - half + 2, len(growth))}
        kept |= set() if first is None else {max(first - 1, 0), first}
    most = max((item.rms or 0.0 for item in growth), default=0.0) or 1.0
    cells: list[list[Text | str]] = [["", "op", "line", "rms error", "rel", "ulp", ""]]
    before = -1
    for number in sorted(kept):
        if number - before > 1:
            cells.append(["", f"... {number - before - 1} more", *[""] * 5])
        before = number
        item = growth[number]
        name = item.op_type if item.op_type == item.op_type_b else f"{item.op_type} / {item.op_type_b}"
        line = place(item.source) if item.source else ""
        figures = map(_figure, (item.rms, item.max_rel, item.max_ulp))
        marks = bar((item.rms or 0.0) / most, 8, page)
        beyond = "" if item.within else ">"
        cells.append([beyond, safe(name, page, limit=44), safe(line, page, limit=28), *figures, marks])
    return cells


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.2g}"


def _graphs(found: Tolerated, page: Page) -> Iterator[Block]:
    if not found.graph_differences_total:
        return
    yield Text("")
    yield Text("The graphs are not the same", style="bold")
    merged: dict[tuple[str, str, str], list[GraphDifference]] = {}
    for item in found.graph_differences:
        merged.setdefault((item.kind, item.op_type_a, item.op_type_b), []).append(item)
    cells: list[list[Text | str]] = []
    for (kind, op_a, op_b), items in list(merged.items())[:GRAPHS]:
        what = {"type": f"{op_a} in A, {op_b} in B", "attributes": f"{op_a} with another kernel or attributes"}.get(
            kind, f"{op_a or op_b} in {'A' if op_a else 'B'} only"
        )
        if items[0].instead:
            what += f", for it {'B' if op_a else 'A'} has {items[0].instead}"
        more = f" and {len(items) - 1} more" if len(items) > 1 else ""
        cells.append([safe(what, page, limit=90), safe(items[0].name, page, limit=50) + more])
    yield columns(cells)
    if len(merged) > GRAPHS or found.graph_differences_total > len(found.graph_differences):
        yield Text(f"  {count(found.graph_differences_total, 'op')} in all")
