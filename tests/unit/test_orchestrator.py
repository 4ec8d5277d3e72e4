"""When another run is recorded, which pair decides, and where the size of a difference comes from."""

import dataclasses
import re
import sys

import pytest
from test_reporters import CULPRIT

from tfbisect import orchestrator
from tfbisect.errors import CannotWrite, OutputExists, Usage
from tfbisect.model import Comparison, Coverage
from tfbisect.orchestrator import Outcome, Program, find_divergence, in_full, measure, values_pattern

UNKNOWN = dataclasses.replace(CULPRIT, difference=None)


def comparison(verdict, *culprits):
    return Comparison(verdict, coverage=Coverage(1), culprits=culprits)


@pytest.fixture
def recorded(monkeypatch):
    """Instead of recording, note the trace and the values asked for, and leave an empty file."""
    done = []

    def record_once(program, trace, say):
        trace.touch()
        done.append((trace.name, program.values))
        return 0

    monkeypatch.setattr(orchestrator, "record_once", record_once)
    return done


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "train.py"
    path.write_text("")
    return Program(path)


def answers(*verdicts):
    queue = iter(verdicts)
    return lambda *paths: next(queue)


def quiet(text):
    pass


@pytest.mark.parametrize(
    "verdicts, verdict, runs",
    [
        (["identical", "diverged"], "diverged", 3),
        (["inconclusive", "identical", "identical"], "inconclusive", 2),
        (["inconclusive", "diverged"], "diverged", 3),
    ],
)
def test_runs_until_one_differs_from_the_first(recorded, program, tmp_path, verdicts, verdict, runs):
    outcome = find_divergence(program, tmp_path, 4, answers(*map(comparison, verdicts)), quiet)
    assert (outcome.comparison.verdict, outcome.runs) == (verdict, runs)
    assert [path.name for path in outcome.traces] == ["run1.h5", f"run{runs}.h5"]
    assert len(recorded) == len(verdicts) + 1


def test_runs_that_are_all_identical_are_told_of_together(recorded, program, tmp_path):
    asked = []

    def compare(*paths):
        asked.append([path.name for path in paths])
        return comparison("identical")

    outcome = find_divergence(program, tmp_path, 3, compare, quiet)
    assert (outcome.comparison.verdict, outcome.runs, len(outcome.traces)) == ("identical", 3, 3)
    assert asked == [["run1.h5", "run2.h5"], ["run1.h5", "run3.h5"], ["run1.h5", "run2.h5", "run3.h5"]]


def test_every_run_is_recorded_and_compared_if_that_is_asked_for(recorded, program, tmp_path):
    outcome = find_divergence(program, tmp_path, 4, answers(comparison("diverged")), quiet, every=True)
    assert (outcome.comparison.verdict, outcome.runs) == ("diverged", 4)
    assert [path.name for path in outcome.traces] == ["run1.h5", "run2.h5", "run3.h5", "run4.h5"]


def test_traces_that_exist_are_kept_without_force(recorded, program, tmp_path):
    (tmp_path / "run2.h5").write_text("mine")
    with pytest.raises(OutputExists):
        find_divergence(program, tmp_path, 2, answers(), quiet)
    assert recorded == [] and (tmp_path / "run2.h5").read_text() == "mine"
    find_divergence(program, tmp_path, 2, answers(comparison("identical")), quiet, force=True)
    assert (tmp_path / "run2.h5").read_text() == ""


def test_one_run_is_too_few(recorded, program, tmp_path):
    with pytest.raises(Usage, match="found 1"):
        find_divergence(program, tmp_path, 1, answers(), quiet)


def outcome_of(tmp_path, *culprits):
    return Outcome(comparison("diverged", *culprits), (tmp_path / "run1.h5", tmp_path / "run2.h5"), 2, (0, 0))


def test_the_size_comes_from_a_pair_in_which_the_same_op_differs_again(recorded, program, tmp_path):
    other = dataclasses.replace(CULPRIT, name="elsewhere")
    pairs = answers(comparison("identical"), comparison("diverged", other, CULPRIT))
    outcome = measure(program, outcome_of(tmp_path, UNKNOWN, other), tmp_path, pairs, quiet)
    first, second = outcome.comparison.culprits
    assert first.difference.differing == CULPRIT.difference.differing
    assert first.difference.basis == "recorded again with values: pair 2 of 3"
    assert second is other and outcome.comparison.warnings == ()
    assert {values for _, values in recorded} == {values_pattern(UNKNOWN)} and len(recorded) == 3
    kept = next(tmp_path.glob("values-*"))
    assert sorted(path.name for path in kept.iterdir()) == ["first.h5", "second2.h5"]


def test_if_it_never_differs_again_the_size_stays_unknown_and_a_warning_says_so(recorded, program, tmp_path):
    elsewhere = dataclasses.replace(CULPRIT, source=dataclasses.replace(CULPRIT.source, line=99))
    pairs = answers(comparison("identical"), comparison("diverged", elsewhere), comparison("diverged"))
    outcome = measure(program, outcome_of(tmp_path, UNKNOWN), tmp_path, pairs, quiet)
    assert outcome.comparison.culprits == (UNKNOWN,)
    assert "it did not differ again" in outcome.comparison.warnings[0]
    assert len(recorded) == 4 and list(tmp_path.glob("values-*")) == []


@pytest.mark.parametrize("culprits", [(), (CULPRIT,), (dataclasses.replace(UNKNOWN, category="structure"),)])
def test_nothing_is_recorded_again_without_need(recorded, program, tmp_path, culprits):
    outcome = outcome_of(tmp_path, *culprits)
    assert measure(program, outcome, tmp_path, answers(), quiet) is outcome and recorded == []


def test_values_pattern_takes_the_culprit_and_its_inputs_only():
    odd = dataclasses.replace(UNKNOWN, name="while/body/a+b(1)")
    pattern = re.compile(values_pattern(odd))
    assert pattern.search("train_step/while/body/a+b(1)") and pattern.search("train_step/mul")
    assert pattern.search("ResourceScatterSub at train.py:31") and pattern.search("ResourceScatterSub host value")
    assert pattern.search("ResourceScatterSub at /home/ada/project/train.py:31")
    for label in ("train_step/while/body/a+b(1)_2", "train_step/mul_1", "MatMul at train.py:31", "Mul host value"):
        assert not pattern.search(label)


def test_a_program_that_leaves_no_trace_is_an_error(monkeypatch, program, tmp_path, capfd):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(CannotWrite, match="exit status 1 before anything was written"):
        orchestrator.record_once(program, tmp_path / "a.h5", quiet)


# --- a second pair, recorded in full, after a cheap one ---------------------------------------------------------------

ABOVE = {"name": "mul", "op_type": "Mul", "function": CULPRIT.function, "source": None}
CHEAP = dataclasses.replace(CULPRIT, extra={"unrecorded": [ABOVE]})
OTHER = dataclasses.replace(CULPRIT, name="elsewhere")


@pytest.mark.parametrize(
    "before, now, told",
    [
        ([CHEAP], CULPRIT, "the same op"),
        (
            [CHEAP],
            dataclasses.replace(CULPRIT, name="mul", op_type="Mul"),
            "one of 1 unrecorded ops above it, of which",
        ),
        ([CHEAP], OTHER, "moves from pair to pair"),
        ([], CULPRIT, "no op could be named"),
    ],
)
def test_a_second_pair_says_how_it_goes_with_the_cheap_one(recorded, program, tmp_path, before, now, told):
    cheap = Outcome(comparison("diverged" if before else "inconclusive", *before), ("1.h5", "2.h5"), 2, (0, 0))
    full = comparison("diverged", now)
    asked = dataclasses.replace(program, ops="suspects")
    outcome = in_full(asked, cheap, tmp_path, lambda *paths: full, quiet)
    assert [name for name, _ in recorded] == ["run1.h5", "run2.h5"]
    assert outcome.comparison.culprits == (now,) and outcome.runs == 4 and outcome.statuses == (0, 0, 0, 0)
    assert told in outcome.comparison.warnings[0]
    assert outcome.comparison.extra["cheap"] == cheap.comparison.to_json()
    assert [path.name for path in outcome.traces] == ["run1.h5", "run2.h5"]


@pytest.mark.parametrize("verdict", ["identical", "inconclusive"])
def test_a_second_pair_that_does_not_diverge_leaves_the_cheap_one(recorded, program, tmp_path, verdict):
    cheap = Outcome(comparison("diverged", CHEAP), ("1.h5", "2.h5"), 2, (0, 0))
    asked = dataclasses.replace(program, ops="suspects")
    outcome = in_full(asked, cheap, tmp_path, lambda *paths: comparison(verdict), quiet)
    assert outcome.comparison.culprits == (CHEAP,) and outcome.traces == cheap.traces
    assert f"recorded in full, was {verdict}" in outcome.comparison.warnings[-1]


def test_there_is_no_second_pair_of_full_recordings_or_of_equal_runs(recorded, program, tmp_path):
    differs = Outcome(comparison("diverged", CULPRIT), ("1.h5", "2.h5"), 2, (0, 0))
    equal = Outcome(comparison("identical"), ("1.h5", "2.h5"), 2, (0, 0))
    assert in_full(program, differs, tmp_path, answers(), quiet) is differs
    assert in_full(dataclasses.replace(program, ops="suspects"), equal, tmp_path, answers(), quiet) is equal
    assert not recorded


def test_what_is_asked_of_record(program, tmp_path):
    command = orchestrator.record_command(dataclasses.replace(program, ops="suspects"), tmp_path / "a.h5")
    assert command[command.index("--ops") + 1] == "suspects"
    assert "--ops" not in orchestrator.record_command(program, tmp_path / "a.h5")
