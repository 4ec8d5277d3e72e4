"""Two Python threads that change one variable without a lock."""

import threading

import tensorflow as tf

total = tf.Variable(0.0)


@tf.function
def change(factor):
    total.assign(total * factor + 1.0)


def worker(factor):
    for _ in range(200):
        change(tf.constant(factor))


change(tf.constant(0.5))
threads = [threading.Thread(target=worker, args=(factor,)) for factor in (0.5, 0.25)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(hash(total.numpy().tobytes()))
