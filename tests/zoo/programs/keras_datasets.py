"""Keras fed in other ways: datasets with shuffles, generators, a PyDataset, sample weights, `evaluate`."""

import keras
import numpy as np
import tensorflow as tf
from ending import show

keras.utils.set_random_seed(47)
rng = np.random.default_rng(47)
x = rng.normal(size=(40, 6)).astype("float32")
y = rng.normal(size=(40, 1)).astype("float32")


class Rows(keras.utils.PyDataset):
    """Batches made in Python, one after the other."""

    def __len__(self):
        return 4

    def __getitem__(self, index):
        rows = slice(10 * index, 10 * index + 10)
        return x[rows], y[rows], np.linspace(0.5, 1.5, 10).astype("float32")


def generate():
    for index in range(5):
        yield x[8 * index : 8 * index + 8], y[8 * index : 8 * index + 8]


model = keras.Sequential([keras.layers.Dense(6, activation="elu"), keras.layers.BatchNormalization()])
model.add(keras.layers.Dense(1))
model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
data = tf.data.Dataset.from_tensor_slices((x, y))
losses = model.fit(data.shuffle(40, seed=3).batch(8).prefetch(1), epochs=2, verbose=0).history["loss"]
losses += model.fit(data.repeat().batch(7), steps_per_epoch=4, epochs=1, verbose=0).history["loss"]
losses += model.fit(Rows(), epochs=1, shuffle=False, verbose=0).history["loss"]
losses += model.fit(generate(), epochs=1, verbose=0).history["loss"]
losses += model.evaluate(data.batch(16), verbose=0) + model.evaluate(Rows(), verbose=0)
model.layers[0].trainable = False
model.compile(keras.optimizers.SGD(0.01), "mae")
losses += model.fit(x, y, batch_size=16, epochs=1, validation_data=data.batch(20), verbose=0).history["val_loss"]
show(losses, weights=[model.variables, model.optimizer.variables], outputs=model.predict(Rows(), verbose=0))
