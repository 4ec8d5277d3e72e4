"""Eager ops and functions that run asynchronously, on an executor of a thread's own, beside synchronous ones."""

import threading

import tensorflow as tf
from ending import show

tf.config.experimental.set_synchronous_execution(False)
weights = tf.Variable(tf.random.stateless_normal([16, 16], seed=[48, 1]) * 0.2)


@tf.function
def step(x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(tf.tanh(tf.matmul(x, weights)) - 0.5))
    gradient = tape.gradient(loss, weights)
    weights.assign_sub(0.1 * gradient)
    return loss, gradient


losses, outputs = [], []
for number in range(5):
    x = tf.random.stateless_normal([8, 16], seed=[number, 101])
    for _ in range(3):
        x = tf.tanh(tf.matmul(x, weights))
    loss, gradient = step(x)
    losses.append(loss)
    outputs.append([gradient, x])
with tf.device("CPU:0"):
    weights.assign_add(tf.ones([16, 16]))


def synchronous():
    tf.config.experimental.set_synchronous_execution(True)
    outputs.append(step(tf.ones([2, 16])))


thread = threading.Thread(target=synchronous)
thread.start()
thread.join()
show(losses, weights=weights, outputs=outputs)
