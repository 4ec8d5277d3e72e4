"""`cure` from end to end: untreated runs differ, and what it names makes them identical, or it says that none does."""

import json

import pytest
from helpers import python

NUMPY = """
import numpy as np
import tensorflow as tf

w = tf.Variable(tf.zeros([4]))

@tf.function
def step(x):
    w.assign_add(tf.sin(x))

for _ in range(3):
    step(tf.constant(np.random.rand(4).astype("float32")))
print(w.numpy())
"""

# tf.timestamp raises under op determinism.
RAISES = """
import tensorflow as tf

w = tf.Variable(tf.zeros([4]))
began = tf.timestamp() * 0.0

@tf.function
def step():
    w.assign_add(tf.random.uniform([4]))

for _ in range(3):
    step()
"""

THREADS = """
import numpy as np
import tensorflow as tf

rng = np.random.default_rng(12)
x = tf.constant(rng.standard_normal((64, 28, 28, 32)).astype("float32"))
offset = tf.Variable(tf.zeros([32]))
for step in range(2):
    offset.assign_sub(tf.raw_ops.BiasAddGrad(out_backprop=x * (step + 0.3)))
print(offset.numpy().tobytes().hex())
"""

GENERATOR = """
import numpy as np
import tensorflow as tf

def noisy(x):
    return x + np.random.default_rng().standard_normal(4).astype("float32")

w = tf.Variable(tf.zeros([4]))

@tf.function
def step():
    w.assign(tf.numpy_function(noisy, [w * 0.5], tf.float32))

for _ in range(3):
    step()
"""

REPEATS = "import tensorflow as tf\nprint(tf.reduce_sum(tf.Variable(tf.ones([4])) * 2.0))\n"

LOOP = """
import tensorflow as tf

tf.random.set_seed(1)

@tf.function
def simulate():
    def body(i, results):
        market = tf.reduce_mean(tf.random.uniform([tf.where(i % 2 == 0, 120000, 40)], seed=11))
        with tf.control_dependencies([market]):
            shock = tf.random.normal([], seed=12)
        return i + 1, results.write(i, shock)
    results = tf.TensorArray(tf.float32, 100)
    return tf.while_loop(lambda i, _: i < 100, body, [0, results], parallel_iterations=10)[1].stack()

w = tf.Variable(simulate())
"""


def cure(folder, text, *options, **env):
    (folder / "program.py").write_text(text)
    done = python("-m", "tfbisect", "cure", "--format", "json", *options, "program.py", cwd=folder, timeout=900, **env)
    assert done.stdout.startswith("{"), done.stderr
    return done.returncode, json.loads(done.stdout)


def differs_untreated(found):
    return found["untreated"]["identical"] < found["untreated"]["pairs"]


def test_an_unseeded_draw_of_numpy(tmp_path):
    status, found = cure(tmp_path, NUMPY, "--max-runs", "18")
    assert (status, found["verdict"], found["minimal"]) == (0, "cured", ["NumPy's seed"])
    assert differs_untreated(found)
    (proof,) = [trial for trial in found["trials"] if trial["settings"] == found["minimal"]]
    assert (proof["identical"], proof["pairs"], proof["raised"]) == (3, 3, None)
    assert proof["step_time"] > 0
    assert found["lines"] and "numpy.random.seed(1)" in found["lines"][0]
    plain = found["plain"]
    assert (plain["identical"], plain["pairs"]) == (3, 3)
    assert "variable" in plain["untreated"] or "output" in plain["untreated"]
    need = {advice["item"]: advice["need"] for advice in found["checklist"]}
    assert need["numpy.random.seed"] == "needed" and need["PYTHONHASHSEED"] == "wasted"
    assert found["runs"] <= 18
    assert sorted(path.name for path in tmp_path.iterdir()) == ["program.py"]


@pytest.mark.slow
def test_a_setting_that_raises_is_told_with_its_op(tmp_path):
    status, found = cure(tmp_path, RAISES, "--max-runs", "18", "--pairs", "1")
    assert (status, found["minimal"]) == (0, ["TensorFlow's seed"])
    raised = [trial["raised"] for trial in found["trials"] if "op determinism" in trial["settings"]]
    assert raised and raised[0]["op_types"] == ["Timestamp"]
    assert "Timestamp cannot be called" in raised[0]["message"]
    assert raised[0]["workaround"]


@pytest.mark.slow
def test_runs_under_other_thread_counts(tmp_path):
    status, found = cure(
        tmp_path, THREADS, "--env-b", "TF_NUM_INTRAOP_THREADS=2", "--max-runs", "16", TF_NUM_INTRAOP_THREADS="1"
    )
    assert (status, found["minimal"]) == (0, ["one TF_NUM_INTRAOP_THREADS"])
    assert differs_untreated(found)
    assert found["lines"] == ["export TF_NUM_INTRAOP_THREADS=1  # for both runs"]
    assert (found["plain"]["identical"], found["plain"]["pairs"]) == (3, 3)


def test_what_no_setting_reaches_is_said_with_the_line(tmp_path):
    status, found = cure(tmp_path, GENERATOR)
    assert (status, found["verdict"], found["minimal"], found["lines"]) == (1, "not cured", [], [])
    assert found["runs"] == 4  # one pair untreated, one under everything
    (left,) = found["remaining"]
    assert "numpy_function(noisy" in left["source"]["text"]
    assert "default_rng(0)" in left["causes"][0]["cure"]
    assert {advice["need"] for advice in found["checklist"]} == {"wasted"}


def test_a_program_that_repeats_has_nothing_to_cure(tmp_path):
    status, found = cure(tmp_path, REPEATS, "--max-runs", "6")
    assert (status, found["verdict"], found["runs"]) == (2, "repeats", 6)  # three recorded runs, and three plain ones


@pytest.mark.slow
def test_draws_that_race_in_a_loop(tmp_path):
    status, found = cure(tmp_path, LOOP, "--max-runs", "24")
    assert (status, found["minimal"]) == (0, ["one loop iteration at a time"])
    assert (found["plain"]["identical"], found["plain"]["pairs"]) == (3, 3)
