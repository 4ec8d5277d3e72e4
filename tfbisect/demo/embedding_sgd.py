"""Learns which word comes next in Python's own documentation. All seeds are set, yet two runs give different weights.

Run it a few times without tfbisect: the loss may look the same, the checksum of the weights does not stay.
"""

import collections
import os
import pydoc_data.topics
import zlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # fewer start-up messages

import keras
import numpy as np
import tensorflow as tf

WORDS = 256
WINDOW = 256
BATCH = 256
STEPS = 12

tf.config.threading.set_intra_op_parallelism_threads(2)  # two workers in each op, whatever the machine
keras.utils.set_random_seed(7)


def examples():
    """Windows of word numbers (0 stands for rare words), and the word that follows each window."""
    topics = pydoc_data.topics.topics
    words = " ".join(topics[name] for name in sorted(topics)).lower().split()
    frequent = sorted(collections.Counter(words).items(), key=lambda item: (-item[1], item[0]))[: WORDS - 1]
    number = {word: i for i, (word, _) in enumerate(frequent, 1)}
    numbers = np.array([number.get(word, 0) for word in words], dtype=np.int32)
    starts = np.random.choice(len(numbers) - WINDOW, size=(STEPS, BATCH), replace=False)  # seeded above
    return numbers[starts[..., None] + np.arange(WINDOW)], numbers[starts + WINDOW]


model = keras.Sequential(
    [keras.layers.Embedding(WORDS, 8), keras.layers.GlobalAveragePooling1D(), keras.layers.Dense(WORDS)]
)
model.build((BATCH, WINDOW))
optimizer = keras.optimizers.SGD(learning_rate=1.0)
optimizer.build(model.trainable_variables)
loss_function = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


@tf.function
def train_step(windows, following):
    with tf.GradientTape() as tape:
        loss = loss_function(following, model(windows, training=True))
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply(gradients, model.trainable_variables)
    return loss


for windows, following in zip(*examples(), strict=True):
    loss = train_step(tf.constant(windows), tf.constant(following))

checksum = zlib.crc32(b"".join(np.ascontiguousarray(weight) for weight in model.get_weights()))
print(f"loss after {STEPS} steps: {float(loss):.4f}   checksum of the weights: {checksum:08x}")
