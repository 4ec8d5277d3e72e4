"""Where two runs part by their states, and how the window follows a divergence that moves."""

import json
from pathlib import Path

import pytest
from test_reporters import CULPRIT

from tfbisect import longruns
from tfbisect.errors import OutputExists, Usage
from tfbisect.longruns import PASSES, Span, parted, search
from tfbisect.model import ENTERING_STATE, Comparison, Coverage
from tfbisect.orchestrator import Program
from tfbisect.trace import TraceWriter, load


def write_states(path: Path, differs: int | None, steps: range = range(100), stride: int = 1, end: bool = True) -> None:
    """A trace of states, taken at every `stride`-th step; from step `differs` on its variable 1 has other bits."""
    with TraceWriter(path, force=True) as writer:
        writer.journal({"kind": "info", "run": {}})
        writer.journal({"kind": "variable", "number": 1, "name": "kernel"})
        for at, step in enumerate([-1, *steps]):
            if step >= 0 and step % stride:
                continue
            other = differs is not None and step >= differs
            variables = [[0, 7], [1, 1000 + step + other]]
            writer.journal({"kind": "state", "at": at, "step": step, "variables": variables, "results": [step]})
        writer.journal({"kind": "state_cost", "seconds": 1.0, "of": 200.0, "steps": len(steps)})
        if end:
            writer.journal({"kind": "end", "status": "complete", "exit": 0, "reason": None})


@pytest.mark.parametrize(
    "differs, stride, span",
    [
        (None, 1, None),
        (40, 1, Span(40, 40, "kernel")),
        (40, 7, Span(36, 42, "kernel")),
        (0, 1, Span(0, 0, "kernel")),
        (-1, 1, Span(0, 0, "kernel")),
    ],
)
def test_runs_part_between_the_last_equal_state_and_the_first_other_one(tmp_path, differs, stride, span):
    write_states(tmp_path / "a.h5", None, stride=stride)
    write_states(tmp_path / "b.h5", differs, stride=stride)
    assert parted(load(tmp_path / "a.h5"), load(tmp_path / "b.h5")) == span


def test_another_number_of_steps_is_a_difference(tmp_path):
    write_states(tmp_path / "a.h5", None)
    write_states(tmp_path / "b.h5", None, steps=range(90))
    span = parted(load(tmp_path / "a.h5"), load(tmp_path / "b.h5"))
    assert span is not None and (span.first, span.last) == (89, 90)
    assert span.what == "one run has 100 steps, the other 90"


class Runs:
    """Stands in for recorded runs: run n of the program has its divergence in the step that it is told."""

    def __init__(self, steps: list[int | None]) -> None:
        self.steps = iter(steps)
        self.windows: list[str] = []
        self.at: dict[Path, int | None] = {}

    def record_once(self, program, trace, say):
        options = program.options
        window = options[options.index("--steps") + 1]
        if window != "none":
            self.windows.append(window)
        step = next(self.steps) if "--against" in options else None
        self.at[trace] = step
        last = 100 if window == "none" else int(window.split(":")[1])
        write_states(trace, step, steps=range(last))
        return 0

    def compare(self, a, b):
        first, last = map(int, self.windows[-1].split(":"))
        step = self.at[b]
        if step is None or step >= last:
            return Comparison("identical", coverage=Coverage(1))
        culprit = json.loads(json.dumps(CULPRIT.to_json()))
        culprit["op_type"] = ENTERING_STATE if step < first else "MatMul"
        return Comparison("diverged", coverage=Coverage(1), culprits=(type(CULPRIT).from_json(culprit),))


@pytest.fixture
def runs(monkeypatch):
    def make(*steps):
        made = Runs(list(steps))
        monkeypatch.setattr(longruns, "record_once", made.record_once)
        return made

    return make


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "train.py"
    path.write_text("")
    return Program(path)


def test_a_divergence_that_stays_is_found_in_the_first_window(runs, program, tmp_path):
    made = runs(40, 40)
    found = search(program, tmp_path, 2, made.compare, lambda text: None)
    assert [(w.first, w.last, w.result) for w in found.windows] == [(39, 42, "found")]
    assert found.moved == 0 and found.outcome is not None and found.cost == 0.005
    assert found.program.options == ("--steps", "39:42", "--then-stop")


def test_the_window_follows_a_divergence_that_moves_and_says_how_often(runs, program, tmp_path):
    made = runs(40, 20, 60, 45)
    said: list[str] = []
    found = search(program, tmp_path, 2, made.compare, said.append)
    assert [w.result for w in found.windows] == ["earlier", "later", "found"]
    assert found.moved == 2
    first, last = found.windows[-1].first, found.windows[-1].last
    assert first <= 20 and last > 45
    assert any("moves from run to run" in text for text in said)


def test_it_ends_after_some_passes(runs, program, tmp_path):
    made = runs(40, *[90] * PASSES)
    found = search(program, tmp_path, 2, made.compare, lambda text: None)
    assert len(found.windows) == found.moved == PASSES


def test_equal_states_in_all_runs_find_nothing(runs, program, tmp_path):
    made = runs(None, None, None)
    found = search(program, tmp_path, 4, made.compare, lambda text: None)
    assert found.outcome is None and found.span is None and (found.runs, found.steps) == (4, 100)
    assert made.windows == []


def test_what_makes_no_sense_is_said(program, tmp_path, runs):
    with pytest.raises(Usage, match="2 or more"):
        search(program, tmp_path, 1, lambda a, b: None, print)
    (tmp_path / "state1.h5").write_text("")
    with pytest.raises(OutputExists):
        search(program, tmp_path, 2, lambda a, b: None, print)
