"""A subclassed model with a `train_step` of its own, layers with state and losses, several inputs and outputs."""

import keras
import numpy as np
import tensorflow as tf
from ending import show

keras.utils.set_random_seed(17)
rng = np.random.default_rng(17)


class Gate(keras.layers.Layer):
    """Keeps a running mean and adds a loss."""

    def build(self, shape):
        self.scale = self.add_weight(shape=(shape[-1],), initializer="ones", name="scale")
        self.mean = self.add_weight(shape=(shape[-1],), initializer="zeros", trainable=False, name="mean")

    def call(self, x, training=False):
        if training:
            self.mean.assign(0.9 * self.mean + 0.1 * tf.reduce_mean(x, axis=0))
            self.add_loss(1e-3 * tf.reduce_sum(tf.square(self.scale)))
        return (x - self.mean) * tf.sigmoid(self.scale)


class Two(keras.Model):
    """Two inputs, two outputs, and half of the batches train only one of them."""

    def __init__(self):
        super().__init__()
        self.left, self.right, self.gate = keras.layers.Dense(6), keras.layers.Dense(6), Gate()
        self.heads = [keras.layers.Dense(1), keras.layers.Dense(3, activation="softmax")]
        self.tracker = keras.metrics.Mean(name="tracked")
        self.count = self.add_weight(shape=(), dtype="int32", initializer="zeros", trainable=False, name="count")

    def call(self, inputs, training=False):
        h = self.gate(tf.nn.relu(self.left(inputs["a"]) + self.right(inputs["b"])), training=training)
        return {"value": self.heads[0](h), "kind": self.heads[1](h)}

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            outputs = self(x, training=True)
            value = tf.reduce_mean(tf.square(outputs["value"] - y["value"]))
            kind = tf.reduce_mean(keras.losses.sparse_categorical_crossentropy(y["kind"], outputs["kind"]))
            loss = tf.cond(self.count % 2 == 0, lambda: value + kind, lambda: kind) + sum(self.losses)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(gradients, self.trainable_variables)
        self.count.assign_add(1)
        self.tracker.update_state(loss)
        return {"loss": loss, "tracked": self.tracker.result()}


x = {"a": rng.normal(size=(40, 5)).astype("float32"), "b": rng.normal(size=(40, 4)).astype("float32")}
y = {"value": rng.normal(size=(40, 1)).astype("float32"), "kind": rng.integers(0, 3, size=40)}
model = Two()
model.compile(keras.optimizers.Adagrad(0.1))
history = model.fit(x, y, batch_size=8, epochs=2, verbose=0)
outputs = model.predict(x, verbose=0)
show(
    history.history["loss"] + history.history["tracked"],
    weights=[model.variables, model.optimizer.variables],
    outputs=[outputs["value"], outputs["kind"]],
)
