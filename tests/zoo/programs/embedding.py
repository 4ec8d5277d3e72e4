"""An embedding model whose ids repeat: sparse gradients by Adam and by hand, one intra-op thread so that it repeats."""

import keras
import numpy as np
import tensorflow as tf
from ending import show

tf.config.threading.set_intra_op_parallelism_threads(1)
keras.utils.set_random_seed(20)
rng = np.random.default_rng(20)
users, items = rng.integers(0, 50, size=(2, 160))
ratings = rng.normal(size=(160, 1)).astype("float32")

inputs = [keras.Input((), dtype="int32", name="user"), keras.Input((), dtype="int32", name="item")]
embedded = [keras.layers.Embedding(50, 8)(inputs[0]), keras.layers.Embedding(50, 8)(inputs[1])]
output = keras.layers.Dense(1)(keras.layers.Concatenate()([*embedded, keras.layers.Dot(1)(embedded)]))
model = keras.Model(inputs, output)
model.compile(keras.optimizers.Adam(0.01), "mse")
history = model.fit({"user": users, "item": items}, ratings, batch_size=32, epochs=2, verbose=0)

table = tf.Variable(tf.random.stateless_normal([50, 4], seed=[20, 1]))
slot = tf.Variable(tf.zeros([50, 4]))


@tf.function
def step(ids):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(tf.nn.embedding_lookup(table, ids) - 1.0))
    gradient = tape.gradient(loss, table)
    slot.scatter_add(tf.IndexedSlices(tf.square(gradient.values), gradient.indices))
    table.scatter_sub(tf.IndexedSlices(0.1 * gradient.values, gradient.indices))
    table.scatter_nd_update([[0], [3]], tf.ones([2, 4]) * loss)
    table[5:7, 1].assign([loss, -loss])
    return loss


losses = history.history["loss"] + [step(tf.constant(users[16 * i : 16 * i + 16])) for i in range(5)]
for index in range(3):
    table.scatter_max(tf.IndexedSlices(tf.fill([2, 4], 0.1 * index), tf.constant([index, 7])))
sparse = tf.sparse.from_dense(tf.constant([[1, 0, 4], [0, 2, 0]]))
pooled = tf.nn.embedding_lookup_sparse(table, sparse, None, combiner="mean")
show(losses, weights=[model.variables, model.optimizer.variables, table, slot], outputs=pooled)
