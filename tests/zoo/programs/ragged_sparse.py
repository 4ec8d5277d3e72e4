"""Ragged and sparse tensors as arguments, results, loop values and gradients; sets, segments and text."""

import keras
import numpy as np
import tensorflow as tf
from ending import show

keras.utils.set_random_seed(29)
weights = tf.Variable(tf.random.stateless_normal([20, 4], seed=[29, 1]))


@tf.function
def step(ids, sparse):
    with tf.GradientTape() as tape:
        embedded = tf.ragged.map_flat_values(lambda flat: tf.gather(weights, flat), ids)
        pooled = tf.reduce_mean(embedded, axis=1)
        dense = tf.sparse.sparse_dense_matmul(sparse, weights)
        loss = tf.reduce_mean(tf.square(pooled)) + tf.reduce_mean(tf.square(dense - 1.0))
    gradient = tf.convert_to_tensor(tape.gradient(loss, weights))
    weights.assign_sub(0.1 * gradient)
    doubled = tf.map_fn(lambda row: row * 2, ids)
    added = tf.sparse.add(sparse, tf.sparse.map_values(tf.square, sparse))
    return loss, doubled, tf.sparse.reorder(added), tf.concat([ids, ids[:, :1]], axis=1), embedded.to_tensor()


@tf.function
def words(lines):
    tokens = tf.strings.split(lines)
    lengths = tf.strings.length(tokens)
    pairs = tf.strings.ngrams(tokens, 2)
    return (
        tokens,
        lengths,
        pairs,
        tf.strings.reduce_join(tokens, axis=1, separator="-"),
        tf.strings.unicode_decode(lines, "UTF-8"),
    )


losses, outputs = [], []
rng = np.random.default_rng(29)
for number in range(5):
    rows = [rng.permutation(20)[:size].tolist() for size in (3, 1, 4, number + 1)]
    dense = (rng.random((4, 20)) < 0.2) * rng.normal(size=(4, 20))
    loss, *rest = step(tf.ragged.constant(rows), tf.sparse.from_dense(dense.astype("float32")))
    losses.append(loss)
    outputs.append(rest)
outputs.append(words(tf.constant(["a bc", "", "déf g h"])))
outputs.append(tf.sets.intersection([[1, 2, 3]], [[2, 3, 4]]))
outputs.append(tf.math.segment_sum(tf.range(6.0), [0, 0, 1, 2, 2, 2]))
outputs.append(tf.RaggedTensor.from_row_splits([1, 2], [0, 0, 2]))
data = tf.data.Dataset.from_tensor_slices(tf.ragged.constant([[1], [2, 3], [], [4, 5, 6]])).batch(2)
outputs.append(list(data))
show(losses, weights=weights, outputs=outputs)
