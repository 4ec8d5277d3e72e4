"""Tolerances with TensorFlow: graphs optimized differently, and float32 against bfloat16."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from recorded import recording, tf

import tfbisect
from tfbisect.outcomes import tolerated_of


def compared(tmp_path: Path, run: Callable[[bool], Any], **options: Any) -> tfbisect.Comparison:
    """Runs a program twice, and compares."""
    paths = [tmp_path / "a.h5", tmp_path / "b.h5"]
    for path, other in zip(paths, (False, True), strict=True):
        with recording(path, values="all"):
            run(other)
    return tfbisect.compare(*paths, **options)


def layer(dtype: tf.DType) -> Callable[[Any], Any]:
    w = tf.random.stateless_uniform([16, 8], seed=[1, 2])
    bias = tf.random.stateless_uniform([8], seed=[3, 4])

    @tf.function
    def f(x: Any) -> Any:
        hidden = tf.nn.relu(tf.nn.bias_add(tf.matmul(tf.cast(x, dtype), tf.cast(w, dtype)), tf.cast(bias, dtype)))
        return tf.reduce_mean(tf.cast(hidden, tf.float32))

    return f


def test_float32_against_bfloat16(tmp_path: Path) -> None:
    x = tf.random.stateless_normal([4, 16], seed=[5, 6])

    def run(other: bool) -> None:
        layer(tf.bfloat16 if other else tf.float32)(x)

    strict = compared(tmp_path, run, rtol=1e-5)
    assert strict.verdict == "diverged" and not strict.culprits[0].contained
    first = strict.culprits[0]
    assert first.source is not None and "relu" in first.source.text
    assert "float32 in A, bfloat16 in B" in first.explanation and first.causes == ()
    growth = tolerated_of(strict).growth
    assert growth and 1e-4 < growth[-1].max_rel < 0.05
    loose = tfbisect.compare(tmp_path / "a.h5", tmp_path / "b.h5", rtol=0.05, atol=0.05)
    assert loose.verdict == "identical" and tolerated_of(loose).within


def test_ops_that_one_run_fuses_are_named_and_their_values_meet(tmp_path: Path) -> None:
    x = tf.random.stateless_normal([4, 16], seed=[5, 6])

    def run(other: bool) -> None:
        tf.config.optimizer.set_experimental_options({"remapping": not other})
        layer(tf.float32)(x)

    try:
        result = compared(tmp_path, run, rtol=1e-5, atol=1e-6)
    finally:
        tf.config.optimizer.set_experimental_options({})
    found = tolerated_of(result)
    assert result.verdict == "identical" and found.beyond == 0
    kinds = {(item.kind, item.op_type_a, item.op_type_b): item.instead for item in found.graph_differences}
    assert kinds == {
        ("type", "MatMul", "Relu"): "",
        ("only_b", "", "MatMul"): "MatMul Relu",
        ("only_b", "", "BiasAdd"): "MatMul Relu",
    }
