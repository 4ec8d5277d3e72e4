"""The JSON of a comparison: its schema, files of earlier versions, files that are something else, `report`."""

import json
from pathlib import Path

import jsonschema
import pytest
from helpers import ROOT
from minilang import record

from tfbisect import errors, result
from tfbisect.comparison import compare
from tfbisect.model import COMPARISON_FORMAT, Comparison
from tfbisect.reporters import Page, formats, render

SCHEMA = json.loads((ROOT / "tfbisect" / "reporters" / "schema.json").read_text(encoding="utf-8"))
STORED = sorted((ROOT / "tests" / "golden").glob("result_format_*.json"))
TEXT = "v := Variable x0; r = read v; dense = MatMul x r; u = ResourceApplyGradientDescent v dense; loss = Sum dense"


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    record(TEXT, tmp_path / "a.h5", values=True)
    record(TEXT, tmp_path / "b.h5", values=True, change={"dense@1": 3})
    path = tmp_path / "result.json"
    path.write_text(render(compare(tmp_path / "a.h5", tmp_path / "b.h5"), "json", Page()), encoding="utf-8")
    return path


def valid(data):
    jsonschema.validate(data, SCHEMA, jsonschema.Draft202012Validator)


def test_the_schema_is_one_and_of_this_format():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["properties"]["format"] == {"const": COMPARISON_FORMAT}


def test_what_is_written_fits_the_schema(stored):
    data = json.loads(stored.read_text(encoding="utf-8"))
    valid(data)
    # The schema tells of every key that is written, at the top, of culprits and of the graph.
    rest = {"cheap", "expanded", "many_runs", "recording", "tolerance", "workers"}
    assert set(SCHEMA["properties"]) - set(data) == rest
    assert set(data) <= set(SCHEMA["properties"])
    assert set(data["culprits"][0]) <= set(SCHEMA["$defs"]["culprit"]["properties"])
    assert set(data["graph"]["nodes"][0]) == set(SCHEMA["$defs"]["node"]["properties"])
    assert set(data["timeline"][0]) == set(SCHEMA["$defs"]["moment"]["properties"])


@pytest.mark.parametrize(
    "change", [{}, {"dense@0": 1}, {"dense@0": 1, "loss@2": 1}], ids=["identical", "one", "two culprits"]
)
def test_other_verdicts_fit_the_schema(tmp_path, change):
    record(TEXT, tmp_path / "a.h5")
    record(TEXT, tmp_path / "b.h5", change=change)
    valid(compare(tmp_path / "a.h5", tmp_path / "b.h5").to_json())


def test_the_schema_would_notice():
    data = Comparison("identical").to_json()
    valid(data)
    with pytest.raises(jsonschema.ValidationError):
        valid({**data, "verdict": "maybe"})


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.stem)
def test_stored_files_of_earlier_versions_load_and_become_every_report(path):
    data = json.loads(path.read_text(encoding="utf-8"))
    valid(data)
    comparison = result.load(path)
    assert comparison.verdict == "diverged" and comparison.culprits[0].name == "dense"
    assert all(render(comparison, format, Page()) for format in formats())


def test_a_stored_result_becomes_the_same_report_as_its_traces(stored):
    read = result.load(stored)
    assert read == compare(stored.parent / "a.h5", stored.parent / "b.h5")
    assert all(
        render(read, format, Page()) == render(compare(stored.parent / "a.h5", stored.parent / "b.h5"), format, Page())
        for format in formats()
    )


def test_keys_of_a_later_version_are_kept(stored):
    data = json.loads(stored.read_text(encoding="utf-8"))
    data["unheard_of"] = [1]
    assert Comparison.from_json(data).to_json()["unheard_of"] == [1]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", errors.NotAResult),
        ("{", errors.NotAResult),
        ("[]", errors.NotAResult),
        ('{"verdicts": 1}', errors.NotAResult),
        ("[" * 100_000, errors.NotAResult),
        ('{"verdict": "diverged"}', errors.Damaged),
        ('{"format": 1, "verdict": "odd"}', errors.Damaged),
        ('{"format": 999, "verdict": "diverged"}', errors.NewerFormat),
    ],
)
def test_what_is_no_result_is_said(tmp_path, text, error):
    path = tmp_path / "result.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(error):
        result.load(path)


def test_other_things_than_files(tmp_path):
    with pytest.raises(errors.NotFound):
        result.load(tmp_path / "none.json")
    with pytest.raises(errors.NotAResult, match="a folder"):
        result.load(tmp_path)
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(errors.NotAResult):
        result.load(tmp_path / "binary.json")


def test_report_needs_no_traces(cli, stored, tmp_path):
    for name in ("a.h5", "b.h5"):
        (tmp_path / name).unlink()
    done = cli("report", "result.json")
    assert done.returncode == 1 and done.stdout.startswith("DIVERGED  first at MatMul")
    assert cli("report", "result.json", "--format", "html").returncode == 1
    assert (tmp_path / "result.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    again = cli("report", "result.json", "--format", "html")
    assert again.returncode == 2 and "[output-exists]" in again.stderr
    assert cli("report", "result.json", "-o", "junit.xml").returncode == 1
    assert (tmp_path / "junit.xml").read_text(encoding="utf-8").startswith("<?xml")
    same = cli("report", "result.json", "-o", "result.json", "--force")
    assert same.returncode == 2 and "[usage]" in same.stderr


def test_report_says_what_is_wrong(cli, stored):
    done = cli("report", "a.h5")
    assert done.returncode == 2 and "[not-a-result]" in done.stderr and "compare a.h5" in done.stderr
    done = cli("report", "none.json")
    assert done.returncode == 2 and "[not-found]" in done.stderr and "Traceback" not in done.stderr
