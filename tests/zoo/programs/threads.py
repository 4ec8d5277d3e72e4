"""Python threads that call one function at once, one that trains alone, and eager work beside them."""

import queue
import threading
from concurrent.futures import ThreadPoolExecutor

import tensorflow as tf
from ending import show

weights = tf.Variable(tf.random.stateless_normal([12, 12], seed=[32, 1]) * 0.3)
trained = tf.Variable(tf.ones([6]))


@tf.function
def score(x):
    for _ in tf.range(4):
        x = tf.tanh(tf.matmul(x, weights))
    return tf.reduce_sum(x, axis=1)


@tf.function
def step(x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(x * trained - 1.0))
    trained.assign_sub(0.1 * tape.gradient(loss, trained))
    return loss


def work(number):
    """A row of results of its own: nothing is shared but the function."""
    x = tf.random.stateless_normal([8, 12], seed=[number, 53])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = score(x) + score(x * 2.0)
    return [y, tape.gradient(y, x), tf.sort(tf.reshape(x, [-1]))]


losses = []


def train(batches):
    while (number := batches.get()) is not None:
        losses.append(step(tf.random.stateless_normal([6], seed=[number, 59])))


work(99)  # traces: TensorFlow's own tracing of forward and backward halves is not safe in threads
batches = queue.Queue()
trainer = threading.Thread(target=train, args=(batches,), daemon=True)
trainer.start()
for number in range(5):
    batches.put(number)
with ThreadPoolExecutor(4) as pool:
    results = list(pool.map(work, range(12)))
batches.put(None)
trainer.join()
show(losses, weights=trained, outputs=results)
