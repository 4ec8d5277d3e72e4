"""XLA: a compiled function against TensorFlow's kernels, and what varies inside a compiled function on a GPU.

A compiled function is one opaque op to the recorder; `record --xla expand` shows its inside as another program.
"""

from tfbisect.knowledge.entry import Confidence, Entry, Evidence, Setting
from tfbisect.knowledge.rules import KERNEL_CATEGORIES, XLA, gpu_unless_deterministic
from tfbisect.knowledge.settings import (
    DETERMINISTIC_OPS_VARIABLE,
    NO_XLA,
    OP_DETERMINISM,
    XLA_AUTOTUNE_OFF,
    XLA_DETERMINISTIC,
    doing,
)
from tfbisect.knowledge.sources import MEASURED, WHEELS, issue, nvidia

CLUSTERS = (
    "XlaLaunch",
    "XlaLaunchV2",
    "_XlaRun",
    "_XlaCompile",
    "XlaClusterOutput",
    "StatefulPartitionedCall",
    "PartitionedCall",
)
_INSTRUCTIONS = (
    "XlaReduce",
    "XlaVariadicReduce",
    "XlaVariadicReduceV2",
    "XlaScatter",
    "XlaSelectAndScatter",
    "XlaReduceWindow",
    "XlaCallModule",
)
_CALLS = ("StatefulPartitionedCall", "PartitionedCall")


def _compiled(evidence: Evidence) -> bool:
    """Whether a call op is known, or may be taken, to be a compiled function: a recorded one would show its ops."""
    return evidence.op_type not in _CALLS or evidence.attrs.get("_XlaMustCompile", True) is not False


def _switched(evidence: Evidence) -> Confidence | None:
    if not _compiled(evidence):
        return None
    if evidence.category == "environment":
        return "high" if evidence.op_type not in _CALLS or evidence.differing(XLA) else "medium"
    if evidence.category == "structure":
        return "medium"
    return "medium" if evidence.category in ("kernel", "state") and evidence.differing(XLA) else None


def _inside(evidence: Evidence) -> Confidence | None:
    if not gpu_unless_deterministic(evidence) or not _compiled(evidence) or evidence.category not in KERNEL_CATEGORIES:
        return None
    if evidence.op_type in _CALLS:
        return "medium" if evidence.device and evidence.category else None
    return "high" if evidence.device else "medium"


ENTRIES = (
    Entry(
        id="xla-compiled",
        title="One run compiled this function with XLA, the other did not",
        op_types=CLUSTERS,
        devices=("CPU", "GPU", "TPU"),
        rule=_switched,
        settings=XLA,
        condition="jit_compile, auto-clustering or XLA flags differ between the runs",
        mechanism="XLA fuses and orders the computation in its own way, so its digits are not those of TensorFlow's "
        "kernels. The inside of a compiled function cannot be recorded. With jit_compile='auto' Keras decides by "
        "itself, and decides against XLA under op determinism.",
        explanation="{op} is a function that XLA compiles as a whole: its digits are not those of TensorFlow's "
        "kernels, and its inside is hidden from the recorder ({settings}).",
        cures=(NO_XLA,),
        useless=("Op determinism does not make compiled and uncompiled runs agree.",),
        workaround="Compile in both runs or in neither; compare with a tolerance otherwise.",
        sources=(issue(58752), issue(62252), "keras/src/trainers/trainer.py (Keras 3.15, resolve_auto_jit_compile)"),
        grade="source",
    ),
    Entry(
        id="xla-gpu-kernels",
        title="XLA on a GPU adds with atomics and picks kernels by timing",
        op_types=(*CLUSTERS, *_INSTRUCTIONS),
        devices=("GPU",),
        rule=_inside,
        varies=lambda evidence: gpu_unless_deterministic(evidence) and evidence.op_type not in _CALLS,
        mechanism="Reductions, scatters and select-and-scatter may use atomics, and convolutions and products are "
        "autotuned for each compilation. On a CPU, sums, products, segment sums and filter gradients repeated "
        "(measured).",
        explanation="{op} runs code that XLA made for the GPU: its reductions and scatters may add with atomics, and "
        "its kernels are picked by timing.",
        cures=(
            doing(OP_DETERMINISM, "deterministic reductions and scatters; what has no such form raises"),
            XLA_DETERMINISTIC,
            XLA_AUTOTUNE_OFF,
            doing(DETERMINISTIC_OPS_VARIABLE, "deterministic reductions", "2.2"),
            Setting(
                "XLA without nondeterministic instructions",
                "environment",
                'os.environ["XLA_FLAGS"] = "--xla_gpu_exclude_nondeterministic_ops=true"  # before importing '
                "tensorflow",
                "2.21 (flag seen there)",
                "excludes them, keeps autotuning",
                ("XLA_FLAGS", "--xla_gpu_exclude_nondeterministic_ops=true"),
            ),
        ),
        raises="partial",
        raises_note="UnimplementedError that names the instruction, where it has no deterministic form; max-pool "
        "gradients raise on any device",
        error_fragments=("does not have a deterministic implementation",),
        workaround="Run without jit_compile to see whether XLA is the cause.",
        sources=(
            nvidia("xla-reductions"),
            nvidia("xla-scatter"),
            "https://github.com/openxla/xla/issues/12520",
            issue(37377),
            WHEELS,
            MEASURED,
        ),
        grade="source",
    ),
)
