"""Functions that are traced again and again, and die: shapes, Python arguments, closures, methods of dead objects."""

import gc

import tensorflow as tf
from ending import show

weights = tf.Variable(tf.random.stateless_normal([4, 4], seed=[41, 1]) * 0.5)


@tf.function
def shaped(x, power):
    return tf.reduce_sum(tf.matmul(x, weights) ** power)


@tf.function(reduce_retracing=True)
def relaxed(x):
    return tf.reduce_mean(tf.matmul(x, weights), axis=1)


@tf.function(input_signature=[tf.TensorSpec([None, 4])])
def fixed(x):
    return tf.nn.relu(x @ weights)


class Scaled:
    def __init__(self, factor):
        self.factor = factor

    @tf.function
    def apply(self, x):
        return x * self.factor + tf.reduce_mean(weights)


losses, outputs = [], []
for number in range(1, 6):
    x = tf.random.stateless_normal([number, 4], seed=[number, 79])
    losses.append(shaped(x, number) + shaped(x, tf.constant(2.0)))
    scaled = Scaled(float(number))
    outputs += [relaxed(x), fixed(x), scaled.apply(x)]
    weights.assign_sub(0.01 * tf.ones([4, 4]))
for number in range(60):
    function = tf.function(lambda x, number=number: tf.sin(x) * number + tf.reduce_sum(weights))
    outputs.append(function(tf.constant(1.0)))
    del function
    if number % 20 == 0:
        gc.collect()
show(losses, weights=weights, outputs=outputs)
