"""One process of a benchmark: builds a training step, then runs as many as it is told to and says how long they took.

`steps.py NAME`; each line on standard input is a number of steps (0: end), each line on standard output their seconds.
The first line of output is the time of the first call.
"""

import sys
import time

import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(1)
rng = np.random.default_rng(1)


def _trained(model, x, y, optimizer, loss):
    @tf.function
    def step():
        with tf.GradientTape() as tape:
            value = loss(y, model(x, training=True))
        variables = model.trainable_variables
        optimizer.apply(tape.gradient(value, variables), variables)
        return value

    return step


def _floats(*shape):
    return tf.constant(rng.normal(size=shape).astype("float32"))


def _labels(count, classes):
    return tf.constant(rng.integers(0, classes, size=count))


def _crossentropy():
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def resnet50():
    model = keras.applications.ResNet50(weights=None, input_shape=(96, 96, 3), classes=10, classifier_activation=None)
    return _trained(model, _floats(16, 96, 96, 3), _labels(16, 10), keras.optimizers.SGD(0.01), _crossentropy())


def conv6():
    layers = [keras.layers.Conv2D(32 * (1 + i // 2), 3, padding="same", activation="relu") for i in range(6)]
    model = keras.Sequential([keras.Input((32, 32, 3)), *layers, keras.layers.Flatten(), keras.layers.Dense(10)])
    return _trained(model, _floats(32, 32, 32, 3), _labels(32, 10), keras.optimizers.SGD(0.01), _crossentropy())


def mlp():
    model = keras.Sequential(
        [keras.Input((784,)), keras.layers.Dense(512, activation="relu"), keras.layers.Dense(10)]
    )  # fmt: skip
    return _trained(model, _floats(64, 784), _labels(64, 10), keras.optimizers.SGD(0.01), _crossentropy())


def lstm():
    model = keras.Sequential([keras.Input((50, 64)), keras.layers.LSTM(128), keras.layers.Dense(10)])
    return _trained(model, _floats(64, 50, 64), _labels(64, 10), keras.optimizers.SGD(0.01), _crossentropy())


def transformer():
    x = inputs = keras.Input((32, 128))
    for _ in range(4):
        attended = keras.layers.MultiHeadAttention(4, 32, dropout=0.1)(x, x)
        x = keras.layers.LayerNormalization()(x + attended)
        inner = keras.layers.Dense(128)(keras.layers.Dense(256, activation="relu")(x))
        x = keras.layers.LayerNormalization()(x + inner)
    model = keras.Model(inputs, keras.layers.Dense(10)(keras.layers.GlobalAveragePooling1D()(x)))
    return _trained(model, _floats(32, 32, 128), _labels(32, 10), keras.optimizers.Adam(1e-3), _crossentropy())


def fit():
    model = keras.Sequential(
        [keras.Input((784,)), keras.layers.Dense(512, activation="relu"), keras.layers.Dense(10)]
    )  # fmt: skip
    model.compile(keras.optimizers.SGD(0.01), _crossentropy(), jit_compile=False)
    x, y = rng.normal(size=(6400, 784)).astype("float32"), rng.integers(0, 10, size=6400)
    return lambda: model.fit(x, y, batch_size=64, epochs=1, verbose=0)


def eager():
    def loop():
        x = tf.ones([8])
        for _ in range(200):
            x = x * 1.01 + 0.5
        return x

    return loop


def main():
    step = globals()[sys.argv[1]]()
    begin = time.perf_counter()
    _done(step())
    print(time.perf_counter() - begin, flush=True)
    for line in sys.stdin:
        count = int(line)
        if count == 0:
            break
        begin = time.perf_counter()
        for _ in range(count):
            last = step()
        _done(last)
        print(time.perf_counter() - begin, flush=True)


def _done(value):
    if hasattr(value, "numpy"):
        value.numpy()


if __name__ == "__main__":
    main()
