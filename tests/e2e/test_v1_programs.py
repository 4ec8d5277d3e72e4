"""TensorFlow 1 programs, recorded twice in fresh processes: what went wrong is named with its line, nothing else is."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers import Done, python

pytestmark = pytest.mark.slow

HEAD = """
import os
import numpy as np
import tensorflow.compat.v1 as tf
tf.disable_v2_behavior()
tf.set_random_seed(1)
rng = np.random.default_rng(5)
noise = int.from_bytes(os.urandom(4), "little") / 2**32
RESOURCE = {resource}
x = tf.placeholder(tf.float32, [None, 8], "x")
w = tf.get_variable("w", [8, 4], use_resource=RESOURCE)
h = tf.tanh(tf.matmul(x, w))
"""

TRAIN = """
loss = tf.reduce_mean(tf.square(h))
train = tf.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    for step in range(5):
        batch = rng.standard_normal((16, 8)).astype("float32")
        {change}
        _, value = session.run([train, loss], {{x: batch}})
    print(value.tobytes().hex(), session.run(w).tobytes().hex()[:40])
"""

PY_FUNC = """
calls = [0]
def disturb(value):
    calls[0] += 1
    return value + np.float32(noise) if calls[0] == 3 else value
h = tf.reshape(tf.py_func(disturb, [h], tf.float32), [16, 4])
h = h * tf.tanh(tf.matmul(x, w))
"""


@pytest.fixture
def compared(cli: Callable[..., Done], tmp_path: Path) -> Callable[[str], dict[str, Any]]:
    """Record a program twice, compare; -> the result. Both recordings end as the program does."""

    def run(program: str) -> dict[str, Any]:
        (tmp_path / "program.py").write_text(program)
        for name in "ab":
            done = cli("record", "-o", f"{name}.h5", "program.py", TMPDIR=str(_temporary(tmp_path)))
            assert done.returncode == 0, done.stderr
            assert "the program goes on" not in done.stderr
        cli("compare", "a.h5", "b.h5", "--format", "json", "-o", "result.json")
        assert not list(_temporary(tmp_path).iterdir())
        found: dict[str, Any] = json.loads((tmp_path / "result.json").read_text())
        return found

    return run


def _temporary(tmp_path: Path) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir(exist_ok=True)
    return folder


def _culprits(result: dict[str, Any]) -> list[tuple[str, str, int | None]]:
    return [(c["op_type"], (c["source"] or {}).get("text", ""), c["step"]) for c in result["culprits"]]


@pytest.mark.parametrize("resource", [False, True])
def test_runs_that_agree_are_identical(compared: Callable[[str], dict[str, Any]], resource: bool) -> None:
    result = compared(HEAD.format(resource=resource) + TRAIN.format(change="pass"))
    assert result["verdict"] == "identical", _culprits(result)


@pytest.mark.parametrize("resource", [False, True])
def test_a_batch_that_differs_is_the_culprit(compared: Callable[[str], dict[str, Any]], resource: bool) -> None:
    program = HEAD.format(resource=resource) + TRAIN.format(change="batch[0, 0] += noise if step == 2 else 0")
    result = compared(program)
    line = "_, value = session.run([train, loss], {x: batch})"
    assert _culprits(result) == [("Placeholder", line, 2)]
    assert result["culprits"][0]["category"] == "input"


@pytest.mark.parametrize("resource", [False, True])
def test_a_python_function_that_differs_is_the_culprit(
    compared: Callable[[str], dict[str, Any]], resource: bool
) -> None:
    result = compared(HEAD.format(resource=resource) + PY_FUNC + TRAIN.format(change="pass"))
    line = "h = tf.reshape(tf.py_func(disturb, [h], tf.float32), [16, 4])"
    assert _culprits(result) == [("PyFunc", line, 2)]
    assert result["culprits"][0]["category"] == "host"


def test_two_sessions_have_variables_of_their_own(compared: Callable[[str], dict[str, Any]]) -> None:
    program = (
        HEAD.format(resource=True)
        + """
v = tf.placeholder(tf.float32, [8, 4], "v")
write = w.assign(v).op
one, two = tf.Session(), tf.Session()
for session in (one, two):
    session.run(tf.global_variables_initializer())
one.run(write, {v: np.ones((8, 4)) * noise})
two.run(write, {v: np.ones((8, 4))})
batch = np.ones((2, 8))
result = two.run(h, {x: batch})
print(result.tobytes().hex(), one.run(h, {x: batch}).tobytes().hex())
"""
    )
    result = compared(program)
    assert _culprits(result) == [("Placeholder", "one.run(write, {v: np.ones((8, 4)) * noise})", 0)]


RACE = """
import numpy as np
import tensorflow.compat.v1 as tf
tf.disable_v2_behavior()
x = tf.placeholder(tf.float32, [300, 300])
counter = tf.get_variable("counter", [], initializer=tf.zeros_initializer(), trainable=False, use_resource={resource})
one, two = (tf.reduce_sum(tf.matmul(x, x, name=name)) for name in ("one", "two"))
with tf.control_dependencies([one]):
    write = {write}
with tf.control_dependencies([two]):
    other = {other}
with tf.Session() as session:
    session.run(counter.initializer)
    for step in range(60):
        session.run([{fetch}, other], {{x: np.ones((300, 300))}})
"""


@pytest.mark.parametrize("resource", [False, True])
def test_a_write_and_a_read_without_an_order_are_a_race(
    compared: Callable[[str], dict[str, Any]], resource: bool
) -> None:
    other = "counter.read_value() * 2"
    program = RACE.format(resource=resource, write="tf.assign_add(counter, 1.0)", other=other, fetch="write.op")
    result = compared(program)
    assert result["verdict"] == "diverged"
    for culprit in result["culprits"]:
        assert culprit["category"] == "race", culprit
        assert culprit["source"]["text"] in ("other = counter.read_value() * 2", "write = tf.assign_add(counter, 1.0)")


@pytest.mark.parametrize("resource", [False, True])
def test_two_writes_without_an_order_are_a_race(compared: Callable[[str], dict[str, Any]], resource: bool) -> None:
    program = RACE.format(
        resource=resource, write="tf.assign(counter, counter * 1.5 + 1)", other="tf.assign(counter, counter + 1.0)",
        fetch="write",
    )  # fmt: skip
    result = compared(program)
    assert result["verdict"] == "diverged"
    assert result["culprits"]
    for culprit in result["culprits"]:
        assert culprit["category"] == "race", culprit


def test_a_killed_program_leaves_a_trace(tmp_path: Path, cli: Callable[..., Done]) -> None:
    program = HEAD.format(resource=True) + TRAIN.format(change="os._exit(7) if step == 3 else None")
    (tmp_path / "program.py").write_text(program)
    done = cli("record", "-o", "a.h5", "program.py", TMPDIR=str(_temporary(tmp_path)))
    assert done.returncode == 7
    assert cli("info", "a.h5").returncode == 0
    assert not list(_temporary(tmp_path).iterdir())


def test_the_output_is_that_of_the_plain_program(tmp_path: Path, cli: Callable[..., Done]) -> None:
    program = HEAD.format(resource=False) + TRAIN.format(change="pass")
    (tmp_path / "program.py").write_text(program)
    plain = python("program.py", cwd=tmp_path)
    done = cli("record", "-o", "a.h5", "program.py")
    assert (done.returncode, done.stdout) == (plain.returncode, plain.stdout)
