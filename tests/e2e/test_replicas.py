"""Two replicas on two logical CPUs: the replica that diverged is told apart, and recording never stops a collective."""

import json

PROGRAM = """
import os

import numpy as np
import tensorflow as tf

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
with strategy.scope():
    weights = tf.Variable(tf.ones([4]), aggregation=tf.VariableAggregation.SUM)


def kernel(x, replica):
    if replica == 1 and os.environ.get("OTHER"):
        x = x + np.float32(0.5)
    return x


def replica_step(x):
    replica = tf.distribute.get_replica_context().replica_id_in_sync_group
    y = tf.numpy_function(kernel, [x * weights, replica], tf.float32)  # planted
    total = tf.distribute.get_replica_context().all_reduce("sum", tf.ensure_shape(y, [4]))
    again = tf.numpy_function(kernel, [total, 7], tf.float32)
    weights.assign_add(tf.ensure_shape(again, [4]) * 0.1, read_value=False)
    return tf.reduce_sum(total)


@tf.function
def step(x):
    return strategy.reduce("sum", strategy.run(replica_step, args=(x,)), axis=None)


x = strategy.experimental_distribute_values_from_function(
    lambda ctx: tf.constant([1.0, 2.0, 3.0, 4.0]) * (ctx.replica_id_in_sync_group + 1)
)
for _ in range(3):
    print(float(step(x)).hex())
"""


def test_the_replica_that_diverged_is_named(cli, tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    plain = cli("record", "-o", "a.h5", "program.py")
    assert plain.returncode == 0, plain.stderr
    assert cli("record", "-o", "same.h5", "program.py").stdout == plain.stdout
    assert cli("compare", "a.h5", "same.h5").returncode == 0
    assert cli("record", "-o", "b.h5", "program.py", OTHER="1").returncode == 0
    done = cli("compare", "a.h5", "b.h5", "--format", "json")
    assert done.returncode == 1, done.stderr
    (culprit,) = json.loads(done.stdout)["culprits"]
    assert culprit["op_type"] == "PyFunc" and "# planted" in culprit["source"]["text"]
    assert (culprit["step"], culprit["device"].rpartition("/")[2]) == (0, "device:CPU:1")
    assert culprit["replica"] == 1
