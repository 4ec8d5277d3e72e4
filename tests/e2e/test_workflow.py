"""tfbisect where people work: a Keras script with a callback, a command in CI, a look at the installation."""

import json
import sys
from xml.etree import ElementTree

from helpers import python

KERAS = """
import numpy as np, sys, tensorflow as tf
import tfbisect
tf.keras.utils.set_random_seed(1)
x = np.random.rand(256, 8)
y = x.sum(axis=1, keepdims=True)
model = tf.keras.Sequential([tf.keras.layers.Dense(16, activation="relu"), tf.keras.layers.Dense(1)])
model.compile(tf.keras.optimizers.Adam(float(sys.argv[2])), "mse")
digests = tfbisect.keras.Digest(sys.argv[1] + ".digests", each="batch")
recorder = tfbisect.keras.Recorder(sys.argv[1], steps=2)
model.fit(x, y, epochs=2, verbose=0, callbacks=[recorder, digests])
"""

PROGRAM = """
import os, sys
import numpy as np
import tensorflow as tf

print("hello from the program")

@tf.function
def step(x):
    return tf.reduce_sum(x * 2.0)

noise = int.from_bytes(os.urandom(4), "little") if "--noise" in sys.argv else 7
step(tf.constant([1.0, 2.0]) + np.float32(noise))
if "--fail" in sys.argv:
    raise SystemExit("this failed")
"""


def test_a_keras_script_of_ten_lines(cli, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(KERAS)
    for name, rate in (("a", 0.1), ("b", 0.1), ("c", 0.2)):
        done = python(script, f"{name}.h5", rate, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (0, ""), done.stderr
    for suffix in ("", ".digests"):
        same = cli("compare", f"a.h5{suffix}", f"b.h5{suffix}")
        assert (same.returncode, same.stdout[:9]) == (0, "IDENTICAL"), same.stdout
    other = json.loads(cli("compare", "a.h5", "c.h5", "--format", "json").stdout)
    assert other["verdict"] == "diverged"
    assert other["culprits"][0]["category"] in ("host", "state")  # the learning rate
    weights = cli("compare", "a.h5.digests", "c.h5.digests")
    assert weights.returncode == 1
    assert weights.stdout.startswith("DIVERGED  first at Weight, line 11 of train.py, in step 0")
    assert "tfbisect.keras.Recorder" in weights.stdout


def test_a_command_in_ci(cli, tmp_path):
    (tmp_path / "train.py").write_text(PROGRAM)
    same = cli("run", "--times", "2", "--quiet", "--format", "json", "-o", "report.json", "train.py")
    assert (same.returncode, same.stdout, same.stderr) == (0, "", "")
    assert json.loads((tmp_path / "report.json").read_text())["verdict"] == "identical"

    again = cli("run", "--quiet", "-o", "report.json", "train.py")
    assert again.returncode == 2
    assert "--force" in again.stderr

    other = cli("run", "--quiet", "--format", "junit", "-o", "r.xml", "--traces", "traces", "train.py", "--noise")
    assert other.returncode == 1
    assert "hello" not in other.stdout + other.stderr
    assert "diverged; the report is in r.xml" in other.stderr
    report = ElementTree.parse(tmp_path / "r.xml").getroot()
    assert report.findall(".//failure")
    assert {"run1.h5", "run2.h5"} <= {path.name for path in (tmp_path / "traces").iterdir()}


def test_a_program_that_fails_is_heard(cli, tmp_path):
    (tmp_path / "train.py").write_text(PROGRAM)
    failed = cli("run", "--quiet", "train.py", "--fail")
    assert failed.returncode == 0  # both runs did the same
    assert "this failed" in failed.stderr
    assert failed.stdout.startswith("IDENTICAL")


def test_the_doctor_examines_this_installation(cli):
    done = cli("doctor")
    assert done.returncode == 0, done.stdout
    assert "programs can be recorded here" in done.stdout
    assert "recording               works" in done.stdout
    assert "TF_DETERMINISTIC_OPS" in done.stdout and "in effect: op_determinism" in done.stdout


def test_the_doctor_says_what_is_missing(cli, tmp_path):
    (tmp_path / "tensorflow.py").write_text("raise ImportError('libcudart.so.12: cannot open')")
    done = cli("doctor", PYTHONPATH=f"{tmp_path}:" + ":".join(filter(None, sys.path)))
    assert done.returncode == 2
    assert "problem: TensorFlow cannot be imported: libcudart.so.12" in done.stdout
