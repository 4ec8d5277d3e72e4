"""`cond`, `switch_case`, `case` and AutoGraph's `if`: nested, in loops, writing variables, with gradients."""

import tensorflow as tf
from ending import show

weights = tf.Variable(tf.random.stateless_normal([6, 6], seed=[3, 1]) * 0.4)
taken = tf.Variable(tf.zeros([4], tf.int32))
history = tf.Variable(0.0)


def note(branch):
    taken.scatter_nd_add([[branch]], [1])


@tf.function
def step(x, number):
    with tf.GradientTape() as tape:
        y = tf.matmul(x, weights)

        def positive():
            note(0)
            history.assign_add(tf.reduce_sum(y))
            return tf.cond(tf.reduce_max(y) > 2.0, lambda: tf.nn.softplus(y), lambda: tf.nn.elu(y))

        def negative():
            note(1)
            history.assign(history * 0.5)
            return tf.tanh(y)

        y = tf.cond(tf.reduce_sum(y) > 0.0, positive, negative)
        y = tf.switch_case(
            number % 4, [lambda: y * 2.0, lambda: tf.sin(y), lambda: tf.matmul(y, weights)], default=lambda: y - 1.0
        )
        z = tf.case([(number < 1, lambda: y + 1.0), (number < 3, lambda: tf.square(y))], default=lambda: tf.abs(y))
        for i in tf.range(3):
            if tf.reduce_mean(z) > 0.5:
                note(2)
                z = z * 0.9
            elif i == 1:
                z = z + 0.1
            else:
                note(3)
                z = tf.exp(z * 0.1)
        loss = tf.reduce_mean(tf.square(z)) + history * 1e-3
    gradient = tape.gradient(loss, weights)
    weights.assign_sub(0.05 * gradient)
    return loss, gradient


losses, gradients = [], []
for number in range(6):
    x = tf.random.stateless_normal([4, 6], seed=[number, 11])
    loss, gradient = step(x, tf.constant(number))
    losses.append(loss)
    gradients.append(gradient)
show(losses, weights=weights, taken=taken, history=history, gradients=gradients)
