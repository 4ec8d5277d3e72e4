"""AutoGraph: a whole epoch in one function, `for` over a dataset with `break`, `continue`, `while`, early `return`."""

import tensorflow as tf
from ending import show

weights = tf.Variable(tf.random.stateless_normal([6, 1], seed=[5, 1]))
seen = tf.Variable(0, dtype=tf.int64)


@tf.function
def epoch(data, limit):
    total = 0.0
    for x, y in data:
        if tf.reduce_max(x) > 3.0:
            continue
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.matmul(x, weights) - y))
        weights.assign_sub(0.05 * tape.gradient(loss, weights))
        total += loss
        seen.assign_add(1)
        if seen >= limit:
            break
    return total


@tf.function
def collatz(n):
    steps = 0
    while n != 1:
        if n % 2 == 0:
            n = n // 2
        else:
            n = 3 * n + 1
        steps += 1
        if steps > 100:
            break
    if steps > 100:
        return -1
    return steps


@tf.function
def from_iterator(iterator):
    return next(iterator)[0] * 2.0


x = tf.random.stateless_normal([60, 6], seed=[5, 2])
y = tf.reduce_sum(x, axis=1, keepdims=True)
data = tf.data.Dataset.from_tensor_slices((x, y)).batch(8)
losses = [epoch(data, tf.constant(limit, tf.int64)) for limit in (3, 9, 100, 100)]
steps = [collatz(tf.constant(n)) for n in (1, 7, 27, 97)]
iterator = iter(data)
firsts = [from_iterator(iterator), from_iterator(iterator), next(iterator)]
show(losses, weights=weights, seen=seen, steps=steps, firsts=firsts)
