"""Keras models saved and loaded (`.keras`, weights, checkpoints), and training that goes on from there."""

import keras
import numpy as np
import tensorflow as tf
from ending import show

keras.utils.set_random_seed(24)
rng = np.random.default_rng(24)
x = rng.normal(size=(32, 6)).astype("float32")
y = rng.normal(size=(32, 1)).astype("float32")

model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(8, activation="swish"), keras.layers.Dropout(0.2)])
model.add(keras.layers.Dense(1))
model.compile(keras.optimizers.Nadam(0.01), "mse")
losses = model.fit(x, y, batch_size=8, epochs=1, verbose=0).history["loss"]
model.save("model.keras")
model.save_weights("only.weights.h5")
checkpoint = tf.train.Checkpoint(step=tf.Variable(3), table=tf.Variable(tf.range(5.0)))
saved = checkpoint.save("checkpoints/one")

loaded = keras.models.load_model("model.keras")
losses += loaded.fit(x, y, batch_size=8, epochs=2, verbose=0).history["loss"]
before = loaded.predict(x, verbose=0)
loaded.load_weights("only.weights.h5")
checkpoint.step.assign_add(5)
checkpoint.table.assign(tf.zeros([5]))
checkpoint.restore(saved).assert_consumed()
cloned = keras.models.clone_model(loaded)
cloned.set_weights(loaded.get_weights())
show(
    losses,
    weights=[model.variables, model.optimizer.variables, loaded.variables, loaded.optimizer.variables],
    restored=[checkpoint.step, checkpoint.table],
    outputs=[before, loaded.predict(x, verbose=0), cloned.predict(x, verbose=0)],
)
