"""Keras without `fit`: `train_on_batch`, `test_on_batch`, `predict_on_batch`, `predict`, and calls of the model."""

import keras
import numpy as np
import tensorflow as tf
from ending import show

keras.utils.set_random_seed(16)
rng = np.random.default_rng(16)
x = rng.normal(size=(40, 7)).astype("float32")
y = rng.normal(size=(40, 2)).astype("float32")

model = keras.Sequential([keras.layers.Dense(9, activation="selu"), keras.layers.LayerNormalization()])
model.add(keras.layers.AlphaDropout(0.1, seed=5))
model.add(keras.layers.Dense(2))
model.compile(keras.optimizers.AdamW(0.01, weight_decay=0.01), keras.losses.Huber(), metrics=["mse"])
losses, outputs = [], []
for number in range(5):
    rows = slice(8 * number, 8 * number + 8)
    losses += model.train_on_batch(x[rows], y[rows], sample_weight=np.linspace(0.5, 1.5, 8).astype("float32"))
    losses += model.test_on_batch(x[rows], y[rows])
    outputs.append(model.predict_on_batch(x[rows]))
outputs += [model(x, training=True), model(x), model.predict(x, batch_size=16, verbose=0)]
outputs.append(model.predict(tf.data.Dataset.from_tensor_slices(x).batch(7), verbose=0))
show(losses, weights=[model.variables, model.optimizer.variables], outputs=outputs)
