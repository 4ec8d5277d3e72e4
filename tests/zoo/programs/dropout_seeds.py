"""Random numbers that are state: seed generators, `tf.random.Generator`, stateless draws, dropout and noise layers."""

import keras
import numpy as np
import tensorflow as tf
from ending import show

keras.utils.set_random_seed(19)
seeds = keras.random.SeedGenerator(5)
generator = tf.random.Generator.from_seed(7, alg="philox")
parts = tf.random.Generator.from_seed(9, alg="philox").split(3)
weights = tf.Variable(tf.ones([6, 6]))
model = keras.Sequential([
    keras.layers.Dense(8),
    keras.layers.Dropout(0.5, seed=1),
    keras.layers.GaussianNoise(0.1, seed=2),
    keras.layers.SpatialDropout1D(0.3),
    keras.layers.GaussianDropout(0.2),
])  # fmt: skip


@tf.function
def step(x, number):
    noise = generator.normal([6, 6]) + generator.uniform([6, 6])
    for part in parts:
        noise += part.truncated_normal([6, 6])
    noise += keras.random.normal([6, 6], seed=seeds) + tf.random.stateless_normal([6, 6], seed=[number, 41])
    for _ in tf.range(2):
        noise += keras.random.uniform([6, 6], seed=seeds) * generator.normal([6, 6])
    weights.assign_sub(0.01 * noise)
    picked = tf.random.experimental.stateless_shuffle(tf.range(10), seed=[number, 1])
    kept = tf.nn.experimental.stateless_dropout(x, 0.4, seed=[number, 2])
    return tf.reduce_sum(weights), picked, kept, model(x, training=True), generator.binomial([4], 10.0, 0.3)


losses, outputs = [], []
x = tf.constant(np.random.default_rng(19).normal(size=(4, 5, 6)).astype("float32"))
for number in range(5):
    loss, *rest = step(x, tf.constant(number))
    losses.append(loss)
    outputs.append(rest)
outputs.append([generator.normal([3]), keras.random.randint([3], 0, 99, seed=seeds), model(x, training=True)])
show(losses, weights=weights, states=[generator.state, seeds.state, [p.state for p in parts]], outputs=outputs)
