"""A convolutional network with batch norm, whose ops grappler and oneDNN fuse: trained, then run for inference."""

import keras
import numpy as np
import tensorflow as tf
from ending import show

keras.utils.set_random_seed(35)
rng = np.random.default_rng(35)
x = rng.normal(size=(40, 24, 24, 3)).astype("float32")
y = rng.integers(0, 5, size=40)

inputs = keras.Input((24, 24, 3))
h = inputs
for filters in (8, 16):
    h = keras.layers.Conv2D(filters, 3, padding="same", use_bias=False)(h)
    h = keras.layers.ReLU()(keras.layers.BatchNormalization()(h))
    skip = keras.layers.Conv2D(filters, 1)(h)
    h = keras.layers.SeparableConv2D(filters, 3, padding="same", activation="relu")(h)
    h = keras.layers.MaxPooling2D()(keras.layers.Add()([h, skip]))
h = keras.layers.DepthwiseConv2D(3, activation="relu6")(h)
h = keras.layers.GroupNormalization(4)(h)
h = keras.layers.GlobalAveragePooling2D()(h)
model = keras.Model(inputs, keras.layers.Dense(5)(h))
model.compile(
    keras.optimizers.SGD(0.05, momentum=0.9),
    keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
)
history = model.fit(x, y, batch_size=8, epochs=1, validation_data=(x[:8], y[:8]), verbose=0)


@tf.function
def features(images):
    """A frozen network, as it is served: bias and activation go into the convolution."""
    kernel = tf.constant(rng.normal(size=(3, 3, 3, 8)).astype("float32"))
    bias = tf.constant(np.linspace(-1, 1, 8), tf.float32)
    h = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(images, kernel, 2, "SAME"), bias))
    h = tf.nn.relu(tf.nn.bias_add(tf.matmul(tf.reshape(h, [-1, 8]), tf.ones([8, 4])), tf.zeros([4])))
    return tf.nn.avg_pool2d(tf.reshape(h, [-1, 12, 12, 4]), 2, 2, "VALID")


show(
    history.history["loss"] + history.history["val_loss"],
    weights=[model.variables, model.optimizer.variables],
    outputs=[model.predict(x, verbose=0), features(tf.constant(x[:4]))],
)
