"""The old random ops, whose streams live in their kernels: eager, in functions, in serial loops."""

import tensorflow as tf
from ending import show

tf.random.set_seed(31)
weights = tf.Variable(tf.random.normal([5, 5]))


@tf.function
def noise(shape):
    return tf.random.normal(shape) + tf.random.uniform(shape, seed=7)


@tf.function
def step(x):
    y = noise([5, 5]) + noise([5, 5]) * 2.0
    for _ in tf.range(3):
        tf.autograph.experimental.set_loop_options(parallel_iterations=1)
        y += tf.random.truncated_normal([5, 5], seed=3)
    y = tf.nn.dropout(y, 0.3, seed=11)
    order = tf.random.shuffle(tf.range(8), seed=5)
    picked = tf.random.categorical(tf.math.log([[0.2, 0.3, 0.5]]), 6, seed=2)
    gamma, poisson = tf.random.gamma([4], 2.0, seed=1), tf.random.poisson([4], 3.0, seed=1)
    weights.assign_sub(0.01 * y)
    return tf.reduce_sum(weights) + tf.reduce_mean(x), order, picked, gamma, poisson


@tf.function
def candidates(labels):
    return tf.random.log_uniform_candidate_sampler(labels, 1, 3, True, 50, seed=4)


@tf.function
def in_branch(flag):
    return tf.cond(flag, lambda: tf.random.uniform([3], seed=21), lambda: tf.random.normal([3], seed=22))


losses, outputs = [], []
for number in range(5):
    loss, *rest = step(tf.random.uniform([3, 3]))
    losses.append(loss)
    outputs += [rest, noise([2]), candidates(tf.constant([[number]], tf.int64))]
    outputs.append(in_branch(tf.constant(number % 2 == 0)))
tf.random.set_seed(32)
outputs += [tf.random.normal([3]), tf.random.uniform([2], 0, 99, tf.int32, seed=5), noise([2]), noise([3])]
outputs.append(tf.image.random_flip_left_right(tf.reshape(tf.range(12.0), [2, 2, 3]), seed=3))
show(losses, weights=weights, outputs=outputs)
