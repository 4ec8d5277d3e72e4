"""The knowledge base without TensorFlow: the right cause for the evidence, honest silence, sources, speed."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tfbisect import knowledge
from tfbisect.knowledge import Entry, Evidence, causes_for, entries, explain, risks
from tfbisect.model import CATEGORIES, Cause, Difference, NodeFlag

CPU = "/job:localhost/replica:0/task:0/device:CPU:0"
GPU = "/job:localhost/replica:0/task:0/device:GPU:0"
INFO: dict[str, object] = {
    "versions.tensorflow": "2.21.0",
    "threads.intra_op": 2,
    "threads.inter_op": 2,
    "flags.op_determinism": False,
}
SEEDED = {**INFO, "flags.global_seed": 42}
THREADS: dict[str, tuple[object, object]] = {
    "environment.TF_NUM_INTRAOP_THREADS": ("1", "2"),
    "threads.intra_op": (1, 2),
}
RANDOM = int(NodeFlag.RANDOM | NodeFlag.STATEFUL)
HOST = int(NodeFlag.HOST)


def evidence(
    op_type: str,
    category: str,
    device: str = CPU,
    dtype: str = "float32",
    flags: int = 0,
    environment: dict[str, tuple[object, object]] | None = None,
    info: dict[str, object] | None = None,
    **rest: object,
) -> Evidence:
    return Evidence(
        op_type,
        category,
        device,
        dtype,
        flags,
        environment or {},
        info=INFO if info is None else info,
        **rest,  # type: ignore[arg-type]
    )


def difference(kind: str = "values", max_abs: float = 1e-7, max_rel: float = 1e-7, nonfinite: int = 0) -> Difference:
    return Difference("float32", (4,), 4, 2, 1, max_abs, max_rel, (0,), kind, "bits", nonfinite)


def entry(name: str) -> Entry:
    return next(item for item in entries() if item.id == name)


def best(case: Evidence) -> Cause:
    causes = causes_for(case)
    assert causes, f"nothing said about {case}"
    return causes[0]


# --- the special cases ------------------------------------------------------------------------------------------------

CASES: dict[str, tuple[Evidence, str, str, str]] = {  # name: evidence, id, confidence, a word of the cure
    "embedding trained with SGD": (
        evidence("ResourceScatterSub", "kernel", flags=int(NodeFlag.WRITER)),
        "cpu-scatter-duplicates",
        "high",
        "enable_op_determinism()",
    ),
    "scatter race": (evidence("ResourceScatterAdd", "race"), "cpu-scatter-duplicates", "high", "determinism"),
    "scatter on a GPU": (evidence("ResourceScatterAdd", "kernel", GPU), "gpu-scatter-row", "high", "determinism"),
    "empty id list": (evidence("SparseSegmentMeanGrad", "kernel"), "sparse-segment-empty", "high", "tf.size(ids) > 0"),
    "empty transform": (evidence("RFFT", "kernel", dtype="complex64"), "rfft-empty", "high", "tf.zeros"),
    "bias gradient, threads": (
        evidence("BiasAddGrad", "environment", environment=THREADS),
        "cpu-thread-count",
        "high",
        "set_intra_op_parallelism_threads",
    ),
    "product, threads": (
        evidence("MatMul", "environment", dtype="float64", environment=THREADS),
        "cpu-thread-count",
        "high",
        "threads",
    ),
    "filter gradient, threads": (
        evidence("_MklNativeConv2DBackpropFilterWithBias", "environment", environment=THREADS),
        "cpu-thread-count",
        "high",
        "threads",
    ),
    "batch norm, threads": (
        evidence("FusedBatchNormGradV3", "environment", environment=THREADS),
        "cpu-thread-count",
        "high",
        "threads",
    ),
    "product, oneDNN": (
        evidence("MatMul", "environment", environment={"environment.TF_ENABLE_ONEDNN_OPTS": ("1", "0")}),
        "onednn-switch",
        "high",
        'os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"',
    ),
    "unseeded draw": (
        evidence("RandomUniformInt", "rng", dtype="int64", flags=RANDOM, attrs={"seed": 0, "seed2": 0}),
        "random-unseeded",
        "high",
        "set_random_seed(1)",
    ),
    "unseeded shuffle": (evidence("RandomShuffle", "rng", flags=RANDOM), "random-unseeded", "high", "set_random_seed"),
    "draw in a loop, seeded": (
        evidence(
            "RandomStandardNormal", "rng", flags=RANDOM, in_loop=True, info=SEEDED, attrs={"seed": 1, "seed2": 12}
        ),
        "random-in-loop",
        "high",
        "parallel_iterations=1",
    ),
    "draws that swapped": (
        evidence("RandomUniform", "race", flags=RANDOM, in_loop=True, info=SEEDED),
        "random-in-loop",
        "high",
        "parallel_iterations=1",
    ),
    "draw after another number of ops": (
        evidence("RandomUniform", "rng", flags=RANDOM, info=SEEDED, attrs={"seed": 42, "seed2": 3}),
        "random-creation-order",
        "medium",
        "seed=1",
    ),
    "Keras Dropout": (evidence("Cast", "rng", dtype="uint32"), "keras-layer-seed", "high", "set_random_seed"),
    "Keras seed variable": (
        evidence("ReadVariableOp", "rng", dtype="uint32"),
        "keras-layer-seed",
        "high",
        "set_random_seed",
    ),
    "fit shuffles": (evidence("IteratorGetNext", "input"), "tfdata-unseeded-shuffle", "high", "set_random_seed"),
    "parallel map with draws": (
        evidence("IteratorGetNext", "race", info=SEEDED),
        "tfdata-parallel-stateful-map",
        "high",
        "enable_op_determinism()",
    ),
    "other elements, seeded": (
        evidence("IteratorGetNext", "input", info=SEEDED),
        "tfdata-parallel-stateful-map",
        "medium",
        "enable_op_determinism()",
    ),
    "batches of another size": (
        evidence("IteratorGetNext", "structure"),
        "batch-size-blocking",
        "medium",
        "batch_size=",
    ),
    "queue runners": (evidence("QueueDequeueManyV2", "input"), "v1-queue-producers", "high", "num_threads=1"),
    "py_function": (evidence("EagerPyFunc", "kernel", flags=HOST), "python-callback", "high", "default_rng"),
    "numpy_function": (evidence("PyFunc", "host", flags=HOST), "python-callback", "high", "default_rng"),
    "stateless callback": (evidence("PyFuncStateless", "kernel", flags=HOST), "python-callback", "high", "seed"),
    "callback that reads a variable": (
        evidence("PyFunc", "environment", flags=HOST, environment={"environment.DEVICE": ("fp32", "tf 32")}),
        "started-differently",
        "high",
        "export DEVICE=fp32",
    ),
    "NumPy value frozen at tracing": (evidence("Const", "host"), "traced-python-value", "high", "set_random_seed"),
    "signed zero": (
        evidence("Mul", "host", difference=difference("zero_sign")),
        "eager-scalar-zero",
        "high",
        "np.float32(0.0)",
    ),
    "lost momentum": (evidence("ReadVariableOp", "state"), "state-not-restored", "high", "optimizer=optimizer"),
    "v1 read against write": (
        evidence("ReadVariableOp", "race", dtype="int64"),
        "race-read-write",
        "high",
        "control_dependencies",
    ),
    "v1 updates": (evidence("AssignAdd", "race"), "race-assign-add", "high", "add_n"),
    "set of names": (
        evidence("StridedSlice", "structure", environment={"environment.PYTHONHASHSEED": ("1", "2")}),
        "hash-order",
        "high",
        "sorted(",
    ),
    "set of names, salted": (evidence("Asinh", "structure"), "hash-order", "medium", "sorted("),
    "jit_compile": (
        evidence("StatefulPartitionedCall", "environment", environment={"environment.JIT": ("0", "1")}),
        "xla-compiled",
        "high",
        "jit_compile=False",
    ),
    "XLA cluster": (
        evidence("_XlaRun", "environment", environment={"environment.XLA_FLAGS": (None, "--x")}),
        "xla-compiled",
        "high",
        "jit_compile=False",
    ),
    "XLA on a GPU": (evidence("XlaLaunch", "kernel", GPU), "xla-gpu-kernels", "high", "determinism"),
    "TensorFloat-32": (
        evidence("MatMul", "environment", GPU, environment={"flags.tensor_float_32": (True, False)}),
        "tf32-products",
        "high",
        "enable_tensor_float_32_execution(False)",
    ),
    "overlapping crops": (
        evidence("CropAndResizeGradImage", "kernel"),
        "cpu-crop-and-resize-grad",
        "high",
        "determinism",
    ),
    "float weights": (evidence("Bincount", "kernel"), "cpu-bincount-float-weights", "high", "unsorted_segment_sum"),
    "Adagrad rows": (
        evidence("ResourceSparseApplyAdagradV2", "kernel"),
        "cpu-sparse-adagrad",
        "high",
        "set_intra_op_parallelism_threads(1)",
    ),
    "garbage product": (
        evidence("BatchMatMulV2", "kernel", difference=difference(max_abs=1e36, max_rel=1.9)),
        "onednn-batch-matmul",
        "high",
        "ONEDNN",
    ),
    "garbage of an unknown op": (
        evidence("MyOp", "kernel", difference=difference(max_abs=1e30, max_rel=1.0, nonfinite=3)),
        "unwritten-output",
        "medium",
        "NumPy",
    ),
    "reused buffer": (
        evidence("AddN", "kernel", inputs=("Mul", "MatMul", "Mul")),
        "add-n-order",
        "high",
        "instead of tf.add_n",
    ),
    "gather gradient on a GPU": (
        evidence("UnsortedSegmentSum", "kernel", GPU),
        "gpu-unsorted-segment",
        "high",
        "determinism",
    ),
    "convolution gradient": (
        evidence("Conv2DBackpropFilter", "kernel", GPU),
        "cudnn-conv-backprop-filter",
        "high",
        "enable_op_determinism()",
    ),
    "all-reduce": (evidence("NcclAllReduce", "kernel", GPU), "nccl-order", "high", "NCCL_NVLS_ENABLE"),
    "addition": (evidence("AddV2", "kernel"), "exact-op-differs", "medium", "Replay"),
    "fed array": (evidence("Placeholder", "input"), "fed-value", "high", "seed"),
    "Python scalar": (evidence("Fill", "host", dtype="int32"), "python-value", "medium", "seed"),
    "determinism in one run": (
        evidence("Softmax", "environment", environment={"flags.op_determinism": (True, False)}),
        "other-determinism",
        "high",
        "enable_op_determinism()",
    ),
    "other version": (
        evidence("Foo", "environment", environment={"versions.tensorflow": ("2.16.2", "2.21.0")}),
        "other-version",
        "medium",
        "pip",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_cause_named_first(name: str) -> None:
    case, expected, confidence, cure = CASES[name]
    cause = best(case)
    assert (cause.id, cause.confidence) == (expected, confidence)
    assert cure in cause.cure


def test_the_settings_that_differ_are_named() -> None:
    cause = best(CASES["bias gradient, threads"][0])
    assert "threads.intra_op: 1 and 2" in cause.explanation
    cause = best(evidence("Asinh", "structure"))
    assert "{" not in cause.explanation and "()" not in cause.explanation


def test_what_the_program_was_told_explains_other_ops_better_than_a_guess_at_a_set() -> None:
    told = evidence("ExpandDims", "structure", environment={"environment.DOCS": ("20", "7")})
    assert {c.id: c.confidence for c in causes_for(told) if c.id in ("hash-order", "started-differently")} == {
        "started-differently": "medium",
        "hash-order": "low",
    }


# --- what rules a cause out -------------------------------------------------------------------------------------------


def ids(case: Evidence) -> set[str]:
    return {cause.id for cause in causes_for(case)}


@pytest.mark.parametrize(
    ("case", "impossible"),
    [
        (evidence("ResourceScatterSub", "kernel", info={**INFO, "threads.intra_op": 1}), "cpu-scatter-duplicates"),
        (
            evidence("ResourceScatterSub", "kernel", info={**INFO, "flags.op_determinism": True}),
            "cpu-scatter-duplicates",
        ),
        (evidence("ResourceScatterSub", "kernel", dtype="int32"), "cpu-scatter-duplicates"),
        (evidence("ResourceScatterSub", "kernel", GPU), "cpu-scatter-duplicates"),
        (evidence("UnsortedSegmentSum", "kernel"), "gpu-unsorted-segment"),
        (
            evidence("UnsortedSegmentSum", "kernel", GPU, info={**INFO, "flags.op_determinism": True}),
            "gpu-unsorted-segment",
        ),
        (evidence("Conv2DBackpropFilter", "kernel"), "cudnn-conv-backprop-filter"),
        (evidence("BiasAddGrad", "kernel"), "cpu-thread-count"),
        (evidence("RandomUniform", "rng", flags=RANDOM, attrs={"seed": 1, "seed2": 2}), "random-unseeded"),
        (evidence("FusedBatchNormGradV3", "kernel", GPU, attrs={"is_training": True}), "gpu-batch-norm-inference-grad"),
        (evidence("AddN", "kernel", inputs=("Mul", "Mul")), "add-n-order"),
        (evidence("Mul", "host", difference=difference()), "eager-scalar-zero"),
        (
            evidence("BatchMatMulV2", "kernel", info={**INFO, "environment.TF_ENABLE_ONEDNN_OPTS": "0"}),
            "onednn-batch-matmul",
        ),
        (evidence("BatchMatMulV2", "kernel", dtype="float64"), "onednn-batch-matmul"),
        (
            evidence("IteratorGetNext", "race", info={**INFO, "flags.op_determinism": True}),
            "tfdata-parallel-stateful-map",
        ),
        (evidence("Empty", "kernel", attrs={"init": True}), "empty-tensor"),
        (
            evidence("RandomUniform", "rng", environment={"environment.PYTHONHASHSEED": ("1", "2")}),
            "random-seeds-differ",
        ),
    ],
)
def test_what_cannot_be_the_cause_is_not_named(case: Evidence, impossible: str) -> None:
    assert entry(impossible)  # it exists
    assert impossible not in ids(case)


def test_op_determinism_does_not_clear_the_races_it_leaves_in() -> None:
    determined = {**INFO, "flags.op_determinism": True}
    for op in ("Bincount", "ResourceSparseApplyAdagradV2", "SdcaOptimizerV2"):
        cause = best(evidence(op, "kernel", info=determined))
        assert cause.confidence == "high" and "enable_op_determinism" not in cause.cure


def test_rounding_makes_unwritten_memory_less_likely() -> None:
    garbage = evidence("SparseSegmentSumGrad", "kernel", difference=difference(max_abs=1e37, max_rel=2.0))
    rounding = evidence("SparseSegmentSumGrad", "kernel", difference=difference())
    assert best(garbage).confidence == "high"
    assert best(rounding).confidence == "medium"


def test_an_unknown_device_is_not_held_against_a_cause() -> None:
    causes = causes_for(Evidence("ResourceScatterSub", "kernel"))
    assert {cause.id for cause in causes} >= {"cpu-scatter-duplicates", "gpu-scatter-row"}
    assert all(cause.confidence == "medium" for cause in causes)


# --- when little is known ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "category", [category for category in CATEGORIES if category not in ("unknown", "environment")]
)
def test_an_unknown_op_gets_honest_advice(category: str) -> None:
    cause = best(evidence("SomebodysCustomOp", category))
    assert cause.confidence in ("low", "medium")
    assert cause.cure and cause.source and "SomebodysCustomOp" in cause.explanation


def test_nothing_is_said_when_there_is_nothing_true_to_say() -> None:
    assert causes_for(evidence("SomebodysCustomOp", "unknown")) == ()
    assert causes_for(evidence("SomebodysCustomOp", "environment")) == ()  # no setting differs
    noise: dict[str, tuple[object, object]] = {"pid": (1, 2), "time": ("a", "b")}
    assert causes_for(evidence("SomebodysCustomOp", "environment", environment=noise)) == ()


def test_general_advice_steps_back_behind_a_named_cause() -> None:
    assert not any(item.endswith("-unknown") for item in ids(evidence("ResourceScatterSub", "kernel")))
    assert "kernel-unknown" in ids(evidence("MatMul", "kernel"))
    assert "known to repeat" in causes_for(evidence("Conv2D", "kernel"))[-1].explanation


def test_causes_are_few_and_best_first() -> None:
    for op in knowledge.known_op_types():
        for category in CATEGORIES:
            for device in (CPU, GPU, ""):
                causes = causes_for(evidence(op, category, device, environment=THREADS))
                ranks = [("high", "medium", "low").index(cause.confidence) for cause in causes]
                assert ranks == sorted(ranks) and len(causes) <= knowledge.MOST_CAUSES
                assert len({cause.id for cause in causes}) == len(causes)
                for cause in causes:
                    text = cause.explanation + cause.cure
                    assert cause.cure and cause.source
                    assert (
                        "{op}" not in text
                        and "{settings}" not in text
                        and "{known}" not in text
                        and "{exports}" not in text
                    )


def test_hostile_names_and_values_stay_text() -> None:
    shell: dict[str, tuple[object, object]] = {
        "environment.X": ("$(reboot)", "1"),
        "environment.A;reboot": ("1", "2"),
        "environment.ESC": ("\x1b[2J", None),
    }
    cause = best(evidence("PyFunc\x1b[2J", "host", environment=shell))
    assert "\x1b" not in cause.explanation + cause.cure
    assert "export X='$(reboot)'" in cause.cure and "reboot=" not in cause.cure
    assert "\x1b" not in explain("Evil\x1b[2J{op}{settings}")


# --- cures ------------------------------------------------------------------------------------------------------------


def test_cures_wait_for_their_version() -> None:
    old = evidence("BiasAddGrad", "kernel", GPU, info={"versions.tensorflow": "2.4.1"})
    assert "TF_DETERMINISTIC_OPS" in best(old).cure
    assert "enable_op_determinism" in best(evidence("BiasAddGrad", "kernel", GPU)).cure


def test_a_setting_that_was_on_is_not_proposed_again() -> None:
    on = evidence("BatchMatMulV2", "kernel", info={**INFO, "environment.NCCL_NVLS_ENABLE": "0"})
    assert "ONEDNN" in best(on).cure
    ring = evidence("NcclAllReduce", "kernel", GPU, info={**INFO, "environment.NCCL_NVLS_ENABLE": "0"})
    assert "NCCL_ALGO" in best(ring).cure


def test_settings_say_since_when() -> None:
    for item in entries():
        for setting in item.cures:
            assert setting.line and setting.since and setting.name, (item.id, setting)
            if setting.kind == "environment":
                assert setting.env, (item.id, setting)
                assert setting.env[0] in setting.line
            if setting.kind == "python" or setting.line.startswith("os.environ"):
                compile(setting.line, item.id, "exec")


def test_an_error_leads_back_to_its_op() -> None:
    text = "A deterministic GPU implementation of SparseTensorDenseMatmulOp is not currently available."
    assert [item.id for item in knowledge.entries_for_error(text)] == ["gpu-sparse-dense-matmul"]
    text = "Deterministic GPU implementation of sorted segment reduction op not available."
    assert [item.id for item in knowledge.entries_for_error(text)] == ["gpu-sorted-segment"]
    assert knowledge.entries_for_error("MaxPoolGradWithArgmax: shapes do not match") == ()


# --- risks ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "device", "info", "expected"),
    [
        ("ResourceScatterSub", CPU, INFO, {"cpu-scatter-duplicates"}),
        ("ResourceScatterSub", CPU, {**INFO, "threads.intra_op": 1}, set()),
        ("ResourceScatterSub", CPU, {**INFO, "threads.intra_op": 0, "environment.TF_NUM_INTRAOP_THREADS": "1"}, set()),
        (
            "ResourceScatterSub",
            CPU,
            {**INFO, "environment.TF_DETERMINISTIC_OPS": "1", "flags.op_determinism": True},
            set(),
        ),
        ("ResourceScatterSub", GPU, INFO, {"gpu-scatter-row"}),
        ("ResourceScatterSub", GPU, {**INFO, "flags.op_determinism": True}, set()),
        (
            "ResourceScatterNdAdd",
            GPU,
            {**INFO, "flags.op_determinism": True, "environment.TF_DISABLE_SCATTER_OP_DETERMINISM": "1"},
            {"gpu-scatter-nd-add"},
        ),
        ("Bincount", CPU, {**INFO, "flags.op_determinism": True}, {"cpu-bincount-float-weights"}),
        ("RandomUniform", CPU, INFO, {"random-unseeded"}),
        ("RandomUniform", CPU, SEEDED, set()),
        ("Conv2DBackpropFilter", GPU, INFO, {"cudnn-conv-backprop-filter"}),
        ("Conv2DBackpropFilter", CPU, INFO, set()),
        ("MatMul", CPU, INFO, set()),
        ("AddV2", CPU, INFO, set()),
        ("IteratorGetNext", CPU, INFO, set()),
        ("SomebodysCustomOp", CPU, INFO, set()),
    ],
)
def test_risks(op: str, device: str, info: dict[str, object], expected: set[str]) -> None:
    assert {item.id for item in risks(Evidence(op, device=device, info=info))} == expected


def test_a_dtype_that_an_entry_does_not_speak_of_is_no_risk() -> None:
    """Sums of integers are exact in any order, and the GPU's row update runs on the host for them."""
    for op, device in (("ResourceScatterSub", CPU), ("Bincount", CPU), ("ResourceScatterUpdate", GPU)):
        assert risks(Evidence(op, device=device, dtype="float32", info=INFO))
        assert not risks(Evidence(op, device=device, dtype="int32", info=INFO))
    assert risks(Evidence("TensorScatterUpdate", device=GPU, dtype="int32", info=INFO))


def test_a_seeded_draw_is_a_risk_only_in_a_loop() -> None:
    seeded = Evidence("RandomUniform", device=CPU, info=SEEDED, attrs={"seed": 1, "seed2": 2})
    assert risks(seeded) == ()
    assert {item.id for item in risks(replace(seeded, in_loop=True))} == {"random-in-loop"}


# --- explain ----------------------------------------------------------------------------------------------------------


def test_explain_covers_the_known_ops() -> None:
    names = knowledge.known_op_types()
    assert len(names) >= 218
    for name in names:
        text = explain(name)
        assert text.startswith(name) and "sources:" in text, name


def test_explain_tells_it_all() -> None:
    text = explain("ResourceScatterSub")
    for part in (
        "on CPU",
        "on GPU",
        "tf.config.experimental.enable_op_determinism()",
        "since 2.8",
        "raises under op determinism: no",
        "workaround:",
        "https://github.com/tensorflow/tensorflow/issues/30880",
        "scatter_functor.h",
        "measured",
        "no help:",
    ):
        assert part in text
    assert all(len(line) <= 160 for line in text.splitlines())


def test_explain_says_which_ops_repeat() -> None:
    text = explain("Sum")
    assert "Repeats on CPU and GPU" in text and "reduction_gpu_kernels.cu.h" in text


def test_explain_admits_ignorance_and_suggests_near_names() -> None:
    text = explain("MatMull")
    assert "nothing is known" in text and "MatMul" in text and "no promise" in text


# --- the entries themselves -------------------------------------------------------------------------------------------


def test_every_entry_has_sources_and_words() -> None:
    known = entries()
    assert len(known) >= 60
    assert len({item.id for item in known}) == len(known)
    for item in known:
        assert item.sources and all(source.strip() for source in item.sources), item.id
        assert item.op_types and item.devices and item.title and item.workaround, item.id
        assert len(item.mechanism) > 20, item.id
        assert item.grade in ("source", "measured", "inferred"), item.id
        assert item.raises in ("yes", "no", "partial"), item.id
        if item.raises == "yes":
            assert item.raises_note, item.id
        if item.grade == "measured":
            assert any("measured" in source for source in item.sources), item.id


def test_facts_are_found_by_listing_the_folder() -> None:
    folder = Path(knowledge.__file__).parent
    families = {path.stem for path in folder.glob("*.py")} - {"__init__", "entry", "rules", "settings", "sources"}
    assert families >= {"gpu_atomics", "cudnn", "matmul", "reductions", "cpu_threads", "random_ops", "tfdata", "host"}
    assert families >= {"state", "collectives", "xla", "precision", "memory"}
    for name in families:
        text = (folder / f"{name}.py").read_text(encoding="utf-8")
        assert text.count("    Entry(\n        id=") > 0, f"{name} holds no entry"


def test_exact_elementwise_ops() -> None:
    assert knowledge.is_exact_elementwise("AddV2") and knowledge.is_exact_elementwise("Cast")
    assert not knowledge.is_exact_elementwise("Tanh") and not knowledge.is_exact_elementwise("Sum")
    assert knowledge.is_exact_elementwise("Transpose") and not knowledge.is_exact_elementwise("Reshape")
    assert knowledge.is_exact_elementwise("AddN", 2) and not knowledge.is_exact_elementwise("AddN", 3)


def test_a_cause_survives_json() -> None:
    cause = best(CASES["embedding trained with SGD"][0])
    assert Cause.from_json(json.loads(json.dumps(cause.to_json()))) == cause


# --- cost -------------------------------------------------------------------------------------------------------------

_PROBE = """
import sys, time
import tfbisect.model
start = time.process_time()
import tfbisect.knowledge
loaded = time.process_time()
tfbisect.knowledge.entries()
print(loaded - start, time.process_time() - start)
print(" ".join(name for name in ("tensorflow", "numpy", "yaml", "h5py", "keras") if name in sys.modules))
"""


def test_loading_is_fast_and_light() -> None:
    """Processor time, the best of five fresh processes: the first may compile, and other work slows any of them."""
    times = []
    for _ in range(5):
        run = subprocess.run([sys.executable, "-c", _PROBE], capture_output=True, text=True, check=True)
        seconds, _, heavy = run.stdout.partition("\n")
        assert heavy.strip() == ""
        times.append([float(word) for word in seconds.split()])
    imported, complete = (min(column) for column in zip(*times, strict=True))
    assert imported < 0.030, times
    assert complete < 0.060, times
