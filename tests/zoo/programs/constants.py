"""Large values: 120 MB of constants in one function, wide arguments and results, many small ones."""

import numpy as np
import tensorflow as tf
from ending import show

rng = np.random.default_rng(45)
tables = [rng.normal(size=(1_500_000, 4)).astype("float32") for _ in range(5)]
weights = tf.Variable(tf.zeros([4]))


@tf.function
def step(ids, wide, *many):
    rows = [tf.gather(tf.constant(table), ids) for table in tables]
    weights.assign_add(tf.reduce_mean(tf.add_n(rows), axis=0))
    return tf.reduce_sum(weights), wide * 2.0, [value + float(place) for place, value in enumerate(many)]


losses, outputs = [], []
wide = tf.constant(rng.normal(size=(1000, 500)).astype("float32"))
for _ in range(5):
    ids = tf.constant(rng.integers(0, 1_500_000, size=32))
    loss, wide, many = step(ids, wide, *[tf.constant(float(place)) for place in range(100)])
    losses.append(loss)
    outputs += many
show(losses, weights=weights, outputs=[outputs, wide])
