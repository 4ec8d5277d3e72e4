"""Resources that are no variables: lookup tables, queues and iterators, in and out of functions."""

import tensorflow as tf
from ending import show

vocabulary = tf.lookup.StaticVocabularyTable(
    tf.lookup.KeyValueTensorInitializer(["cat", "dog"], tf.constant([0, 1], tf.int64)), num_oov_buckets=3
)
mutable = tf.lookup.experimental.MutableHashTable(tf.string, tf.float32, default_value=[0.0, 0.0])
dense = tf.lookup.experimental.DenseHashTable(tf.int64, tf.int64, default_value=-1, empty_key=-2, deleted_key=-3)
fifo = tf.queue.FIFOQueue(10, [tf.float32, tf.string], shapes=[[2], []])
priority = tf.queue.PriorityQueue(10, [tf.string], shapes=[[]])
weights = tf.Variable(tf.zeros([5, 2]))
iterator = iter(tf.data.Dataset.from_tensor_slices(["cat", "dog", "owl", "cat", "emu", "fox"]).batch(2).repeat())


@tf.function
def step():
    words = next(iterator)
    ids = vocabulary.lookup(words)
    mutable.insert(words, mutable.lookup(words) + tf.ones([2, 2]))
    dense.insert(ids, ids * 10)
    fifo.enqueue([mutable.lookup(words)[0], words[0]])
    weights.scatter_add(tf.IndexedSlices(mutable.lookup(words), ids))
    value, name = fifo.dequeue()
    return tf.reduce_sum(weights), value, name, ids, dense.lookup(tf.range(5, dtype=tf.int64)), mutable.size()


losses, outputs = [], []
for number in range(5):
    loss, *rest = step()
    losses.append(loss)
    outputs.append(rest)
    priority.enqueue([tf.constant(5 - number, tf.int64), tf.constant(f"item {number}")])
    fifo.enqueue([tf.fill([2], float(number)), tf.constant("eager")])
    outputs.append(fifo.dequeue())
outputs += [priority.dequeue() for _ in range(5)]
keys, values = mutable.export()
order = sorted(range(len(keys)), key=lambda i: keys[i].numpy())  # a table has no order
mutable.remove(tf.constant(["cat"]))
dense.erase(tf.constant([0], tf.int64))
outputs += [tf.gather(keys, order), tf.gather(values, order), mutable.size(), dense.lookup(tf.range(3, dtype=tf.int64))]
show(losses, weights=weights, outputs=outputs)
