"""A program that profiles itself, collects graphs and prints from graphs, as people do when they hunt something."""

import sys

import tensorflow as tf
from ending import show

weights = tf.Variable(tf.random.stateless_normal([4, 4], seed=[43, 1]) * 0.3)


@tf.function
def step(x):
    y = tf.tanh(tf.matmul(x, weights))
    tf.print("mean", tf.reduce_mean(y), y[0], output_stream=sys.stdout)
    weights.assign_sub(0.1 * tf.matmul(x, y, transpose_a=True))
    return tf.reduce_sum(y)


@tf.function
def other(x):
    for i in tf.range(2):
        tf.print("row", i, tf.shape(x), output_stream=sys.stdout)
        x = x * 2.0
    return x


losses = [step(tf.ones([2, 4]))]
tf.summary.trace_on(graph=True)
losses.append(step(tf.ones([2, 4])))
outputs = [other(tf.ones([2]))]
tf.summary.trace_off()
outputs.append(other(tf.ones([2])))
tf.profiler.experimental.start("profile")
losses.append(step(tf.ones([2, 4])))
with tf.profiler.experimental.Trace("mine", step_num=1):
    losses.append(step(tf.ones([2, 4]) * 2.0))
tf.profiler.experimental.stop()
losses.append(step(tf.ones([2, 4])))
graph = step.get_concrete_function(tf.TensorSpec([2, 4])).graph
print(sorted({op.type for op in graph.get_operations()}))
show(losses, weights=weights, outputs=outputs)
