"""ResNet-50 from keras.applications: 16 images of 96x96, SGD, 4 steps."""

import keras
import numpy as np
import tensorflow as tf
from ending import show

keras.utils.set_random_seed(36)
rng = np.random.default_rng(36)
x = tf.constant(rng.uniform(0, 255, size=(16, 96, 96, 3)).astype("float32"))
y = tf.constant(rng.integers(0, 10, size=16))
model = keras.applications.ResNet50(weights=None, input_shape=(96, 96, 3), classes=10, classifier_activation=None)
optimizer = keras.optimizers.SGD(0.01, momentum=0.9)
loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


@tf.function
def step():
    with tf.GradientTape() as tape:
        loss = loss_of(y, model(keras.applications.resnet.preprocess_input(x), training=True))
    optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
    return loss


losses = [step() for _ in range(4)]
show(losses, weights=[model.variables, optimizer.variables], outputs=model(x[:2]))
