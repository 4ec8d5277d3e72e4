"""Settings that change between calls: optimizer options, soft placement, eager functions, `run_functions_eagerly`."""

import tensorflow as tf
from ending import show

weights = tf.Variable(tf.random.stateless_normal([8, 8], seed=[42, 1]) * 0.3)


@tf.function
def step(x):
    with tf.GradientTape() as tape:
        y = tf.nn.relu(tf.nn.bias_add(tf.matmul(x, weights), tf.zeros([8])))
        y = y + (x * 2.0) * 3.0 - (x * 2.0) * 3.0 + tf.transpose(tf.transpose(y))
        loss = tf.reduce_mean(tf.square(y - 0.5))
    weights.assign_sub(0.1 * tape.gradient(loss, weights))
    return loss


def settings():
    yield
    tf.config.optimizer.set_experimental_options({"constant_folding": False, "arithmetic_optimization": False})
    yield
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    yield
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": False, "remapping": True})
    yield
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)
    tf.config.set_soft_device_placement(False)
    yield
    tf.config.optimizer.set_jit("autoclustering")
    yield


losses = []
for number, _ in enumerate(settings()):
    losses.append(step(tf.random.stateless_normal([4, 8], seed=[number, 83])))
with tf.device("CPU:0"):
    losses.append(step(tf.ones([4, 8])))
show(losses, weights=weights)
