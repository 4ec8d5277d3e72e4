"""A small Transformer: token and position embeddings, causal attention, dropout, label smoothing, a warm-up."""

import keras
import numpy as np
import tensorflow as tf
from ending import show

keras.utils.set_random_seed(22)
rng = np.random.default_rng(22)
WORDS, LENGTH, WIDTH = 40, 12, 16

tokens = keras.Input((LENGTH,), dtype="int32")
h = keras.layers.Embedding(WORDS, WIDTH, mask_zero=True)(tokens)
h = h + keras.layers.Embedding(LENGTH, WIDTH)(tf.range(LENGTH)[None])
for _ in range(2):
    attention = keras.layers.MultiHeadAttention(2, WIDTH // 2, dropout=0.1)
    h = keras.layers.LayerNormalization()(h + attention(h, h, use_causal_mask=True))
    inner = keras.layers.Dense(32, activation="gelu")(h)
    inner = keras.layers.Dropout(0.1)(keras.layers.Dense(WIDTH)(inner))
    h = keras.layers.LayerNormalization()(h + inner)
model = keras.Model(tokens, keras.layers.Dense(WORDS)(h))


class WarmUp(keras.optimizers.schedules.LearningRateSchedule):
    def __call__(self, step):
        step = tf.cast(step, tf.float32) + 1.0
        return 0.05 * tf.minimum(tf.math.rsqrt(step), step * 0.1)


optimizer = keras.optimizers.Adam(WarmUp(), beta_2=0.98)
loss_of = keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.1)


@tf.function
def step(batch):
    with tf.GradientTape() as tape:
        logits = model(batch[:, :-1], training=True)
        loss = loss_of(tf.one_hot(batch[:, 1:], WORDS), logits)
    gradients, norm = tf.clip_by_global_norm(tape.gradient(loss, model.trainable_variables), 1.0)
    optimizer.apply(gradients, model.trainable_variables)
    return loss, norm


@tf.function
def generate(prompt):
    """Greedy decoding, a token an iteration."""
    text = tf.concat([prompt, tf.zeros([tf.shape(prompt)[0], LENGTH - prompt.shape[1]], tf.int32)], axis=1)
    for place in tf.range(prompt.shape[1], LENGTH):
        best = tf.argmax(model(text)[:, place - 1], axis=-1, output_type=tf.int32)
        text = tf.where(tf.range(LENGTH)[None] == place, best[:, None], text)
    return text


losses = []
for _ in range(5):
    losses += step(tf.constant(rng.integers(0, WORDS, size=(6, LENGTH + 1)), tf.int32))
show(losses, weights=[model.variables, optimizer.variables], outputs=generate(tf.constant([[1, 2, 3], [4, 5, 6]])))
