"""MultiWorkerMirroredStrategy in two processes on this machine: the worker that differed is named with its line."""

import json
import re

import pytest

PROGRAM = """
import json
import os

import numpy as np
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
rank = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
starts = 0
if rank == 1:  # the third job goes wrong, on this worker
    with open("starts", "a+") as file:
        file.write("x")
        file.seek(0)
        starts = len(file.read())
with strategy.scope():
    weights = tf.Variable(tf.random.stateless_normal([4], [1, 2]), aggregation=tf.VariableAggregation.SUM)


def kernel(x, step):
    return x + np.float32(0.5) if starts == 3 and step == 1 else x


def replica_step(x, step):
    x = tf.ensure_shape(tf.numpy_function(kernel, [x, step], tf.float32), [4])  # planted
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(x * weights) ** 2
    (gradient,) = tape.gradient(loss, [weights])
    total = tf.distribute.get_replica_context().all_reduce("sum", gradient)
    weights.assign_sub(0.001 * total / tf.norm(total), read_value=False)
    return loss


@tf.function
def train(x, step):
    return strategy.reduce("sum", strategy.run(replica_step, args=(x, step)), axis=None)


x = strategy.experimental_distribute_values_from_function(
    lambda ctx: tf.constant([1.0, 2.0, 3.0, 4.0]) * (ctx.replica_id_in_sync_group + 1)
)
for step in range(3):
    print("loss", float(train(x, tf.constant(step))).hex())
"""


def losses(text):
    """The losses of all workers, a list for each job, without the two workers' turns."""
    every = [re.findall(rf"^\[{worker}\] loss (\S+)$", text, re.MULTILINE) for worker in (0, 1)]
    assert every[0] == every[1]
    return [every[0][at : at + 3] for at in range(0, len(every[0]), 3)]


def test_the_worker_that_differs_is_named_with_its_line(cli, tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    done = cli("run", "--workers", 2, "--times", 3, "-o", "runs", "program.py")
    assert done.returncode == 1, done.stderr
    jobs = losses(done.stdout)
    assert len(jobs) == 3 and jobs[0] == jobs[1] and jobs[0][0] == jobs[2][0] and jobs[0][1:] != jobs[2][1:]
    first = next(line for line in done.stdout.splitlines() if line.startswith("DIVERGED"))
    assert re.fullmatch(r"DIVERGED  first at PyFunc, line \d+ of program.py, in step 1, on worker:1", first)

    found = json.loads(cli("compare", "runs/run1", "runs/run3", "--format", "json").stdout)
    [culprit] = found["culprits"]
    assert (culprit["op_type"], culprit["step"], culprit["tasks"]) == ("PyFunc", 1, ["worker:1"])
    assert "# planted" in culprit["source"]["text"] and not culprit["contained"]
    assert [each["state"] for each in found["workers"]] == ["received", "diverged"]

    same = cli("compare", "runs/run1", "runs/run2")
    assert same.returncode == 0, same.stdout
    # Of one worker alone nobody knows what the other one put in: no name is given.
    alone = cli("compare", "runs/run1/worker0.h5", "runs/run3/worker0.h5")
    assert alone.returncode == 2 and "what other workers put into it was not recorded" in " ".join(alone.stdout.split())


def test_a_worker_that_dies_is_one_sentence(cli, tmp_path):
    (tmp_path / "program.py").write_text(
        "import json, os, signal, time\n"
        "if json.loads(os.environ['TF_CONFIG'])['task']['index']:\n    os.kill(os.getpid(), signal.SIGKILL)\n"
        "time.sleep(1)\n"
    )
    done = cli("run", "--workers", 2, "program.py")
    assert done.returncode == 2
    assert "worker 1 was ended by SIGKILL, and the others were ended before anything was written" in done.stderr
    assert "Traceback" not in done.stderr and "what it did up to there" not in done.stderr


@pytest.mark.parametrize("number", ["1", "0", "-2"])
def test_one_worker_is_no_job(cli, tmp_path, number):
    (tmp_path / "program.py").write_text("")
    done = cli("run", "--workers", number, "program.py")
    assert done.returncode == 2 and f"--workers: found {number}, expected 2 or more" in done.stderr


@pytest.mark.slow
def test_a_worker_killed_in_the_middle_leaves_what_was_computed_before(cli, tmp_path):
    killed = PROGRAM.replace("for step in", "import signal\nfor step in").replace(
        '    print("loss"', '    if step == 2 and rank:\n        os.kill(os.getpid(), signal.SIGKILL)\n    print("loss"'
    )
    (tmp_path / "program.py").write_text(killed)
    done = cli("run", "--workers", 2, "-o", "runs", "program.py")
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("worker 1 was ended by SIGKILL, and the others were ended") == 2
    found = json.loads(cli("compare", "runs/run1", "runs/run2", "--format", "json").stdout)
    assert (found["verdict"], found["culprits"]) == ("inconclusive", [])
    assert all(each["differing"] == 0 < each["compared"] for each in found["workers"])
