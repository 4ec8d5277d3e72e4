"""What every program of the campaign begins with: its helpers, as source text. Does nothing itself."""

HEADER = '''\
"""A program of the campaign, seed {seed}."""
import threading
import numpy as np
import tensorflow as tf

RUN = globals().get("RUN", "A")
B = RUN == "B"
OUT, HITS = [], []


def arr(seed, shape, dtype="float32"):
    values = np.random.RandomState(seed).uniform(-1.5, 1.5, shape)
    return (values * (4 if dtype == "int32" else 1)).astype(dtype)


def changed(array):
    array = np.array(array)
    array.flat[array.size // 2] += 1
    return array


@tf.autograph.experimental.do_not_convert
def host(planted, jump=False):
    def work(x, *when):
        x = np.array(x)
        if B and planted is not None and [int(w) for w in when] == list(planted):
            HITS.append(planted)
            at = x.size // 2
            x.flat[at] = x.flat[at] + 1 if jump or x.dtype.kind == "i" else np.nextafter(x.flat[at], x.dtype.type(9))
        return x
    return work


@tf.autograph.experimental.do_not_convert
def host_pair(planted, jump=False):
    work = host(planted, jump)
    return lambda x, *when: (np.cos(x), work(x, *when))


@tf.custom_gradient
def half(x):
    return x * 0.5, lambda upstream: tf.sin(upstream) * 0.5


@tf.recompute_grad
def again(x):
    return tf.sin(tf.sin(x) + x)


def in_thread(work):
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


'''
