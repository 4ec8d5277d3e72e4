"""A random op that one run makes above another one shifts its seed: that is what is named, wherever the op runs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import tfbisect
from tfbisect.model import Culprit

v1 = tf.compat.v1


def shifted(path: Path, program: Callable[[bool], Any]) -> Culprit:
    for name in ("a.h5", "b.h5"):
        with tfbisect.record(path / name):
            program(name == "b.h5")
    result = tfbisect.compare(path / "a.h5", path / "b.h5")
    assert result.verdict == "diverged"
    (culprit,) = (culprit for culprit in result.culprits if not culprit.contained)
    assert culprit.source is not None and "the shifted draw" in culprit.source.text
    assert (culprit.op_type, culprit.category) == ("RandomStandardNormal", "rng")
    return culprit


def says(culprit: Culprit) -> str:
    cause = culprit.causes[0]
    assert (cause.id, cause.confidence) == ("random-seed-shift", "high")
    a, b = culprit.extra["seeds"]
    assert a["graph"] == b["graph"] == 5 and a["op"] != b["op"]
    assert f"graph seed 5; the op got seed {a['op']} in run A and {b['op']} in run B" in cause.explanation
    return cause.explanation


def test_a_graph_of_a_session(tmp_path: Path) -> None:
    def program(probe: bool) -> None:
        with tf.Graph().as_default(), v1.Session() as session:
            v1.set_random_seed(5)
            if probe:
                tf.random.uniform([3])  # a look at the data
            state = v1.get_variable("state", initializer=tf.random.normal([4]))  # the shifted draw
            session.run(state.initializer)
            session.run(tf.sin(state))

    explanation = says(shifted(tmp_path, program))
    assert "since run B made RandomUniform at line" in explanation and "a look at the data" in explanation


def test_a_function(tmp_path: Path) -> None:
    def program(probe: bool) -> None:
        tf.random.set_seed(5)
        state = tf.Variable(tf.zeros([4]))

        @tf.function
        def step(x: tf.Tensor) -> None:
            if probe:
                tf.print(tf.random.uniform([3]), output_stream="file:///dev/null")  # a look at the data
            state.assign(x + tf.random.normal([4]))  # the shifted draw

        step(tf.ones([4]))

    explanation = says(shifted(tmp_path, program))
    assert "since run B made RandomUniform at line" in explanation and "a look at the data" in explanation


def test_eager_ops(tmp_path: Path) -> None:
    def program(probe: bool) -> None:
        tf.random.set_seed(5)
        if probe:
            tf.random.uniform([3])  # a look at the data
        state = tf.Variable(tf.zeros([4]))
        state.assign(tf.random.normal([4]))  # the shifted draw

    explanation = says(shifted(tmp_path, program))
    assert "run B gave seed" in explanation and "a look at the data" in explanation


@pytest.mark.parametrize("seed", [None, 3])
def test_another_seed_is_no_shift(tmp_path: Path, seed: int | None) -> None:
    """A global seed that differs, or one of the op's own."""

    def program(other: bool) -> None:
        with tf.Graph().as_default(), v1.Session() as session:
            v1.set_random_seed(5 + (other and seed is None))
            drawn = tf.random.normal([4], seed=None if seed is None else seed + other)  # the shifted draw
            session.run(tf.sin(drawn))

    for name in ("a.h5", "b.h5"):
        with tfbisect.record(tmp_path / name):
            program(name == "b.h5")
    result = tfbisect.compare(tmp_path / "a.h5", tmp_path / "b.h5")
    culprit = result.culprits[0]
    assert culprit.op_type == "RandomStandardNormal"
    assert all(cause.id != "random-seed-shift" for cause in culprit.causes)
    assert culprit.extra["seeds"] == (
        [{"graph": 5, "op": 0}, {"graph": 6, "op": 0}]
        if seed is None
        else [{"graph": 5, "op": 3}, {"graph": 5, "op": 4}]
    )
