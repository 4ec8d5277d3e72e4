"""MultiWorkerMirroredStrategy with one worker, and CentralStorageStrategy: parameters on one of two logical CPUs."""

import keras
import numpy as np
import tensorflow as tf
from ending import show

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)
keras.utils.set_random_seed(49)
rng = np.random.default_rng(49)
x = rng.normal(size=(40, 6)).astype("float32")
y = rng.normal(size=(40, 1)).astype("float32")
losses, states = [], []


def train(strategy):
    with strategy.scope():
        start = tf.random.stateless_normal([6, 1], seed=[49, 1])
        weights = tf.Variable(start, aggregation=tf.VariableAggregation.MEAN)

    def replica(features, labels):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.matmul(features, weights) - labels))
        gradient = tape.gradient(loss, weights)
        gradient = tf.distribute.get_replica_context().all_reduce("mean", gradient)
        weights.assign_sub(0.05 * gradient)
        return loss

    @tf.function
    def step(features, labels):
        return strategy.reduce("mean", strategy.run(replica, args=(features, labels)), axis=None)

    for number in range(5):
        rows = slice(8 * number, 8 * number + 8)
        losses.append(step(tf.constant(x[rows]), tf.constant(y[rows])))
    states.append(weights.read_value())


train(tf.distribute.MultiWorkerMirroredStrategy())
train(tf.distribute.experimental.CentralStorageStrategy(["CPU:0", "CPU:1"], "CPU:0"))
show(losses, states=states)
