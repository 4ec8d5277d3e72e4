"""What the recorder must know about op types: which forward a value, which draw, which leave a variable alone.

Plain sets of names, from TensorFlow's op definitions; no TensorFlow import.
"""

import re
from collections.abc import Mapping
from typing import Any

# Switch, Merge and the loop ops: a tap on one of these breaks the loop or runs on dead values.
LOOP_OPS = frozenset({
    "Switch", "RefSwitch", "_SwitchN", "Merge", "RefMerge", "Enter", "RefEnter", "Exit", "RefExit", "NextIteration",
    "RefNextIteration", "LoopCond",
})  # fmt: skip
# Their output holds the bits of an input, under another shape or name at most, so it needs no event of its own.
FORWARDERS = LOOP_OPS | frozenset({
    "Identity", "IdentityN", "Reshape", "Squeeze", "ExpandDims", "StopGradient", "PreventGradient", "Snapshot",
    "CheckNumerics", "CheckNumericsV2", "EnsureShape", "PlaceholderWithDefault", "RefIdentity", "_Recv", "_HostRecv",
})  # fmt: skip
# Their output may be the very buffer of an input, or a part of it.
ALIASES = FORWARDERS | {"ReadVariableOp", "Bitcast", "Slice", "StridedSlice", "Split", "SplitV", "Unpack"}
# AddN sums into the first input whose buffer nobody else holds, and starts with it: with three or more inputs the bits
# depend on that (tensorflow/core/kernels/aggregate_ops.cc, forward_input_or_allocate_output).
ADDS_IN_PLACE = frozenset({"AddN", "_MklAddN"})


def adds_in_place(node: Any) -> bool:
    """Whether the order in which a NodeDef sums depends on who else holds its inputs."""
    return node.op in ADDS_IN_PLACE and node.attr["N"].i > 2


SILENT = frozenset({"NoOp", "_Arg", "_Retval", "_DeviceArg", "_DeviceRetval", "Const", "ControlTrigger"})

# Kernels that keep a random stream of their own (tensorflow/core/kernels/random_op.cc and its users of
# GuardedPhiloxRandom; auto_control_deps.LEGACY_RANDOM_OPS names most).
RANDOM = frozenset({
    "RandomUniform", "RandomUniformInt", "RandomStandardNormal", "TruncatedNormal", "ParameterizedTruncatedNormal",
    "RandomGamma", "RandomPoisson", "RandomPoissonV2", "Multinomial", "RandomShuffle", "RandomCrop",
    "NonDeterministicInts", "SampleDistortedBoundingBox", "SampleDistortedBoundingBoxV2", "FractionalMaxPool",
    "FractionalAvgPool", "UniformCandidateSampler", "LogUniformCandidateSampler", "LearnedUnigramCandidateSampler",
    "ThreadUnsafeUnigramCandidateSampler", "FixedUnigramCandidateSampler", "AllCandidateSampler",
})  # fmt: skip
HOST = frozenset({"PyFunc", "PyFuncStateless", "EagerPyFunc"})

# Ops that take a variable's handle and leave its bytes alone. Every other op that takes one may write it: optimizer
# and scatter ops, random generators (their state is a variable), a function that was not inlined, a custom op.
READERS = frozenset({
    "ReadVariableOp", "_ReadVariablesOp", "ResourceGather", "ResourceGatherNd", "VariableShape", "VarIsInitializedOp",
    "DestroyResourceOp", "DisableCopyOnRead", "ReadVariableXlaSplitND", "VarHandleOp", "Identity", "_Retval", "NoOp",
})  # fmt: skip
HANDLE_CARRIERS = frozenset({"Identity", "Enter", "Switch", "_SwitchN", "Exit", "NextIteration", "Merge"})
# Writes whose `indices` input is a list of rows of the first dimension; the others with indices take full index tuples.
ROW_WRITES = re.compile("ResourceScatter(?!Nd)|ResourceSparseApply")

# Attributes that name things of one process, or repeat what the graph says: they are not compared.
IGNORED_ATTRS = frozenset({
    "_class", "_output_shapes", "config_proto", "config", "executor_type", "token", "shared_name", "container",
    "_XlaHasReferenceVars", "_user_specified_name", "_input_shapes", "value", "_resource_arg_unique_id",
    "_handle_shapes", "_handle_dtypes", "_collective_manager_ids", "_kernel", "_has_manual_control_dependencies",
})  # fmt: skip
# Ops that fail on purpose, or run code that may: what was recorded before them is put away before they run.
MAY_FAIL = HOST | {"Assert", "CheckNumerics", "CheckNumericsV2"}

# Kernels that leave their further outputs as they found the memory when this attribute is false, since nobody can use
# them: LinearAlgebraOp allocates a scalar for each (tensorflow/core/kernels/linalg/linalg_ops_common.cc).
_VECTORS = {"Svd": "compute_uv", "Eig": "compute_v", "SelfAdjointEigV2": "compute_v"}


def is_undefined(op: str, slot: int, attributes: Mapping[str, Any]) -> bool:
    """Whether an output holds bytes that no one wrote. attributes: of the op, as AttrValues or as Python values."""
    if slot == 0 or op not in _VECTORS:
        return False
    value = attributes[_VECTORS[op]]
    return not getattr(value, "b", value)


_STATE = ("Variable", "Iterator", "Queue", "Placeholder", "Table")


def cannot_be_folded(op: str) -> bool:
    """Whether an op's value is not known before it runs: it draws, calls Python or reads what lives between calls."""
    return op in RANDOM or op in HOST or any(part in op for part in _STATE)


_UID = re.compile(r"(?:_\d+)+$")
_PREFIX = re.compile(r"^__(inference|forward|backward)_")
FUSED = re.compile(r"^(?:PadWith)?(?:Fused)?|(?<=Filter)WithBias$")  # what is fused onto an op, in its executed name
FUSED_NAMES = {"FusedBatchNormEx": "FusedBatchNormV3", "NativeFusedBatchNormEx": "FusedBatchNormV3"}
ONEDNN = re.compile(r"^_Mkl(?:Native)?")  # oneDNN's `_MklMatMul` is the user's `MatMul` by another kernel


def user_name(function: str) -> str:
    """The user's name of a runtime function: `__inference_train_step_123` is `train_step`.

    The two halves of a function under an eager tape stay apart: `train_step (forward)`, `train_step (backward)`.
    """
    half = ""
    name = function
    while match := _PREFIX.match(name):
        half = match[1] if match[1] != "inference" else half
        name = name[match.end() :]
    name = _UID.sub("", name) or function
    return f"{name} ({half})" if half else name
