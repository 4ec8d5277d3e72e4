"""While loops: overlapping iterations, trip counts that are data, nests, and gradients through all of them."""

import tensorflow as tf
from ending import show

weights = tf.Variable(tf.random.stateless_normal([8, 8], seed=[1, 1]) * 0.3)
counts = tf.Variable(tf.zeros([4], tf.int32))


@tf.function
def uneven(x):
    """Iterations of very different cost overlap: the last one can be done before the first."""

    def body(i, total):
        size = 40 * (8 - i) + 4
        work = tf.random.stateless_uniform([size, size], seed=[i, 3]) * x[0, 0]
        return i + 1, total + tf.reduce_sum(tf.matmul(work, work)) * 1e-6

    return tf.while_loop(lambda i, _: i < 8, body, [0, 0.0], parallel_iterations=10)[1]


@tf.function
def nested(x, outer):
    """The inner trip count depends on the outer iteration and on the values."""

    def inner(j, limit, y):
        return j + 1, limit, tf.tanh(tf.matmul(y, weights)) + 0.01 * tf.cast(j, tf.float32)

    def body(i, y):
        limit = 1 + i % 3 + tf.cast(tf.reduce_sum(y) > 0.0, tf.int32)
        y = tf.while_loop(lambda j, n, _: j < n, inner, [0, limit, y], parallel_iterations=4)[2]
        counts.scatter_nd_add([[i % 4]], [limit])
        return i + 1, y

    return tf.while_loop(lambda i, _: i < outer, body, [0, x], parallel_iterations=10)[1]


@tf.function
def step(x, outer):
    with tf.GradientTape() as tape:
        y = nested(x, outer)
        loss = tf.reduce_mean(tf.square(y - 1.0)) + 1e-3 * uneven(x)
    gradient = tape.gradient(loss, weights)
    weights.assign_sub(0.1 * gradient)
    return loss, gradient


@tf.function
def never(x):
    """No iteration at all."""
    return tf.while_loop(lambda i, _: i < 0, lambda i, y: (i + 1, y * 2.0), [0, x])[1]


losses, gradients = [], []
for number in range(5):
    batch = tf.random.stateless_normal([6, 8], seed=[number, 5])
    loss, gradient = step(batch, tf.constant(1 + number))
    losses.append(loss)
    gradients.append(gradient)
show(losses, weights=weights, counts=counts, gradients=gradients, never=never(batch))
