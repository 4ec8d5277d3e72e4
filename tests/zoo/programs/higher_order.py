"""Higher-order gradients: gradient penalty, Hessians, Jacobians, `tf.gradients` in a function, tapes within tapes."""

import tensorflow as tf
from ending import show

weights = tf.Variable(tf.random.stateless_normal([4, 4], seed=[10, 1]) * 0.5)


@tf.function
def energy(x):
    return tf.reduce_sum(tf.square(tf.tanh(tf.matmul(x, weights))), axis=1)


@tf.function
def step(x):
    with tf.GradientTape() as outer:
        with tf.GradientTape() as inner:
            inner.watch(x)
            e = energy(x)
        force = inner.gradient(e, x)
        penalty = tf.reduce_mean(tf.square(tf.norm(force, axis=1) - 1.0))
        loss = tf.reduce_mean(e) + penalty
    gradient = outer.gradient(loss, weights)
    weights.assign_sub(0.05 * gradient)
    return loss, force


@tf.function
def hessian(x):
    return tf.hessians(tf.reduce_sum(energy(x)), x)[0]


losses, outputs = [], []
for number in range(5):
    loss, force = step(tf.random.stateless_normal([3, 4], seed=[number, 29]))
    losses.append(loss)
    outputs.append(force)
x = tf.random.stateless_normal([3, 4], seed=[7, 29])
outputs.append(hessian(x))
with tf.GradientTape(persistent=True) as third:
    third.watch(x)
    with tf.GradientTape() as second:
        second.watch(x)
        with tf.GradientTape() as first:
            first.watch(x)
            e = tf.reduce_sum(energy(x))
        d1 = first.gradient(e, x)
    d2 = second.gradient(d1, x)
d3 = third.gradient(d2, x)
with tf.GradientTape(persistent=True) as tape:
    tape.watch(x)
    y = tf.tanh(tf.matmul(x, weights))
outputs += [d1, d2, d3, tape.batch_jacobian(y, x), tape.jacobian(y, weights, experimental_use_pfor=False)]
show(losses, weights=weights, outputs=outputs)
