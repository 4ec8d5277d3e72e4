"""TensorFlow 1 loops and branches, of the old and the new kind: gradients, arrays, writes and draws in iterations."""

import numpy as np
import tensorflow as tf
from ending import show

v1 = tf.compat.v1
v1.disable_v2_behavior()
v1.logging.set_verbosity(v1.logging.ERROR)
rng = np.random.default_rng(52)
losses, outputs = [], []


def build(resource):
    x = v1.placeholder(tf.float32, [4, 6, 3], "x")
    kernel = v1.get_variable("kernel", [3 + 5, 20], use_resource=True)
    seen = v1.get_variable("seen", [5], initializer=v1.zeros_initializer(), trainable=False, use_resource=resource)
    steps = tf.TensorArray(tf.float32, 6).unstack(tf.transpose(x, [1, 0, 2]))
    made = tf.TensorArray(tf.float32, 6)

    def body(t, h, c, made):
        i, f, o, g = tf.split(tf.matmul(tf.concat([steps.read(t), h], 1), kernel), 4, 1)
        c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(g)
        h = tf.sigmoid(o) * tf.tanh(c)
        with tf.control_dependencies([v1.assign_add(seen, tf.reduce_sum(tf.stop_gradient(h), 0))]):
            h = v1.cond(tf.equal(t % 2, 0), lambda: h * 1.1, lambda: h + 0.01 * tf.random.normal([5], seed=3))
        _, h = v1.while_loop(lambda j, _: j < t, lambda j, h: (j + 1, h + 0.1 * tf.sin(h)), [0, h])
        return t + 1, h, c, made.write(t, h)

    start = [0, tf.zeros([4, 5]), tf.zeros([4, 5]), made]
    _, h, _, made = v1.while_loop(lambda t, *_: t < 6, body, start, parallel_iterations=1)
    loss = tf.reduce_mean(tf.square(h - 0.3))
    train = v1.train.MomentumOptimizer(0.5, 0.9).minimize(loss)
    return x, train, loss, made.stack()


for v2, resource in ((False, False), (False, True), (True, True)):
    (v1.enable_control_flow_v2 if v2 else v1.disable_control_flow_v2)()
    with tf.Graph().as_default(), v1.Session() as session:
        v1.set_random_seed(52)
        x, train, *rest = build(resource)
        session.run(v1.global_variables_initializer())
        for _ in range(4):
            _, loss, *found = session.run([train, *rest], {x: rng.standard_normal((4, 6, 3))})
            losses.append(loss)
            outputs.append(found)
        outputs.append(session.run(v1.global_variables()))
show(losses, outputs=outputs)
