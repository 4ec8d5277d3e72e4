"""Comparing with a finished trace while a run is recorded: nothing is missed, and values are kept where it differs."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tfbisect
from tfbisect import recorder
from tfbisect.recorder.window import Wish
from tfbisect.trace import load


def program(planted: str = "", at: int = 3) -> list[Any]:
    """Six steps with a loop, a branch, a callback and eager ops; planted: what differs from step `at` on."""
    v = tf.Variable(tf.ones([3]), name="weights")
    now = [0]

    def shaky(x: np.ndarray) -> np.ndarray:
        return x * np.float32(1.5) if planted == "callback" and now[0] == at else x

    @tf.function
    def train(x: tf.Tensor, trips: tf.Tensor) -> tf.Tensor:
        for _ in tf.range(trips):
            x = tf.sin(x)
        y = tf.ensure_shape(tf.numpy_function(shaky, [v * x], tf.float32), [3])
        v.assign_sub(0.1 * y)
        return tf.reduce_sum(y)

    found = []
    for step in range(6):
        now[0] = step
        here = planted and step >= at
        x = tf.constant(0.7 if planted == "input" and here else 0.5)
        found.append(train(x, tf.constant(3 if planted == "trips" and here else 2)))
        if planted == "extra" and here:
            found.append(tf.cos(v))
        found.append(tf.exp(found[0]))
        if planted == "name":
            tf.strings.join(["file", str(id(now))])  # never the same
        else:
            tf.strings.join(["file", "0"])
    return found


class Result:
    """A run that was compared with a first one: the writer's findings and the trace."""

    def __init__(self, folder: Path, planted: str, **options: Any) -> None:
        self.paths = paths = folder / "a.h5", folder / "b.h5"
        self.plain = folder / "plain.h5"  # the second run again, recorded by itself
        first = planted if planted == "name" else ""
        wishes = (paths[0], Wish(), first), (paths[1], Wish(against=paths[0], **options), planted)
        self.summaries: list[str] = []
        self.stopped = False
        for path, wish, plant in (*wishes, (self.plain, Wish(), planted)):
            session = recorder._begin(recorder._Request(path, "auto", True, "opaque", False, ["test"], None, wish))
            try:
                program(plant)
            except SystemExit as end:
                self.stopped = True
                assert end.code == 1
            finally:
                recorder._finish(session, None)
            self.summaries.append(session.summary)
        self.summary = self.summaries[1]
        self.a, self.b = load(paths[0]), load(paths[1])


def test_equal_runs_do_not_differ_and_keep_no_values(tmp_path: Path) -> None:
    result = Result(tmp_path, "")
    assert "none differs" in result.summary
    assert not result.b.events["value"].any()
    assert len(result.b.events) == len(result.a.events) and result.a.events["value"].any()
    assert tfbisect.compare(*result.paths).verdict == "identical"


@pytest.mark.parametrize("planted, op", [("callback", "PyFunc"), ("input", ""), ("trips", "")])
def test_what_differs_is_seen_and_its_values_are_kept(planted: str, op: str, tmp_path: Path) -> None:
    result = Result(tmp_path, planted)
    assert ", first " in result.summary and op in result.summary, result.summary
    seen, full = tfbisect.compare(*result.paths), tfbisect.compare(result.paths[0], result.plain)
    keys = [[(c.op_type, c.name, c.step, c.category) for c in each.culprits] for each in (seen, full)]
    assert seen.verdict == full.verdict == "diverged"
    assert {(op_type, name) for op_type, name, _, _ in keys[0]} == {(op_type, name) for op_type, name, _, _ in keys[1]}
    assert (seen.culprits[0].difference is None) == (full.culprits[0].difference is None)
    assert 0 < (result.b.events["value"] > 0).sum() < (load(result.plain).events["value"] > 0).sum()


def test_calls_of_one_run_only_are_counted_and_end_nothing(tmp_path: Path) -> None:
    """What they lead to differs, if they lead to anything."""
    result = Result(tmp_path, "extra", stop_at_first=True)
    assert not result.stopped
    assert "none differs, 6 calls are of this run only" in result.summary
    assert tfbisect.compare(*result.paths).verdict == tfbisect.compare(result.paths[0], result.plain).verdict


def test_the_program_ends_once_it_differs_at_the_end_of_the_step(tmp_path: Path) -> None:
    result = Result(tmp_path, "callback", stop_at_first=True)
    assert result.stopped
    assert result.b.end is not None and result.b.end["status"] == "stopped" and "PyFunc" in result.b.end["reason"]
    calls = [result.b.graphs[int(call["graph"])].name for call in result.b.calls]
    assert calls.count("train") == 4  # steps 0 to 3
    comparison = tfbisect.compare(*result.paths)
    culprit = comparison.culprits[0]
    assert (comparison.verdict, culprit.op_type, culprit.step) == ("diverged", "PyFunc", 3)
    assert not culprit.contained


def test_names_of_files_alone_end_nothing(tmp_path: Path) -> None:
    assert not Result(tmp_path, "name", stop_at_first=True).stopped
