"""A baseline of a few KB, and a later run compared with it."""

import json
from pathlib import Path

import pytest
from minilang import recorded as record

from tfbisect import baseline
from tfbisect.errors import CannotWrite, Damaged, EmptyTrace, NewerFormat, NotFound, SchemeMismatch
from tfbisect.model import Comparison

PROGRAM = """v := Variable v0
now = read v
dense = MatMul x now
act = Relu dense
assign v act
loss = Sum act
"""


@pytest.fixture
def against(tmp_path: Path):
    """Records a text, makes a baseline of it as a file, and compares it with another recording."""

    def compared(text: str, other: str | None = None, calls: int = 3, **options) -> Comparison:
        path = tmp_path / "baseline.json"
        baseline.write(path, baseline.of(record(text, tmp_path / "a.h5", calls=calls), "test_it"))
        later = record(other or text, tmp_path / "b.h5", **{"calls": calls, **options})
        return baseline.compare_with(baseline.read(path), str(path), later)

    return compared


def test_the_same_program_is_identical(against):
    comparison = against(PROGRAM)
    assert comparison.verdict == "identical"
    assert comparison.coverage.compared > 10


def test_a_changed_op_is_named_with_line_and_call(against):
    comparison = against(PROGRAM, change={"act@1": 1})
    assert comparison.verdict == "diverged"
    culprit = comparison.culprits[0]
    assert (culprit.name, culprit.op_type, culprit.call, culprit.source.line) == ("act", "Relu", 1, 4)
    assert len(comparison.culprits) == 1
    assert comparison.runs[0]["path"].endswith("baseline.json")


def test_another_op_is_named(against):
    comparison = against(PROGRAM, PROGRAM.replace("act = Relu", "act = Tanh"))
    assert comparison.verdict == "diverged"
    (culprit,) = comparison.culprits
    assert (culprit.op_type, culprit.category) == ("Tanh", "structure")
    assert culprit.last_common == "MatMul dense"


def test_a_change_in_front_of_other_ops_is_the_answer(against):
    comparison = against(PROGRAM, PROGRAM.replace("loss = Sum", "loss = Mean"), change={"dense": 1})
    assert comparison.culprits[0].name == "dense"
    assert any("other ops" in warning for warning in comparison.warnings)


def test_fewer_calls_are_seen(tmp_path):
    made = baseline.of(record(PROGRAM, tmp_path / "a.h5", calls=3), "test_it")
    comparison = baseline.compare_with(made, "a.json", record(PROGRAM, tmp_path / "b.h5", calls=2))
    assert comparison.verdict == "inconclusive"
    assert any("other ops" in warning for warning in comparison.warnings)


def test_what_is_held_as_one_digest_is_seen_and_not_named(tmp_path, monkeypatch):
    monkeypatch.setattr(baseline, "LIMIT", 6)
    made = baseline.of(record(PROGRAM, tmp_path / "a.h5", calls=3), "test_it")
    assert len(made.digests) == 24
    equal = baseline.compare_with(made, "a.json", record(PROGRAM, tmp_path / "b.h5", calls=3))
    assert equal.verdict == "identical"
    late = baseline.compare_with(made, "a.json", record(PROGRAM, tmp_path / "c.h5", calls=3, change={"act@2": 1}))
    assert (late.verdict, late.culprits) == ("inconclusive", ())
    assert any("which of them is not known" in warning for warning in late.warnings)


def test_a_set_up_that_reaches_kernels_is_told(tmp_path):
    made = baseline.of(record(PROGRAM, tmp_path / "a.h5", info={"threads": {"intra_op": 2}}), "test_it")
    later = record(PROGRAM, tmp_path / "b.h5", info={"threads": {"intra_op": 4}}, change={"dense": 1})
    comparison = baseline.compare_with(made, "a.json", later)
    assert [(item.key, item.values) for item in comparison.environment] == [("threads.intra_op", (2, 4))]
    assert comparison.culprits[0].category == "environment"


def test_it_is_small_and_says_what_it_is_of(tmp_path):
    info = {"versions": {"tensorflow": "2.21.0"}, "devices": ["/job:a/device:CPU:0", "/job:a/device:GPU:0"]}
    made = baseline.of(record(PROGRAM, tmp_path / "a.h5", calls=10, info=info), "test_it")
    assert (made.test, made.tensorflow, made.device) == ("test_it", "2.21.0", "gpu")
    baseline.write(tmp_path / "folder" / "it.json", made)
    assert (tmp_path / "folder" / "it.json").stat().st_size < 4096
    assert baseline.read(tmp_path / "folder" / "it.json") == made


def test_nothing_recorded_makes_no_baseline(tmp_path):
    with pytest.raises(EmptyTrace):
        baseline.of(record("def f x\n  y = Relu x\nend\n", tmp_path / "a.h5", calls=0), "test_it")


def test_other_digests_cannot_be_compared(tmp_path):
    made = baseline.of(record(PROGRAM, tmp_path / "a.h5"), "test_it")
    later = record(PROGRAM, tmp_path / "b.h5", info={"digest": {"host": "other/1"}})
    with pytest.raises(SchemeMismatch):
        baseline.compare_with(made, "a.json", later)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"format": 99}, NewerFormat), ({"format": "x"}, Damaged), ({"keys": "!"}, Damaged), ({"keys": ""}, Damaged),
        ({"count": 0}, Damaged), ({"schemes": 3}, Damaged), ({"digests": None}, Damaged),
    ],
)  # fmt: skip
def test_damaged_files_are_told(tmp_path, change, error):
    data = baseline.of(record(PROGRAM, tmp_path / "a.h5"), "test_it").to_json() | change
    (tmp_path / "it.json").write_text(json.dumps(data))
    with pytest.raises(error):
        baseline.read(tmp_path / "it.json")


@pytest.mark.parametrize("text", ["", "[]", "{}", "nonsense", "3"])
def test_files_that_are_none_are_told(tmp_path, text):
    (tmp_path / "it.json").write_text(text)
    with pytest.raises(Damaged):
        baseline.read(tmp_path / "it.json")


def test_files_that_are_not_there_or_cannot_be_written_are_told(tmp_path):
    with pytest.raises(NotFound):
        baseline.read(tmp_path / "it.json")
    (tmp_path / "file").write_text("")
    with pytest.raises(CannotWrite):
        baseline.write(tmp_path / "file" / "it.json", baseline.of(record(PROGRAM, tmp_path / "a.h5"), "test_it"))
    (tmp_path / "taken.json").mkdir()
    with pytest.raises(CannotWrite):
        baseline.write(tmp_path / "taken.json", baseline.of(record(PROGRAM, tmp_path / "a.h5"), "test_it"))
    assert not list(tmp_path.glob("*.new"))
