"""Replay from end to end: kernels that really vary are convicted, by the replay and by the script it hands over."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import python

# Three CPU kernels whose threads race, and one that repeats, in one program with everything seeded.
PROGRAM = """
import numpy as np
import tensorflow as tf

tf.config.threading.set_intra_op_parallelism_threads(2)
rng = np.random.default_rng(1)
table = tf.Variable(rng.standard_normal((64, 64)).astype("f4"))
boxes = np.sort(rng.random((64, 2, 2)), axis=1).reshape(64, 4).astype("f4")

@tf.function
def step(ids, rows):
    table.scatter_sub(tf.IndexedSlices(rows, ids))
    return tf.linalg.matmul(rows, rows, transpose_a=True)

for _ in range(2):
    step(tf.constant(rng.integers(0, 64, 20000)), tf.constant(rng.standard_normal((20000, 64)).astype("f4")))
tf.raw_ops.Bincount(
    arr=rng.integers(0, 20, 500000).astype("i4"), size=20, weights=rng.standard_normal(500000).astype("f4")
)
tf.raw_ops.CropAndResizeGradImage(
    grads=rng.standard_normal((64, 32, 32, 8)).astype("f4"), boxes=boxes, box_ind=rng.integers(0, 2, 64).astype("i4"),
    image_size=[2, 16, 16, 8], T=tf.float32,
)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, recorded with all values in a.h5."""
    path = tmp_path_factory.mktemp("replay")
    (path / "train.py").write_text(PROGRAM, encoding="utf-8")
    done = python("-m", "tfbisect", "record", "-o", "a.h5", "--values", "all", "train.py", cwd=path)
    assert done.returncode == 0, done.stderr
    return path


@pytest.mark.parametrize("op", ["ResourceScatterSub", "Bincount", "CropAndResizeGradImage"])
def test_a_kernel_that_varies_is_convicted(folder: Path, op: str) -> None:
    target = f"{op}.py"
    done = python(
        "-m", "tfbisect", "replay", "a.h5", op, "--times", "200", "--export", target, "--format", "json", cwd=folder
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["outcome"] == "varies", found
    assert len(found["distinct"]) > 1 and found["difference"]["differing"] > 0
    assert found["threads"][0] == 2 and found["source"]["file"].endswith("train.py")
    distinct, runs = found["measured"]
    text = (folder / target).read_text(encoding="utf-8")
    assert f"{distinct} of {runs} distinct, as measured" in text
    assert distinct > 1 and runs == 200

    # The script alone, where nothing of this package is: an isolated interpreter in another folder.
    alone = folder / f"alone-{op}"
    alone.mkdir()
    for name in (target, f"{op}.npz"):
        (alone / name).write_bytes((folder / name).read_bytes())
    blocked = "import sys; sys.modules['tfbisect'] = None; import runpy; sys.argv = sys.argv[1:]; "
    blocked += "runpy.run_path(sys.argv[0], run_name='__main__')"
    ran = subprocess.run(
        [sys.executable, "-I", "-c", blocked, target], cwd=alone, capture_output=True, text=True, timeout=300
    )
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout.splitlines()[-2].split()[0]) > 1, ran.stdout
    assert "TensorFlow" in ran.stdout.splitlines()[-1]


def test_a_kernel_that_repeats_is_stable_and_gives_the_recorded_bits(folder: Path) -> None:
    done = python("-m", "tfbisect", "replay", "a.h5", "step/MatMul", "--times", "20", "--processes", "2", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("MatMul: stable in isolation")
    assert "1 distinct in 40 runs (2 processes)" in done.stdout
    assert "40 of 40 runs gave the bits of the recorded run" in done.stdout
    assert "\n  line " in done.stdout and "train.py:13" in done.stdout


def test_errors_are_one_message_and_status_2(folder: Path) -> None:
    for arguments, words in (
        (["a.h5", "NoSuchOp"], ["usage", "info a.h5 --ops NoSuchOp"]),
        (["none.h5", "MatMul"], ["not-found"]),
        (["train.py", "MatMul"], ["not-a-trace"]),
        (["a.h5", "MatMul", "--iteration", "x"], ["--iteration x", "usage"]),
        (["a.h5", "MatMul", "--times", "1"], ["times: found 1"]),
        (["a.h5", "MatMul", "--export", "no/such/folder.py"], ["no such folder"]),
    ):
        done = python("-m", "tfbisect", "replay", *arguments, cwd=folder)
        assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
        assert all(word in done.stderr for word in words), done.stderr
