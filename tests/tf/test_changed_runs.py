"""What alignment survives, and what ranking puts first: one run is changed, a fault is planted in it or not."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recorded import recording, tf

import tfbisect

Run = Callable[[bool], Any]


def compared(tmp_path: Path, run: Run) -> tfbisect.Comparison:
    """Runs a program as it is, then changed, and compares."""
    paths = [tmp_path / "a.h5", tmp_path / "b.h5"]
    for path, other in zip(paths, (False, True), strict=True):
        with recording(path):
            run(other)
    return tfbisect.compare(*paths)


X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)


def fault(x: Any, on: bool) -> Any:
    """An op whose output differs though its input does not: a PyFunc at this line."""
    return tf.numpy_function(lambda value: value + np.float32(0.5 if on else 0.0), [x], tf.float32)  # the fault


def is_the_fault(result: tfbisect.Comparison) -> bool:
    first = result.culprits[0]
    line = first.source is not None and "# the fault" in first.source.text
    return result.verdict == "diverged" and line and (first.op_type, first.call) == ("PyFunc", 0)


def function(on: bool, scale: float = 2.0, name: str = "dense") -> Any:
    w = tf.constant(np.full((3, 2), scale, np.float32))

    @tf.function
    def f(x: Any) -> Any:
        return tf.reduce_sum(fault(tf.nn.relu(tf.matmul(x, w, name=name)), on))

    return f


def other_uids(other: bool, on: bool) -> None:
    if other:
        tf.function(lambda x: x + 1).get_concrete_function(tf.TensorSpec([2]))
    function(on)(X)


def traced_for_another_shape(other: bool, on: bool) -> None:
    f = function(on)
    if other:
        f.get_concrete_function(tf.TensorSpec([7, 3]))
        f.get_concrete_function(tf.TensorSpec([None, 3]))
    f(tf.constant(X))


def made_anew(other: bool, on: bool) -> None:
    f = function(on)
    for step in range(3):
        f = function(on) if other and step else f
        f(X + step)


def renamed_op(other: bool, on: bool) -> None:
    function(on, name="head" if other else "dense")(X)


def renamed_layer(other: bool, on: bool) -> None:
    layer = tf.keras.layers.Dense(2, kernel_initializer="ones", name="head" if other else "dense")
    layer.build([None, 3])

    @tf.function
    def f(x: Any) -> Any:
        return tf.reduce_sum(fault(layer(x), on))

    f(X)


def other_order(other: bool, on: bool) -> None:
    f, g = function(on), tf.function(lambda x: tf.reduce_mean(x) * 3.0)
    for each in (g, f) if other else (f, g):
        each(X)


def optimized_differently(other: bool, on: bool) -> None:
    tf.config.optimizer.set_experimental_options({"remapping": not other, "arithmetic_optimization": not other})
    try:
        function(on)(X)
    finally:
        tf.config.optimizer.set_experimental_options({"remapping": True, "arithmetic_optimization": True})


CHANGES = [
    other_uids,
    traced_for_another_shape,
    made_anew,
    renamed_op,
    renamed_layer,
    other_order,
    optimized_differently,
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_changed_run_that_computes_the_same_is_identical(
    tmp_path: Path, change: Callable[[bool, bool], None]
) -> None:
    result = compared(tmp_path, lambda other: change(other, False))
    assert (result.verdict, result.culprits) == ("identical", ()), result.warnings


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_fault_in_a_changed_run_is_named(tmp_path: Path, change: Callable[[bool, bool], None]) -> None:
    result = compared(tmp_path, lambda other: change(other, other))
    assert is_the_fault(result), result
    assert result.culprits[0].extra["paired_by"].startswith("function and lines, in order; ")


# -- runs of other lengths --------------------------------------------------------------------------------------------


def steps(other: bool, on: bool) -> None:
    f = function(on)
    for step in range(5 if other else 3):
        f(X + step)


def epochs(other: bool, on: bool) -> None:
    v = tf.Variable(np.zeros(2, np.float32))
    w = tf.constant(np.ones((3, 2), np.float32))

    @tf.function
    def train_step(x: Any) -> None:
        v.assign_add(fault(tf.reduce_mean(tf.matmul(x, w), 0), on))

    for epoch in range(3 if other else 2):
        for batch in tf.data.Dataset.from_tensor_slices(X).batch(2):
            train_step(batch + epoch)


def extra_op(other: bool, on: bool) -> None:
    x = tf.constant(X)
    if other:
        tf.exp(x)
    function(on)(x)


@pytest.mark.parametrize("change", [steps, epochs, extra_op], ids=lambda change: change.__name__)
def test_what_one_run_did_more_is_not_called_equal_and_nothing_is_blamed(
    tmp_path: Path, change: Callable[[bool, bool], None]
) -> None:
    result = compared(tmp_path, lambda other: change(other, False))
    assert (result.verdict, result.culprits) == ("inconclusive", ())
    assert any("have no partner" in warning for warning in result.warnings)


@pytest.mark.parametrize("change", [steps, epochs, extra_op], ids=lambda change: change.__name__)
def test_a_fault_is_named_where_one_run_did_more(tmp_path: Path, change: Callable[[bool, bool], None]) -> None:
    result = compared(tmp_path, lambda other: change(other, other))
    assert is_the_fault(result), result


# -- ranking ----------------------------------------------------------------------------------------------------------


def checkpoint(on: bool, folder: Path, other: bool) -> None:
    v = tf.Variable(np.ones(3, np.float32))

    @tf.function
    def train_step(x: Any) -> None:
        v.assign_sub(fault(tf.reduce_mean(x, 0), on))

    tf.train.Checkpoint(v=v).save(str(folder / f"before{other}"))
    train_step(X)
    tf.train.Checkpoint(v=v).save(str(folder / f"after{other}"))


def overwritten(on: bool, folder: Path, other: bool) -> None:
    v = tf.Variable(np.full(3, 1.0 + other, np.float32))
    v.assign(np.ones(3, np.float32))

    @tf.function
    def train_step(x: Any) -> None:
        v.assign_sub(fault(tf.reduce_mean(x, 0), on))

    train_step(X)


def stray_op(on: bool, folder: Path, other: bool) -> None:
    tf.random.normal([3])
    v = tf.Variable(np.ones(3, np.float32))

    @tf.function
    def train_step(x: Any) -> None:
        v.assign_sub(fault(tf.reduce_mean(x, 0), on))

    train_step(X)
    tf.random.normal([3])


RANKED = [checkpoint, overwritten, stray_op]


@pytest.mark.parametrize("program", RANKED, ids=lambda program: program.__name__)
def test_what_reaches_no_variable_does_not_come_first(
    tmp_path: Path, program: Callable[[bool, Path, bool], None]
) -> None:
    result = compared(tmp_path, lambda other: program(other, tmp_path, other))
    assert is_the_fault(result), [culprit.op_type for culprit in result.culprits]


def test_names_of_checkpoints_make_no_verdict(tmp_path: Path) -> None:
    result = compared(tmp_path, lambda other: checkpoint(False, tmp_path, other))
    assert (result.verdict, result.culprits) == ("identical", ())
    assert any("names of files" in warning for warning in result.warnings)


def test_overwritten_initial_weights_die_out(tmp_path: Path) -> None:
    result = compared(tmp_path, lambda other: overwritten(False, tmp_path, other))
    assert result.culprits and all(culprit.contained for culprit in result.culprits)
