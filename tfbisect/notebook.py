"""Small HTML for notebooks: what a value shows of itself when a cell ends with it.

Knows only plain data (titles, labels, cells, numbers), runs no script and takes the notebook's own colours, so that it
is right in light and dark themes and in a stored notebook. All text is escaped.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from tfbisect.errors import printable

LONGEST = 300  # characters of a cell
MOST = 8  # rows of a table
STYLE = (
    ".tfbisect{font:14px/1.45 system-ui,sans-serif;max-width:60em}"
    ".tfbisect table{border-collapse:collapse;margin:.3em 0;font-size:inherit}"
    ".tfbisect td,.tfbisect th{text-align:left;vertical-align:top;padding:.1em .9em .1em 0;border:0;background:none}"
    ".tfbisect th{font-weight:600;opacity:.75}"
    ".tfbisect code{white-space:pre-wrap;background:none;color:inherit}"
    ".tfbisect summary{cursor:pointer}"
    ".tfbisect .bar{display:inline-block;height:.7em;background:#c2571a;vertical-align:baseline}"
    ".tfbisect .verdict{font-weight:700;font-size:1.1em}"
    ".tfbisect .diverged{color:#c2571a}.tfbisect .identical{color:#2b8a3e}.tfbisect .inconclusive{color:#a07800}"
)


@dataclass(frozen=True, slots=True)
class Facts:
    """Labels and what stands behind them."""

    rows: Sequence[tuple[str, object]]

    def html(self) -> str:
        """A table of two columns."""
        cells = "".join(
            f'<tr><th scope="row">{_cell(label)}</th><td>{_cell(value)}</td></tr>' for label, value in self.rows
        )
        return f"<table>{cells}</table>"


@dataclass(frozen=True, slots=True)
class Grid:
    """A table with a head, of which the first MOST rows are shown; a `Bar` may stand in a cell."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[object]]
    open: bool = True

    def html(self) -> str:
        """Folded away unless `open`."""
        head = "".join(f'<th scope="col">{_cell(name)}</th>' for name in self.head)
        cells = ("".join(f"<td>{_cell(value)}</td>" for value in row) for row in self.rows[:MOST])
        rows = "".join(f"<tr>{row}</tr>" for row in cells)
        more = f"<p>and {len(self.rows) - MOST:,} more</p>" if len(self.rows) > MOST else ""
        title = f"<summary>{_cell(self.title)}</summary>"
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
        return f"<details{' open' if self.open else ''}>{title}{table}{more}</details>"


@dataclass(frozen=True, slots=True)
class Bar:
    """A number and how it compares with the largest."""

    number: int
    share: float

    def html(self) -> str:
        """The number in front, so that it is read out."""
        return f'{self.number:,} <span class="bar" style="width:{max(self.share, 0.01) * 12:.2f}em"></span>'


@dataclass(frozen=True, slots=True)
class Code:
    """Program text."""

    text: str

    def html(self) -> str:
        """In the notebook's own fixed-width font."""
        return f"<code>{_text(self.text)}</code>"


@dataclass(frozen=True, slots=True)
class Card:
    """What a value shows: a word, a sentence behind it, and blocks below."""

    word: str
    sentence: str
    blocks: Sequence[Facts | Grid] = ()

    def html(self) -> str:
        """The whole card with its style."""
        head = f'<span class="verdict {escape(self.word, quote=True)}">{_text(self.word)}</span> {_text(self.sentence)}'
        return (
            f'<style>{STYLE}</style><div class="tfbisect"><p>{head}</p>{"".join(b.html() for b in self.blocks)}</div>'
        )


class Shown:
    """Makes a value show itself in a notebook: a subclass says what its card is."""

    __slots__ = ()

    @abstractmethod
    def _card(self) -> Card:
        """What the value shows of itself."""

    def _repr_html_(self) -> str:
        return self._card().html()


def comparison_card(data: Mapping[str, Any]) -> Card:
    """The card of a comparison; data: its JSON."""
    culprits, coverage = data["culprits"], data["coverage"]
    blocks: list[Facts | Grid] = []
    sentence = f"{coverage['compared']:,} values compared"
    if data["verdict"] == "diverged" and culprits:
        above = " (or an unrecorded op above it)" if culprits[0].get("unrecorded") else ""
        sentence = f"first at {culprits[0]['op_type']}{above}{_where(culprits[0])}"
        blocks += _culprit(culprits[0])
        others = [(each["op_type"], _where(each).lstrip(", "), each["category"]) for each in culprits[1:]]
        if others:
            blocks.append(Grid("Also differing on their own", ("op", "where", "category"), others, False))
    blocks += _bars(data["receivers_by_step"])
    settings = [(item["key"], *item["values"]) for item in data["environment"]]
    if settings:
        head = ("setting", *"AB"[: len(settings[0]) - 1])
        blocks.append(Grid("Set up differently", head, settings, False))
    unseen = [(item["op_type"], item["name"], item["reason"], item["count"]) for item in coverage["opaque"]]
    if unseen:
        blocks.append(Grid("Not seen", ("op", "name", "reason", "times"), unseen, False))
    if data["warnings"]:
        blocks.append(Grid("Warnings", ("",), [(text,) for text in data["warnings"]], False))
    return Card(data["verdict"], sentence, blocks)


def _line(source: Mapping[str, Any] | None) -> str:
    return f"line {source['line']} of {source['file'].replace(chr(92), '/').rsplit('/', 1)[-1]}" if source else ""


def _where(culprit: Mapping[str, Any]) -> str:
    line = f", {_line(culprit['source'])}" if culprit["source"] else ""
    return line + (f", step {culprit['step']}" if culprit["step"] is not None else "")


def _culprit(culprit: Mapping[str, Any]) -> list[Facts | Grid]:
    rows: list[tuple[str, object]] = []
    if culprit["source"]:
        rows.append(("line", Code(culprit["source"]["text"].strip() or culprit["source"]["file"])))
    equal = sum(item["equal"] for item in culprit["inputs"])
    evidence = f"{equal} of {len(culprit['inputs'])} inputs bit-identical" if culprit["inputs"] else "no recorded input"
    rows += [("op", culprit["name"]), ("category", culprit["category"])]
    rows.append(("evidence", culprit["explanation"] or evidence))
    size = culprit["difference"]
    if size:
        text = f"{size['differing']:,} of {size['elements']:,} elements differ"
        text += f", at most {size['max_ulp']:,} ulp" if size["max_ulp"] is not None else ""
        rows.append(("size", text))
    for cause in culprit["causes"][:2]:
        rows += [("why", f"{cause['title']} (confidence {cause['confidence']})"), ("change", Code(cause["cure"]))]
    blocks: list[Facts | Grid] = [Facts(rows)]
    if culprit["inputs"]:
        inputs = [(i["op_type"], i["name"], "equal" if i["equal"] else "differs") for i in culprit["inputs"]]
        blocks.append(Grid("Its inputs", ("op", "name", "in both runs"), inputs, False))
    if unrecorded := culprit.get("unrecorded"):
        ops = [(each["op_type"], each["name"], _line(each["source"])) for each in unrecorded]
        blocks.append(Grid("Not recorded, above it: one of these may be to blame", ("op", "name", "line"), ops, False))
    return blocks


def _bars(counts: Sequence[Sequence[Any]]) -> list[Facts | Grid]:
    if not counts:
        return []
    largest = max(count for _, count in counts) or 1
    rows = [("none" if step is None else step, Bar(count, count / largest)) for step, count in counts]
    total = sum(count for _, count in counts)
    title = f"{total:,} later values differ only because an input does"
    return [Grid(title, ("step", "values"), rows)]


def _cell(value: object) -> str:
    return value.html() if isinstance(value, (Bar, Code)) else _text(value)


def _text(value: object) -> str:
    line = printable(value)
    return escape(line if len(line) <= LONGEST else line[: LONGEST - 1] + "…")
