"""The zoo: recording changes nothing of real programs and loses nothing. `python tests/zoo/run.py` prints a table."""

import pytest
from zoo.run import PROGRAMS, details, examine

QUICK = (
    "while_loops", "host_functions", "legacy_random", "threads", "eager_tape", "keras_steps_per_execution",
    "tensor_arrays",  # TensorFlow's importer throws at its executed graph, with the graph's lock held
)  # fmt: skip
SHOWS_NOTHING = """
import os
import tensorflow as tf
x = tf.constant(list(os.urandom(8)))
print(tf.function(lambda x: tf.size(x * 2))(x).numpy())
"""
SHOWS_THE_RECORDER = """
import sys
import tensorflow as tf
print(tf.reduce_sum([1.0, 2.0]).numpy(), "tfbisect" in sys.modules)
"""


@pytest.mark.parametrize("program", QUICK)
def test_recording_changes_nothing(program, tmp_path):
    row = examine(PROGRAMS[program], tmp_path, plain_runs=1)
    assert row.good, "\n".join(details(row))


@pytest.mark.slow
@pytest.mark.parametrize("program", [program for program in PROGRAMS if program not in QUICK])
def test_recording_changes_nothing_of_the_rest(program, tmp_path):
    row = examine(PROGRAMS[program], tmp_path)
    assert row.good, "\n".join(details(row))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("import os; print(os.getpid())", {"repeats", "same", "equal"}),
        (SHOWS_NOTHING, {"equal"}),
        (SHOWS_THE_RECORDER, {"same"}),
        ("import sys; sys.exit(3)", {"repeats", "same", "equal"}),
    ],
)
def test_the_zoo_notices(text, wrong, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(text)
    (tmp_path / "runs").mkdir()
    row = examine(program, tmp_path / "runs")
    assert not row.good
    assert {name for name in ("repeats", "same", "equal", "complete") if not getattr(row, name)} == wrong
