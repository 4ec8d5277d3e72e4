"""A GAN: two models, two optimizers, one step that trains both, noise from a seed generator."""

import keras
import numpy as np
import tensorflow as tf
from ending import show

keras.utils.set_random_seed(21)
noise = keras.random.SeedGenerator(21)
generator = keras.Sequential([
    keras.Input((8,)),
    keras.layers.Dense(3 * 3 * 8),
    keras.layers.Reshape((3, 3, 8)),
    keras.layers.Conv2DTranspose(4, 4, strides=2, padding="same"),
    keras.layers.BatchNormalization(),
    keras.layers.LeakyReLU(),
    keras.layers.Conv2DTranspose(1, 4, strides=2, padding="same", activation="tanh"),
])  # fmt: skip
discriminator = keras.Sequential([
    keras.Input((12, 12, 1)),
    keras.layers.Conv2D(4, 4, strides=2, padding="same"),
    keras.layers.LeakyReLU(),
    keras.layers.Dropout(0.3, seed=4),
    keras.layers.Flatten(),
    keras.layers.Dense(1),
])  # fmt: skip
entropy = keras.losses.BinaryCrossentropy(from_logits=True)
optimizers = [keras.optimizers.Adam(1e-3, beta_1=0.5), keras.optimizers.RMSprop(1e-3)]


@tf.function
def step(real):
    latent = keras.random.normal([len(real), 8], seed=noise)
    with tf.GradientTape() as for_generator, tf.GradientTape() as for_discriminator:
        made = generator(latent, training=True)
        on_real, on_made = discriminator(real, training=True), discriminator(made, training=True)
        fooled = entropy(tf.ones_like(on_made), on_made)
        caught = entropy(tf.ones_like(on_real), on_real) + entropy(tf.zeros_like(on_made), on_made)
    for tape, loss, model, optimizer in (
        (for_generator, fooled, generator, optimizers[0]),
        (for_discriminator, caught, discriminator, optimizers[1]),
    ):
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
    return fooled, caught


losses = []
rng = np.random.default_rng(21)
for _ in range(5):
    losses += step(tf.constant(rng.uniform(-1, 1, size=(8, 12, 12, 1)).astype("float32")))
show(
    losses,
    weights=[generator.variables, discriminator.variables, *(optimizer.variables for optimizer in optimizers)],
    outputs=generator(keras.random.normal([2, 8], seed=noise)),
)
