"""`tf.data`: map, batch, prefetch, seeded shuffle, interleave, filter, reduce, cache, generators, windows, files."""

import numpy as np
import tensorflow as tf
from ending import show

tf.random.set_seed(27)
weights = tf.Variable(tf.random.stateless_normal([4, 1], seed=[27, 1]))


@tf.function
def step(x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(tf.matmul(x, weights) - y))
    weights.assign_sub(0.05 * tape.gradient(loss, weights))
    return loss


def augment(i):
    x = tf.random.stateless_normal([4], seed=tf.stack([i, 3]))
    return x, tf.reduce_sum(x, keepdims=True)


def rows():
    for i in range(6):
        yield {"name": f"row {i}", "values": np.arange(i, dtype=np.int32)}


with tf.io.TFRecordWriter("rows.tfrecord") as writer:
    for i in range(5):
        feature = {"n": tf.train.Feature(int64_list=tf.train.Int64List(value=[i, i * i]))}
        writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())

data = tf.data.Dataset.range(48).shuffle(16, seed=5).map(augment, num_parallel_calls=2).batch(8).prefetch(2)
losses = [step(x, y) for x, y in data]
slices = tf.data.Dataset.from_tensor_slices(tf.range(20))
spec = {"name": tf.TensorSpec([], tf.string), "values": tf.TensorSpec([None], tf.int32)}
records = tf.data.TFRecordDataset("rows.tfrecord").map(
    lambda row: tf.io.parse_single_example(row, {"n": tf.io.FixedLenFeature([2], tf.int64)})["n"]
)
pipelines = {
    "filtered": slices.filter(lambda i: i % 3 == 0).repeat(2).batch(4, drop_remainder=True),
    "interleaved": slices.interleave(lambda i: tf.data.Dataset.from_tensors(i).repeat(2), cycle_length=3),
    "zipped": tf.data.Dataset.zip(slices.take(3), slices.skip(5)).concatenate(tf.data.Dataset.zip(slices, slices)),
    "windows": slices.window(3, shift=2).flat_map(lambda window: window.batch(3)),
    "generated": tf.data.Dataset.from_generator(rows, output_signature=spec).padded_batch(3),
    "cached": slices.map(lambda i: tf.py_function(lambda v: v * 2, [i], tf.int32)).cache().repeat(2),
    "records": records,
    "scanned": slices.scan(0, lambda state, i: (state + i, state * i)),
    "ragged": slices.map(tf.range).ragged_batch(5),
    "random": tf.data.Dataset.random(seed=4).take(5),
    "sampled": tf.data.Dataset.sample_from_datasets([slices, slices.map(lambda i: -i)], [0.5, 0.5], seed=9),
    "grouped": slices.group_by_window(lambda i: tf.cast(i % 2, tf.int64), lambda _, group: group.batch(4), 4),
}
elements = {name: list(pipeline) for name, pipeline in pipelines.items()}
total = slices.reduce(np.int32(0), lambda a, b: a + b)
iterator = iter(data)
optional = iterator.get_next_as_optional()
elements["optional"] = [optional.get_value(), optional.has_value(), next(iterator)]
show(losses, weights=weights, elements=elements, total=total)
