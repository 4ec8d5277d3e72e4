"""`custom_gradient`, `recompute_grad`, `stop_gradient`, gradients that are overridden, in functions and eagerly."""

import tensorflow as tf
from ending import show

weights = tf.Variable(tf.random.stateless_normal([6, 6], seed=[8, 1]) * 0.4)
head = tf.Variable(tf.random.stateless_normal([6, 2], seed=[8, 2]) * 0.4)


@tf.custom_gradient
def clipped(x):
    def gradient(upstream):
        return tf.clip_by_norm(upstream, 0.5)

    return tf.identity(x), gradient


@tf.custom_gradient
def with_variables(x):
    def gradient(upstream, variables):
        assert len(variables) == 1
        return tf.matmul(upstream, head, transpose_b=True), [2.0 * tf.matmul(x, upstream, transpose_a=True)]

    return tf.matmul(x, head), gradient


@tf.recompute_grad
def block(x):
    return tf.nn.gelu(tf.matmul(tf.nn.gelu(tf.matmul(x, weights)), weights))


def loss_of(x):
    y = clipped(block(block(x)))
    z = with_variables(y + tf.stop_gradient(tf.sin(y)))
    return tf.reduce_mean(tf.square(z - 0.3))


@tf.function
def step(x):
    variables = [weights, head]
    with tf.GradientTape() as tape:
        loss = loss_of(x)
    gradients = tape.gradient(loss, variables)
    for variable, gradient in zip(variables, gradients, strict=True):
        variable.assign_sub(0.1 * gradient)
    return loss, gradients


losses, outputs = [], []
for number in range(5):
    loss, gradients = step(tf.random.stateless_normal([5, 6], seed=[number, 19]))
    losses.append(loss)
    outputs.append(gradients)
x = tf.random.stateless_normal([5, 6], seed=[9, 19])
with tf.GradientTape() as tape:
    loss = loss_of(x)
losses.append(loss)
outputs.append(tape.gradient(loss, [weights, head]))
show(losses, weights=[weights, head], outputs=outputs)
