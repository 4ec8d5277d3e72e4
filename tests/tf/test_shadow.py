"""Shadow: what is convicted, what is left alone, and that the program computes what it does without."""

import hashlib
import itertools

import numpy as np
import pytest
import tensorflow as tf

import tfbisect
from tfbisect.errors import Usage


def sha(*values) -> str:
    return hashlib.sha256(b"".join(np.asarray(value).tobytes() for value in values)).hexdigest()


@pytest.fixture
def x():
    return tf.random.stateless_normal([8, 8], [1, 2])


@pytest.fixture
def crops():
    """Gradients and boxes that overlap: the CPU kernel adds them from several threads without a lock."""
    corners = tf.random.stateless_uniform([2000, 2], [5, 6], 0, 0.5)
    return tf.random.stateless_normal([2000, 14, 14, 8], [3, 4]), tf.concat([corners, corners + 0.4], 1)


@tf.function
def paint(grads, boxes):
    owner = tf.zeros([2000], tf.int32)
    image = tf.raw_ops.CropAndResizeGradImage(
        grads=grads * 0.5, boxes=boxes, box_ind=owner, image_size=[1, 32, 32, 8], T=tf.float32
    )
    return tf.reduce_sum(image * 2.0, [1, 2])


def test_a_kernel_that_varies_is_convicted_in_a_function(crops):
    found = tfbisect.shadow(paint, *crops, calls=5)
    assert found.verdict == "unstable"
    (op,) = found.unstable
    assert (op.op_type, op.function, op.executions) == ("CropAndResizeGradImage", "paint", 5)
    assert 0 < op.differing <= 5
    assert op.source is not None and "CropAndResizeGradImage(" in op.source.text


def test_a_kernel_that_varies_is_convicted_eagerly(crops):
    found = tfbisect.shadow(paint.python_function, *crops, calls=5)
    (op,) = found.unstable
    assert (op.op_type, op.function, op.executions) == ("CropAndResizeGradImage", "", 5)
    assert op.source is not None and "CropAndResizeGradImage(" in op.source.text


@tf.function
def loops(x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = x
        for _ in tf.range(3):
            for _ in tf.range(2):
                y = tf.tanh(tf.matmul(y, x) * 0.1)
            if tf.reduce_sum(y) > 0:
                y = y * 1.1
        loss = tf.reduce_sum(y)
    return tape.gradient(loss, x)


def test_loops_and_branches_are_stable_and_keep_their_bits(x):
    plain = sha(loops(x))
    results = []
    found = tfbisect.shadow(lambda: results.append(sha(loops(x))), calls=3)
    assert found.verdict == "stable" and not found.problems
    assert set(results) == {plain}
    assert found.executions > 3 * 3 * 2 * 2  # at least a product and a tanh in each iteration of each call


def test_what_runs_twice_is_what_ran(x):
    counter = itertools.count()
    state = tf.Variable(tf.zeros([8, 8]))

    @tf.function
    def step(x):
        a, b, c = tf.sin(x), tf.cos(x), tf.tanh(x)
        y = tf.add_n([a, b, c])
        z = tf.numpy_function(lambda v: v + np.float32(next(counter) * 0), [y], tf.float32, stateful=False)
        state.assign_add(tf.random.uniform([8, 8], seed=7))
        return tf.ensure_shape(z, [8, 8]) + tf.random.stateless_uniform([8, 8], [1, 2])

    found = tfbisect.shadow(step, x, calls=2)
    assert next(counter) == 2  # Python was called once a call
    assert found.verdict == "stable"
    reasons = {each.op_type: each.reason for each in found.exempt}
    assert "random numbers" in reasons["RandomUniform"]
    assert "Python" in reasons["PyFuncStateless"]
    assert "state" in reasons["AssignAddVariableOp"]
    assert "order of the buffers" in reasons["AddN"]
    assert {each.count for each in found.exempt if each.op_type == "AddN"} == {1}


def test_draws_are_those_of_a_run_without(x):
    def training():
        tf.random.set_seed(5)
        weights = tf.Variable(tf.ones([8, 8]))

        @tf.function
        def step():
            weights.assign_sub(0.1 * tf.nn.dropout(tf.matmul(weights, x), 0.5))

        for _ in range(4):
            step()
        results.append(sha(weights))

    results: list[str] = []
    training()
    found = tfbisect.shadow(training)
    training()
    assert len(set(results)) == 1
    assert found.verdict == "stable"


def test_nothing_ran_twice_is_said():
    assert tfbisect.shadow(lambda: None).verdict == "nothing ran twice"


def test_errors_of_the_function_pass_and_the_hooks_are_gone(x):
    def fails():
        tf.matmul(x, x)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        tfbisect.shadow(fails)
    assert tfbisect.shadow(tf.sin, x).verdict == "stable"  # a second one can begin


def test_calls_must_be_one_or_more(x):
    with pytest.raises(Usage, match="1 or more"):
        tfbisect.shadow(tf.sin, x, calls=0)


def test_json_has_what_the_result_has(crops):
    found = tfbisect.shadow(paint, *crops, calls=5).to_json()
    assert found["verdict"] == "unstable"
    assert found["unstable"][0]["op_type"] == "CropAndResizeGradImage"
    assert found["unstable"][0]["source"]["line"] > 0
    assert any("process" in text for text in found["limits"])
