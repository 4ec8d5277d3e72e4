"""Text for people in a terminal: a comparison on one screen, verdict and first culprit first; what a trace holds.

Decides nothing and leaves nothing out silently: what does not fit is counted.
"""

import re
import shlex
from collections.abc import Iterator, Sequence

import numpy as np
from rich.text import Text

from tfbisect.model import Comparison, Culprit, GraphKind, Opaque, SiteKind
from tfbisect.outcomes import many_runs_of, tolerated_of
from tfbisect.reporters import Page
from tfbisect.reporters import _culprit as words
from tfbisect.reporters._extras import many_runs, tolerance, workers
from tfbisect.reporters._text import Block, bar, columns, count, place, rows, safe, sections, tails, to_string
from tfbisect.tables import Trace

OTHERS = 5
STEPS = 6
SETTINGS = 6
UNSEEN = 3
WARNINGS = 6
CAUSES = 2
TRACE_GRAPHS = 10

COLOURS = {"identical": "bold green", "diverged": "bold red", "inconclusive": "bold yellow"}


def render(comparison: Comparison, page: Page) -> str:
    """The comparison as text, ending in a newline. See `Page` for width, colour and characters."""
    parts = (
        _verdict,
        _first,
        _others,
        many_runs,
        workers,
        tolerance,
        _receivers,
        _environment,
        _unseen,
        _warnings,
        _next,
    )
    return sections((part(comparison, page) for part in parts), page)


def _verdict(comparison: Comparison, page: Page) -> Iterator[Block]:
    line = Text(comparison.verdict.upper(), style=COLOURS[comparison.verdict])
    coverage = comparison.coverage
    if comparison.verdict == "identical":
        line.append(f"  {count(coverage.compared, 'value')} compared, {_none(comparison)}", style="default not bold")
    elif comparison.verdict == "diverged" and comparison.culprits:
        line.append("  first at " + _headline(comparison, comparison.culprits[0], page), style="default")
    elif coverage.compared == 0:
        line.append("  nothing could be compared", style="default not bold")
    else:
        line.append("  no op can be named", style="default not bold")
    yield line


def _none(comparison: Comparison) -> str:
    found, many = tolerated_of(comparison), many_runs_of(comparison)
    if found is not None and found.within:
        return f"all within the tolerance, {found.within:,} of them not to the bit"
    return "none differs" + (f" in {len(comparison.runs)} runs" if many is not None else "")


def _headline(comparison: Comparison, culprit: Culprit, page: Page) -> str:
    parts = [safe(words.subject(culprit), page)]
    if culprit.source is not None:
        parts.append(f"line {culprit.source.line} of {safe(culprit.source.base, page)}")
    if culprit.step is not None:
        parts.append(f"in step {culprit.step}")
    if words.workers(culprit, comparison):
        every = len(words.tasks_of(culprit)) == len(comparison.extra["workers"])
        parts.append("on all workers" if every else "on " + safe(" and ".join(words.tasks_of(culprit)), page))
    return ", ".join(parts)


def _first(comparison: Comparison, page: Page) -> Iterator[Block]:
    if comparison.verdict == "identical" or not comparison.culprits:
        return
    culprit = comparison.culprits[0]
    yield Text(f"  {safe(words.subject(culprit), page)} {words.meaning(comparison, culprit.category)}.")
    pairs: list[tuple[str, Text | str]] = []
    if culprit.source is not None:
        inside = f", in {culprit.source.function}" if culprit.source.function else ""
        pairs.append(("line", safe(place(culprit.source, short=False) + inside, page)))
        if culprit.source.text:
            pairs.append(("", Text(safe(culprit.source.text.strip(), page), style="bold")))
    else:
        pairs.append(("line", "not known: no line of the program's own made this op"))
    pairs.append(("op", safe(words.node(culprit), page)))
    if executed := words.executed(culprit):
        pairs.append(("executed", safe(executed, page)))
    if where := words.workers(culprit, comparison):
        pairs.append(("worker", safe(where, page)))
    if culprit.forward_of is not None:
        pairs.append(("belongs to", safe(words.forward(culprit.forward_of), page)))
    if seeds := words.seeds(culprit):
        pairs.append(("seeds", safe(seeds, page)))
    pairs.append(("when", safe(words.when(culprit), page)))
    pairs.append(("evidence", safe(words.evidence(culprit), page)))
    unrecorded = words.unrecorded(culprit)
    for number, text in enumerate(unrecorded[: words.UNRECORDED]):
        pairs.append(("" if number else "or above it", safe(text, page)))
    if len(unrecorded) > words.UNRECORDED:
        pairs.append(("", f"and {count(len(unrecorded) - words.UNRECORDED, 'more op')} that was not recorded"))
    if culprit.last_common:
        pairs.append(("follows", safe(culprit.last_common, page) + " (the last op that both runs have)"))
    pairs += [("writer " + run, safe(writer, page)) for run, writer in zip("AB", culprit.writers, strict=False)]
    pairs.append(("size", safe(words.amount(culprit), page)))
    pairs.append(("category", culprit.category + (", and it dies out: no result differs" if culprit.contained else "")))
    pairs += _causes(culprit, page)
    yield rows(pairs)


def _causes(culprit: Culprit, page: Page) -> Iterator[tuple[str, Text | str]]:
    if not culprit.causes:
        yield "why", "not known: nothing in the knowledge base fits"
    for cause in culprit.causes[:CAUSES]:
        yield "why", safe(f"{cause.title} (confidence {cause.confidence})", page)
        yield "", safe(cause.explanation, page, limit=400)
        if cause.cure:
            yield "change", Text(safe(cause.cure, page, limit=400), style="bold")
    if len(culprit.causes) > CAUSES:
        yield "", f"and {count(len(culprit.causes) - CAUSES, 'less likely cause')}"


def _others(comparison: Comparison, page: Page) -> Iterator[Block]:
    if comparison.verdict == "identical":
        return
    rest = comparison.culprits[1:]
    alive = [culprit for culprit in rest if not culprit.contained]
    contained = len(rest) - len(alive)
    if alive:
        tolerated = tolerated_of(comparison) is not None
        title = "The tolerance is passed from within at these too" if tolerated else "Also differing on their own"
        yield Text(title, style="bold")
        cells = []
        for number, culprit in enumerate(alive[:OTHERS], 2):
            line = place(culprit.source) if culprit.source else ""
            step = "" if culprit.step is None else f"step {culprit.step}"
            much = culprit.difference
            amount = "" if much is None else f"{much.differing:,} of {much.elements:,}"
            where = [" ".join(words.tasks_of(culprit))] if words.workers(culprit, comparison) else []
            texts = (safe(text, page, limit=40) for text in (culprit.op_type, line, step, *where))
            cells.append([str(number), *texts, culprit.category, amount])
        yield columns(cells, right=(0,))
        if len(alive) > OTHERS:
            yield Text(f"  and {len(alive) - OTHERS:,} more")
    if contained:
        yield Text(f"  {count(contained, 'difference')} that died out without reaching a result")


def _receivers(comparison: Comparison, page: Page) -> Iterator[Block]:
    counts = [(step, number) for step, number in comparison.receivers_by_step if number]
    if not counts:
        return
    total = sum(number for _, number in counts)
    verb = "differs" if total == 1 else "differ"
    yield Text(f"{count(total, 'later value')} {verb} only because an input does", style="bold")
    shown = _buckets(counts)
    most = max(number for _, number in shown)
    width = max(8, min(40, page.width - 40))
    yield columns([[label, f"{number:,}", bar(number / most, width, page)] for label, number in shown], right=(1,))


def _buckets(counts: Sequence[tuple[int | None, int]]) -> list[tuple[str, int]]:
    """At most STEPS rows (and one for what lies outside all steps): neighbouring steps are added up."""
    steps = sorted((step, number) for step, number in counts if step is not None)
    outside = sum(number for step, number in counts if step is None)
    each = -(-len(steps) // STEPS) or 1
    result = []
    for i in range(0, len(steps), each):
        group = steps[i : i + each]
        label = f"step {group[0][0]}" if len(group) == 1 else f"steps {group[0][0]} to {group[-1][0]}"
        result.append((label, sum(number for _, number in group)))
    if outside:
        result.append(("no step", outside))
    return result


def _environment(comparison: Comparison, page: Page) -> Iterator[Block]:
    if not comparison.environment:
        return
    yield Text("Set up differently", style="bold")
    room = max(16, (page.width - 48) // max(2, len(comparison.runs)))
    cells = []
    for item in comparison.environment[:SETTINGS]:
        values = tails(["not set" if value is None else safe(value, page) for value in item.values], room, page)
        cells.append([safe(item.key, page, limit=44), *values])
    yield columns(cells)
    if len(comparison.environment) > SETTINGS:
        yield Text(f"  and {len(comparison.environment) - SETTINGS:,} more")


def _unseen(comparison: Comparison, page: Page) -> Iterator[Block]:
    coverage = comparison.coverage
    lines = []
    if coverage.undecided:
        lines.append(f"{count(coverage.undecided, 'difference')} with an input that was not recorded (undecided)")
    if coverage.unmatched:
        lines.append(f"{count(coverage.unmatched, 'value')} in one run only, with no partner in the other (unmatched)")
    lines += _opaque(coverage.opaque)
    if not lines:
        return
    yield Text(f"Not seen (beside {count(coverage.compared, 'compared value')})", style="bold")
    yield columns([["-", safe(line, page)] for line in lines])


def _opaque(items: Sequence[Opaque]) -> list[str]:
    lines = []
    for item in items[:UNSEEN]:
        line = f" at {place(item.source)}" if item.source else ""
        times = f", {item.count:,} times" if item.count > 1 else ""
        name = item.name if item.name == item.op_type else f"{item.op_type} {item.name}".strip()
        lines.append(f"{name}{line}{times}: {item.reason}")
    if len(items) > UNSEEN:
        lines.append(f"and {count(len(items) - UNSEEN, 'more thing')} that ran unseen")
    return lines


def _warnings(comparison: Comparison, page: Page) -> Iterator[Block]:
    if not comparison.warnings:
        return
    yield Text("Warnings", style="bold yellow")
    yield columns([["-", safe(warning, page)] for warning in comparison.warnings[:WARNINGS]])
    if len(comparison.warnings) > WARNINGS:
        yield Text(f"  and {len(comparison.warnings) - WARNINGS:,} more")


def _next(comparison: Comparison, page: Page) -> Iterator[Block]:
    for number, command in enumerate(filter(None, (_command(comparison), _page_command(comparison)))):
        for part, text in enumerate(_pasteable(["python", "-m", "tfbisect", *command], page)):
            line = Text("      " if number or part else "Next  ", style="bold")
            line.append(text, style="default not bold")
            yield line


def _pasteable(command: list[str], page: Page) -> list[str]:
    """A command on as many lines as it needs, each but the last ending in a backslash, as shells want it."""
    lines: list[str] = []
    for word in (safe(shlex.quote(word), page) for word in command):
        if lines and len(lines[-1]) + len(word) + len("Next   \\") <= page.width:
            lines[-1] += " " + word
        else:
            lines.append(word if not lines else "  " + word)
    return [*(line + " \\" for line in lines[:-1]), lines[-1]]


def _page_command(comparison: Comparison) -> list[str]:
    """The arguments of the command that draws what does not fit here."""
    paths = [str(run["path"]) for run in comparison.runs if "path" in run]
    drawn = comparison.verdict == "diverged" and comparison.culprits and len(paths) == 2
    return ["compare", *paths, "-o", "report.html"] if drawn else []


def _command(comparison: Comparison) -> list[str]:
    """The arguments of the command that takes the reader furthest from here."""
    if comparison.verdict == "diverged" and comparison.culprits:
        return ["explain", comparison.culprits[0].op_type]
    run = comparison.runs[0] if comparison.runs else {}
    argv = run.get("argv")
    workers = run.get("workers")
    each = [worker for worker in workers if isinstance(worker, dict)] if isinstance(workers, list) else []
    if comparison.verdict == "identical" and isinstance(argv, list) and argv:
        return ["run", "--times", "5", *(["--workers", str(len(each))] if len(each) > 1 else []), *map(str, argv)]
    return ["info", str((each[0] if each else run).get("path", "a.h5"))]


# ---------------------------------------------------------------------------------------------------------------------
# A trace
# ---------------------------------------------------------------------------------------------------------------------


def render_trace(trace: Trace, ops: "re.Pattern[str] | None", page: Page) -> str:
    """What a trace holds; with `ops` the ops whose `function/node` or type matches. Ends in a newline."""
    if ops is not None:
        return to_string(_ops(trace, ops, page), page)
    blocks: list[Block] = [Text(safe(trace.path, page), style="bold")]
    kept = int(np.count_nonzero(trace.events["value"]))
    holds = [count(len(trace.calls), "call"), count(len(trace.events), "event"), f"{count(kept, 'value')} kept"]
    pairs: list[tuple[str, Text | str]] = [
        ("complete", "yes" if trace.complete else "no: what was recorded before the end is here"),
        ("holds", ", ".join(holds)),
    ]
    pairs += [("problem", safe(problem, page)) for problem in trace.problems]
    pairs += [("dropped", safe(f"{what}: {number:,}", page)) for what, number in sorted(trace.dropped.items())]
    pairs += [("not seen" if i == 0 else "", safe(line, page)) for i, line in enumerate(_opaque(trace.opaque))]
    settings = sorted(trace.info.items(), key=lambda item: item[0] == "environment")  # the longest comes last
    pairs += [(safe(key, page, limit=12), safe(_plain(value), page, limit=240)) for key, value in settings]
    blocks += [rows(pairs), Text(""), Text("Runs most", style="bold"), *_graphs(trace, page)]
    return to_string(blocks, page)


def _plain(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}={_plain(item)}" for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return " ".join(_plain(item) for item in value)
    return str(value)


def _graphs(trace: Trace, page: Page) -> Iterator[Block]:
    """Functions and eager op types by number of calls. Each line that runs an eager op has a graph of its own."""
    totals: dict[tuple[str, str], tuple[int, int]] = {}
    for id, number in zip(*np.unique(trace.calls["graph"], return_counts=True), strict=True):
        graph = trace.graphs[int(id)]
        eager = graph.kind == GraphKind.EAGER and graph.op >= 0
        key = (graph.nodes[graph.op].op, "eager op") if eager else (graph.name, graph.kind.name.lower())
        calls, nodes = totals.get(key, (0, 0))
        totals[key] = (calls + int(number), max(nodes, len(graph.nodes)))
    order = sorted(totals.items(), key=lambda item: (-item[1][0], item[0]))
    cells = []
    for (name, kind), (calls, nodes) in order[:TRACE_GRAPHS]:
        size_of = "" if kind == "eager op" else count(nodes, "node")
        cells.append([f"{calls:,}", safe(name, page, limit=40), kind, size_of])
    yield columns(cells, right=(0,))
    if len(order) > TRACE_GRAPHS:
        yield Text(f"  and {len(order) - TRACE_GRAPHS:,} more")


def _ops(trace: Trace, pattern: "re.Pattern[str]", page: Page) -> Iterator[Block]:
    per_site = np.bincount(trace.events["site"], minlength=len(trace.sites))
    per_node: dict[tuple[int, int], int] = {}
    for row, site in enumerate(trace.sites):
        if site["kind"] != SiteKind.ARG:
            key = (int(site["graph"]), int(site["node"]))
            per_node[key] = per_node.get(key, 0) + int(per_site[row])
    cells: list[list[Text | str]] = []
    for (graph_id, index), number in sorted(per_node.items()):
        graph = trace.graphs[graph_id]
        node = graph.nodes[index]
        label = node.name if graph.kind == GraphKind.EAGER else f"{node.function or graph.name}/{node.name}"
        if pattern.search(label) or pattern.search(node.op):
            source = trace.source(node.stack)
            line = safe(place(source), page) if source else ""
            cells.append([f"{number:,}", safe(node.op, page), safe(label, page), line])
    yield Text(count(len(cells), "op") + " (events, type, name, line)", style="bold")
    if cells:
        yield columns(cells, right=(0,))
