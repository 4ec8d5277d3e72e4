"""Keras `fit` with `steps_per_execution`: several batches in one call of the train function, the last one short."""

import keras
import numpy as np
from ending import show

keras.utils.set_random_seed(14)
rng = np.random.default_rng(14)
x = rng.normal(size=(88, 12)).astype("float32")
y = (x @ rng.normal(size=(12, 1))).astype("float32")

model = keras.Sequential([keras.layers.Dense(8, activation="tanh"), keras.layers.Dropout(0.1), keras.layers.Dense(1)])
model.compile(keras.optimizers.RMSprop(0.01, momentum=0.5), "mse", metrics=["mae"], steps_per_execution=3)
history = model.fit(x, y, batch_size=8, epochs=2, validation_split=0.2, shuffle=True, verbose=0)
show(
    history.history["loss"] + history.history["val_loss"] + history.history["mae"],
    weights=[model.variables, model.optimizer.variables],
    outputs=model.predict(x, batch_size=16, verbose=0),
)
