"""Other devices, versions and number formats, and the ops that are exact whatever the set-up.

TensorFloat-32 is in `matmul`; thread counts, oneDNN and instruction sets are in `cpu_threads`.
"""

from tfbisect.knowledge.entry import Confidence, Entry, Evidence, Setting, Steady
from tfbisect.knowledge.rules import DETERMINISM as DETERMINISM_KEYS
from tfbisect.knowledge.rules import DEVICES, PRECISION, TF32, VERSIONS, setting_differs
from tfbisect.knowledge.settings import OP_DETERMINISM, doing
from tfbisect.knowledge.sources import DETERMINISM, MEASURED, issue, kernel_file

EXACT = (
    "Add", "AddV2", "Sub", "Mul", "RealDiv", "Div", "Square", "SquaredDifference", "Sqrt", "Abs", "Neg",
    "Sign", "Floor", "Ceil", "Rint", "Round", "Maximum", "Minimum", "Relu", "Equal", "NotEqual", "Less",
    "LessEqual", "Greater", "GreaterEqual", "LogicalAnd", "LogicalOr", "LogicalNot", "BitwiseAnd",
    "BitwiseOr", "BitwiseXor", "Invert", "Select", "SelectV2", "Cast", "IsNan", "IsInf", "IsFinite",
    "ZerosLike", "OnesLike", "ReluGrad", "BiasAdd",
)  # fmt: skip
"""Elementwise ops that round each element once or not at all."""

COPIES = ("Fill", "Tile", "BroadcastTo", "Pad", "PadV2", "ConcatV2", "Pack", "Transpose", "ReverseV2")
"""Ops that compute nothing and lose nothing: what their inputs hold is in the result, element for element."""

EXACT_OF_TWO = ("AddN",)
"""Ops that are one exactly rounded operation an element with two inputs, and a sum in some order with more."""


def _policy(evidence: Evidence) -> Confidence | None:
    keys = tuple(key for key in evidence.differing(PRECISION) if key not in evidence.differing(TF32))
    return "high" if keys and evidence.category in ("environment", "structure") else None


def _cannot_vary(evidence: Evidence) -> Confidence | None:
    return "medium" if evidence.category == "kernel" else None


ENTRIES = (
    Entry(
        id="other-device",
        title="The runs computed on different kinds of devices",
        op_types=("*",),
        devices=("CPU", "GPU", "TPU"),
        rule=setting_differs(DEVICES, level="medium"),
        any_op=True,
        settings=DEVICES,
        mechanism="Kernels of different devices sum in different orders and fuse differently; even GPUs of two "
        "generations do. Equal bits are only promised for equal hardware.",
        explanation="The runs had different devices ({settings}), and {op} has another kernel on each.",
        cures=(
            Setting(
                "one device",
                "code",
                'with tf.device("CPU:0"): ...  # in both runs',
                "2.0",
                "both runs use the same kernels",
            ),
        ),
        workaround="Compare with a tolerance: python -m tfbisect compare --rtol 1e-5 a.h5 b.h5",
        sources=(DETERMINISM, issue(127577)),
        grade="source",
    ),
    Entry(
        id="other-version",
        title="The runs used different versions",
        op_types=("*",),
        devices=("CPU", "GPU", "TPU"),
        rule=setting_differs(VERSIONS, level="medium"),
        any_op=True,
        settings=VERSIONS,
        mechanism="Kernels, libraries and graph rewrites change between releases of TensorFlow, CUDA, cuDNN and "
        "drivers; determinism is promised within one set of versions only.",
        explanation="The runs used different versions ({settings}), and kernels such as {op} change between releases.",
        cures=(
            Setting(
                "equal versions",
                "code",
                "pip freeze > requirements.txt  # install the same set for both runs",
                "pip",
                "one set of kernels",
            ),
        ),
        workaround="Compare with a tolerance when versions must differ.",
        sources=(DETERMINISM,),
        grade="source",
    ),
    Entry(
        id="other-determinism",
        title="One run had determinism switched on, the other not",
        op_types=("*",),
        devices=("CPU", "GPU", "TPU"),
        rule=lambda evidence: (
            "high"
            if evidence.category in ("environment", "structure") and evidence.differing(DETERMINISM_KEYS)
            else None
        ),
        any_op=True,
        settings=DETERMINISM_KEYS,
        mechanism="The switch selects other kernels, rewrites tf.data pipelines, makes the cross-entropy functions "
        "build other ops and keeps Keras from using XLA: the two runs are different programs.",
        explanation="Determinism was on in one run only ({settings}): it selects other kernels and even other ops.",
        cures=(doing(OP_DETERMINISM, "in both runs"),),
        workaround="Give both runs the same setting, then compare again.",
        sources=(DETERMINISM, "tensorflow/python/ops/nn_ops.py", "keras/src/trainers/trainer.py (Keras 3.15)"),
        grade="source",
    ),
    Entry(
        id="other-precision",
        title="The runs computed in different number formats",
        op_types=("*",),
        devices=("CPU", "GPU", "TPU"),
        rule=_policy,
        any_op=True,
        settings=PRECISION,
        condition="Keras's dtype policy or default float type differs",
        mechanism="A mixed-precision policy computes in 16 bits and keeps variables in 32; another default float "
        "type changes every layer.",
        explanation="The number formats of the runs differ ({settings}).",
        cures=(
            Setting(
                "one dtype policy",
                "python",
                'tf.keras.mixed_precision.set_global_policy("float32")',
                "2.4",
                "layers compute in float32 in both runs",
            ),
        ),
        workaround="Set the policy before the model is built, in both runs.",
        sources=("https://www.tensorflow.org/guide/mixed_precision",),
        grade="source",
    ),
    Entry(
        id="exact-op-differs",
        title="This op cannot differ on equal inputs",
        op_types=EXACT,
        devices=("CPU", "GPU", "TPU"),
        rule=_cannot_vary,
        mechanism="Each element is computed alone and rounded at most once, so neither threads nor order can change "
        "it. If it differs on equal inputs, the cause is elsewhere: an input that was not recorded, memory that "
        "another op overwrote, a fusion with a neighbour, or faulty hardware.",
        explanation="{op} rounds each element once, so no order of threads can change it: suspect an unrecorded "
        "input, memory written by something else, or the hardware.",
        cures=(),
        workaround="Replay it alone. If it repeats there, look at the op just above and at custom ops; if not, test "
        "the machine's memory.",
        sources=(kernel_file("cwise_ops.h"), MEASURED),
        grade="measured",
    ),
)

STEADY = (
    Steady(
        EXACT,
        ("CPU",),
        "Exact: each element is computed alone and rounded at most once, so equal inputs give equal bits, whatever "
        "the threads and libraries (subnormal numbers and the sign of zero aside).",
        (kernel_file("cwise_ops.h"), MEASURED),
        "measured",
    ),
    Steady(
        COPIES,
        ("CPU",),
        "Exact: it copies elements and computes nothing, so equal inputs give equal bits.",
        (
            kernel_file("fill_functor.h"),
            kernel_file("tile_functor_cpu.h"),
            kernel_file("broadcast_to_op.h"),
            kernel_file("pad_op.h"),
            kernel_file("concat_lib_cpu.h"),
            kernel_file("transpose_functor_cpu.cc"),
            kernel_file("reverse_op.h"),
            MEASURED,
        ),
        "measured",
    ),
)
