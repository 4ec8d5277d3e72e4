"""What a report draws: the ops around a culprit, all that differs, the time line, the way to a result, the code."""

from pathlib import Path

import numpy as np
import pytest
from minilang import record

from tfbisect import metrics, overview, surroundings
from tfbisect.comparison import compare
from tfbisect.errors import Usage
from tfbisect.model import Comparison, Source
from tfbisect.snippets import Snippets

TRAINING = (
    "v := Variable x0; r = read v; dense = MatMul x r; act = Relu dense; g = Mul act x; "
    "u = ResourceApplyGradientDescent v g; loss = Sum act"
)


@pytest.fixture
def compared(tmp_path: Path):
    def make(text, change, *, values=False, **options) -> Comparison:
        record(text, tmp_path / "a.h5", values=values, **options)
        record(text, tmp_path / "b.h5", values=values, change=change, **options)
        return compare(tmp_path / "a.h5", tmp_path / "b.h5")

    return make


def named(comparison):
    nodes = comparison.extra["graph"]["nodes"]
    return {(node["name"], node["step"]): node for node in nodes if not node["argument"]}


def edges(comparison):
    nodes = comparison.extra["graph"]["nodes"]
    keys = [(node["name"], node["step"]) for node in nodes]
    return {(keys[one], keys[two]) for one, two in comparison.extra["graph"]["edges"]}


def rows(comparison):
    table = comparison.extra["differing"]
    return [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]


def test_the_graph_has_equal_inputs_above_and_receivers_below(compared):
    result = compared(TRAINING, {"dense@1": 1})
    nodes = named(result)
    culprit = nodes["dense", 1]
    assert (culprit["state"], culprit["culprit"], culprit["level"]) == ("culprit", 0, 0)
    assert (nodes["act", 1]["state"], nodes["act", 1]["level"]) == ("receiver", 1)
    assert (nodes["r", 1]["state"], nodes["r", 1]["level"]) == ("equal", -1)
    assert {(("r", 1), ("dense", 1)), (("dense", 1), ("act", 1)), (("act", 1), ("g", 1))} <= edges(result)


def test_the_graph_crosses_steps_through_variables(compared):
    result = compared(TRAINING, {"dense@1": 1})
    assert (("u", 1), ("r", 2)) in edges(result)
    assert (("u", 0), ("r", 1)) in edges(result)  # upwards too, where nothing differs
    assert named(result)["r", 2]["state"] == "receiver"


def test_two_culprits_stand_in_one_graph(compared):
    result = compared("a = MatMul x y; b = Tanh x; c = Add a b", {"a@0": 1, "b@0": 1})
    nodes = named(result)
    assert {nodes["a", None]["culprit"], nodes["b", None]["culprit"]} == {0, 1}
    assert nodes["c", None]["level"] == 1


def test_what_one_run_only_executed_is_drawn_with_what_took_it(tmp_path: Path):
    record("a = MatMul x y; c = Tanh a", tmp_path / "a.h5")
    record("a = MatMul x y; b = Relu a; c = Tanh b", tmp_path / "b.h5")
    result = compare(tmp_path / "a.h5", tmp_path / "b.h5")
    nodes = [node for node in result.extra["graph"]["nodes"] if node["culprit"] == 0]
    assert len(nodes) == 1 and nodes[0]["op_type"] == result.culprits[0].op_type
    assert any(node["name"] == "c" for node in result.extra["graph"]["nodes"])


def test_a_wide_graph_is_cut_and_the_rest_counted(compared, monkeypatch):
    monkeypatch.setattr(surroundings, "BELOW", 5)
    text = "a = MatMul x y; " + "; ".join(f"t{i} = Tanh a" for i in range(30))
    result = compared(text, {"a@0": 1}, calls=1)
    culprit = next(node for node in result.extra["graph"]["nodes"] if node["culprit"] == 0)
    below = [edge for edge in result.extra["graph"]["edges"] if edge[0] == culprit["id"]]
    assert len(below) == 5 and culprit["more_below"] == 25


def test_every_differing_op_is_in_the_table_once(compared):
    result = compared(TRAINING, {"dense@1": 1}, values=True)
    table = {row["name"]: row for row in rows(result)}
    assert set(table) == {"dense", "act", "g", "u", "loss", "r"}
    assert next(iter(table)) == "dense" and table["dense"]["state"] == "culprit"
    assert (table["act"]["state"], table["act"]["events"], table["act"]["step"], table["act"]["last_step"]) == (
        "receiver", 2, 1, 2,
    )  # fmt: skip
    assert table["dense"]["max_ulp"] == 1 and table["dense"]["dtype"] == "float32"
    source = result.extra["differing"]["sources"][table["dense"]["source"]]
    assert "dense = MatMul" in source["text"]


def test_the_table_is_cut_and_the_rest_counted(compared, monkeypatch):
    monkeypatch.setattr(overview, "OPS", 2)
    table = compared(TRAINING, {"dense@1": 1}).extra["differing"]
    assert (len(table["rows"]), table["ops"], table["left_out"]) == (2, 6, 4)


def test_the_time_line_counts_by_step(compared):
    result = compared(TRAINING, {"dense@1": 1}, values=True)
    line = {item["step"]: item for item in result.extra["timeline"]}
    assert [line[step]["differing"] for step in range(3)] == [0, 5, 6]
    assert line[1]["culprit"] == 1 and line[2]["culprit"] == 0 and line[2]["receiver"] == 6
    assert line[1]["max_ulp"] >= 1 and line[0]["max_ulp"] is None
    assert sum(item["compared"] for item in line.values()) == result.coverage.compared


def test_many_steps_are_added_up(compared, monkeypatch):
    monkeypatch.setattr(overview, "STEPS", 4)
    result = compared(TRAINING, {"dense@1": 1}, calls=10)
    line = [item for item in result.extra["timeline"] if item["step"] is not None]
    assert [(item["step"], item["to"]) for item in line] == [(0, 2), (3, 5), (6, 8), (9, 9)]
    assert sum(item["differing"] for item in line) == result.extra["differing"]["events"]


def test_the_way_to_a_result_is_a_chain(compared):
    growth = compared(TRAINING, {"dense@0": 1}, values=True).extra["growth"]
    names = [point["name"] for point in growth["points"]]
    assert names[0] == "dense" and len(names) == growth["events"] and not growth["left_out"]
    assert names[-1] in ("u", "loss") and growth["points"][-1]["step"] == 2
    assert all(point["max_ulp"] is not None for point in growth["points"])
    assert [point["position"] for point in growth["points"]] == list(range(len(names)))


def test_identical_runs_have_nothing_to_draw(compared):
    extra = compared(TRAINING, {}).extra
    assert extra["graph"] == {"nodes": [], "edges": []}
    assert extra["differing"]["rows"] == [] and extra["growth"] is None
    assert not any(item["differing"] for item in extra["timeline"])


def test_the_events_as_a_frame(compared):
    result = compared(TRAINING, {"dense@1": 1})
    frame = result.to_frame()
    assert len(frame) == result.extra["differing"]["events"] == 11
    assert list(frame.columns) == list(overview.EVENT_COLUMNS)
    assert frame[frame.state == "culprit"].name.tolist() == ["dense"]
    assert set(frame[frame.step == 2].name) == {"dense", "act", "g", "u", "loss", "r"}
    with pytest.raises(Usage, match="read from JSON"):
        Comparison.from_json(result.to_json()).to_frame()


def test_code_is_shown_only_where_the_file_still_has_the_line(tmp_path: Path):
    file = tmp_path / "train.py"
    file.write_text("\n".join(f"line {i}" for i in range(1, 20)), encoding="utf-8")
    around = Snippets().around(Source(str(file), 5, "f", "line 5"))
    assert around == {"first": 2, "lines": [f"line {i}" for i in range(2, 9)]}
    assert Snippets().around(Source(str(file), 5, "f", "line 6")) is None
    assert Snippets().around(Source(str(file), 500, "f", "line 5")) is None
    assert Snippets().around(Source(str(tmp_path / "none.py"), 1, "f", "x")) is None
    secret = tmp_path / "secret.txt"
    secret.write_text("line 1\npassword", encoding="utf-8")
    assert Snippets().around(Source(str(secret), 1, "f", "line 1")) is None
    assert Snippets().around(Source("bad\0name.py", 1, "f", "x")) is None


def test_a_spread_says_how_far_and_where():
    a = np.ones((100, 60), np.float32)
    b = a.copy()
    b[10, 20:24] = np.nextafter(b[10, 20:24], np.float32(2))  # 1 ulp
    b[90, 59] += np.float32(10 * 2**-23)  # 10 ulp
    found = metrics.spread(a, b)
    assert found["ulp"] == [[1, 1, 4], [8, 15, 1]]
    where = found["where"]
    counts = np.asarray(where["counts"])
    assert counts.sum() == 5 and where["full"] == where["down"] * where["across"]
    assert counts[10 // where["down"]].sum() == 4 and counts[90 // where["down"], 59 // where["across"]] == 1
    assert counts.shape[0] <= metrics.CELLS and counts.shape[1] <= metrics.CELLS


@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 1, 5), (2, 0)])
def test_a_spread_of_any_shape(shape):
    a = np.zeros(shape, np.float32)
    b = a + np.float32(1)
    found = metrics.spread(a, b)
    assert found is None if not a.size else np.sum(found["where"]["counts"]) == a.size


def test_no_spread_where_there_is_nothing_to_compare():
    ones = np.ones(3, np.float32)
    assert metrics.spread(ones, ones) is None
    assert metrics.spread(ones, np.ones(4, np.float32)) is None
    assert metrics.spread(ones, np.ones(3)) is None
    assert metrics.spread(np.asarray(["a"], object), np.asarray(["b"], object)) is None
    assert metrics.spread(np.arange(3), np.arange(3) + 1)["ulp"] == []
