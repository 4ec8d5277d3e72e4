"""TensorFlow 1 as it was: a graph, a Session, feeds, optimizers with slots, loops, queues, partial fetches, a Saver."""

import numpy as np
import tensorflow as tf
from ending import show

v1 = tf.compat.v1
v1.disable_eager_execution()
v1.set_random_seed(50)
rng = np.random.default_rng(50)

x, y = v1.placeholder(tf.float32, [None, 6], "x"), v1.placeholder(tf.float32, [None, 1], "y")
with v1.variable_scope("net"):
    kernel = v1.get_variable("kernel", [6, 4], initializer=v1.random_normal_initializer(stddev=0.3, seed=1))
    head = v1.get_variable("head", [4, 1], initializer=v1.constant_initializer(0.3))
h = v1.nn.dropout(tf.nn.relu(tf.matmul(x, kernel)), rate=0.2, seed=7)
_, h = v1.while_loop(lambda i, _: i < 3, lambda i, value: (i + 1, tf.tanh(value) + value), [0, h])
loss = tf.reduce_mean(tf.square(tf.matmul(h, head) - y))
step = v1.train.get_or_create_global_step()
rate = v1.train.exponential_decay(0.05, step, 2, 0.9)
train = v1.train.MomentumOptimizer(rate, 0.9).minimize(loss, global_step=step, var_list=[kernel])
train_head = v1.train.AdamOptimizer(0.01).minimize(loss, var_list=[head])
branch = tf.cond(loss > 1.0, lambda: loss * 2.0, lambda: -loss)
reference = v1.get_variable("reference", [3], initializer=v1.zeros_initializer(), use_resource=False)
add = v1.assign_add(reference, tf.ones([3]))
queue = v1.FIFOQueue(4, [tf.float32], shapes=[[2]])
put, take = queue.enqueue([tf.ones([2]) * loss]), queue.dequeue()
saver = v1.train.Saver()

losses, outputs = [], []
with v1.Session() as session:
    session.run(v1.global_variables_initializer())
    for _ in range(5):
        feed = {x: rng.normal(size=(8, 6)).astype("float32"), y: rng.normal(size=(8, 1)).astype("float32")}
        losses.append(session.run([loss, train], feed)[0])
        session.run(train_head, feed)
        session.run([put, add], feed)
        outputs.append(session.run({"branch": branch, "rate": rate, "taken": take}, feed))
    call = session.make_callable(tf.matmul(x, kernel), [x])
    outputs.append(call(np.ones((2, 6), "float32")))
    path = saver.save(session, "checkpoints/model")
    weights = session.run(v1.global_variables())
with v1.Session() as session:
    saver.restore(session, path)
    outputs.append(session.run([kernel, reference, step]))
show(losses, weights=weights, outputs=outputs)
