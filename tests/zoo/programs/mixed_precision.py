"""Mixed precision: a bfloat16 model and a float16 one with loss scaling that meets an overflow."""

import keras
import numpy as np
import tensorflow as tf
from ending import show

keras.utils.set_random_seed(18)
rng = np.random.default_rng(18)
x = rng.normal(size=(40, 8, 8, 3)).astype("float32")
y = rng.integers(0, 3, size=40)
losses, states = [], []
for policy in ("mixed_bfloat16", "mixed_float16"):
    keras.mixed_precision.set_dtype_policy(policy)
    model = keras.Sequential([
        keras.layers.Conv2D(4, 3, activation="relu"),
        keras.layers.BatchNormalization(),
        keras.layers.Flatten(),
        keras.layers.Dense(3, dtype="float32"),
    ])  # fmt: skip
    optimizer = keras.optimizers.SGD(0.05, momentum=0.9)
    if policy == "mixed_float16":
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=2.0**20, dynamic_growth_steps=2)
    model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    losses += model.fit(x, y, batch_size=8, epochs=1, shuffle=False, verbose=0).history["loss"]
    states.append([model.variables, optimizer.variables, model.predict(x, verbose=0)])
keras.mixed_precision.set_dtype_policy("float32")


@tf.function
def casts(x):
    half = tf.cast(x, tf.float16)
    brain = tf.cast(x, tf.bfloat16)
    return tf.matmul(half, half, transpose_b=True), tf.nn.softmax(brain), tf.cast(half, tf.bfloat16) + brain


show(losses, states=states, casts=casts(tf.random.stateless_normal([4, 6], seed=[18, 1]) * 100.0))
