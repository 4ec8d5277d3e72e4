"""Memory that was never written, and kernels that return wrong values: differences far larger than rounding.

Ordinary rounding differences are in the other families.
"""

from tfbisect.knowledge.entry import Confidence, Entry, Evidence, Setting
from tfbisect.knowledge.rules import KERNEL_CATEGORIES, always, kernel, weaker
from tfbisect.knowledge.settings import ONE_INTRA_OP_THREAD, ONEDNN_ISA, ONEDNN_OFF, doing
from tfbisect.knowledge.sources import MEASURED, REGISTRY, issue, kernel_file

_HUGE = 1e6
_ROUNDING = 1e-3


def far_from_rounding(evidence: Evidence) -> bool | None:
    """Whether the values differ by far more than a sum in another order would; None when that cannot be told."""
    difference = evidence.difference
    if difference is None or difference.kind != "values" or difference.max_abs is None or difference.max_rel is None:
        return None
    if difference.nonfinite or (difference.max_abs > _HUGE and difference.max_rel > 0.1):
        return True
    return False if difference.max_rel < _ROUNDING else None


def _batch_matmul_hazard(evidence: Evidence) -> bool:
    isa = (evidence.variable("ONEDNN_MAX_CPU_ISA") or "").upper()
    capped = isa.startswith(("SSE", "AVX2")) or isa == "AVX"
    measured = not evidence.version or evidence.version[:2] == (2, 21)
    return measured and evidence.on("CPU") and not evidence.one_thread and not evidence.onednn_off and not capped


def _batch_matmul(evidence: Evidence) -> Confidence | None:
    if evidence.dtype and "32" not in evidence.dtype and evidence.dtype != "float":
        return None
    level = kernel(_batch_matmul_hazard, level="medium")(evidence)
    if level and far_from_rounding(evidence):
        return "high"
    return level


def _empty(evidence: Evidence) -> Confidence | None:
    if evidence.attrs.get("init") is True:
        return None
    return "high" if evidence.category in KERNEL_CATEGORIES else "medium"


def _empty_input(evidence: Evidence) -> Confidence | None:
    """High unless the recorded values look like rounding: nothing else is known to make these ops vary."""
    if evidence.category not in (*KERNEL_CATEGORIES, "environment"):
        return None
    level: Confidence = "medium" if evidence.category == "environment" else "high"
    return weaker(level) if far_from_rounding(evidence) is False else level


def _garbage(evidence: Evidence) -> Confidence | None:
    return "medium" if evidence.category == "kernel" and far_from_rounding(evidence) else None


_ZEROED = Setting(
    "a test for emptiness",
    "code",
    "grad = tf.cond(tf.size(ids) > 0, lambda: grad, lambda: tf.zeros_like(grad))  # or skip batches without ids",
    "2.0",
    "the unwritten gradient is replaced by zeros",
)

ENTRIES = (
    Entry(
        id="sparse-segment-empty",
        title="A gradient for an empty list of ids is memory that nobody wrote",
        op_types=("SparseSegmentSumGrad", "SparseSegmentMeanGrad", "SparseSegmentSqrtNGrad"),
        devices=("CPU", "GPU"),
        rule=_empty_input,
        varies=always,
        condition="no ids at all in the batch (indices of length 0) while the table has rows",
        mechanism="The kernel allocates its output and, when the indices are empty, returns before writing it: the "
        "gradient is whatever the memory held before, up to 1e37. With at least one id the op repeats. Reported for "
        "2.12 (GPU) and measured on 2.21 (CPU).",
        explanation="{op} leaves its output unwritten when a batch holds no ids: the gradient is then old memory, "
        "other values each time.",
        cures=(_ZEROED,),
        useless=("Op determinism, seeds and thread counts do not help: it is a bug, not an order.",),
        workaround="Skip batches without ids, or add one id with weight zero.",
        sources=(issue(126444), issue(72785), kernel_file("segment_reduction_ops_impl.h"), MEASURED),
        grade="measured",
    ),
    Entry(
        id="rfft-empty",
        title="A Fourier transform of nothing is memory that nobody wrote",
        op_types=("RFFT", "IRFFT", "RFFT2D", "IRFFT2D", "RFFT3D", "IRFFT3D", "RFFTND", "IRFFTND"),
        devices=("CPU", "GPU"),
        rule=_empty_input,
        varies=always,
        condition="an input without elements and an fft_length above zero",
        mechanism="The output's size comes from fft_length, but a kernel that sees no input elements returns without "
        "writing: the output is whatever the memory held. With elements the op repeats. RFFT and IRFFT measured on "
        "2.21 (CPU), the others reported.",
        explanation="{op} leaves its output unwritten when its input has no elements: the result is then old memory, "
        "other values each time.",
        cures=(
            Setting(
                "a test for emptiness",
                "code",
                "spectrum = tf.zeros([*batch, length // 2 + 1], tf.complex64) if frames.shape[-1] == 0 else "
                "tf.signal.rfft(frames, [length])",
                "2.0",
                "no transform of an empty axis",
            ),
        ),
        useless=("Op determinism, seeds and thread counts do not help: it is a bug, not an order.",),
        workaround="Pad the input to the length before the transform.",
        sources=(issue(126898), issue(126909), issue(126349), kernel_file("fft_ops.cc"), MEASURED),
        grade="measured",
    ),
    Entry(
        id="onednn-batch-matmul",
        title="oneDNN's AVX-512 batch product returns garbage for few batches and long rows",
        op_types=(
            "BatchMatMul",
            "BatchMatMulV2",
            "Einsum",
            "_MklBatchMatMul",
            "_MklBatchMatMulV2",
            "_MklEinsum",
            "_MklFusedBatchMatMulV2",
        ),
        devices=("CPU",),
        rule=_batch_matmul,
        varies=_batch_matmul_hazard,
        condition="float32, more than one batch but fewer than threads, an inner dimension of about 20000 or more, "
        "AVX-512",
        mechanism="In 2.21.0 the kernel brg_matmul:avx512_core gave wrong values, up to 1e36 and others in every "
        "run, when there were fewer batches than threads and the inner dimension was long. It looks like a faulty "
        "split of the inner dimension. Plain matrix products and XLA are not affected.",
        explanation="{op} through oneDNN on AVX-512 returns wrong values, others in every run, when there are fewer "
        "batches than threads and the inner dimension is long (about 20000): a bug, not rounding.",
        cures=(
            doing(ONEDNN_OFF, "correct and repeatable (measured)"),
            doing(ONEDNN_ISA, "correct and repeatable (measured)"),
            doing(ONE_INTRA_OP_THREAD, "correct and repeatable (measured), as with no more threads than batches"),
        ),
        useless=("Op determinism has no effect (measured: 114 results in 250).",),
        workaround="Multiply batch by batch with tf.matmul on matrices, and check the result against NumPy.",
        versions="measured on 2.21.0; similar reports for 2.13 and 2.21",
        sources=(
            MEASURED,
            issue(61510),
            issue(117700),
            issue(123109),
            "https://github.com/uxlfoundation/oneDNN/issues/4396",
        ),
        grade="measured",
    ),
    Entry(
        id="empty-tensor",
        title="An uninitialised tensor was read",
        op_types=("Empty",),
        devices=("CPU", "GPU"),
        rule=_empty,
        varies=lambda evidence: evidence.attrs.get("init") is not True,
        condition="attribute init is false",
        mechanism="The op hands out a buffer as it is: 199 different contents in 200 calls.",
        cures=(
            Setting(
                "zeros",
                "code",
                "tf.zeros(shape, dtype)  # or tf.raw_ops.Empty(..., init=True)",
                "1.0",
                "the buffer is filled",
            ),
        ),
        useless=("Op determinism does not fill the buffer (measured).",),
        workaround="Write every element before reading any.",
        sources=(REGISTRY, MEASURED),
        grade="measured",
    ),
    Entry(
        id="unwritten-output",
        title="The values look like memory that was never written",
        op_types=("*",),
        devices=("CPU", "GPU", "TPU"),
        rule=_garbage,
        any_op=True,
        condition="huge, NaN or denormal values at changing places",
        mechanism="A sum in another order changes the last digits. Values that are off by many orders of magnitude, "
        "at other places each time, point to a kernel that left a part of its output unwritten, or to a wrong "
        "kernel; custom ops are the usual suspects.",
        explanation="The values of {op} differ by far more than rounding: a part of the output may never have been "
        "written, or the kernel is wrong. Compare it with a NumPy computation of the same inputs.",
        workaround="Replay the op and compare it with NumPy; try oneDNN off, one thread, and the newest TensorFlow; "
        "report it with the exported script.",
        sources=(issue(126444), issue(126898), MEASURED),
        grade="inferred",
    ),
)
