"""Forward-mode differentiation: `ForwardAccumulator` eagerly, around functions, in a function, and over a tape."""

import tensorflow as tf
from ending import show

weights = tf.Variable(tf.random.stateless_normal([4, 4], seed=[12, 1]) * 0.5)
direction = tf.random.stateless_normal([4, 4], seed=[12, 2])


@tf.function
def model(x):
    for _ in tf.range(2):
        x = tf.tanh(tf.matmul(x, weights))
    return x


@tf.function
def inside(x):
    with tf.autodiff.ForwardAccumulator(weights, direction) as accumulator:
        y = tf.reduce_sum(tf.square(tf.matmul(x, weights)))
    return accumulator.jvp(y)


losses, outputs = [], []
for number in range(5):
    x = tf.random.stateless_normal([3, 4], seed=[number, 37])
    with tf.autodiff.ForwardAccumulator(weights, direction) as accumulator:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.tanh(tf.matmul(x, weights)) - 0.5))
        gradient = tape.gradient(loss, weights)
    outputs.append([accumulator.jvp(loss), accumulator.jvp(gradient), inside(x)])  # a Hessian-vector product among them
    with tf.autodiff.ForwardAccumulator(x, tf.ones_like(x)) as accumulator:
        y = model(x)
    outputs.append([y, accumulator.jvp(y)])
    weights.assign_sub(0.1 * gradient)
    losses.append(loss)
show(losses, weights=weights, outputs=outputs)
