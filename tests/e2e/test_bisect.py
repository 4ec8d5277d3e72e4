"""`bisect` from end to end: the step of a long run, then the op, with a small part of the steps recorded."""

import json
import os
from pathlib import Path

import pytest

from tfbisect.trace import load

HEAD = """
import os, sys
import numpy as np
import tensorflow as tf
import tfbisect

STEPS, FAULT = map(int, sys.argv[1:])
done = [0]

def shaky(x):
    # A kernel that gives other bits from one step on, in one run of the two: a planted fault.
    done[0] += 1
    return x * np.float32(1 + int.from_bytes(os.urandom(3), "little") / 2**30) if done[0] == FAULT + 1 else x

w = tf.Variable(tf.random.stateless_normal([4, 4], [1, 2]), name="w")
m = tf.Variable(tf.zeros([4, 4]), name="m")
x = tf.random.stateless_normal([4, 4], [3, 4])
"""

FUNCTION = (
    HEAD
    + """
@tf.function
def train():
    y = tf.numpy_function(shaky, [tf.tanh(x @ w)], tf.float32)
    m.assign(0.9 * m + tf.transpose(x) @ y)
    w.assign_sub(0.001 * m)
    return tf.reduce_mean(y)

for i in range(STEPS):
    loss = train()
print(float(loss))
"""
)

MARKED = (
    HEAD
    + """
@tf.function
def forward():
    return tf.numpy_function(shaky, [tf.tanh(x @ w)], tf.float32)

for i in range(STEPS):
    tfbisect.step()
    for half in range(2):
        y = forward() if half else tf.tanh(x @ w)
        w.assign_sub(0.001 * y)
"""
)

EAGER = (
    HEAD
    + """
for i in range(STEPS):
    y = tf.py_function(shaky, [tf.tanh(x @ w)], tf.float32)
    m.assign(0.9 * m + y)
    w.assign_sub(0.001 * m)
"""
)

KERAS = """
import os, sys
import numpy as np
import tensorflow as tf

STEPS, FAULT = map(int, sys.argv[1:])
tf.keras.utils.set_random_seed(1)
done = [0]

def shaky(x):
    done[0] += 1
    return x * np.float32(1 + int.from_bytes(os.urandom(3), "little") / 2**30) if done[0] == FAULT + 1 else x

class Shaky(tf.keras.layers.Layer):
    def call(self, x):
        return x + tf.stop_gradient(tf.ensure_shape(tf.numpy_function(shaky, [x], tf.float32), x.shape) - x)

model = tf.keras.Sequential(
    [tf.keras.Input((4,), batch_size=4), tf.keras.layers.Dropout(0.2), Shaky(), tf.keras.layers.Dense(2)]
)
model.compile("adam", "mse", jit_compile=False)
x = np.random.default_rng(0).normal(size=(4 * STEPS, 4)).astype(np.float32)
model.fit(x, x[:, :2], batch_size=4, verbose=0)
"""


def search(cli, tmp_path: Path, text: str, steps: int, fault: int, *options: str):
    (tmp_path / "train.py").write_text(text)
    done = cli("bisect", "-o", "traces", "--format", "json", *options, "train.py", steps, fault)
    assert done.stdout, done.stderr
    return done, json.loads(done.stdout)


def line_of(text: str, part: str) -> int:
    return 1 + next(number for number, line in enumerate(text.splitlines()) if part in line)


def test_a_fault_in_step_4000_of_5000_is_found_with_under_a_hundredth_of_a_full_trace(cli, tmp_path):
    done, result = search(cli, tmp_path, FUNCTION, 5000, 4000)
    assert done.returncode == 1, done.stderr
    culprit = result["culprits"][0]
    assert (culprit["op_type"], culprit["step"]) == ("PyFunc", 4000)
    assert culprit["source"]["line"] == line_of(FUNCTION, "tf.numpy_function(shaky")
    assert culprit["difference"]["elements"] == 16
    assert "the divergence moved" not in done.stderr
    recorded = [load(path) for path in sorted((tmp_path / "traces").glob("*.h5"))]
    a_step = len(recorded[-1].events) / sum(
        recorded[-1].graphs[int(call["graph"])].name == "train" for call in recorded[-1].calls
    )
    # Between two looks at the state lie more steps where other programs take the time that looks may take.
    share = 0.01 if os.getloadavg()[0] <= (os.cpu_count() or 1) else 0.1
    assert sum(len(trace.events) for trace in recorded) < share * 2 * 5000 * a_step
    cost = recorded[0].state_cost
    assert cost is not None and cost["seconds"] < 0.3 + 0.01 * cost["of"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "text, op", [(MARKED, "PyFunc"), (EAGER, "EagerPyFunc"), (KERAS, "PyFunc")], ids=["marked", "eager", "keras"]
)
def test_steps_of_every_kind(cli, tmp_path, text, op):
    done, result = search(cli, tmp_path, text, 60, 40)
    assert done.returncode == 1, done.stderr
    culprit = result["culprits"][0]
    assert (culprit["op_type"], culprit["step"]) == (op, 40), done.stderr
    assert culprit["source"]["line"] == line_of(text, "shaky, [")


def test_windows_recorded_cheaply_lead_to_a_pair_in_full(cli, tmp_path):
    done, result = search(cli, tmp_path, FUNCTION, 60, 40, "--ops", "suspects")
    assert done.returncode == 1, done.stderr
    assert (result["culprits"][0]["op_type"], result["culprits"][0]["step"]) == ("PyFunc", 40)
    assert result["cheap"]["recording"]["ops"] == "suspects" and "the same op" in result["warnings"][0]


def test_equal_runs_are_identical(cli, tmp_path):
    (tmp_path / "train.py").write_text(FUNCTION)
    done = cli("bisect", "train.py", 20, 100, TMPDIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "the state is the same after all 20 steps in 2 runs" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]


def test_a_program_without_steps_is_a_clear_error(cli, tmp_path):
    (tmp_path / "infer.py").write_text("import tensorflow as tf\nprint(float(tf.sin(1.0)))\n")
    done = cli("bisect", "infer.py")
    assert done.returncode == 2
    assert "found no steps" in done.stderr and "tfbisect.step()" in done.stderr and "Traceback" not in done.stderr
