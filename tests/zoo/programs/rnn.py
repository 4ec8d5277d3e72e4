"""LSTM and GRU training: stacked, bidirectional, masked, with initial states, in `fit` and in a loop of one's own."""

import keras
import numpy as np
import tensorflow as tf
from ending import show

keras.utils.set_random_seed(6)
rng = np.random.default_rng(6)
x = rng.normal(size=(24, 9, 5)).astype("float32")
x[::3, 6:] = 0.0  # masked
y = rng.integers(0, 3, size=24)

inputs = keras.Input((9, 5))
h = keras.layers.Masking()(inputs)
h = keras.layers.Bidirectional(keras.layers.LSTM(6, return_sequences=True, dropout=0.2, seed=1))(h)
h, state = keras.layers.GRU(7, return_sequences=True, return_state=True)(h)
h = keras.layers.GRU(7, reset_after=False)(h, initial_state=state)
model = keras.Model(inputs, keras.layers.Dense(3, activation="softmax")(h))
model.compile(keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy")
history = model.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0)

lstm = keras.layers.LSTM(8, return_sequences=True)
dense = keras.layers.Dense(1)
optimizer = keras.optimizers.SGD(0.1, momentum=0.9)


@tf.function
def step(batch):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(dense(lstm(batch)) - tf.reduce_sum(batch, axis=-1, keepdims=True)))
    variables = lstm.trainable_variables + dense.trainable_variables
    optimizer.apply(tape.gradient(loss, variables), variables)
    return loss


losses = [step(tf.constant(x[8 * i : 8 * i + 8])) for i in (0, 1, 2, 0, 1)]
unrolled = keras.layers.GRU(4, unroll=True)(x[:4])
show(
    history.history["loss"] + losses,
    weights=[model.variables, model.optimizer.variables, lstm.variables, dense.variables, optimizer.variables],
    outputs=[model.predict(x, verbose=0), unrolled],
)
