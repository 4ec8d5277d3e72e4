"""OneDeviceStrategy, and ops placed by hand on two logical CPUs, with copies between them in functions and loops."""

import keras
import numpy as np
import tensorflow as tf
from ending import show

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)
keras.utils.set_random_seed(26)
rng = np.random.default_rng(26)
x = rng.normal(size=(32, 6)).astype("float32")
y = rng.normal(size=(32, 1)).astype("float32")
with tf.device("CPU:0"):
    first = tf.Variable(tf.random.stateless_normal([6, 6], seed=[26, 1]) * 0.4)
with tf.device("CPU:1"):
    second = tf.Variable(tf.random.stateless_normal([6, 1], seed=[26, 2]) * 0.4)


@tf.function
def step(features, labels):
    with tf.GradientTape() as tape:
        with tf.device("CPU:0"):
            h = tf.tanh(tf.matmul(features, first))
        for _ in tf.range(2):
            with tf.device("CPU:1"):
                h = tf.sin(h) + 0.1
            with tf.device("CPU:0"):
                h = tf.cos(h)
        with tf.device("CPU:1"):
            loss = tf.reduce_mean(tf.square(tf.matmul(h, second) - labels))
    for variable, gradient in zip([first, second], tape.gradient(loss, [first, second]), strict=True):
        variable.assign_sub(0.1 * gradient)
    return loss


losses = [step(tf.constant(x[8 * i : 8 * i + 8]), tf.constant(y[8 * i : 8 * i + 8])) for i in (0, 1, 2, 3, 0)]
with tf.device("CPU:1"):
    eager = tf.matmul(first, second) + tf.constant(1.0)

strategy = tf.distribute.OneDeviceStrategy("CPU:1")
with strategy.scope():
    model = keras.Sequential([keras.layers.Dense(5, activation="tanh"), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.01), "mse")
history = model.fit(x, y, batch_size=8, epochs=1, shuffle=False, verbose=0)
run = strategy.run(lambda value: tf.reduce_sum(tf.square(value)), args=(tf.constant(x),))
show(losses + history.history["loss"], weights=[first, second, model.variables], outputs=[eager, run])
