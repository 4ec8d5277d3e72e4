"""Two versions of a traced function: named is what Python wrote otherwise, whatever the optimizer made of it."""

import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tfbisect
from tfbisect.model import Culprit

run_b = False


def k(a: Any, b: Any) -> Any:
    return b if run_b else a


def compared(function: Callable[[Any], Any], x: Any, **options: Any) -> tuple[Culprit, ...]:
    """The culprits of two runs of a function, traced anew in each, that do not die out."""
    global run_b
    with tempfile.TemporaryDirectory() as folder:
        for name in ("a.h5", "b.h5"):
            run_b = name == "b.h5"
            traced = tf.function(function, **options)
            with tfbisect.record(f"{folder}/{name}"):
                traced(x)
        result = tfbisect.compare(f"{folder}/a.h5", f"{folder}/b.h5")
    return tuple(c for c in result.culprits if not c.contained)


def _sum_times(x):
    y = x + x
    return y * k(0.5, 0.75)  # planted


def _divided_times(x):
    y = x / 3.0
    return y * k(0.5, 0.75)  # planted


def _added_twice(x):
    y = x + 3.0
    return y + k(0.5, 0.75)  # planted


def _after_convolution(x):
    y = tf.nn.conv2d(x[tf.newaxis, :, :, tf.newaxis], tf.ones([2, 2, 1, 1]), 1, "SAME")
    return y * k(2.0, 3.0)  # planted


def _times_one(x):
    y = tf.sin(x)
    y = y * k(1.0, 2.0)  # planted
    return y + 1.0


def _plus_zero(x):
    y = tf.sin(x)
    y = y + k(0.0, 1.0)  # planted
    return y * 2.0


def _in_a_function(x):
    inner = tf.function(lambda z: z * k(2.0, 3.0))  # planted
    return inner(x) * 4.0


def _in_a_branch(x):
    if x[0, 0] > 0.0:
        y = x * 3.0
        y = y * k(2.0, 3.0)  # planted
    else:
        y = x * 2.0
        y = y * 5.0
    return y


def _in_a_loop(x):
    for _ in tf.range(3):
        y = x * 3.0
        x = y * k(2.0, 3.0)  # planted
    return x


def _two_constants_of_one_line(x):
    return tf.nn.dropout(x, k(0.25, 0.5), seed=2) + 1.0  # planted


def _another_op(x):
    a = tf.reduce_mean(x)
    if run_b:
        a = tf.reduce_max(x)  # planted
    return x - a


def _divided_by_one(x):
    a = tf.math.softmax(x / k(1.0, 2.0))  # planted
    return a * 2.0


def _transposed(x):
    y = tf.transpose(x, k([1, 0], [0, 1]))  # planted
    return tf.matmul(y, x)


def _printed(x):
    y = tf.sin(x) * k(2.0, 3.0)  # planted
    if run_b:
        tf.print("the mean is", tf.reduce_mean(x), output_stream="file:///dev/null")
    return y * 4.0 + 1.0


def _one_op_more(x):
    y = tf.matmul(x, x) + 1.0
    if run_b:
        y = y + x  # planted
    return tf.nn.relu(y)


def _another_attribute(x):
    return tf.matmul(x, x, transpose_b=k(False, True)) * 2.0  # planted


def _names_that_move(x):
    shift, scale = tf.sin(x[:1]), tf.cos(x[:, :1])
    with tf.GradientTape() as tape:
        tape.watch([shift, scale])
        loss = tf.reduce_mean(tf.square(tf.matmul(x, scale) - shift))
        if run_b:
            loss += 0.01 * tf.nn.l2_loss(scale)  # planted
    gradients = tape.gradient(loss, [shift, scale])
    return [tf.exp(value - 0.1 * gradient) for value, gradient in zip([shift, scale], gradients, strict=True)]


def _also_in_the_gradient(x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = tf.reduce_mean(tf.square(tf.sin(x))) * k(0.5, 0.75)  # planted
    return loss, tape.gradient(loss, x)


ALL = [value for name, value in list(globals().items()) if name.startswith("_") and callable(value)]
X = np.abs(np.random.default_rng(5).standard_normal((4, 4))).astype(np.float32)


@pytest.mark.parametrize("function", ALL, ids=[f.__name__.strip("_") for f in ALL])
def test_what_was_written_otherwise_is_named(function):
    (culprit,) = compared(function, tf.constant(X))
    assert "planted" in culprit.source.text, culprit


def test_a_constant_that_another_equal_one_stands_for_is_told_by_its_own_line():
    def f(x):
        y = tf.sin(x) * k(0.1, 0.25)  # planted
        return tf.exp(y) * 0.1 + tf.exp(x) * 0.1

    (culprit,) = compared(f, tf.constant(X))
    assert "planted" in culprit.source.text


def test_a_fused_op_is_shown_at_the_line_of_its_main_op():
    weights = tf.constant(X)

    @tf.function
    def dense(x):
        y = tf.matmul(x, weights)  # planted
        y = tf.nn.bias_add(y, tf.ones([4]))
        return tf.nn.relu(y)

    with tempfile.TemporaryDirectory() as folder:
        for name, scale in (("a.h5", 1.0), ("b.h5", 2.0)):
            with tfbisect.record(f"{folder}/{name}"):
                dense(tf.constant(X * np.float32(scale)))
        (culprit,) = tfbisect.compare(f"{folder}/a.h5", f"{folder}/b.h5").culprits
    assert culprit.op_type == "MatMul" and "planted" in culprit.source.text


def test_what_xla_compiled_is_told_by_how_it_was_written():
    (culprit,) = compared(_divided_times, tf.constant(X), jit_compile=True)
    assert (culprit.op_type, culprit.category) == ("Const", "host")
    assert "planted" in culprit.source.text


def test_a_constant_that_differs_beside_another_op_is_a_culprit_of_its_own():
    def both(x):
        y = tf.sin(x) * k(2.0, 3.0)  # constant
        z = tf.cos(x)
        if run_b:
            z = tf.square(z)  # op
        return y, tf.exp(z)

    found = {c.source.text.partition("#")[2].strip() for c in compared(both, tf.constant(X - 2.0))}
    assert found == {"constant", "op"}
