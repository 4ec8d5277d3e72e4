"""`run` from end to end: a real program, recorded in fresh processes, and the op that diverged first."""

import json
import os
import signal
import subprocess
import sys

import pytest
from helpers import ROOT

HEAD = """
import os, sys
import numpy as np
import tensorflow as tf

w = tf.Variable(tf.ones([64, 32]))

"""

# Emulates a kernel whose sum depends on the order of its threads: same bits in, other bits out.
DIVERGES = (
    HEAD
    + """
def unordered_sum(x):
    noise = int.from_bytes(os.urandom(4), "little") / 2**36  # one chance in millions that two runs agree
    return (x.sum(axis=0) * (1 + noise)).astype(np.float32)

@tf.function
def step(x):
    y = tf.linalg.matmul(x, w)
    total = tf.numpy_function(unordered_sum, [y], tf.float32)
    w.assign_sub(0.1 * total * tf.ones([64, 1]))
    return tf.reduce_sum(y)

for i in range(3):
    print("step", i, file=sys.stderr)
    last = step(tf.ones([8, 64]) * (i + 1.0))
print("done", sys.argv[1:])
"""
)

REPEATS = (
    HEAD
    + """
@tf.function
def step(x):
    y = tf.nn.relu(x @ w)
    w.assign_sub(0.1 * tf.reduce_mean(y, axis=0) * tf.ones([64, 1]))
    return tf.reduce_sum(y)

for i in range(3):
    print(float(step(tf.ones([8, 64]) * (i + 1.0))))
"""
)


@pytest.fixture
def program(tmp_path):
    def write(text):
        (tmp_path / "train.py").write_text(text)
        return "train.py"

    return write


def test_the_culprit_is_named_with_its_line_and_the_size_of_the_difference(cli, program, tmp_path):
    path = program(DIVERGES)
    done = cli("run", "-o", "traces", path, "--rate", "0.1")
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("done ['--rate', '0.1']\n" * 2)  # the program's own output comes through
    report = done.stdout.removeprefix("done ['--rate', '0.1']\n" * 2)
    line = 1 + DIVERGES.splitlines().index("    total = tf.numpy_function(unordered_sum, [y], tf.float32)")
    assert report.startswith(f"DIVERGED  first at PyFunc, line {line} of train.py, in step 0"), report
    assert "total = tf.numpy_function(unordered_sum, [y], tf.float32)" in report
    assert "32 elements differ" in report and "Next  python -m tfbisect explain PyFunc" in report
    assert (tmp_path / "traces" / "run1.h5").exists() and (tmp_path / "traces" / "run2.h5").exists()
    assert "compare traces/run1.h5 traces/run2.h5" in done.stderr

    again = cli("run", "-o", "traces", path)
    assert again.returncode == 2 and again.stdout == "" and "--force" in again.stderr


def test_values_that_were_not_kept_are_recorded_again(cli, program):
    wide = DIVERGES.replace("[64, 32]", "[64, 3000]")  # 12 KB a result: more than `auto` keeps
    done = cli("run", "--format", "json", program(wide))
    assert done.returncode == 1, done.stderr
    culprit = json.loads(done.stdout)["culprits"][0]  # standard output holds the report alone
    assert culprit["op_type"] == "PyFunc"
    assert culprit["difference"]["elements"] == 3000
    assert culprit["difference"]["basis"] == "recorded again with values: pair 1 of 3"
    assert "recording again with them" in done.stderr and "done" in done.stderr


def test_a_repeatable_program_is_identical_and_leaves_nothing_behind(cli, program, tmp_path):
    done = cli("run", "--times", "3", program(REPEATS), TMPDIR=str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "none differs in 3 runs" in done.stdout and "2 of 2 pairs agree" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]


def test_a_program_that_fails_shows_its_own_traceback_and_is_compared_up_to_there(cli, program):
    done = cli("run", program(DIVERGES + "raise ValueError('wrong on purpose')\n"))
    assert done.returncode == 1, done.stderr
    assert done.stderr.count("ValueError: wrong on purpose") >= 2
    assert "the program ended with exit status 1" in done.stderr
    assert "DIVERGED  first at PyFunc" in done.stdout


def test_a_program_that_records_nothing(cli, program):
    done = cli("run", program("print('hello')"))
    assert done.returncode == 2 and "DIVERGED" not in done.stdout
    assert "empty-trace" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="signals to a process group")
def test_ctrl_c_ends_program_and_run_quietly_and_leaves_nothing(program, tmp_path):
    path = program("import time\nprint('started', flush=True)\ntime.sleep(60)\n")
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
    run = subprocess.Popen(
        [sys.executable, "-m", "tfbisect", "run", path],
        cwd=tmp_path,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background job ignores it
    )
    assert run.stdout.readline() == "started\n"
    os.killpg(run.pid, signal.SIGINT)
    _, said = run.communicate(timeout=60)
    assert run.returncode == 130
    assert said.count("Traceback") == said.count("KeyboardInterrupt") == 1  # the program's own
    assert [item.name for item in tmp_path.iterdir()] == ["train.py"]


def test_every_run_is_recorded_and_told_of(cli, program, tmp_path):
    done = cli("run", "--times", "3", "--all", "-o", "traces", "--format", "json", program(DIVERGES))
    assert done.returncode == 1, done.stderr
    result = json.loads(done.stdout)
    many = result["many_runs"]
    assert len(result["runs"]) == 3 and many["outcomes"] == [[0], [1], [2]]
    assert result["culprits"][0]["op_type"] == "PyFunc"
    assert many["culprits"][0]["seen_in"] == [1, 2] and many["culprits"][0]["groups"] == [[0], [1], [2]]
    assert (many["doubt"]["pairs"], many["doubt"]["agreeing"]) == (2, 0)
    assert sorted(path.name for path in (tmp_path / "traces").glob("run*.h5")) == ["run1.h5", "run2.h5", "run3.h5"]


# From its second run on the program has its function compiled.
COMPILED = """
from pathlib import Path
import numpy as np
import tensorflow as tf
second = Path("ran").exists()
Path("ran").touch()
x = tf.constant(np.random.default_rng(1).normal(size=(512, 64)).astype("float32"))

@tf.function(jit_compile=second)
def score(x):
    return tf.reduce_sum(tf.exp(x) / 3.0 + tf.tanh(x * 1.7), axis=0)

score(x)
"""


def test_what_xla_compiled_is_run_op_by_op_in_a_second_pair(cli, program):
    done = cli("run", "--format", "json", program(COMPILED))
    assert done.returncode == 1
    data = json.loads(done.stdout)
    assert {culprit["name"] for culprit in data["culprits"]} == {"score"}
    # both runs of the second pair come later, so both would have it compiled: op by op they agree
    assert data["expanded"]["verdict"] == "identical"
    assert any("without XLA, the pair was identical; that is another program" in text for text in data["warnings"])


def test_a_cheap_pair_first_then_one_in_full(cli, program, tmp_path):
    done = cli("run", "--ops", "suspects", "--format", "json", "-o", "report.json", "--traces", "t", program(DIVERGES))
    assert done.returncode == 1, done.stderr
    result = json.loads((tmp_path / "report.json").read_text())
    assert result["culprits"][0]["op_type"] == result["cheap"]["culprits"][0]["op_type"] == "PyFunc"
    assert "recording" not in result and result["cheap"]["recording"]["ops"] == "suspects"
    assert "recorded in full: the cheap pair before it named PyFunc" in result["warnings"][0]
    assert "the same op" in result["warnings"][0]
    assert result["cheap"]["runs"][0]["events"] < result["runs"][0]["events"]


def test_a_cheap_pair_that_agrees_says_that_it_was_cheap(cli, program):
    done = cli("run", "--ops", "suspects", program(REPEATS))
    assert done.returncode == 0, done.stderr
    assert "IDENTICAL" in done.stdout and "cheap recording (--ops suspects) of both runs" in " ".join(
        done.stdout.split()
    )
