"""`shadow` from end to end: a kernel that varies, and a Keras training that does not."""

import json

from helpers import python

VARIES = """
import os
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"
import numpy as np
import tensorflow as tf

rng = np.random.default_rng(1)
corners = rng.uniform(0, 0.5, (2000, 2))
boxes = tf.constant(np.concatenate([corners, corners + 0.4], 1).astype("float32"))
grads = tf.constant(rng.standard_normal((2000, 14, 14, 8)).astype("float32"))

@tf.function
def paint(grads):
    owner = tf.zeros([2000], tf.int32)
    image = tf.raw_ops.CropAndResizeGradImage(
        grads=grads * 0.5, boxes=boxes, box_ind=owner, image_size=[1, 32, 32, 8], T=tf.float32)
    return image * 2.0

for step in range(10):
    print("step", step)
    paint(grads)
"""

KERAS = """
import hashlib
import keras
import numpy as np

keras.utils.set_random_seed(3)
rng = np.random.default_rng(1)
x, y = rng.standard_normal((96, 12, 12, 3)).astype("float32"), rng.integers(0, 4, 96)
model = keras.Sequential([
    keras.Input((12, 12, 3)), keras.layers.Conv2D(8, 3, activation="relu"), keras.layers.BatchNormalization(),
    keras.layers.MaxPooling2D(), keras.layers.Flatten(), keras.layers.Dropout(0.3), keras.layers.Dense(4),
])
model.compile(keras.optimizers.Adam(1e-2), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
model.fit(x, y, epochs=2, batch_size=16, verbose=0)
print(hashlib.sha256(b"".join(w.tobytes() for w in model.get_weights())).hexdigest())
"""


def test_a_varying_kernel_is_convicted_in_one_run(tmp_path):
    (tmp_path / "program.py").write_text(VARIES)
    done = python("-m", "tfbisect", "shadow", "--format", "json", "program.py", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    (op,) = found["unstable"]
    assert (op["op_type"], op["function"], op["executions"]) == ("CropAndResizeGradImage", "paint", 10)
    assert "CropAndResizeGradImage(" in op["source"]["text"]
    assert "step 9" in done.stderr  # the program's own output


def test_a_repeatable_training_is_stable_and_trains_as_without(tmp_path):
    (tmp_path / "program.py").write_text(KERAS)
    plain = python("program.py", cwd=tmp_path)
    done = python("-m", "tfbisect", "shadow", "program.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    weights, _, report = done.stdout.partition("\n")
    assert weights == plain.stdout.strip()
    assert report.startswith("STABLE  0 ops of")


def test_the_programs_own_failure_is_its_exit_status(tmp_path):
    (tmp_path / "program.py").write_text("import sys\nsys.exit(3)\n")
    done = python("-m", "tfbisect", "shadow", "program.py", cwd=tmp_path)
    assert done.returncode == 3
    assert "NOTHING RAN TWICE" in done.stdout


def test_a_program_that_is_not_there(tmp_path):
    done = python("-m", "tfbisect", "shadow", "nothing.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "[program-not-found]" in done.stderr
