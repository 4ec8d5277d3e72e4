"""Python inside graphs: `py_function` with gradients, `numpy_function`, and calls from there back into TensorFlow."""

import numpy as np
import tensorflow as tf
from ending import show

weights = tf.Variable(tf.random.stateless_normal([5, 5], seed=[11, 1]) * 0.4)
visits = []


def in_python(x):
    """Runs op by op in Python, with a tape of its own."""
    visits.append(float(tf.reduce_sum(x)))
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.sin(x) * 2.0
    return y + tape.gradient(y, x)


@tf.function
def inner(x):
    return tf.reduce_sum(tf.matmul(x, x, transpose_b=True))


def reenters(x):
    """Calls a function from inside the function that is running."""
    return inner(x) + inner(x * 2.0)


def in_numpy(x, k):
    return np.cumsum(x, axis=0, dtype=np.float32) * k, np.array([b"row"] * len(x), object)


@tf.function
def step(x):
    with tf.GradientTape() as tape:
        y = tf.matmul(x, weights)
        z = tf.ensure_shape(tf.py_function(in_python, [y], tf.float32), [4, 5])
        loss = tf.reduce_mean(tf.square(z))
    weights.assign_sub(0.05 * tape.gradient(loss, weights))
    sums, names = tf.numpy_function(in_numpy, [y, tf.constant(0.5)], [tf.float32, tf.string])
    again = tf.py_function(reenters, [y], tf.float32)
    for i in tf.range(2):
        sums = tf.numpy_function(lambda a, n: a + np.float32(n), [sums, i], tf.float32)
    return loss, sums, names, again


losses, outputs = [], []
for number in range(5):
    loss, *rest = step(tf.random.stateless_normal([4, 5], seed=[number, 31]))
    losses.append(loss)
    outputs.append(rest)
eager = tf.py_function(in_python, [tf.ones([2])], tf.float32), tf.numpy_function(np.square, [tf.range(3.0)], tf.float32)
show(losses, weights=weights, outputs=outputs, eager=eager, visits=visits)
