"""A comparison of cheap recordings says what it stands for, in every form."""

import json

import pytest
from minilang import record

from tfbisect.comparison import compare
from tfbisect.reporters import Page, render

TEXT = "h = MatMul x w; a = Relu h; b = Mul a y; out = MatMul b w; loss = Sum out"


@pytest.fixture
def traces(tmp_path):
    def write(change=(), cheap="ab", **options):
        for letter in "ab":
            passes = (lambda name: True) if letter in cheap else None
            changed = dict.fromkeys(change, 1) if letter == "b" else {}
            record(TEXT, tmp_path / f"{letter}.h5", passes=passes, change=changed, **options)
        return compare(tmp_path / "a.h5", tmp_path / "b.h5")

    return write


def listed(comparison):
    return [each["name"] for each in comparison.culprits[0].extra.get("unrecorded", ())]


@pytest.mark.parametrize("planted", ["a", "b", "out"])
@pytest.mark.parametrize("cheap", ["ab", "a", "b"])
def test_what_is_named_stands_for_itself_and_the_ops_above_it(traces, planted, cheap):
    result = traces([planted], cheap)
    (culprit,) = result.culprits
    assert (culprit.name, culprit.op_type, listed(result)) == ("out", "MatMul", ["b", "a"])
    assert [(item.name, item.equal) for item in culprit.inputs] == [("h", True), ("y", True), ("w", True)]
    assert "3 of 3 inputs bit-identical; 2 ops above it" in culprit.explanation
    source = culprit.extra["unrecorded"][0]["source"]
    assert (source["file"], source["line"]) == ("program.py", 3)


def test_an_op_right_behind_what_is_recorded_stands_for_itself(traces):
    result = traces(["loss"])
    assert (result.culprits[0].name, listed(result)) == ("loss", [])
    assert "1 of 1 inputs bit-identical" == result.culprits[0].explanation


def test_a_difference_passes_what_is_not_recorded(traces):
    result = traces(["h"])
    assert [culprit.name for culprit in result.culprits] == ["h"] and not result.culprits[0].contained


def test_every_form_says_so(traces):
    result = traces(["b"])
    assert result.extra["recording"] == {
        "ops": "suspects", "runs": ["A", "B"], "passed": 2, "op_types": ["Mul", "Relu"], "in_full": [],
    }  # fmt: skip
    assert result.warnings[0].startswith("cheap recording (--ops suspects) of both runs: 2 elementwise, exact ops")
    terminal = render(result, "terminal", Page())
    flat = " ".join(terminal.split())
    assert "first at MatMul (or one of 2 unrecorded ops above it)" in flat and "cheap recording" in flat
    assert "or above it Mul b, program.py:3: b = Mul a y" in flat
    data = json.loads(render(result, "json", Page()))
    assert [each["op_type"] for each in data["culprits"][0]["unrecorded"]] == ["Mul", "Relu"]
    for form in ("junit", "sarif"):
        assert "one of 2 unrecorded ops above it" in render(result, form, Page())
    assert "cheap recording" in render(result, "html", Page()) and "may be to blame" in result._repr_html_()


def test_equal_runs_are_identical_and_said_to_be_recorded_cheaply(traces):
    result = traces()
    assert result.verdict == "identical" and "of both runs" in result.warnings[0]
    assert "of run B" in traces(cheap="b").warnings[0]
    assert not traces(cheap="").warnings


def test_other_ops_between_leave_it_undecided(tmp_path):
    record(TEXT, tmp_path / "a.h5", passes=lambda name: True)
    record(TEXT.replace("b = Mul a y", "b = Sub a y"), tmp_path / "b.h5", passes=lambda name: True)
    result = compare(tmp_path / "a.h5", tmp_path / "b.h5")
    assert result.verdict == "inconclusive" and not result.culprits


def test_cheap_runs_are_not_grouped_by_what_was_not_recorded(tmp_path):
    """Three runs, of which one has another unrecorded op: `out` did not give several outputs for equal inputs."""
    for letter, op in zip("abc", ("Mul", "Mul", "Sub"), strict=True):
        record(TEXT.replace("Mul a", f"{op} a"), tmp_path / f"{letter}.h5", passes=lambda name: True)
    result = compare(*(tmp_path / f"{letter}.h5" for letter in "abc"))
    assert result.verdict == "inconclusive" and not result.culprits
