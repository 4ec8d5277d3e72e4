"""`record --steps` and `record --against` from the command line, on programs of their own."""

import re

import pytest
from helpers import python

from tfbisect.trace import load

SESSION = """
import tensorflow.compat.v1 as tf
tf.disable_eager_execution()
tf.set_random_seed(3)
w = tf.get_variable("w", initializer=tf.ones([4]))
noise = tf.random_normal([4])
loss = tf.reduce_sum(tf.square(w - noise))
train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    for _ in range(6):
        print(repr(session.run([loss, train])[0]))
    print(session.run(w).tobytes().hex())
"""

STEPS = """
import os, sys
import tensorflow as tf
v = tf.Variable(tf.ones([4]), name="weights")
at = int(os.environ.get("AT", "-1"))

@tf.function
def train(x):
    v.assign_sub(0.1 * v * x)
    return tf.reduce_sum(v)

try:
    for step in range(6):
        train(tf.constant(0.9 if step == at else 0.5))
finally:
    print("last step", step)
"""


@pytest.fixture
def write(tmp_path):
    def make(text):
        (tmp_path / "train.py").write_text(text)
        return "train.py"

    return make


def test_a_session_is_recorded_in_its_window_and_runs_as_ever_outside(cli, write, tmp_path):
    plain = python(write(SESSION), cwd=tmp_path)
    done = cli("record", "--steps", "2:4", "--state", "-o", "a.h5", "train.py")
    assert done.returncode == plain.returncode == 0, done.stderr
    assert done.stdout == plain.stdout
    trace = load(tmp_path / "a.h5")
    trained = [int(call["step"]) for call in trace.calls if int(call["step"]) >= 0]
    assert set(trained) == {2, 3}
    assert any(state["results"] for state in trace.states)


def test_a_run_is_ended_where_it_differs_from_a_finished_one(cli, write, tmp_path):
    program = write(STEPS)
    assert cli("record", "-o", "a.h5", program).returncode == 0
    same = cli("record", "--against", "a.h5", "--stop-at-first", "-o", "b.h5", program)
    assert same.returncode == 0 and "none differs" in same.stderr, same.stderr
    done = cli("record", "--against", "a.h5", "--stop-at-first", "-o", "c.h5", program, AT="3")
    assert done.returncode == 1, done.stderr
    assert done.stdout == "last step 4\n"  # it ends as with sys.exit, once step 3 is over
    assert re.search(
        r"ended here: it differs from the other run: first Mul at line \d+ of train.py, in step 3", done.stderr
    )
    compared = cli("compare", "a.h5", "c.h5")
    assert compared.returncode == 1, compared.stdout
    assert "in step 3" in compared.stdout and "stopped" not in compared.stdout.splitlines()[0]
    assert "ended early: it differs from the other run" in compared.stdout.replace("\n     ", " ")


@pytest.mark.parametrize(
    "options, text",
    [
        (["--steps", "5:3"], "FIRST:LAST"),
        (["--stop-at-first"], "no --against"),
        (["--against", "nothing.h5"], "no such file"),
        (["--against", "train.py"], "no HDF5 signature"),
        (["--verify", "--steps", "1:2"], "one of them"),
    ],
)
def test_what_makes_no_sense_is_said_before_the_program_runs(cli, write, tmp_path, options, text):
    write("print('ran')")
    done = cli("record", *options, "-o", "out.h5", "train.py")
    assert done.returncode == 2 and done.stdout == "" and text in done.stderr, done.stderr
    assert "Traceback" not in done.stderr and not (tmp_path / "out.h5").exists()


def test_the_state_pass_loads_nothing_before_the_program_does(tmp_path):
    (tmp_path / "train.py").write_text("import sys\nprint({'numpy', 'h5py', 'tensorflow'} & set(sys.modules))\n")
    done = python("-m", "tfbisect", "record", "--steps", "none", "--state", "train.py", cwd=tmp_path)
    assert done.stdout == "set()\n", done.stderr
