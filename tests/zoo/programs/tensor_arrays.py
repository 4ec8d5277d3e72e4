"""TensorArrays: dynamic size, gather, scatter, unstack, split, concat, inside loops, with gradients; eager as well."""

import tensorflow as tf
from ending import show

weights = tf.Variable(tf.random.stateless_normal([4, 4], seed=[4, 1]) * 0.4)


@tf.function
def step(x):
    with tf.GradientTape() as tape:
        rows = tf.TensorArray(tf.float32, size=tf.shape(x)[0]).unstack(x)
        states = tf.TensorArray(tf.float32, size=0, dynamic_size=True, clear_after_read=False)
        state = tf.zeros([4])
        for i in tf.range(rows.size()):
            state = tf.tanh(tf.linalg.matvec(weights, state) + rows.read(i))
            states = states.write(i, state)
        back = tf.TensorArray(tf.float32, size=states.size())
        for i in tf.range(states.size()):
            back = back.write(i, states.read(states.size() - 1 - i) * tf.cast(i + 1, tf.float32))
        picked = states.gather([0, 2, 1])
        scattered = tf.TensorArray(tf.float32, size=3).scatter([2, 0, 1], picked).stack()
        parts = tf.TensorArray(tf.float32, size=2, infer_shape=False).split(back.concat(), [6, 14])
        loss = tf.reduce_mean(scattered) + tf.reduce_sum(tf.square(parts.read(1))) * 0.01
        loss += tf.reduce_mean(states.stack())
    gradient = tape.gradient(loss, weights)
    weights.assign_sub(0.1 * gradient)
    return loss, scattered, parts.concat()


@tf.function
def lengths(words):
    """Elements of different shapes, and strings."""
    array = tf.TensorArray(tf.string, size=0, dynamic_size=True, infer_shape=False)
    for i in tf.range(tf.size(words)):
        array = array.write(i, tf.repeat(words[i : i + 1], i + 1))
    return array.concat()


losses, outputs = [], []
for number in range(5):
    loss, *rest = step(tf.random.stateless_normal([5, 4], seed=[number, 13]))
    losses.append(loss)
    outputs.append(rest)
eager = tf.TensorArray(tf.float32, size=3).unstack(tf.constant([[1.0], [2.0], [3.0]])).write(1, [-0.0]).stack()
show(losses, weights=weights, outputs=outputs, words=lengths(tf.constant(["a", "b", "c"])), eager=eager)
