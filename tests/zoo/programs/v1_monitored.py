"""MonitoredTrainingSession, SingularMonitoredSession: finalized graphs, hooks, a scaffold, a table, queue runners."""

import numpy as np
import tensorflow as tf
from ending import show

v1 = tf.compat.v1
v1.disable_v2_behavior()
v1.logging.set_verbosity(v1.logging.ERROR)
rng = np.random.default_rng(51)
rows = rng.standard_normal((40, 5)).astype("float32")


class Weights(v1.train.SessionRunHook):
    """Keeps what the weights are after each step, by a run of its own."""

    def __init__(self, kept):
        self.kept = kept

    def begin(self):
        self.tensors = v1.trainable_variables()

    def before_run(self, run_context):
        return v1.train.SessionRunArgs([loss])

    def after_run(self, run_context, run_values):
        self.kept.append([run_values.results, run_context.session.run(self.tensors)])


losses, outputs = [], []
for resource in (False, True):
    with tf.Graph().as_default():
        v1.set_random_seed(51)
        row = v1.train.limit_epochs(v1.train.input_producer(rows, shuffle=False).dequeue(), num_epochs=24)
        batch = v1.train.batch([row], 4, num_threads=1, capacity=8)
        kernel = v1.get_variable("kernel", [5, 3], use_resource=resource)
        table = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(tf.constant([0, 1, 2], tf.int64), tf.constant([0.5, 1.5, -1.0])), 0.0
        )
        h = v1.nn.dropout(tf.matmul(batch, kernel), rate=0.25)
        target = table.lookup(tf.argmax(h, 1))
        loss = tf.reduce_mean(tf.square(tf.reduce_sum(h, 1) - target))
        step = v1.train.get_or_create_global_step()
        train = v1.train.RMSPropOptimizer(0.05).minimize(loss, global_step=step)
        hooks = [Weights(outputs), v1.train.NanTensorHook(loss)]
        if resource:
            halve = v1.assign(kernel, kernel * 0.5).op
            scaffold = v1.train.Scaffold(init_fn=lambda _, session, halve=halve: session.run(halve))
            session = v1.train.SingularMonitoredSession(hooks=hooks, scaffold=scaffold)
        else:
            session = v1.train.MonitoredTrainingSession(hooks=hooks, log_step_count_steps=None)
        with session:
            for _ in range(6):
                losses.append(session.run([train, loss])[1])
            outputs.append(session.run([step, kernel]))
show(losses, outputs=outputs)
