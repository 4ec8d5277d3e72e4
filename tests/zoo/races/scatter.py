"""Rows that are updated several times by one op, on two threads: a Keras Embedding under plain SGD."""

import numpy as np
import tensorflow as tf

tf.config.threading.set_intra_op_parallelism_threads(2)
rng = np.random.default_rng(1)
table = tf.Variable(tf.zeros([400, 256]))
ids = tf.constant(rng.integers(0, 400, size=20000))


@tf.function
def step(scale):
    update = tf.IndexedSlices(tf.cast(tf.reshape(tf.range(20000 * 256) % 997, [20000, 256]), tf.float32) * scale, ids)
    tf.raw_ops.ResourceScatterSub(resource=table.handle, indices=update.indices, updates=update.values)


for number in range(5):
    step(tf.constant(1e-3 * (number + 1)))
print(hash(table.numpy().tobytes()))
