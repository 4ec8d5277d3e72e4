"""An eager GradientTape around functions: their forward and backward halves; persistent tapes, loops inside."""

import tensorflow as tf
from ending import show

weights = tf.Variable(tf.random.stateless_normal([6, 6], seed=[9, 1]) * 0.4)
scale = tf.Variable(1.0)
moments = [tf.Variable(tf.zeros([6, 6])), tf.Variable(0.0)]


@tf.function
def layer(x):
    return tf.nn.tanh(tf.matmul(x, weights)) * scale


@tf.function
def looped(x):
    for _ in tf.range(3):
        x = layer(x) + 0.1 * x
    return x


losses, outputs = [], []
for number in range(5):
    x = tf.random.stateless_normal([4, 6], seed=[number, 23])
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = layer(layer(x)) + looped(x)
        loss = tf.reduce_mean(tf.square(y)) + 0.01 * tf.reduce_sum(weights)
        other = tf.reduce_max(y)
    gradients = tape.gradient(loss, [weights, scale])
    outputs.append([gradients, tape.gradient(other, x), tape.jacobian(tf.reduce_sum(y, axis=0), scale)])
    del tape
    for variable, moment, gradient in zip([weights, scale], moments, gradients, strict=True):
        moment.assign(0.9 * moment + gradient)
        variable.assign_sub(0.05 * moment)
    losses.append(loss)
show(losses, weights=[weights, scale, moments], outputs=outputs)
