"""`tfbisect.check`: programs with known answers, and that nothing is changed by asking."""

import gc
import random
import time
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.ops import resource_variable_ops

import tfbisect
from tfbisect.errors import EmptyTrace, Usage
from tfbisect.model import Comparison, Culprit

RUNS = 3


def bits() -> dict[int, tuple[str, bytes]]:
    """The bytes of every live variable."""
    gc.collect()  # what is left of earlier tests goes now, not while we look away
    found = {}
    for each in gc.get_objects():
        if issubclass(type(each), resource_variable_ops.BaseResourceVariable):
            value = each.numpy()
            data = repr(value).encode() if each.dtype == tf.string else value.tobytes()
            found[id(each)] = (each.dtype.name, data)
    return found


def checked(fn: Callable[..., Any], *args: Any, runs: int = RUNS) -> Comparison:
    """The answer, after making sure that the variables and the generators of Python and NumPy are as they were."""
    before, python, numpy, seed = bits(), random.getstate(), np.random.get_state(legacy=False), context.context()._seed
    answer = tfbisect.check(fn, *args, runs=runs)
    after = bits()
    assert {key: after[key] for key in before} == before
    assert random.getstate() == python
    assert repr(np.random.get_state(legacy=False)) == repr(numpy)
    assert context.context()._seed == seed
    return answer


def first(answer: Comparison) -> Culprit:
    assert answer.verdict == "diverged", answer.warnings
    return answer.culprits[0]


def line(text: str, culprit: Culprit) -> bool:
    return culprit.source is not None and text in culprit.source.text


@pytest.fixture
def numbers() -> np.ndarray:
    return np.random.RandomState(0).rand(32, 8).astype(np.float32)


def test_a_training_step_repeats_and_its_optimizer_is_as_new(numbers):
    weights = tf.Variable(tf.ones([8, 4]))
    optimizer = tf.keras.optimizers.Adam(0.1)

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(x @ weights))
        optimizer.apply_gradients([(tape.gradient(loss, weights), weights)])
        return loss

    answer = checked(step, tf.constant(numbers))
    assert answer.verdict == "identical"
    assert not answer.warnings
    slots = [variable.numpy() for variable in optimizer.variables if len(variable.shape)]
    assert len(slots) == 2  # made in the first run, and as they were made
    assert not any(slot.any() for slot in slots)
    assert int(optimizer.iterations.numpy()) == 0


def test_a_model_with_dropout_repeats(numbers):
    layers = tf.keras.layers
    model = tf.keras.Sequential([layers.Dense(16, activation="relu"), layers.Dropout(0.5), layers.Dense(1)])
    model.compile("adam", "mse", metrics=["mae"])
    model.fit(numbers, numbers[:, :1], verbose=0)
    before, history = bits(), model.history
    answer = tfbisect.check_model(model, numbers, numbers[:, :1], runs=RUNS)
    assert answer.verdict == "identical"
    after = bits()
    assert {key: after[key] for key in before} == before
    assert model.history is history


def test_a_model_that_does_not_repeat_is_told_with_its_op():
    layers = tf.keras.layers
    model = tf.keras.Sequential([layers.Embedding(50, 64), layers.Flatten(), layers.Dense(1)])
    model.compile(tf.keras.optimizers.SGD(0.1), "mse")
    source = np.random.RandomState(0)
    words, target = source.randint(0, 50, (2048, 40)), source.rand(2048, 1)
    before = bits()
    answer = tfbisect.check_model(model, words, target, runs=8, batch_size=512)
    assert first(answer).op_type == "ResourceScatterSub"
    assert first(answer).category == "kernel"
    after = bits()
    assert {key: after[key] for key in before} == before


def test_a_model_must_be_compiled():
    with pytest.raises(Usage, match="compile"):
        tfbisect.check_model(tf.keras.Sequential([tf.keras.layers.Dense(1)]), [[1.0]], [[1.0]])


def test_generators_of_tensorflow_draw_the_same():
    generator = tf.random.Generator.from_seed(7)

    @tf.function
    def draw():
        return generator.normal([3])

    assert checked(draw).verdict == "identical"
    assert np.array_equal(draw(), tf.random.Generator.from_seed(7).normal([3]))


def test_an_unseeded_draw_is_named():
    @tf.function
    def draw():
        return tf.raw_ops.RandomUniform(shape=[3], dtype=tf.float32, seed=0, seed2=0) * 2.0  # the draw

    culprit = first(checked(draw))
    assert (culprit.op_type, culprit.category) == ("RandomUniform", "rng")
    assert line("the draw", culprit)


def test_a_kernel_with_a_stream_of_its_own_is_named_and_goes_on_where_it_was():
    def made():
        @tf.function
        def draw():
            return tf.raw_ops.RandomUniform(shape=[3], dtype=tf.float32, seed=3, seed2=4)  # the draw

        return draw

    plain, asked = made(), made()
    expected = [plain().numpy().tolist() for _ in range(3)]
    found = [asked().numpy().tolist()]
    answer = checked(asked)
    found += [asked().numpy().tolist() for _ in range(2)]
    assert answer.verdict == "identical"
    assert len(answer.warnings) == 1
    assert "RandomUniform at test_check.py:" in answer.warnings[0]
    assert found == expected
    assert expected[0] != expected[1]


def test_generators_of_python_and_numpy_draw_the_same():
    own, other = np.random.default_rng(1), random.Random(2)

    def noise():
        values = [random.random(), np.random.rand(), own.random(), other.random()]
        return tf.reduce_sum(tf.constant(values))

    expected = (np.random.default_rng(1).random(), random.Random(2).random())
    assert checked(noise).verdict == "identical"
    assert (own.random(), other.random()) == expected


def test_eager_draws_follow_the_global_seed_and_are_where_they_were():
    state = context.context()._seed
    try:
        tf.random.set_seed(5)
        expected = [tf.random.uniform([2]).numpy().tolist() for _ in range(2)]
        tf.random.set_seed(5)
        found = [tf.random.uniform([2]).numpy().tolist()]
        answer = checked(lambda: tf.random.uniform([2]) + 1.0)
        found += [tf.random.uniform([2]).numpy().tolist()]
    finally:
        context.context()._seed = state
    assert answer.verdict == "identical"
    assert "with such eager ops" in answer.warnings[0]
    assert found == expected


def test_a_value_of_the_clock_is_named():
    def scaled(x):
        return x * time.perf_counter()  # the clock

    culprit = first(checked(scaled, tf.constant([1.0, 2.0])))
    assert culprit.category == "host"
    assert line("the clock", culprit)


def test_python_that_counts_is_named():
    calls: list[int] = []

    def count(x):
        calls.append(1)
        return x + np.float32(len(calls))

    @tf.function
    def step(x):
        return tf.numpy_function(count, [x], tf.float32) * 2.0  # the count

    culprit = first(checked(step, tf.constant([1.0])))
    assert (culprit.op_type, culprit.category) == ("PyFunc", "host")
    assert line("the count", culprit)


def test_variables_of_all_types_get_their_bits_back():
    strange = np.array([0x7FC12345, 0x80000000, 0xFF800001], np.uint32).view(np.float32)
    values = [
        strange, np.float32(-0.0), np.array([1, 2], ml_dtypes.float8_e5m2), np.array([3.5], ml_dtypes.float8_e4m3fn),
        np.array([1.5, -0.0], ml_dtypes.bfloat16), np.array([b"a\0", b""], object), np.array(b"x\0\0", object),
        np.array([2**63], np.uint64), np.array([True, False]), np.zeros([0, 3], np.int8), np.array([1 + 2j]),
    ]  # fmt: skip
    variables = [tf.Variable(value) for value in values]
    others = [tf.Variable(np.full_like(value, b"other" if value.dtype == object else 1)) for value in values]

    def swap():
        for variable, other in zip(variables, others, strict=True):
            variable.assign(other)
        return variables[0] + 1.0

    assert checked(swap).verdict == "identical"
    assert variables[0].numpy().tobytes() == strange.tobytes()
    assert variables[6].numpy() == b"x\0\0"


def test_tables_get_their_contents_back():
    table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)
    table.insert(["a", "b"], [1, 2])

    @tf.function
    def step():
        table.insert(["a", "c"], table.lookup(["b", "c"]) + 5)
        return table.lookup(["a", "b", "c"])

    assert checked(step).verdict == "identical"
    assert table.lookup(["a", "b", "c"]).numpy().tolist() == [1, 2, -1]


def test_an_iterator_is_where_it_was():
    iterator = iter(tf.data.Dataset.range(20).shuffle(5, seed=1).batch(2))
    next(iterator)
    answer = checked(lambda each: tf.reduce_sum(next(each)), iterator)
    again = iter(tf.data.Dataset.range(20).shuffle(5, seed=1).batch(2))
    next(again)
    assert answer.verdict == "identical"
    assert next(iterator).numpy().tolist() == next(again).numpy().tolist()


def test_an_iterator_of_pythons_cannot_be_put_back_which_is_said():
    source = (float(i) for i in range(100))
    answer = checked(lambda each: tf.constant(next(each)) + 1.0, source)
    assert first(answer).category in ("host", "input")
    assert any("Python generator" in warning for warning in answer.warnings)


def test_an_error_of_the_program_passes_and_the_state_is_put_back():
    weight = tf.Variable(1.0)

    def fails():
        weight.assign_add(1.0)
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        tfbisect.check(fails)
    assert weight.numpy() == 1.0


def test_traces_are_kept_where_they_are_wanted(tmp_path):
    answer = tfbisect.check(lambda x: x + 1.0, tf.constant(1.0), runs=2, keep=tmp_path / "traces")
    assert answer.verdict == "identical"
    assert sorted(path.name for path in (tmp_path / "traces").iterdir()) == ["run1.h5", "run2.h5"]


@pytest.mark.parametrize("arguments", [{"runs": 1}, {"fn": 3}])
def test_what_makes_no_sense_is_told(arguments):
    with pytest.raises(Usage):
        tfbisect.check(arguments.get("fn", lambda: None), runs=arguments.get("runs", 2))


def test_what_runs_no_tensorflow_op_is_not_called_identical() -> None:
    kept = tf.Variable([1.0, 2.0])
    with pytest.raises(EmptyTrace, match="no TensorFlow op"):
        tfbisect.check(lambda: 3, runs=2)
    assert kept.numpy().tolist() == [1.0, 2.0]
