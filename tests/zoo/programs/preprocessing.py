"""Keras preprocessing layers, adapted to data, in a `tf.data` pipeline, in a model and alone; image augmentation."""

import keras
import numpy as np
import tensorflow as tf
from ending import show

keras.utils.set_random_seed(38)
rng = np.random.default_rng(38)
texts = np.array(["the cat sat", "the dog ran far", "a cat", "dogs and cats", "", "ünï cödé cat"])
numbers = rng.normal(2.0, 3.0, size=(30, 3)).astype("float32")
images = rng.uniform(0, 255, size=(6, 16, 16, 3)).astype("float32")

vectorize = keras.layers.TextVectorization(max_tokens=20, output_sequence_length=5)
vectorize.adapt(texts)
normalize = keras.layers.Normalization()
normalize.adapt(numbers)
discretize = keras.layers.Discretization(num_bins=4)
discretize.adapt(numbers)
lookup = keras.layers.StringLookup(output_mode="multi_hot")
lookup.adapt([["red", "blue"], ["green", "red"]])
integers = keras.layers.IntegerLookup(vocabulary=[3, 5, 9], num_oov_indices=2)
augment = keras.Sequential([
    keras.layers.RandomFlip(seed=1),
    keras.layers.RandomRotation(0.2, seed=2),
    keras.layers.RandomZoom(0.2, seed=3),
    keras.layers.RandomContrast(0.3, seed=4),
    keras.layers.RandomCrop(12, 12, seed=5),
    keras.layers.Rescaling(1 / 255.0),
])  # fmt: skip
model = keras.Sequential([vectorize, keras.layers.Embedding(20, 4), keras.layers.GlobalAveragePooling1D()])
model.add(keras.layers.Dense(1, activation="sigmoid"))
model.compile("adam", "binary_crossentropy")

data = tf.data.Dataset.from_tensor_slices((tf.constant(texts), tf.constant([0.0, 1.0, 0.0, 1.0, 0.0, 1.0]))).batch(3)
losses = model.fit(data, epochs=2, verbose=0).history["loss"]
crossed = keras.layers.HashedCrossing(10)((tf.constant(["a", "b"]), tf.constant([1, 2])))


@tf.function
def step(batch):
    return augment(batch, training=True), tf.image.resize(batch, [9, 9]), tf.image.adjust_hue(batch / 255.0, 0.2)


outputs = [step(tf.constant(images)) for _ in range(5)]
outputs += [normalize(numbers), discretize(numbers), lookup(tf.constant([["red", "grey"]]))]
outputs += [integers([3, 4, 9]), crossed]
outputs += list(tf.data.Dataset.from_tensor_slices(images).batch(2).map(augment))
outputs += list(tf.data.Dataset.from_tensor_slices(numbers).batch(7).map(normalize, num_parallel_calls=2))
show(losses, weights=model.variables, outputs=outputs)
