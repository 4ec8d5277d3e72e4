"""MirroredStrategy on two logical CPUs: a loop of one's own with cross-replica reductions, and Keras `fit`."""

import keras
import numpy as np
import tensorflow as tf
from ending import show

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)
keras.utils.set_random_seed(25)
rng = np.random.default_rng(25)
x = rng.normal(size=(48, 6)).astype("float32")
y = rng.normal(size=(48, 1)).astype("float32")
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])

with strategy.scope():
    weights = tf.Variable(tf.random.stateless_normal([6, 1], seed=[25, 1]))
    total = tf.Variable(0.0, synchronization=tf.VariableSynchronization.ON_READ, aggregation=tf.VariableAggregation.SUM)


def replica(batch):
    features, labels = batch
    context = tf.distribute.get_replica_context()
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.square(tf.matmul(features, weights) - labels)) / 8.0
    gradient = context.all_reduce("sum", tape.gradient(loss, weights))
    weights.assign_sub(0.02 * gradient)
    total.assign_add(loss)
    return loss + tf.cast(context.replica_id_in_sync_group, tf.float32)


@tf.function
def step(batch):
    losses = strategy.run(replica, args=(batch,))
    return strategy.reduce("sum", losses, axis=None)


data = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices((x[:40], y[:40])).batch(8))
losses = [step(batch) for batch in data]

with strategy.scope():
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(4, activation="relu"), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.05, momentum=0.9), "mse")
history = model.fit(x, y, batch_size=16, epochs=2, shuffle=False, verbose=0)
per_replica = [strategy.experimental_local_results(part) for part in (weights, total)]
show(
    losses + history.history["loss"],
    weights=[weights.read_value(), total.read_value(), per_replica, model.get_weights()],
    outputs=model.predict(x, batch_size=16, verbose=0),
)
