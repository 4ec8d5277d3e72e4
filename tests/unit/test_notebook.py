"""What values show of themselves in a notebook, and tables of events."""

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from minilang import record

from tfbisect import trace
from tfbisect.comparison import compare
from tfbisect.model import Comparison
from tfbisect.notebook import Bar, Card, Code, Facts, Grid
from tfbisect.replayer.result import Replay, ReplayProcess

TEXT = "v := Variable x0; r = read v; dense = MatMul x r; u = ResourceApplyGradientDescent v dense; loss = Sum dense"


@pytest.fixture
def pair(tmp_path: Path):
    record(TEXT, tmp_path / "a.h5", values=True)
    record(TEXT, tmp_path / "b.h5", values=True, change={"dense@1": 2})
    return tmp_path / "a.h5", tmp_path / "b.h5"


def test_a_comparison_shows_its_culprit(pair):
    shown = compare(*pair)._repr_html_()
    assert "first at MatMul" in shown and "step 1" in shown
    assert "1 of 6 elements differ, at most 2 ulp" in shown
    assert "<script" not in shown and "http" not in shown.replace("https://", "")


def test_identical_and_empty_comparisons_show_themselves(pair):
    assert "identical" in compare(pair[0], pair[0])._repr_html_()
    assert "inconclusive" in Comparison("inconclusive")._repr_html_()


@given(st.text(max_size=20))
def test_what_a_card_is_made_of_is_never_markup(text):
    hostile = "</td><script>alert(1)</script>" + text
    rows = [(hostile, hostile), (hostile, Code(hostile)), (hostile, Bar(3, 0.5))]
    card = Card(hostile, hostile, [Facts(rows), Grid(hostile, (hostile,), [(hostile,), (Bar(1, 1.0),)], False)])
    assert "<script>" not in card.html() and "</td><s" not in card.html()


def test_a_table_is_cut_and_says_so():
    shown = Grid("numbers", ("number",), [(f"row {i}",) for i in range(20)]).html()
    assert "row 7" in shown and "row 8" not in shown and "and 12 more" in shown


def test_a_hostile_comparison_shows_no_markup(pair):
    result = compare(*pair)
    culprit = dataclasses.replace(result.culprits[0], op_type="<img src=x onerror=alert(1)>", name="<b>")
    shown = dataclasses.replace(result, culprits=(culprit,), warnings=("<i>",))._repr_html_()
    assert "<img" not in shown and "<b>" not in shown and "<i>" not in shown


def test_a_trace_shows_itself_and_is_a_frame(pair):
    loaded = trace.load(pair[0])
    assert "complete" in loaded._repr_html_() and str(pair[0]) in loaded._repr_html_()
    frame = loaded.to_frame()
    assert len(frame) == len(loaded.events)
    dense = frame[frame.name == "dense"]
    assert dense.op_type.unique().tolist() == ["MatMul"] and len(dense) == 3
    assert dense.kept.all() and dense["shape"].tolist() == [(2, 3)] * 3
    assert dense.line.notna().all() and (dense.kind == "output").all()
    assert dense.digest.nunique() == len(set(loaded.events["digest"][dense.index]))


def test_constants_have_no_call(tmp_path):
    record("c = Const a=1; y = Add x c", tmp_path / "a.h5")
    frame = trace.load(tmp_path / "a.h5").to_frame()
    assert frame[frame.kind == "const"].call.isna().all() and len(frame[frame.kind == "const"]) == 1


def test_a_replay_shows_its_results():
    replay = Replay(
        trace="a.h5", op_type="MatMul", kernel="_FusedMatMul", name="dense/<b>", device="CPU:0", call=0, step=1,
        iteration=(), source=None, inputs=("float32 [2, 3]",), threads=(2, 2), versions={"tensorflow": "2.21.0"},
        outcome="varies", processes=(ReplayProcess(10, (("aa", 9), ("bb", 1))),), distinct=(("aa", 9), ("bb", 1)),
        difference=None, as_recorded=9,
    )  # fmt: skip
    shown = replay._repr_html_()
    assert "varies in isolation" in shown and "2 distinct results in 10 runs" in shown and "_FusedMatMul" in shown
    assert "dense/&lt;b&gt;" in shown
