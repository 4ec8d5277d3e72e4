"""`map_fn`, `scan`, `foldl`, `foldr`, `vectorized_map`, plainly, inside each other, and their gradients."""

import tensorflow as tf
from ending import show

kernel = tf.Variable(tf.random.stateless_normal([5, 5], seed=[2, 1]) * 0.4)
bias = tf.Variable(tf.zeros([5]))


def cell(state, x):
    return tf.tanh(tf.linalg.matvec(kernel, state) + x + bias)


@tf.function
def step(x):
    with tf.GradientTape() as tape:
        mapped = tf.map_fn(lambda row: tf.nn.softmax(tf.linalg.matvec(kernel, row)), x, parallel_iterations=8)
        states = tf.scan(cell, x, initializer=tf.zeros([5]))
        folded = tf.foldl(lambda a, b: a * 0.5 + tf.sin(b), x) + tf.foldr(lambda a, b: a * 0.25 + tf.cos(b), x)
        vectorized = tf.vectorized_map(lambda row: tf.reduce_sum(tf.square(tf.linalg.matvec(kernel, row))), x)
        rows_of_rows = tf.map_fn(
            lambda row: tf.reduce_sum(tf.map_fn(lambda value: value * bias, row, fn_output_signature=tf.float32)), x
        )
        loss = tf.reduce_mean(mapped * states) + tf.reduce_sum(folded) * 0.01
        loss += tf.reduce_mean(vectorized) + tf.reduce_mean(rows_of_rows)
    variables = [kernel, bias]
    for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
        variable.assign_sub(0.05 * gradient)
    return loss, states, vectorized


losses, outputs = [], []
for number in range(5):
    loss, *rest = step(tf.random.stateless_normal([7, 5], seed=[number, 7]))
    losses.append(loss)
    outputs.append(rest)
# outside of any function the same calls run op by op
eager = tf.scan(cell, tf.ones([3, 5])), tf.map_fn(tf.reduce_sum, tf.ones([3, 5])), tf.vectorized_map(tf.sin, tf.eye(3))
show(losses, kernel=kernel, bias=bias, outputs=outputs, eager=eager)
