"""A histogram of weights: which thread adds which part is open."""

import numpy as np
import tensorflow as tf

tf.config.threading.set_intra_op_parallelism_threads(2)
rng = np.random.default_rng(2)
values = tf.constant(rng.integers(0, 50, size=400_000).astype("int32"))
weights = tf.constant(rng.normal(size=400_000).astype("float32"))


@tf.function
def histogram():
    return tf.math.bincount(values, weights=weights, minlength=50, maxlength=50)


outcomes = [histogram().numpy().tobytes() for _ in range(10)]
print(hash(b"".join(outcomes)))
