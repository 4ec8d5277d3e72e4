"""How much disk recording a Session takes while it runs: never more than what one call dumps."""

import math
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from helpers import ROOT, TIMEOUT

import tfbisect
from tfbisect.model import SiteKind

PROGRAM = """
import sys
import numpy as np
import tensorflow.compat.v1 as tf
tf.disable_v2_behavior()
tf.set_random_seed(1)
rng = np.random.default_rng(1)
images, labels = rng.random((640, 784), "float32"), rng.integers(0, 10, 640)
x, y = tf.placeholder(tf.float32, [None, 784]), tf.placeholder(tf.int64, [None])
h = tf.reshape(x, [-1, 28, 28, 1])
for number, width in enumerate((8, 16)):
    kernel = tf.get_variable(f"kernel{number}", [5, 5, h.shape[-1], width])
    h = tf.nn.max_pool2d(tf.nn.relu(tf.nn.conv2d(h, kernel, 1, "SAME")), 2, 2, "SAME")
h = tf.nn.dropout(tf.reshape(h, [-1, 7 * 7 * 16]), rate=0.3)
logits = tf.matmul(h, tf.get_variable("weights", [7 * 7 * 16, 10]))
loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
train = tf.train.AdamOptimizer(0.001).minimize(loss)
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    for step in range(int(sys.argv[1])):
        start = step * 64 % 640
        session.run([train, loss], {x: images[start : start + 64], y: labels[start : start + 64]})
"""
BESIDE = 2**20  # bytes: the executed graphs, and what each file has beside its tensor


def _size(folder: Path) -> int:
    total = 0
    for where, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(where, name)).st_size
            except FileNotFoundError:  # deleted meanwhile
                pass
    return total


def _highest(tmp_path: Path, steps: int, transport: str) -> int:
    """Record the program; -> the most bytes that its folder for temporary files held."""
    (tmp_path / "program.py").write_text(PROGRAM)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    env = {**os.environ, "TMPDIR": str(temporary), "TFBISECT_SESSIONS": transport, "TF_CPP_MIN_LOG_LEVEL": "3"}
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    command = [sys.executable, "-m", "tfbisect", "record", "-o", "a.h5", "program.py", str(steps)]
    highest = [0]
    ended = threading.Event()

    def watch() -> None:
        while not ended.is_set():
            highest[0] = max(highest[0], _size(temporary))
            time.sleep(0.002)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, timeout=3 * TIMEOUT, check=False)
    finally:
        ended.set()
        watcher.join()
    assert done.returncode == 0, done.stderr
    assert not list(temporary.iterdir())
    return highest[0]


def _largest_call(path: Path) -> int:
    """Bytes of all outputs of the call that has most of them."""
    trace = tfbisect.load(path)
    sizes = np.zeros(len(trace.calls))
    for row, call in enumerate(trace.calls):
        for event in trace.events[trace.events_of(int(call["id"]))]:
            if trace.sites["kind"][event["site"]] == SiteKind.OUTPUT:
                items = math.prod(trace.shape(int(event["shape"])) or ())
                sizes[row] += items * np.dtype(trace.dtype(int(event["site"]))).itemsize
    return int(sizes.max())


@pytest.mark.parametrize("steps", [12, pytest.param(200, marks=pytest.mark.slow)])
def test_files_of_one_call_are_all_that_is_on_the_disk(tmp_path: Path, steps: int) -> None:
    highest = _highest(tmp_path, steps, "files")
    largest = _largest_call(tmp_path / "a.h5")
    assert largest > 2**22
    assert largest / 2 < highest < largest + BESIDE


@pytest.mark.slow
def test_in_memory_there_is_next_to_nothing_on_the_disk(tmp_path: Path) -> None:
    assert _highest(tmp_path, 200, "memory") < BESIDE
