"""What Python makes of values that it looked at: a value it hands in is blamed only if it knew of no difference."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tfbisect
from tfbisect.model import Comparison


def compared(path: Path, program: Callable[[bool], Any]) -> Comparison:
    """Two recorded runs of a program, which is told whether it is run B."""
    for name in ("a.h5", "b.h5"):
        with tfbisect.record(path / name):
            program(name == "b.h5")
    return tfbisect.compare(path / "a.h5", path / "b.h5")


def lines(result: Comparison) -> list[str]:
    return [c.source.text.partition("#")[2].strip() for c in result.culprits if c.source is not None]


def _weights(run_b: bool) -> tf.Variable:
    """A variable that starts otherwise in run B."""
    return tf.Variable(tf.sin(tf.constant([0.5, 0.25 if run_b else 1.0])))  # start


def test_a_difference_that_died_unseen_says_nothing_of_a_later_value(tmp_path):
    def program(run_b: bool) -> None:
        weights = _weights(run_b)
        weights.assign([1.0, 2.0])
        weights.assign_add(tf.constant([0.5, 3.0 if run_b else 4.0]))  # batch

    result = compared(tmp_path, program)
    assert lines(result)[0] == "batch"
    assert not result.culprits[0].contained


@pytest.mark.parametrize("look", [
    lambda read: float(read()[1]), lambda read: read().numpy()[1].item(), lambda read: f"{read()[1]:.3f}",
    lambda read: bool(read()[1] > 0.5), lambda read: int(tf.cast(read()[1] * 100.0, tf.int32)),
])  # fmt: skip
def test_a_value_made_after_python_looked_at_a_difference_that_died_is_undecided(tmp_path, look):
    def program(run_b: bool) -> None:
        weights = _weights(run_b)
        seen = look(lambda: weights)
        weights.assign([1.0, 2.0])
        weights.assign_add(tf.constant([0.5, float(seen)]))  # batch

    result = compared(tmp_path, program)
    assert "batch" not in lines(result)
    assert result.coverage.undecided


def test_what_python_looks_at_only_in_the_end_is_no_origin_of_what_came_before(tmp_path):
    @tf.function
    def step(weights: tf.Variable, x: tf.Tensor) -> tf.Tensor:
        y = tf.tanh(x)  # batch
        weights.assign_sub(tf.numpy_function(lambda v: v * shift, [y], tf.float32, stateful=False))  # kernel
        return tf.reduce_sum(weights)

    shift = np.float32(1.0)
    weights = tf.Variable([1.0, 2.0])

    def program(run_b: bool) -> None:
        nonlocal shift
        weights.assign([1.0, 2.0])
        losses = []
        for number in range(3):
            shift = np.float32(1.5 if run_b and number == 0 else 1.0)
            losses.append(step(weights, tf.constant([0.5, 3.0 if run_b and number == 2 else 4.0])))
        print([float(loss) for loss in losses])

    assert lines(compared(tmp_path, program)) == ["kernel", "batch"]


def test_a_tensor_that_numpy_took_unheard_counts_as_seen(tmp_path):
    def program(run_b: bool) -> None:
        state = tf.sin(tf.constant([0.5, 0.25 if run_b else 1.0]))  # start
        total = tf.Variable(state * 2.0)
        reward = np.asarray(state)[1] + 1.0
        total.assign_add(tf.constant([0.0, reward], tf.float32))  # reward

    assert lines(compared(tmp_path, program)) == ["start"]


def _swapped_writes(run_b: bool) -> None:
    v, x = tf.Variable([1.0, 2.0]), tf.sin(tf.constant([0.3, 0.4]))
    (v.assign(v * 0.5), v.assign_add(x)) if not run_b else (v.assign_add(x), v.assign(v * 0.5))  # planted


def _number_in_a_callback(run_b: bool) -> None:
    @tf.function
    def f(x: tf.Tensor) -> tf.Tensor:
        def body(a: tf.Tensor) -> tf.Tensor:
            b = tf.exp(a)
            return b * (0.5 if run_b else 0.25)  # planted

        return tf.py_function(body, [x], tf.float32) + 1.0

    f(tf.constant([1.0, 2.0]))


def _number_in_an_eager_callback(run_b: bool) -> None:
    def body(a: tf.Tensor) -> tf.Tensor:
        b = tf.exp(a)
        return b * (0.5 if run_b else 0.25)  # planted

    tf.py_function(body, [tf.constant([1.0, 2.0])], tf.float32)


def _array_in_a_callback(run_b: bool) -> None:
    seen = []

    @tf.function
    def f(x: tf.Tensor) -> tf.Tensor:
        def body(a: tf.Tensor) -> tf.Tensor:
            seen.append(float(a[0]))
            return a * tf.constant(np.float32([0.5, 0.75 if run_b else 1.0]))  # planted

        return tf.py_function(body, [x], tf.float32) + 1.0

    for step in range(3):
        f(tf.constant([1.0, 2.0]) * step)


def _python_in_a_callback(run_b: bool) -> None:
    def body(a: tf.Tensor) -> Any:
        return a.numpy() * (0.5 if run_b else 0.25)

    tf.py_function(body, [tf.constant([1.0, 2.0])], tf.float32) + 1.0  # planted


@pytest.mark.parametrize("program", [
    _swapped_writes, _number_in_a_callback, _number_in_an_eager_callback, _array_in_a_callback, _python_in_a_callback,
])  # fmt: skip
def test_what_python_does_otherwise_is_named_alone(tmp_path, program):
    assert lines(compared(tmp_path, program)) == ["planted"]


def test_a_callback_that_was_handed_a_difference_may_carry_it_on(tmp_path):
    def program(run_b: bool) -> None:
        def body(a: tf.Tensor) -> tf.Tensor:
            return tf.exp(a) * float(a.numpy()[1])

        x = tf.sin(tf.constant([0.5, 0.25 if run_b else 1.0]))  # start
        tf.py_function(body, [x], tf.float32)

    assert lines(compared(tmp_path, program)) == ["start"]


def test_what_a_file_gives_back_is_what_was_saved(tmp_path):
    def program(run_b: bool) -> None:
        folder = tmp_path / f"run_{run_b}"
        folder.mkdir()
        weights = tf.Variable([1.0, 2.0])
        weights.assign_add(tf.random.normal([2]))  # draw
        checkpoint = tf.train.Checkpoint(weights=weights)
        path = checkpoint.write(str(folder / "state"))
        weights.assign([0.0, 0.0])
        checkpoint.read(path)
        tf.io.write_file(str(folder / "text"), tf.io.serialize_tensor(weights))
        weights.assign([0.0, 0.0])
        weights.assign_add(tf.io.parse_tensor(tf.io.read_file(str(folder / "text")), tf.float32))

    result = compared(tmp_path, program)
    assert lines(result) == ["draw"] and not result.culprits[0].contained


def test_arrays_that_a_function_takes_row_for_row_are_one_batch(tmp_path):
    weights = tf.Variable([[0.5], [0.25]])

    @tf.function
    def step(x: tf.Tensor, y: tf.Tensor) -> None:
        z = tf.matmul(x, weights)  # batch
        weights.assign_sub(tf.reduce_mean(tf.abs(z - y)) * weights)

    def program(run_b: bool) -> None:
        weights.assign([[0.5], [0.25]])
        rows = np.arange(12, dtype=np.float32).reshape(6, 2)[:: -1 if run_b else 1].copy()
        step(tf.constant(rows), tf.constant(rows[:, :1].copy()))

    assert lines(compared(tmp_path, program)) == ["batch"]


def test_arguments_that_changed_places_are_the_callers_doing(tmp_path):
    @tf.function
    def difference(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
        return tf.exp(a) - b * 2.0

    def program(run_b: bool) -> None:
        a, b = tf.sin(tf.constant([1.0, 2.0])), tf.cos(tf.constant([1.0, 2.0]))
        difference(*((b, a) if run_b else (a, b)))  # call

    assert set(lines(compared(tmp_path, program))) == {"call"}


def test_what_only_chooses_a_branch_is_shown_as_the_branch(tmp_path):
    @tf.function
    def f(x: tf.Tensor, flag: tf.Tensor) -> tf.Tensor:
        y = tf.cond(flag, lambda: tf.sin(x), lambda: tf.cos(x))  # branch
        return y * 2.0

    result = compared(tmp_path, lambda run_b: f(tf.constant([1.0, 2.0]), tf.constant(run_b)))
    assert lines(result) == ["branch"]
    assert result.culprits[0].op_type == "StatelessIf"


def test_a_call_of_one_run_only_is_told_with_its_line(tmp_path):
    total = tf.Variable([1.0, 2.0])

    @tf.function
    def add(x: tf.Tensor) -> None:
        total.assign_add(x)  # write

    def program(run_b: bool) -> None:
        total.assign([1.0, 2.0])
        add(tf.constant([1.0, 1.0]))
        if run_b:
            add(tf.constant([1.0, 1.0]))
        tf.sin(total)

    (culprit,) = compared(tmp_path, program).culprits
    assert "made this call of add, in line" in culprit.explanation


def test_equal_rows_written_elsewhere_are_told_by_their_indices(tmp_path):
    def program(run_b: bool) -> None:
        table = tf.Variable(tf.zeros([4]))
        table.scatter_nd_update([[2 if run_b else 1]], [3.0])  # rows
        tf.reduce_sum(table * [1.0, 2.0, 3.0, 4.0])

    assert lines(compared(tmp_path, program)) == ["rows"]


def test_what_python_made_of_a_difference_and_put_back_leads_to_it(tmp_path):
    def program(run_b: bool) -> None:
        weights, history = tf.Variable([1.0, 2.0]), []
        for _ in range(2):
            weights.assign_add(tf.random.normal([2]))  # draw
            history.append(weights.numpy())
        weights.assign(np.mean(history, axis=0))  # mean

    result = compared(tmp_path, program)
    assert lines(result) == ["draw"] and not result.culprits[0].contained


def test_of_several_more_calls_the_first_is_named(tmp_path):
    total = tf.Variable(1.0)

    @tf.function
    def grow() -> None:
        total.assign(total * 1.5)  # write

    def program(run_b: bool) -> None:
        total.assign(1.0)
        for _ in range(6 if run_b else 3):
            grow()
        tf.sin(total)

    (culprit,) = compared(tmp_path, program).culprits
    assert (culprit.call, culprit.category, culprit.extra["only_in"]) == (3, "structure", "b")


def test_a_look_at_what_one_run_did_more_is_no_difference_before_it(tmp_path):
    def program(run_b: bool) -> None:
        total = tf.Variable([1.0, 2.0])
        total.assign_add([1.0, 1.0])
        if run_b:
            print(float(tf.reduce_sum(total)))
            total = tf.Variable([0.0, 0.0])
        tf.sin(total * 2.0)  # read

    (culprit,) = compared(tmp_path, program).culprits
    assert culprit.category == "state" and culprit.source.text.endswith("# read")


def test_recordings_begun_in_two_places_are_of_one_thing(tmp_path):
    @tf.function
    def double(x: tf.Tensor) -> tf.Tensor:
        return x * 2.0

    def work(kernel: Callable[[Any], Any]) -> tf.Tensor:
        y = double(tf.constant([1.0, 2.0]))
        return tf.sin(kernel(y))

    with tfbisect.record(tmp_path / "a.h5"): work(tf.nn.relu)  # noqa: E701  # fmt: skip
    with tfbisect.record(tmp_path / "b.h5"):
        work(tf.nn.relu)
    assert tfbisect.compare(tmp_path / "a.h5", tmp_path / "b.h5").verdict == "identical"


def test_ops_in_the_block_itself_have_lines(tmp_path):
    for name, by in (("a.h5", 1.0), ("b.h5", 3.0)):
        with tfbisect.record(tmp_path / name):
            x = tf.sin(tf.constant([1.0, 2.0]))
            tf.multiply(x, by)  # planted
    assert lines(tfbisect.compare(tmp_path / "a.h5", tmp_path / "b.h5")) == ["planted"]


def test_nothing_is_left_in_tensorflow(tmp_path):
    before = tf.Tensor.__mro__, type(tf.constant(1.0))._numpy
    with tfbisect.record(tmp_path / "a.h5"):
        tf.constant(1.0).numpy()
    assert (tf.Tensor.__mro__, type(tf.constant(1.0))._numpy) == before
