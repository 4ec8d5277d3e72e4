"""The knowledge base against the installed TensorFlow: names exist, and what is cheap to measure is as it says."""

import fnmatch
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from tensorflow.core.framework import op_def_pb2  # noqa: E402
from tensorflow.python.client import pywrap_tf_session  # noqa: E402

from tfbisect import knowledge  # noqa: E402
from tfbisect.knowledge.precision import COPIES, EXACT, EXACT_OF_TWO  # noqa: E402
from tfbisect.knowledge.random_ops import LEGACY  # noqa: E402


@pytest.fixture(scope="module")
def registered() -> dict[str, Any]:
    """Every op that the installed TensorFlow knows, by name."""
    listed = op_def_pb2.OpList()
    listed.ParseFromString(pywrap_tf_session.TF_GetBuffer(pywrap_tf_session.TF_GetAllOpList()))
    return {op.name: op for op in listed.op}


OURS = {"Weight"}  # no op: what `tfbisect.keras.Digest` records


def test_every_op_type_named_exists(registered: dict[str, Any]) -> None:
    for entry in knowledge.entries():
        for name in entry.op_types:
            if "*" in name:
                assert fnmatch.filter(registered, name), (entry.id, name)
            else:
                assert name in registered or name in OURS or name in entry.historic, (entry.id, name)
        assert not set(entry.historic) & set(registered), entry.id
    for name in knowledge.known_op_types():
        historic = any(name in entry.historic for entry in knowledge.entries())
        assert name in registered or name in OURS or historic, name


def test_the_legacy_random_ops_are_those_tensorflow_leaves_unordered() -> None:
    from tensorflow.python.framework import auto_control_deps

    assert set(LEGACY) == set(auto_control_deps.LEGACY_RANDOM_OPS) - {"RandomGammaGrad"}  # a function of its inputs


def test_seed_attributes_are_those_the_rules_read(registered: dict[str, Any]) -> None:
    for name in (*LEGACY, "LogUniformCandidateSampler", "RandomShuffleQueueV2", "SampleDistortedBoundingBoxV2"):
        assert {"seed", "seed2"} <= {attr.name for attr in registered[name].attr}, name


def test_attributes_that_rules_read_exist(registered: dict[str, Any]) -> None:
    for name, attr in (
        ("FusedBatchNormGradV3", "is_training"),
        ("BlockLSTMGradV2", "use_peephole"),
        ("SparseMatrixMatMul", "transpose_a"),
        ("SparseMatrixMatMul", "adjoint_a"),
        ("Empty", "init"),
        ("ParallelMapDatasetV2", "deterministic"),
    ):
        assert attr in {item.name for item in registered[name].attr}, (name, attr)


def test_python_cures_are_lines_that_run() -> None:
    """The dotted names of every line exist; nothing is executed, since settings last for the process."""
    import re

    import keras  # noqa: F401

    for entry in knowledge.entries():
        for setting in entry.cures:
            for path in re.findall(r"\btf((?:\.[A-Za-z_][A-Za-z_0-9]*)+)", setting.line):
                found: Any = tf
                for part in path.strip(".").split("."):
                    assert hasattr(found, part), (entry.id, setting.line, path)
                    found = getattr(found, part)


# --- measured facts that cost little ----------------------------------------------------------------------------------


def _floats() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(5)
    x = (random.standard_normal(4099) * 10).astype(np.float32)  # a prime length: vector and scalar code both run
    y = (random.standard_normal(4099) * 10).astype(np.float32)
    return x, y


_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "Add": np.add, "AddV2": np.add, "Sub": np.subtract, "Mul": np.multiply, "RealDiv": np.divide, "Div": np.divide,
    "Maximum": np.maximum, "Minimum": np.minimum, "Equal": np.equal, "NotEqual": np.not_equal, "Less": np.less,
    "LessEqual": np.less_equal, "Greater": np.greater, "GreaterEqual": np.greater_equal,
    "SquaredDifference": lambda x, y: (x - y) * (x - y),
}  # fmt: skip
_UNARY: dict[str, Callable[[Any], Any]] = {
    "Square": lambda x: x * x, "Abs": np.abs, "Neg": np.negative, "Sign": np.sign, "Floor": np.floor, "Ceil": np.ceil,
    "Rint": np.rint, "Round": np.round, "IsNan": np.isnan, "IsInf": np.isinf, "IsFinite": np.isfinite,
    "ZerosLike": np.zeros_like, "OnesLike": np.ones_like,
}  # fmt: skip


def _exact(name: str, x: np.ndarray, y: np.ndarray) -> tuple[Any, Any]:
    bits, other, table = x.view(np.int32), y.view(np.int32), x[:4096].reshape(1024, 4)
    raw = tf.raw_ops
    if name in _BINARY:
        return getattr(raw, name)(x=x, y=y), _BINARY[name](x, y)
    if name in _UNARY:
        return getattr(raw, name)(x=x), _UNARY[name](x)
    special: dict[str, Callable[[], tuple[Any, Any]]] = {
        "Sqrt": lambda: (raw.Sqrt(x=np.abs(x)), np.sqrt(np.abs(x))),
        "Relu": lambda: (raw.Relu(features=x), np.where(x > 0, x, np.float32(0))),
        "LogicalAnd": lambda: (raw.LogicalAnd(x=x > 0, y=y > 0), (x > 0) & (y > 0)),
        "LogicalOr": lambda: (raw.LogicalOr(x=x > 0, y=y > 0), (x > 0) | (y > 0)),
        "LogicalNot": lambda: (raw.LogicalNot(x=x > 0), ~(x > 0)),
        "BitwiseAnd": lambda: (raw.BitwiseAnd(x=bits, y=other), bits & other),
        "BitwiseOr": lambda: (raw.BitwiseOr(x=bits, y=other), bits | other),
        "BitwiseXor": lambda: (raw.BitwiseXor(x=bits, y=other), bits ^ other),
        "Invert": lambda: (raw.Invert(x=bits), ~bits),
        "Select": lambda: (raw.Select(condition=x > 0, x=x, y=y), np.where(x > 0, x, y)),
        "SelectV2": lambda: (raw.SelectV2(condition=x > 0, t=x, e=y), np.where(x > 0, x, y)),
        "Cast": lambda: (raw.Cast(x=x, DstT=tf.float16), x.astype(np.float16)),
        "ReluGrad": lambda: (raw.ReluGrad(gradients=y, features=x) + 0.0, np.where(x > 0, y, np.float32(0))),
        "BiasAdd": lambda: (raw.BiasAdd(value=table, bias=y[:4]), table + y[:4]),
        "AddN": lambda: (raw.AddN(inputs=[x, y]), x + y),
        "Fill": lambda: (raw.Fill(dims=[3, 5], value=x[0]), np.full((3, 5), x[0])),
        "Tile": lambda: (raw.Tile(input=table, multiples=[2, 3]), np.tile(table, (2, 3))),
        "BroadcastTo": lambda: (raw.BroadcastTo(input=y[:4], shape=[7, 4]), np.broadcast_to(y[:4], (7, 4))),
        "Pad": lambda: (raw.Pad(input=table, paddings=[[1, 2], [0, 1]]), np.pad(table, [(1, 2), (0, 1)])),
        "PadV2": lambda: (
            raw.PadV2(input=table, paddings=[[1, 2], [0, 1]], constant_values=y[0]),
            np.pad(table, [(1, 2), (0, 1)], constant_values=y[0]),
        ),
        "ConcatV2": lambda: (raw.ConcatV2(values=[x, y], axis=0), np.concatenate([x, y])),
        "Pack": lambda: (raw.Pack(values=[x, y]), np.stack([x, y])),
        "Transpose": lambda: (raw.Transpose(x=table, perm=[1, 0]), table.T.copy()),
        "ReverseV2": lambda: (raw.ReverseV2(tensor=table, axis=[0]), table[::-1].copy()),
    }
    return special[name]()


@pytest.mark.parametrize("name", EXACT + COPIES + EXACT_OF_TWO)
def test_exact_ops_give_the_bits_of_numpy(name: str) -> None:
    found, expected = _exact(name, *_floats())
    assert found.numpy().tobytes() == np.asarray(expected).astype(found.numpy().dtype).tobytes()


def _stir(i: int) -> None:
    """Leave other bytes in the memory that the next op may get."""
    del [tf.fill([1200 + i], float(i + 1)) for _ in range(10)][:]


@pytest.mark.parametrize("name", ["SparseSegmentSumGrad", "SparseSegmentMeanGrad", "SparseSegmentSqrtNGrad"])
def test_gradients_of_no_ids_are_unwritten_memory(name: str) -> None:
    if not tf.__version__.startswith("2.21."):
        pytest.skip("measured on 2.21 only")
    results = set()
    for i in range(20):
        _stir(i)
        none = tf.zeros([0], tf.int32)
        grad = getattr(tf.raw_ops, name)(grad=tf.zeros([16, 8]), indices=none, segment_ids=none, output_dim0=150)
        results.add(grad.numpy().tobytes())
    assert results != {bytes(150 * 8 * 4)}, "the kernel clears its output now: say since when in the entry"


@pytest.mark.parametrize("name", ["RFFT", "IRFFT"])
def test_transforms_of_nothing_are_unwritten_memory(name: str) -> None:
    if not tf.__version__.startswith("2.21."):
        pytest.skip("measured on 2.21 only")
    results = set()
    for i in range(20):
        _stir(i)
        empty = tf.zeros([4, 0], tf.float32 if name == "RFFT" else tf.complex64)
        results.add(getattr(tf.raw_ops, name)(input=empty, fft_length=[300]).numpy().tobytes())
    assert any(any(result) for result in results), "the kernel clears its output now: say since when in the entry"


def test_eager_mode_caches_zeros_without_their_sign() -> None:
    one = tf.constant([1.0])
    first = np.signbit((one * 0.0).numpy()).any()
    second = np.signbit((one * -0.0).numpy()).any()
    assert first == second  # whichever zero came first in this process stands for both
    assert np.signbit((one * np.float32(-0.0)).numpy()).all()  # the cure: NumPy scalars are not cached
    assert not np.signbit((one * np.float32(0.0)).numpy()).any()


def test_keras_layers_take_their_seed_from_python() -> None:
    import random

    import keras

    def seed_of_a_layer() -> bytes:
        random.seed(7)
        state = keras.layers.Dropout(0.5).seed_generator.state
        return np.asarray(state).tobytes()

    kept = random.getstate()
    try:
        tf.random.set_seed(1)
        first = seed_of_a_layer()
        tf.random.set_seed(2)
        assert seed_of_a_layer() == first
        assert np.asarray(keras.layers.Dropout(0.5).seed_generator.state).tobytes() != first
    finally:
        random.setstate(kept)
