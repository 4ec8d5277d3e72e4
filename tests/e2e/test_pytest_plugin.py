"""The pytest plugin, used as people do: installed, with fresh processes, baselines and xdist."""

import json
import sys

import pytest
from helpers import ROOT, python

SAME = """
import tensorflow as tf

@tf.function
def step(x):
    return tf.reduce_sum(tf.nn.relu(x) * 3.0)
"""
TESTS = f"""
import pytest
{SAME}
@pytest.fixture
def start():
    return tf.constant([1.0, -2.0])

@pytest.mark.repeatable(runs=2)
def test_same(start):
    assert step(start) == 3.0

@pytest.mark.repeatable(2)
def test_other(start):
    noise = tf.raw_ops.RandomUniform(shape=[2], dtype=tf.float32)  # the draw
    step(start + noise)
"""
BASELINE = f"""
import pytest
{SAME}
@pytest.mark.repeatable(runs=1)
def test_kept():
    for i in range(3):
        step(tf.constant([1.0, 2.0]) * float(i))
"""
IN_PROCESS = f"""
import pytest
{SAME}
def draw(x):
    return x + tf.raw_ops.RandomUniform(shape=[2], dtype=tf.float32)  # the draw

def test_fixture(tf_repeatable):
    assert tf_repeatable(step, tf.constant([1.0, 2.0]), runs=2).verdict == "identical"

def test_fixture_fails(tf_repeatable):
    tf_repeatable(draw, tf.constant([1.0, 2.0]))

@pytest.fixture
def weight():
    return tf.Variable(1.0)

@pytest.mark.repeatable(runs=2, processes=False)
def test_marked(weight):
    assert step(tf.constant([1.0, 2.0])) == 9.0
    assert weight.assign_add(1.0) == 2.0
"""


@pytest.fixture
def installed(pytester, monkeypatch) -> pytest.Pytester:
    """A folder with tests in which pytest finds the plugin by its entry point."""
    info = pytester.mkdir("site") / "tfbisect_of_this_test-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tfbisect-of-this-test\nVersion: 0\n")
    (info / "entry_points.txt").write_text("[pytest11]\ntfbisect = tfbisect.pytest_plugin\n")
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{info.parent}:" + ":".join(filter(None, sys.path)))
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
    monkeypatch.delenv("TFBISECT_PYTEST", raising=False)
    pytester.makeini("[pytest]\naddopts = --strict-markers -p no:cacheprovider\n")
    return pytester


def test_a_test_that_repeats_passes_and_one_that_does_not_names_its_op_also_with_xdist(installed):
    pytest.importorskip("xdist")
    installed.makepyfile(test_it=TESTS)
    result = installed.runpytest_subprocess("-n2", "--junitxml=report.xml", "-k", "same or other")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines([
        "test_other does not repeat", "DIVERGED  first at RandomUniform, line * of test_it.py*", "*# the draw*",
        "traces: *run1.h5 *",
    ])  # fmt: skip
    assert "RandomUniform" in (installed.path / "report.xml").read_text()  # that of all tests, not of a fresh process


def test_a_baseline_is_stored_kept_to_and_told_with_its_op(installed):
    test = installed.makepyfile(test_it=BASELINE)
    result = installed.runpytest_subprocess()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*one run and no baseline*", "next: pytest --tfbisect-update"])

    result = installed.runpytest_subprocess("--tfbisect-update")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*= tfbisect =*", "baseline written: *test_it.test_kept.tf2.*-cpu.json"])
    (stored,) = (installed.path / "tfbisect_baselines").iterdir()
    assert stored.stat().st_size < 4096
    assert json.loads(stored.read_text())["test"] == "test_it.py::test_kept"

    result = installed.runpytest_subprocess()
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("*= tfbisect =*")

    test.write_text(test.read_text().replace("* 3.0", "* 3.0000002"))
    result = installed.runpytest_subprocess()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([
        "test_kept does not compute what its baseline says*", "DIVERGED  first at Const, line 7 of test_it.py*",
        "*tf.nn.relu(x) [*] 3.0000002)",
    ])  # fmt: skip

    stored.rename(stored.with_name(stored.name.replace("tf2.", "tf1.")))
    result = installed.runpytest_subprocess()
    result.assert_outcomes(failed=1)  # it is another TensorFlow's: nothing was compared
    result.stdout.fnmatch_lines(["*one run and no baseline test_it.test_kept.tf2.*"])


def test_the_fixture_and_the_marker_in_this_process(installed):
    installed.makepyfile(IN_PROCESS)
    result = installed.runpytest_subprocess()
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["*test_fixture_fails*", "DIVERGED  first at RandomUniform*", "*# the draw*"])


def test_what_happens_in_a_fresh_process_is_the_outcome(installed):
    installed.makepyfile(
        """
        import os, unittest
        import pytest

        pytestmark = pytest.mark.repeatable(runs=2)

        def test_skipped():
            pytest.skip("not today")

        def test_fails(tmp_path):
            assert 1 == 2, "wrong"

        @pytest.mark.xfail(reason="known", strict=True)
        def test_known():
            assert 1 == 2

        def test_imperative():
            pytest.xfail("later")

        def test_dies():
            os._exit(7)

        @pytest.fixture
        def broken():
            if "TFBISECT_PYTEST" in os.environ:
                raise OSError("no such data")

        def test_setup(broken):
            pass

        class TestOld(unittest.TestCase):
            def test_fails_too(self):
                self.assertEqual(3, 4)

        def test_nothing():
            print("no TensorFlow here")
        """
    )
    result = installed.runpytest_subprocess("-rsfx")
    result.assert_outcomes(skipped=1, failed=5, xfailed=2)
    result.stdout.no_fnmatch_line("*another exception*")
    result.stdout.fnmatch_lines_random([
        "*AssertionError: wrong*", "*status 7 before the test did*", "*OSError: no such data*", "*3 != 4*",
        "test_nothing ran no TensorFlow op*", "SKIPPED *not today*",
    ])  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "text"),
    [("runs=0", "*runs: found 0, expected 1 or more*"), ("times=3", "*found times=3, expected runs and processes"),
     ("1, False", "*expected 2 or more*")],
)  # fmt: skip
def test_a_marker_that_makes_no_sense_is_told(installed, arguments, text):
    installed.makepyfile(f"import pytest\n@pytest.mark.repeatable({arguments})\ndef test_it(): pass\n")
    result = installed.runpytest_subprocess()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([text])


def test_who_does_not_use_it_notices_nothing(installed):
    installed.makepyfile(
        """
        import sys

        def test_it():
            heavy = {"tensorflow", "numpy", "h5py", "rich", "tfbisect.recorder", "tfbisect.comparison"}
            assert not heavy & set(sys.modules)
            assert "tfbisect.pytest_plugin" in sys.modules
        """
    )
    result = installed.runpytest_subprocess()
    result.assert_outcomes(passed=1)
    assert "tfbisect" not in result.stdout.str().replace("tfbisect_of", "").partition("collected")[2]


def test_its_import_is_that_of_pytest(tmp_path):
    code = "import pytest, sys; a = set(sys.modules); import tfbisect.pytest_plugin; print(*(set(sys.modules) - a))"
    new = {name for name in python("-c", code, cwd=tmp_path).stdout.split() if name.partition(".")[0] == "tfbisect"}
    assert new == {"tfbisect", "tfbisect.version", "tfbisect.pytest_plugin"}
