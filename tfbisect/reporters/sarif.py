"""A comparison as SARIF 2.1.0, which code hosts show as annotations at the culprits' lines."""

import json
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any
from urllib.parse import quote

from tfbisect.model import Comparison, Culprit, Json, Source
from tfbisect.reporters import Page
from tfbisect.reporters._culprit import lines, meaning
from tfbisect.reporters.json_report import strict
from tfbisect.version import __version__

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
ROOT = "SRCROOT"


def render(comparison: Comparison, page: Page) -> str:
    """One run of the tool, a result for each culprit; lines of files below the program's folder are relative to it."""
    folder = str(comparison.runs[0].get("cwd", "")) if comparison.runs else ""
    categories = list(dict.fromkeys(culprit.category for culprit in comparison.culprits))
    run: Json = {
        "tool": {
            "driver": {
                "name": "tfbisect",
                "version": __version__,
                "rules": [_rule(category, meaning(comparison, category)) for category in categories],
            }
        },
        "columnKind": "unicodeCodePoints",
        "results": [
            _result(culprit, lines(comparison, culprit, page), categories.index(culprit.category), folder)
            for culprit in comparison.culprits
        ],
        "invocations": [
            {
                "executionSuccessful": comparison.verdict != "inconclusive",
                "toolExecutionNotifications": [
                    {"level": "warning", "message": {"text": text}} for text in comparison.warnings
                ],
            }
        ],
        "properties": {"verdict": comparison.verdict, "compared": comparison.coverage.compared},
    }
    if folder:
        run["originalUriBaseIds"] = {ROOT: {"uri": _uri(folder).rstrip("/") + "/"}}
    document = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(strict(document), indent=2, allow_nan=False) + "\n"


def _rule(category: str, meaning: str) -> Json:
    return {
        "id": f"tfbisect/{category}",
        "name": f"{category.capitalize()}Divergence",
        "shortDescription": {"text": f"An op that {meaning}"},
    }


def _result(culprit: Culprit, text: str, rule: int, folder: str) -> Json:
    result: dict[str, Any] = {
        "ruleId": f"tfbisect/{culprit.category}",
        "ruleIndex": rule,
        "level": "note" if culprit.contained else "error",
        "message": {"text": text},
        "properties": {"op_type": culprit.op_type, "name": culprit.name, "step": culprit.step},
    }
    logical = {"name": culprit.name, "fullyQualifiedName": f"{culprit.function}/{culprit.name}", "kind": "function"}
    location: Json = {"logicalLocations": [logical]}
    if culprit.source is not None:
        location["physicalLocation"] = _physical(culprit.source, folder)
    result["locations"] = [location]
    return result


def _physical(source: Source, folder: str) -> Json:
    region: Json = {"startLine": max(1, source.line)}
    if source.text:
        region["snippet"] = {"text": source.text}
    return {"artifactLocation": _artifact(source.file, folder), "region": region}


def _artifact(file: str, folder: str) -> Json:
    path = _pure(file)
    if folder and path.is_absolute() and path.is_relative_to(_pure(folder)):
        return {"uri": quote(path.relative_to(_pure(folder)).as_posix()), "uriBaseId": ROOT}
    return {"uri": _uri(file)}


def _pure(path: str) -> PurePosixPath | PureWindowsPath:
    """A trace may come from another system: `C:\\train.py` is a path of Windows anywhere."""
    windows = PureWindowsPath(path)
    return windows if windows.drive else PurePosixPath(path)


def _uri(path: str) -> str:
    pure = _pure(path)
    # Surrogates stand for bytes that are no text; a URI has no other way to say that.
    return pure.as_uri() if pure.is_absolute() and not _surrogates(path) else quote(pure.as_posix(), errors="replace")


def _surrogates(text: str) -> bool:
    return any("\ud800" <= char <= "\udfff" for char in text)
