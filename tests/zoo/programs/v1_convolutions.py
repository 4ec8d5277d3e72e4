"""A TensorFlow 1 network for images as large as MNIST's: convolutions, batch norm, dropout, Adam; a frozen copy."""

import numpy as np
import tensorflow as tf
from ending import show

v1 = tf.compat.v1
v1.disable_v2_behavior()
v1.logging.set_verbosity(v1.logging.ERROR)
v1.set_random_seed(53)
rng = np.random.default_rng(53)
images, labels = rng.random((64, 28, 28, 1), "float32"), rng.integers(0, 10, 64)

x, y = v1.placeholder(tf.float32, [None, 28, 28, 1], "x"), v1.placeholder(tf.int64, [None], "y")
rate = v1.placeholder_with_default(0.0, [], "rate")
h = x
for number, width in enumerate((8, 16)):
    with v1.variable_scope(f"block{number}"):
        kernel = v1.get_variable("kernel", [5, 5, h.shape[-1], width], use_resource=bool(number))
        scale = v1.get_variable("scale", [width], initializer=v1.ones_initializer())
        offset = v1.get_variable("offset", [width], initializer=v1.zeros_initializer())
        h = tf.nn.conv2d(h, kernel, 1, "SAME")
        h, mean, variance = v1.nn.fused_batch_norm(h, scale, offset)
        h = tf.nn.max_pool2d(tf.nn.relu(h), 2, 2, "SAME")
h = v1.nn.dropout(tf.reshape(h, [-1, 7 * 7 * 16]), rate=rate)
weights = v1.get_variable("weights", [7 * 7 * 16, 10], regularizer=lambda w: 1e-4 * tf.nn.l2_loss(w))
bias = v1.get_variable("bias", [10], initializer=v1.zeros_initializer())
logits = tf.nn.bias_add(tf.matmul(h, weights), bias, name="logits")
loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
loss += v1.losses.get_regularization_loss()
optimizer = v1.train.AdamOptimizer(0.002)
gradients, names = zip(*optimizer.compute_gradients(loss), strict=True)
gradients, norm = tf.clip_by_global_norm(gradients, 1.0)
train = optimizer.apply_gradients(zip(gradients, names, strict=True))
accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1), y), tf.float32))

losses, outputs = [], []
with v1.Session() as session:
    session.run(v1.global_variables_initializer())
    for start in range(0, 64, 16):
        feed = {x: images[start : start + 16], y: labels[start : start + 16], rate: 0.4}
        _, value, *more = session.run([train, loss, norm, mean, variance, *gradients], feed)
        losses.append(value)
        outputs.append(more)
    outputs.append(session.run([accuracy, logits], {x: images, y: labels}))
    state = session.run(v1.global_variables())
    frozen = v1.graph_util.convert_variables_to_constants(session, v1.get_default_graph().as_graph_def(), ["logits"])
with tf.Graph().as_default(), v1.Session() as session:
    (again,) = tf.import_graph_def(frozen, {"x": (x := v1.placeholder(tf.float32, [None, 28, 28, 1]))}, ["logits:0"])
    outputs.append(session.run(again, {x: images[:8]}))
show(losses, state=state, outputs=outputs)
