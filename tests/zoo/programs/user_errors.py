"""Ops and functions that fail and are caught: the program goes on, and prints the errors as Python shows them."""

import re
from traceback import format_exception

import tensorflow as tf
from ending import show

weights = tf.Variable(tf.ones([3, 3]))
texts = []
# new in each run or with each tensor made before: AutoGraph's temporary files, the numbers in names of functions
NEW = re.compile(r"/\S+/__autograph_generated_file\w+|(?<=__inference_)\w+(?=\])")


@tf.function
def checked(x):
    weights.assign_add(x)
    tf.debugging.assert_less(tf.reduce_max(weights), 3.0, message="too large")
    return tf.matmul(weights, x)


@tf.function
def gathers(index):
    return tf.gather(weights, index)


@tf.function
def in_a_loop(x):
    for i in tf.range(5):
        x += tf.reshape(tf.range(9.0)[: 9 - i // 2], [3, 3])
    return x


@tf.function
def raises_in_python(x):
    if x.shape[0] == 3:
        raise ValueError("wrong on purpose while tracing")
    return x


@tf.function
def raises_in_py_function(x):
    def body(value):
        raise KeyError(f"wrong on purpose: {float(value)}")

    return tf.py_function(body, [x], tf.float32)


def attempt(function, *args):
    try:
        result = function(*args)
        texts.append("fine")
        return result
    except Exception as error:
        texts.append(NEW.sub("", "".join(format_exception(error))))
        return None


losses, outputs = [], []
for _ in range(5):
    outputs.append(attempt(checked, tf.eye(3)))
    losses.append(tf.reduce_sum(weights))
outputs.append(attempt(gathers, tf.constant(7)))
outputs.append(attempt(gathers, tf.constant(1)))
outputs.append(attempt(in_a_loop, tf.ones([3, 3])))
outputs.append(attempt(raises_in_python, tf.ones([3])))
outputs.append(attempt(raises_in_py_function, tf.constant(2.0)))
outputs.append(attempt(tf.matmul, tf.ones([2, 3]), tf.ones([2, 3])))
outputs.append(attempt(tf.linalg.inv, tf.zeros([2, 2])))
outputs.append(attempt(tf.debugging.assert_equal, 1, 2))
outputs.append(attempt(next, iter(tf.data.Dataset.range(0))))
inverses = tf.data.Dataset.range(2).map(lambda i: tf.debugging.check_numerics(1.0 / tf.cast(i, tf.float32), "bad"))
outputs.append(attempt(next, iter(inverses)))
for text in texts:
    print(text)
show(losses, weights=weights, outputs=outputs)
