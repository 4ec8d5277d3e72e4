"""`record` runs a program as python does: arguments, folder, output, exit status, traceback; and never loses a file."""

import sys

import pytest
from helpers import python

REPORTER = """
import json, os, sys
import helper_beside_it
print(json.dumps([__name__, sys.argv, sys.path[0], os.getcwd(), __file__]))
"""

FAILS = """
import tensorflow as tf
print(float(tf.reduce_sum(tf.constant([1.0, 2.0]))))
def step(x):
    raise ValueError("wrong on purpose")
step(1)
"""


@pytest.fixture
def program(tmp_path):
    """Write a program into a folder of its own; -> its path relative to the working directory."""

    def write(text, name="program.py"):
        folder = tmp_path / "programs"
        folder.mkdir(exist_ok=True)
        (folder / "helper_beside_it.py").touch()
        (folder / name).write_text(text)
        return f"programs/{name}"

    return write


def test_the_program_sees_what_it_would_see_under_python(cli, program, tmp_path):
    path = program(REPORTER)
    plain = python(path, "--epochs", "1", "-o", "x", "--", "-h", cwd=tmp_path)
    assert plain.returncode == 0, plain.stderr
    recorded = cli("record", "-o", "a.h5", path, "--epochs", "1", "-o", "x", "--", "-h")
    assert (recorded.returncode, recorded.stdout) == (0, plain.stdout), recorded.stderr
    announced = [line for line in recorded.stderr.splitlines() if line.startswith("tfbisect:")]
    assert len(announced) == 1 and "a.h5" in announced[0]


def test_the_default_name_comes_from_the_program(cli, program, tmp_path):
    assert cli("record", program("print(1)", "train.py")).returncode == 0
    assert (tmp_path / "train.h5").exists()


@pytest.mark.parametrize(
    "text",
    [
        "import sys; sys.exit(3)",
        "import sys; sys.exit('stopped because')",
        "import sys; sys.exit()",
        "raise SystemExit(True)",
        "1 / 0",
        "def f(:",
        "raise KeyboardInterrupt",
        "raise ExceptionGroup('several', [ValueError(1), KeyError(2)])" if sys.version_info >= (3, 11) else "1 / 0",
        "import threading; threading.Thread(target=lambda: print('from a thread')).start()",
        "import atexit; atexit.register(print, 'at exit')",
    ],
)
def test_exit_status_output_and_traceback_are_those_of_python(cli, program, tmp_path, text):
    path = program(text)
    plain = python(path, cwd=tmp_path)
    recorded = cli("record", "-o", "a.h5", path)
    # An uncaught KeyboardInterrupt ends python by SIGINT (-2), which a shell reports as 130.
    status = 130 if plain.returncode == -2 else plain.returncode
    assert recorded.returncode in (status, plain.returncode)
    assert recorded.stdout == plain.stdout
    said = [line for line in recorded.stderr.splitlines(keepends=True) if not line.startswith("tfbisect:")]
    assert "".join(said) == plain.stderr


def test_a_program_that_fails_keeps_its_traceback_and_leaves_a_usable_trace(cli, program, tmp_path):
    path = program(FAILS)
    for name in ("a.h5", "b.h5"):
        done = cli("record", "-o", name, path)
        assert done.returncode == 1 and done.stdout == "3.0\n"
        assert done.stderr.count("Traceback") == 1 and "ValueError: wrong on purpose" in done.stderr
        assert f'{path}", line 6, in <module>' in done.stderr and "tfbisect/" not in done.stderr
    assert "Sum" in cli("info", "a.h5", "--ops", "Sum").stdout
    same = cli("compare", "a.h5", "b.h5")
    assert same.returncode == 0 and same.stdout.startswith("IDENTICAL"), same.stdout + same.stderr


def test_an_existing_file_is_kept_without_force_and_the_program_does_not_run(cli, program, tmp_path):
    (tmp_path / "a.h5").write_text("mine")
    done = cli("record", "-o", "a.h5", program("print('ran')"))
    assert (done.returncode, done.stdout) == (2, "") and "--force" in done.stderr and "Traceback" not in done.stderr
    assert (tmp_path / "a.h5").read_text() == "mine"
    assert cli("record", "-o", "a.h5", "--force", program("print('ran')")).stdout == "ran\n"
    assert (tmp_path / "a.h5").read_bytes()[1:4] == b"HDF"


def test_a_folder_that_does_not_exist(cli, program):
    done = cli("record", "-o", "no/such/a.h5", program("print('ran')"))
    assert (done.returncode, done.stdout) == (2, "") and "Traceback" not in done.stderr
    assert "no/such/a.h5" in done.stderr


def test_a_file_that_cannot_be_made_costs_the_recording_and_nothing_of_the_program(cli, program, tmp_path):
    (tmp_path / "gone").mkdir()
    text = "import shutil, sys\nshutil.rmtree('gone')\nimport tensorflow as tf\nprint(float(tf.exp(0.0)))\nsys.exit(3)"
    done = cli("record", "-o", "gone/a.h5", program(text))
    assert (done.returncode, done.stdout) == (3, "1.0\n"), done.stderr
    assert done.stderr.count("tfbisect: ") == 1 and "gone/a.h5" in done.stderr and "Traceback" not in done.stderr


def test_a_program_that_recorded_nothing(cli, program):
    cli("record", "-o", "a.h5", program("print(1)"))
    done = cli("compare", "a.h5", "a.h5")
    assert done.returncode == 2 and done.stdout == ""
    assert "empty-trace" in done.stderr and "next: " in done.stderr and "Traceback" not in done.stderr


def test_unrelated_programs(cli, program):
    one = "import tensorflow as tf\nx = tf.constant([1.0, 2.0])\n" + "x = tf.exp(x)\n" * 20
    other = "import tensorflow as tf\nx = tf.constant([[1, 2]])\n" + "x = tf.matmul(x, x, transpose_b=True)\n" * 20
    assert cli("record", "-o", "a.h5", program(one, "one.py")).returncode == 0
    assert cli("record", "-o", "b.h5", program(other, "other.py")).returncode == 0
    done = cli("compare", "a.h5", "b.h5")
    assert done.returncode == 2 and done.stdout == "" and "Traceback" not in done.stderr
    assert "unrelated" in done.stderr and "next: " in done.stderr
