"""Keras with `run_eagerly=True`: every op of training is an op that Python runs."""

import keras
import numpy as np
from ending import show

keras.utils.set_random_seed(15)
rng = np.random.default_rng(15)
x = rng.normal(size=(20, 6, 6, 2)).astype("float32")
y = rng.integers(0, 4, size=20)

model = keras.Sequential([
    keras.layers.Conv2D(4, 3, activation="relu"),
    keras.layers.MaxPooling2D(),
    keras.layers.Flatten(),
    keras.layers.Dropout(0.25),
    keras.layers.Dense(4),
])  # fmt: skip
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(keras.optimizers.SGD(0.05, momentum=0.9, nesterov=True), loss, metrics=["accuracy"], run_eagerly=True)
history = model.fit(x, y, batch_size=4, epochs=1, shuffle=False, verbose=0)
evaluated = model.evaluate(x, y, batch_size=4, verbose=0)
show(
    history.history["loss"] + evaluated,
    weights=[model.variables, model.optimizer.variables],
    outputs=model.predict(x, batch_size=4, verbose=0),
)
