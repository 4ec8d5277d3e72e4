"""Functions inside tf.data, recorded with `data=True`: a planted difference is named, and nothing else changes."""

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tfbisect
from tfbisect import trace
from tfbisect.model import GraphKind

HOST = {"PyFunc", "PyFuncStateless"}
ROWS = np.arange(24, dtype=np.float32).reshape(8, 3)
run_b = False


def _kernel(x: np.ndarray) -> np.ndarray:
    return x + np.float32(0.25) if run_b and x[0] == 6 else x


def planted(x: tf.Tensor) -> tf.Tensor:
    return tf.ensure_shape(tf.numpy_function(_kernel, [x], tf.float32), [3])  # the planted line


def _twice(x: tf.Tensor) -> tf.Tensor:
    return planted(x) * 2.0


def _slices() -> Any:
    return tf.data.Dataset.from_tensor_slices(ROWS)


PIPELINES: dict[str, Callable[[], Any]] = {
    "map": lambda: _slices().map(_twice),
    "parallel map": lambda: _slices().map(_twice, num_parallel_calls=4),
    "map, then others": lambda: _slices().map(_twice).shuffle(3, seed=1).batch(2).map(tf.sqrt).prefetch(2),
    "flat_map": lambda: _slices().flat_map(lambda x: tf.data.Dataset.from_tensor_slices(planted(x))),
    "interleave": lambda: _slices().interleave(
        lambda x: tf.data.Dataset.from_tensor_slices(planted(x)), cycle_length=3, num_parallel_calls=2
    ),
    "scan": lambda: _slices().scan(tf.zeros([3]), lambda state, x: (state + planted(x), state * 2.0)),
    "zip": lambda: tf.data.Dataset.zip((_slices(), _slices().map(_twice))).map(lambda x, y: x - y),
    "repeat": lambda: _slices().map(_twice).repeat(2),
    "cache": lambda: _slices().map(_twice).cache().repeat(2),
}


def _recorded(path: Path, program: Callable[[], Any], second: bool) -> Any:
    global run_b
    run_b = second
    try:
        with tfbisect.record(path, data=True):
            return program()
    finally:
        run_b = False


def _sum(make: Callable[[], Any]) -> np.ndarray:
    total = tf.zeros([])
    for x in make():
        total += tf.reduce_sum(x)
    return np.asarray(total.numpy())


@pytest.mark.parametrize("name", PIPELINES)
def test_a_difference_inside_a_pipeline_is_named(name: str, tmp_path: Path) -> None:
    make = PIPELINES[name]
    plain = _sum(make)
    sums = [
        _recorded(tmp_path / name, lambda: _sum(make), second)
        for name, second in (("a.h5", False), ("a2.h5", False), ("b.h5", True))
    ]
    assert sums[0].tobytes() == sums[1].tobytes() == plain.tobytes()
    assert tfbisect.compare(tmp_path / "a.h5", tmp_path / "a2.h5").verdict == "identical"
    result = tfbisect.compare(tmp_path / "a.h5", tmp_path / "b.h5")
    (culprit,) = (c for c in result.culprits if not c.contained)
    assert culprit.op_type in HOST
    assert culprit.source is not None and "the planted line" in culprit.source.text
    assert all(item.equal for item in culprit.inputs)
    assert result.coverage.undecided == 0


def test_a_predicate_that_answers_otherwise_is_named(tmp_path: Path) -> None:
    def keeps(x: tf.Tensor) -> tf.Tensor:
        return planted(x)[0] < 6.1

    def program() -> Any:
        return _sum(lambda: _slices().filter(keeps))

    for name, second in (("a.h5", False), ("b.h5", True)):
        _recorded(tmp_path / name, program, second)
    result = tfbisect.compare(tmp_path / "a.h5", tmp_path / "b.h5")
    assert result.culprits[0].op_type in HOST
    assert result.culprits[0].source is not None and "the planted line" in result.culprits[0].source.text


def test_an_eager_reduce_is_recorded(tmp_path: Path) -> None:
    def program() -> Any:
        return _slices().reduce(tf.zeros([3]), lambda state, x: state + planted(x))

    for name, second in (("a.h5", False), ("b.h5", True)):
        _recorded(tmp_path / name, program, second)
    (culprit,) = tfbisect.compare(tmp_path / "a.h5", tmp_path / "b.h5").culprits
    assert culprit.op_type in HOST


def test_data_that_differs_before_any_function_is_an_input(tmp_path: Path) -> None:
    def program() -> Any:
        rows = ROWS + (1 if run_b else 0)
        return _sum(lambda: tf.data.Dataset.from_generator(lambda: iter(rows), tf.float32).map(tf.sqrt).map(tf.abs))

    for name, second in (("a.h5", False), ("b.h5", True)):
        _recorded(tmp_path / name, program, second)
    result = tfbisect.compare(tmp_path / "a.h5", tmp_path / "b.h5")
    assert result.verdict == "diverged"
    assert {culprit.category for culprit in result.culprits} <= {"input", "host"}
    assert not {culprit.op_type for culprit in result.culprits} & {"Sqrt", "Abs"}


def test_random_ops_inside_draw_what_they_draw_in_the_plain_run(tmp_path: Path) -> None:
    def drawn() -> bytes:
        tf.random.set_seed(7)
        data = _slices().map(lambda x: x + tf.random.uniform([3])).map(lambda x: x * tf.random.normal([3], seed=3))
        return b"".join(x.numpy().tobytes() for x in data.repeat(2))

    plain = drawn()
    assert _recorded(tmp_path / "a.h5", drawn, False) == plain
    graphs = [graph for graph in trace.load(tmp_path / "a.h5").graphs if graph.kind == GraphKind.SOURCE]
    assert {"RandomUniform", "RandomStandardNormal"} <= {node.op for graph in graphs for node in graph.nodes}


def test_iterators_can_still_be_saved(tmp_path: Path) -> None:
    def program() -> float:
        iterator = iter(_slices().map(lambda x: x * 2.0))
        next(iterator)
        saved = tf.train.Checkpoint(iterator=iterator).save(str(tmp_path / "checkpoint"))
        next(iterator)
        tf.train.Checkpoint(iterator=iterator).restore(saved)
        return float(next(iterator)[0])

    assert _recorded(tmp_path / "a.h5", program, False) == program() == 6.0


def test_a_dataset_that_outlives_the_recording_goes_on(tmp_path: Path) -> None:
    iterator = _recorded(tmp_path / "a.h5", lambda: iter(_slices().map(_twice).batch(2)), False)
    gc.collect()  # the recorder goes; what the copies call must not
    assert [x.numpy().tolist() for x in iterator] == [x.numpy().tolist() for x in _slices().map(_twice).batch(2)]


def test_without_the_option_the_functions_of_pipelines_are_left_alone(tmp_path: Path) -> None:
    with tfbisect.record(tmp_path / "a.h5"):
        _sum(PIPELINES["map"])
    assert all(graph.kind != GraphKind.SOURCE for graph in trace.load(tmp_path / "a.h5").graphs)
