"""No function at all: a classifier trained op by op, with slices, operators, NumPy, and Python's own numbers."""

import numpy as np
import tensorflow as tf
from ending import show

tf.random.set_seed(44)
rng = np.random.default_rng(44)
images = rng.normal(size=(40, 6, 6, 1)).astype("float32")
labels = rng.integers(0, 3, size=40)
kernel = tf.Variable(tf.random.normal([3, 3, 1, 4], stddev=0.3))
dense = tf.Variable(tf.random.normal([64, 3], stddev=0.3))
bias = tf.Variable(np.zeros(3, "float32"))
momentum = {variable.ref(): tf.Variable(tf.zeros_like(variable)) for variable in (kernel, dense, bias)}

losses, kept = [], []
for number in range(5):
    x, y = tf.constant(images[8 * number : 8 * number + 8]), tf.one_hot(labels[8 * number : 8 * number + 8], 3)
    with tf.GradientTape() as tape:
        h = tf.nn.relu(tf.nn.conv2d(x, kernel, 1, "VALID"))
        h = tf.nn.dropout(tf.reshape(h, [len(h), -1]), 0.2, seed=number)
        logits = h @ dense + bias
        loss = -tf.reduce_mean(tf.reduce_sum(y * tf.nn.log_softmax(logits), axis=1)) + 1e-3 * tf.nn.l2_loss(dense)
    gradients = tape.gradient(loss, [kernel, dense, bias])
    for variable, gradient in zip([kernel, dense, bias], gradients, strict=True):
        slot = momentum[variable.ref()]
        slot.assign(slot * 0.9 + gradient / (1.0 + 1e-6))
        variable.assign_add(-0.1 * slot)
    losses.append(loss)
    accuracy = np.mean(logits.numpy().argmax(1) == labels[8 * number : 8 * number + 8])
    scale = 0.5 if float(loss) > 1.0 else 2
    kept += [logits[0], logits[:, ::-1], logits[..., None][1:3], logits[logits > 0], accuracy]
    kept += [logits * scale, -logits // 1]
    dense[0].assign(dense[1] * accuracy)
    bias[1:].assign(bias[:-1] + number)
kept += [tf.add(1, 2), tf.constant(0.0) + -0.0, tf.range(5) ** 2, tf.reduce_any(tf.equal([1, 2], [2, 2])), abs(bias)]
kept += [tf.stack(tf.unstack(dense[:4])), tf.split(dense[:6], 3), tf.meshgrid([1.0, 2.0], [3.0])]
kept.append(sum([bias, bias, bias]))
show(losses, weights=[kernel, dense, bias, *momentum.values()], kept=kept)
