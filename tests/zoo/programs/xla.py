"""XLA: functions with `jit_compile=True`, alone, inside other functions, under a tape, and a compiled Keras model."""

import keras
import numpy as np
import tensorflow as tf
from ending import show

keras.utils.set_random_seed(30)
weights = tf.Variable(tf.random.stateless_normal([6, 6], seed=[30, 1]) * 0.4)


@tf.function(jit_compile=True)
def compiled(x):
    for _ in tf.range(3):
        x = tf.tanh(tf.matmul(x, weights))
    return x, tf.reduce_sum(x)


@tf.function(jit_compile=True)
def dense(x):
    return tf.nn.softmax(tf.matmul(x, weights))


@tf.function(jit_compile=True)
def step(x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(tf.matmul(tf.nn.gelu(tf.matmul(x, weights)), weights) - 1.0))
    weights.assign_sub(0.1 * tape.gradient(loss, weights))
    return loss


@tf.function
def around(x):
    y, total = compiled(x + 1.0)
    return tf.sin(y) * total


losses, outputs = [], []
for number in range(5):
    x = tf.random.stateless_normal([4, 6], seed=[number, 47])
    losses.append(step(x))
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(dense(x)))
    outputs += [compiled(x), around(x), tape.gradient(loss, weights)]
model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(5, activation="relu"), keras.layers.Dense(1)])
model.compile("sgd", "mse", jit_compile=True)
rng = np.random.default_rng(30)
features, labels = rng.normal(size=(24, 6)).astype("float32"), rng.normal(size=(24, 1)).astype("float32")
losses += model.fit(features, labels, batch_size=8, epochs=1, shuffle=False, verbose=0).history["loss"]
show(losses, weights=[weights, model.variables], outputs=outputs)
