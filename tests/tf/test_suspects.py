"""Cheap recordings: what is left out of them, that it changes no bit, and what a comparison makes of them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tf.recorded import View, bits

import tfbisect
from tfbisect import trace
from tfbisect.errors import Usage
from tfbisect.knowledge import is_exact_elementwise
from tfbisect.model import Comparison, NodeFlag, SiteKind
from tfbisect.recorder.against import other_run


def recorded(path: Path, run: Callable[[], Any], ops: str = "suspects") -> View:
    with tfbisect.record(path, ops=ops):
        run()
    return View(path)


def pair(folder: Path, run: Callable[[float], Any], ops: tuple[str, str] = ("suspects", "suspects")) -> Comparison:
    """Two runs, of which the second one is given a fault."""
    for letter, fault, each in zip("ab", (0.0, 1e-3), ops, strict=True):
        recorded(folder / f"{letter}.h5", lambda fault=fault: run(fault), each)
    return tfbisect.compare(folder / "a.h5", folder / "b.h5")


def answers(culprit: Any) -> set[str]:
    return {culprit.op_type, *(each["op_type"] for each in culprit.extra.get("unrecorded", ()))}


def _shaky(fault: list[float]) -> Callable[[np.ndarray], np.ndarray]:
    return lambda x: (x * np.float32(1 + fault[0])).astype(np.float32)


def _model() -> tuple[Callable[[float], Any], tf.Variable]:
    """A function with a loop, a branch and a write; a fault in the Python in its middle."""
    w = tf.Variable(tf.ones([6, 6]))
    now = [0.0]

    @tf.function
    def step(x: tf.Tensor) -> tf.Tensor:
        y = tf.nn.relu(tf.matmul(x, w) * 2.0 + 1.0)
        y = tf.numpy_function(_shaky(now), [y - 0.5], tf.float32)
        y.set_shape([6, 6])
        for _ in tf.range(3):
            y = tf.tanh(y * 0.5) + 1.0
        if tf.reduce_sum(y) > 0.0:
            y = y - 1.0
        w.assign_sub(0.01 * tf.matmul(tf.transpose(x), y * 3.0))
        return tf.reduce_mean(y) * 2.0

    def run(fault: float) -> Any:
        now[0] = fault
        w.assign(tf.ones([6, 6]))
        x = tf.linspace(0.0, 1.0, 36)
        return [step(tf.reshape(x, [6, 6]) * 2.0 + float(i)) for i in range(2)]

    return run, w


def test_what_its_inputs_decide_is_left_out_and_the_rest_is_as_in_a_full_recording(tmp_path: Path) -> None:
    run, w = _model()
    plain = [bits(each) for each in (*run(0.0), w.value())]
    results = []
    views = {
        ops: recorded(tmp_path / f"{ops}.h5", lambda: results.extend(map(bits, (*run(0.0), w.value()))), ops)
        for ops in ("all", "suspects")
    }
    assert results == plain * 2
    cheap, full = views["suspects"], views["all"]

    def events(view: View) -> set[Any]:
        return {(e.graph, e.node, e.kind, e.slot, e.path, e.digest) for e in view.events}

    missing = [e for e in full.events if (e.graph, e.node, e.kind, e.slot, e.path, e.digest) not in events(cheap)]
    assert events(cheap) < events(full)
    assert {e.kind for e in missing} == {SiteKind.OUTPUT}
    assert all(is_exact_elementwise(e.op, 2) for e in missing)
    assert {"Mul", "AddV2", "Relu"} <= {e.op for e in missing}
    assert not {"Less", "Greater"} & {e.op for e in missing}
    # what ends a loop, chooses a branch, is a result or given to Python is there
    assert {e.op for e in cheap.events} >= {"Less", "Greater", "Mul", "Sub", "Tanh", "MatMul"}
    assert not any(n.flags & NodeFlag.PASSED for g in full.trace.graphs for n in g.nodes)


@pytest.mark.parametrize("ops", [("suspects", "suspects"), ("all", "suspects"), ("suspects", "all")])
def test_the_op_is_named_through_loops_branches_and_variables(tmp_path: Path, ops: tuple[str, str]) -> None:
    result = pair(tmp_path, _model()[0], ops)
    assert [culprit.op_type for culprit in result.culprits] == ["PyFunc"]
    assert not result.culprits[0].contained and result.coverage.undecided == 0
    assert "cheap recording" in result.warnings[0]
    cheap = [letter for letter, each in zip("AB", ops, strict=True) if each != "all"]
    assert result.extra["recording"]["runs"] == cheap


def test_eager_ops_are_followed_through_what_was_not_recorded(tmp_path: Path) -> None:
    x = tf.reshape(tf.linspace(0.0, 1.0, 16), [4, 4])
    now = [0.0]

    def run(fault: float) -> Any:
        now[0] = fault
        y = tf.numpy_function(_shaky(now), [tf.nn.relu(x) * 2.0], tf.float32) if fault < 0 else None
        y = tf.py_function(lambda t: t * (1.0 + now[0]), [tf.nn.relu(x) * 2.0], tf.float32) if y is None else y
        z = tf.nn.relu(y + 1.0) * 3.0
        return tf.matmul(z, z) + 1.0

    result = pair(tmp_path, run)
    assert result.verdict == "diverged" and not result.culprits[0].contained
    assert all(answers(culprit).isdisjoint({"MatMul", "Relu"}) for culprit in result.culprits)


def test_a_difference_that_ends_in_an_unrecorded_eager_op_is_not_said_to_die_out(tmp_path: Path) -> None:
    now = [0.0]

    @tf.function
    def shaky(x: tf.Tensor) -> tf.Tensor:
        return tf.numpy_function(_shaky(now), [x], tf.float32)

    def run(fault: float) -> Any:
        now[0] = fault
        return shaky(tf.ones([4])) * 2.0

    result = pair(tmp_path, run)
    assert [culprit.op_type for culprit in result.culprits] == ["PyFunc"] and not result.culprits[0].contained


def test_ops_of_threads_and_callbacks_are_recorded_in_full_and_it_is_said(tmp_path: Path) -> None:
    def run() -> Any:
        return tf.py_function(lambda t: t * 2.0 + 1.0, [tf.ones([3]) * 2.0], tf.float32)

    views = [recorded(tmp_path / f"{letter}.h5", run) for letter in "ab"]
    inner = {int(c["graph"]) for c in views[0].trace.calls if c["parent"] >= 0}
    assert inner and not any(
        node.flags & NodeFlag.PASSED for number in inner for node in views[0].trace.graphs[number].nodes
    )
    result = tfbisect.compare(tmp_path / "a.h5", tmp_path / "b.h5")
    assert result.verdict == "identical"
    assert result.extra["recording"]["in_full"] == ["eager ops of other threads and callbacks"]


def test_sessions_are_recorded_in_full_and_it_is_said(tmp_path: Path) -> None:
    with tf.Graph().as_default():
        x = tf.compat.v1.placeholder(tf.float32, [3])
        y = tf.tanh(x * 2.0) + 1.0
        with tf.compat.v1.Session() as session:
            for letter in "ab":
                view = recorded(tmp_path / f"{letter}.h5", lambda: session.run(y, {x: [1.0, 2.0, 3.0]}))
    assert view.of("Mul")
    result = tfbisect.compare(tmp_path / "a.h5", tmp_path / "b.h5")
    assert result.verdict == "identical" and result.extra["recording"]["in_full"] == ["calls of Session.run"]


def test_complex_numbers_are_recorded(tmp_path: Path) -> None:
    view = recorded(tmp_path / "a.h5", lambda: tf.complex(tf.ones([2]), tf.ones([2])) * tf.complex(1.0, 2.0))
    assert view.of("Mul")


def test_what_cannot_be_compared_with_a_cheap_recording_is_said(tmp_path: Path) -> None:
    paths = [tmp_path / f"{letter}.h5" for letter in "abc"]
    for path, ops in zip(paths, ("suspects", "all", "suspects"), strict=True):
        recorded(path, lambda: tf.tanh(tf.ones([3]) * 2.0), ops)
    with pytest.raises(Usage, match="every op recorded"):
        tfbisect.compare(paths[0], paths[2], rtol=1e-3)
    with pytest.raises(Usage, match="hold the same ops"):
        tfbisect.compare(*paths)
    with pytest.raises(Usage, match="--ops suspects, as asked for"):
        other_run(trace.load(paths[1]), None, "suspects")
    with pytest.raises(Usage, match="all or suspects"), tfbisect.record(tmp_path / "d.h5", ops="some"):
        pass


def test_ops_in_which_most_differences_end_are_recorded(tmp_path: Path) -> None:
    x = tf.linspace(-2.0, 2.0, 8)
    ended = {
        "Greater": lambda: x > 0.5,
        "Floor": lambda: tf.floor(x),
        "Cast": lambda: tf.cast(x, tf.int32),
        "ZerosLike": lambda: tf.zeros_like(x),
        "StridedSlice": lambda: x[:3],
    }
    view = recorded(tmp_path / "a.h5", lambda: [each() for each in ended.values()])
    assert all(view.of(op) for op in ended)
