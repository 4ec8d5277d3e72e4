"""The callbacks: what they write, and that `fit` is as without them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tfbisect
import tfbisect.keras
from tfbisect.errors import OutputExists, Usage

X = np.random.RandomState(0).rand(64, 4).astype(np.float32)


def trained(*callbacks: Any, change: int | None = None, epochs: int = 2) -> list[np.ndarray]:
    """Weights after training four batches an epoch; change: this row of the data is another one."""
    tf.keras.backend.clear_session()
    tf.keras.utils.set_random_seed(3)
    layers = tf.keras.layers
    model = tf.keras.Sequential([layers.Dense(3), layers.BatchNormalization(), layers.Dropout(0.5), layers.Dense(1)])
    model.compile("adam", "mse")
    data = X.copy()
    if change is not None:
        data[change] += 0.5
    model.fit(data, X[:, :1], epochs=epochs, batch_size=16, shuffle=False, verbose=0, callbacks=list(callbacks))
    return [weight.numpy() for weight in model.weights]


@pytest.fixture(scope="module")
def plain() -> list[np.ndarray]:
    return trained()


def same(one: list[np.ndarray], two: list[np.ndarray]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))


def test_the_batch_that_differs_and_its_weights_are_named(tmp_path, plain):
    for name, change in (("a", None), ("b", None), ("c", 40)):
        weights = trained(tfbisect.keras.Digest(tmp_path / name, each="batch"), change=change)
        assert same(weights, plain) == (change is None)
    equal = tfbisect.compare(tmp_path / "a", tmp_path / "b")
    assert equal.verdict == "identical"
    assert equal.coverage.compared >= 8 * 9
    other = tfbisect.compare(tmp_path / "a", tmp_path / "c")
    assert other.verdict == "diverged"
    first = other.culprits[0]
    assert (first.op_type, first.step, first.category) == ("Weight", 2, "unknown")
    assert first.name.endswith("dense/kernel")
    assert first.source is not None and "model.fit" in first.source.text
    assert {culprit.step for culprit in other.culprits} == {2}
    assert [cause.id for cause in first.causes] == ["weights-only"]


def test_epochs_are_steps_too(tmp_path):
    for name, epochs in (("a", 3), ("b", 3)):
        trained(tfbisect.keras.Digest(tmp_path / name), change=None if name == "a" else 0, epochs=epochs)
    first = tfbisect.compare(tmp_path / "a", tmp_path / "b").culprits[0]
    assert (first.op_type, first.step, first.function) == ("Weight", 0, "epoch")


def test_weights_that_begin_differently_are_told(tmp_path):
    for name in ("a", "b"):
        tf.keras.utils.set_random_seed(3)
        start = [np.ones((4, 1)), np.zeros(1)] if name == "a" else [np.full((4, 1), 2.0), np.zeros(1)]
        model = tf.keras.Sequential([tf.keras.layers.Input((4,)), tf.keras.layers.Dense(1)])
        model.set_weights(start)
        model.compile("sgd", "mse")
        model.fit(X, X[:, :1], verbose=0, callbacks=[tfbisect.keras.Digest(tmp_path / name)])
    answer = tfbisect.compare(tmp_path / "a", tmp_path / "b")
    assert [(c.name.rpartition("/")[2], c.step, c.function) for c in answer.culprits] == [("kernel", None, "start")]


def test_a_window_of_batches_is_recorded(tmp_path, plain):
    for name, change in (("a", None), ("c", 20)):
        weights = trained(tfbisect.keras.Recorder(tmp_path / name, steps="1:3"), change=change)
        assert same(weights, plain) == (change is None)
    answer = tfbisect.compare(tmp_path / "a", tmp_path / "c")
    assert answer.verdict == "diverged"
    assert (answer.culprits[0].op_type, answer.culprits[0].category) == ("IteratorGetNext", "input")
    assert answer.culprits[0].step == 1
    trace = tfbisect.load(tmp_path / "a")
    calls, events = np.unique(trace.events["call"], return_counts=True)
    long = {trace.call_row(int(call)) for call, count in zip(calls, events, strict=True) if count > 20}
    assert {int(trace.calls["step"][row]) for row in long if row is not None} == {1, 2}


def test_all_batches_are_recorded(tmp_path, plain):
    assert same(trained(tfbisect.keras.Recorder(tmp_path / "a")), plain)
    trace = tfbisect.load(tmp_path / "a")
    assert trace.complete
    assert max(trace.calls["step"].tolist()) == 7


def test_a_fit_that_raised_leaves_nothing_open(tmp_path):
    class Fails(tf.keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            raise ZeroDivisionError("mine")

    recorder = tfbisect.keras.Recorder(tmp_path / "a", force=True)
    digests = tfbisect.keras.Digest(tmp_path / "b", force=True)
    with pytest.raises(ZeroDivisionError):
        trained(recorder, digests, Fails())
    trained(recorder, digests, epochs=1)
    assert tfbisect.load(tmp_path / "a").complete
    assert tfbisect.load(tmp_path / "b").complete


def test_no_file_is_replaced(tmp_path: Path):
    (tmp_path / "a").write_text("mine")
    for callback in (tfbisect.keras.Digest(tmp_path / "a"), tfbisect.keras.Recorder(tmp_path / "a")):
        with pytest.raises(OutputExists):
            trained(callback)
    assert (tmp_path / "a").read_text() == "mine"


@pytest.mark.parametrize("steps", ["", "2:2", "a:b", "-1:2", 0])
def test_windows_that_make_no_sense_are_told(steps):
    with pytest.raises(Usage, match="steps"):
        tfbisect.keras.Recorder("a.h5", steps=steps)


def test_digests_come_each_epoch_or_batch():
    with pytest.raises(Usage, match="epoch or batch"):
        tfbisect.keras.Digest("a.h5", each="step")
