"""`record --verify` tells a program that recording left alone from one that it changed or that does not repeat."""

import pytest

SEEDED = """
import tensorflow as tf
tf.random.set_seed(1)
v = tf.Variable(tf.random.normal([3]))
step = tf.function(lambda: v.assign_add(tf.random.uniform([3])))
step()
print("v", v.numpy().tolist())
"""
RANDOM = SEEDED.replace("tf.random.set_seed(1)\n", "")
TELLS = SEEDED + "import sys\nif 'tfbisect.recorder.function' in sys.modules: v.assign(v + 1.0)\n"


@pytest.mark.parametrize(
    ("text", "status", "says"),
    [
        (SEEDED, 0, "left what the plain run left: 1 variables"),
        (SEEDED + "import sys; sys.exit(3)", 3, "left what the plain run left"),
        (RANDOM, 2, "does not repeat by itself"),
        (TELLS, 1, "recording changed the program: the runs differ in variable Variable:0 [3]"),
    ],
)
def test_verify_compares_what_the_runs_leave(cli, tmp_path, text, status, says):
    (tmp_path / "program.py").write_text(text)
    done = cli("record", "--verify", "-o", "a.h5", "program.py")
    assert (done.returncode, says in done.stderr) == (status, True), done.stderr
    assert done.stdout.count("v [") == 1
    assert (tmp_path / "a.h5").exists()


def test_all_runs_get_the_programs_arguments_as_they_are(cli, tmp_path):
    (tmp_path / "program.py").write_text("import sys\nprint(sys.argv)\n")
    done = cli("record", "--verify", "-o", "a.h5", "program.py", "{state}")
    assert (done.returncode, done.stdout) == (0, "['program.py', '{state}']\n"), done.stderr
