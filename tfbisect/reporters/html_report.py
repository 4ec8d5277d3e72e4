"""A comparison as one page that stands by itself: data, scripts, styles and licences in one file, offline.

The page is built around the JSON of the comparison, and adds only what its categories mean and what was cut. What comes
from a trace is never markup: it stands in the page as JSON whose angle brackets are escaped, and scripts set it as
text. A content policy lets only the scripts of the page itself run and forbids every request.
"""

import base64
import collections
import hashlib
import html
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from tfbisect.model import CATEGORIES, Comparison, Json
from tfbisect.reporters import Page
from tfbisect.reporters._culprit import meaning
from tfbisect.reporters.json_report import strict
from tfbisect.reporters.terminal import render as as_text

SUFFIXES = ("htm",)
LARGEST = 3 * 10**6  # bytes of a page
TEXT, ITEMS = 1000, 400  # characters of a text, items of a list that is nobody's own part of the page
COLUMNS = 100  # of the text for browsers without scripts
SHORTEST_TEXT = 200_000  # characters of it
ROOM_FOR_CUT = 1000  # bytes that tell what was cut

_ASSETS = Path(__file__).parent / "assets"
_SCRIPTS = (
    "cytoscape.min.js", "cytoscape-dagre.min.js", "uPlot.iife.min.js", "tabulator.min.js",
    "page_dom.js", "page_answer.js", "page_graph.js", "page_plots.js", "page_table.js", "page_more.js", "page.js",
)  # fmt: skip
_STYLES = ("uPlot.min.css", "tabulator.min.css", "page.css")
_SOURCE_MAP = re.compile(r"(//|/\*)# sourceMappingURL=\S+( \*/)?\s*")
_LINKS = "the links of the graph"
# The lists that grow with a trace, each with what it is called in the page; the largest is cut first.
_LONG = (
    ("differing ops", ("differing", "rows")),
    ("the ops of the graph", ("graph", "nodes")),
    (_LINKS, ("graph", "edges")),
    ("culprits", ("culprits",)),
    ("things not seen", ("coverage", "opaque")),
    ("settings", ("environment",)),
    ("warnings", ("warnings",)),
    ("steps", ("timeline",)),
    ("points of the growth", ("growth", "points")),
    ("steps of receivers", ("receivers_by_step",)),
    ("lines of code", ("differing", "sources")),
)


def render(comparison: Comparison, page: Page) -> str:
    """The page, below LARGEST bytes for any comparison; what does not fit is counted in it."""
    scripts = [_asset(name) for name in _SCRIPTS]
    hashes = " ".join(f"'sha256-{_hash(script)}'" for script in scripts)
    text = as_text(comparison, Page(COLUMNS, colour=False, unicode=True))[:SHORTEST_TEXT]
    parts = {
        "hashes": hashes,
        "verdict": comparison.verdict,
        "styles": "\n".join(_asset(name) for name in _STYLES),
        "text": html.escape(text),
        "scripts": "\n".join(f"<script>{script}</script>" for script in scripts),
        "licences": _asset("LICENSES.txt"),
    }
    room = LARGEST - sum(len(part.encode()) for part in parts.values()) - len(_asset("page.html"))
    meanings = {category: meaning(comparison, category) for category in CATEGORIES}
    parts["data"] = _fitted(strict(comparison.to_json()), room, meanings)
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], _asset("page.html"))


@cache
def _asset(name: str) -> str:
    return _SOURCE_MAP.sub("", (_ASSETS / name).read_text(encoding="utf-8"))


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _fitted(data: Json, room: int, meaning: dict[str, str]) -> str:
    """The data as JSON that may stand in a script element, of at most `room` bytes."""
    data = {key: value for key, value in data.items() if key in _KNOWN}
    long = [items for _, path in _LONG if (items := _at(data, path)) is not None]
    cut: collections.Counter[str] = collections.Counter()
    data = {**_shortened(data, set(map(id, long)), cut), "meaning": meaning}
    lists = {name: (path, items) for name, path in _LONG if (items := _at(data, path))}
    sizes = {name: len(_encoded(items)) for name, (_, items) in lists.items()}
    room -= len(_encoded(data)) - sum(sizes.values()) + ROOM_FOR_CUT
    while sizes and sum(sizes.values()) > room:
        name = max(sizes, key=sizes.__getitem__)
        path, items = lists[name]
        keep = len(items) // 2
        cut[name] += len(items) - keep
        del items[keep:]
        sizes[name] = len(_encoded(items))
        if not items:
            del sizes[name]
        if path == ("graph", "nodes"):  # nodes are numbered in order, nearest first
            edges = data["graph"]["edges"]
            edges[:] = [edge for edge in edges if max(edge) < keep]
            if _LINKS in sizes:
                sizes[_LINKS] = len(_encoded(edges))
        if path == ("differing", "sources"):
            _forget_sources(data["differing"], keep)
    return _encoded({**data, "cut": cut})


_KNOWN = frozenset({
    "format", "verdict", "runs", "warnings", "environment", "coverage", "culprits", "receivers_by_step",
    "graph", "timeline", "growth", "differing", "many_runs", "tolerance", "workers",
})  # fmt: skip


def _encoded(value: Any) -> str:
    """JSON in which no markup can begin or end."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _at(data: Json, path: tuple[str, ...]) -> list[Any] | None:
    here: Any = data
    for key in path:
        here = here.get(key) if isinstance(here, dict) else None
    return here if isinstance(here, list) else None


def _shortened(value: Any, long: set[int], cut: collections.Counter[str]) -> Any:
    """A copy with long texts, and long lists other than those named by id, cut; `cut` counts the items."""
    if isinstance(value, str):
        return value if len(value) <= TEXT else value[: TEXT - 1] + "\u2026"
    if not isinstance(value, dict | list):
        return value
    kept = len(value) if id(value) in long else min(len(value), ITEMS)
    if kept < len(value):
        cut["the items of other lists"] += len(value) - kept
    if isinstance(value, list):
        return [_shortened(item, long, cut) for item in value[:kept]]
    return {_shortened(key, long, cut): _shortened(item, long, cut) for key, item in list(value.items())[:kept]}


def _forget_sources(differing: Json, keep: int) -> None:
    at = differing["columns"].index("source")
    for row in differing["rows"]:
        if row[at] is not None and row[at] >= keep:
            row[at] = None
