"""A cure for people at a terminal: the verdict, the lines to paste, what was tried, the checklist. Decides nothing."""

from collections.abc import Iterator

from rich.padding import Padding
from rich.text import Text

from tfbisect.model import Culprit
from tfbisect.remedy import Cure, Trial
from tfbisect.reporters import Page
from tfbisect.reporters._text import Block, columns, count, place, rows, safe, sections

COLOURS = {"cured": "bold green", "not cured": "bold red", "repeats": "bold green", "unfinished": "bold yellow"}
MANY = 5  # settings that are named in a row of the table
MEANING = {
    "not cured": "no setting from outside makes the runs identical: the program itself must change",
    "repeats": "the runs did not differ",
    "unfinished": "the runs allowed were used before a cure was found",
}


def render(cure: Cure, page: Page) -> str:
    """The cure as text, ending in a newline."""
    parts = (_verdict, _paste, _change, _tried, _checklist, _notes)
    return sections((part(cure, page) for part in parts), page)


def _verdict(cure: Cure, page: Page) -> Iterator[Block]:
    line = Text(cure.verdict.upper(), style=COLOURS[cure.verdict])
    proof = cure.proof
    if proof is not None:
        text = f"{', '.join(cure.minimal)}: {proof.identical} of {proof.pairs} pairs identical"
        line.append(f"  {safe(text, page)}", style="default")
    else:
        line.append(f"  {MEANING.get(cure.verdict, '')}", style="default not bold")
    yield line
    pairs: list[tuple[str, str]] = []
    if cure.culprits:
        pairs.append(("first at", safe(_where(cure.culprits[0]), page)))
        for cause in cure.culprits[0].causes[:1]:
            pairs.append(("why", safe(f"{cause.title} (confidence {cause.confidence})", page)))
    untreated = cure.untreated
    pairs.append(("untreated", f"{untreated.identical} of {count(untreated.pairs, 'pair')} identical"))
    plain = cure.plain
    if plain is not None:
        text = f"{plain.identical} of {count(plain.pairs, 'pair')} left the same variables and output"
        text += f" (not: {safe(plain.treated, page)})" if plain.treated else ""
        text += f", calls take {plain.step_time:.2f} times as long" if plain.step_time else ""
        pairs.append(("plain runs", text))
        before = safe(plain.untreated, page) if plain.untreated else "no difference"
        pairs.append(("", f"untreated: {before} in {count(plain.untreated_pairs, 'pair')}"))
    pairs.append(("runs", str(cure.runs)))
    yield rows(pairs)


def _where(culprit: Culprit) -> str:
    where = culprit.op_type
    if culprit.source is not None:
        where += f", {place(culprit.source)}: {culprit.source.text.strip()}"
    return f"{where} [{culprit.category}]"


def _paste(cure: Cure, page: Page) -> Iterator[Block]:
    if cure.lines:
        yield Text("Paste", style="bold")
        for line in cure.lines:
            yield Padding(Text(safe(line, page)), (0, 0, 0, 2))


def _change(cure: Cure, page: Page) -> Iterator[Block]:
    """What no setting reaches, and what to change there."""
    if not cure.remaining:
        return
    yield Text("Change in the program", style="bold")
    for culprit in cure.remaining:
        pairs = [("line", safe(_where(culprit), page))]
        for cause in culprit.causes[:1]:
            pairs.append(("why", safe(cause.explanation, page, limit=300)))
            if cause.cure:
                pairs.append(("change", safe(cause.cure, page)))
        yield rows(pairs)


def _tried(cure: Cure, page: Page) -> Iterator[Block]:
    if not cure.trials:
        return
    yield Text("Tried", style="bold")
    yield columns([
        ["setting", "identical", "step time", "raises"],
        *(_row(trial, page) for trial in (cure.untreated, *cure.trials)),
    ])  # fmt: skip
    for trial in cure.trials:
        if trial.raised is not None and (trial.raised.op_types or trial.raised.workaround):
            text = ", ".join(trial.raised.op_types) + " raises under it. " + trial.raised.workaround
            yield rows([(safe(_names(trial), page), safe(text, page))])
    yield Text("  step time: of the busiest function's calls while recorded, against the untreated runs", style="dim")


def _row(trial: Trial, page: Page) -> list[str]:
    time = "" if trial.step_time is None else f"x {trial.step_time:.2f}"
    raises = "no" if trial.raised is None else trial.raised.message
    if trial.own:
        raises += f"; the program sets {', '.join(trial.own)} itself, which stands"
    return [safe(_names(trial), page), f"{trial.identical} of {trial.pairs}", time, safe(raises, page, limit=120)]


def _names(trial: Trial) -> str:
    if not trial.settings:
        return "nothing"
    if len(trial.settings) > MANY:
        return f"all of {len(trial.settings)}, {trial.settings[0]} to {trial.settings[-1]}"
    return " + ".join(trial.settings)


def _checklist(cure: Cure, page: Page) -> Iterator[Block]:
    if not cure.checklist:
        return
    yield Text("The usual checklist, for this program", style="bold")
    order = {"needed": 0, "would do too": 1, "wasted": 2}
    ranked = sorted(cure.checklist, key=lambda advice: order[advice.need])
    yield columns([[advice.need, safe(advice.item, page), safe(advice.reason, page)] for advice in ranked])


def _notes(cure: Cure, page: Page) -> Iterator[Block]:
    for note in cure.notes:
        yield Text(safe(note, page))
