"""Sums: AddN and the buffer it reuses, accumulate_n, and reductions that are blamed although they repeat.

Segment sums and scatters are in `gpu_atomics`, sums over replicas in `collectives`.
"""

from tfbisect.knowledge.entry import Confidence, Entry, Evidence, Setting, Steady
from tfbisect.knowledge.rules import always, kernel
from tfbisect.knowledge.sources import MEASURED, NVIDIA_PAGE, REGISTRY, issue, kernel_file, nvidia


def _add_n(evidence: Evidence) -> Confidence | None:
    if not evidence.floating or 0 < len(evidence.inputs) < 3:
        return None  # a + b equals b + a, bit for bit
    if evidence.category in ("kernel", "race", ""):
        return "high" if evidence.inputs else "medium"
    return "medium" if evidence.category == "structure" else None


ENTRIES = (
    Entry(
        id="add-n-order",
        title="AddN starts with the input whose buffer it may overwrite",
        op_types=("AddN",),
        devices=("CPU", "GPU"),
        rule=_add_n,
        condition="three or more float inputs, of which another op still holds some",
        mechanism="AddN sums into the first input buffer that nobody else holds any more, and that input then comes "
        "first in the sum. Which buffers are free depends on which other consumers have finished, so with three or "
        "more inputs the order of the sum can follow the schedule, or change when a tool or a new consumer holds a "
        "tensor longer. In isolation it repeats.",
        explanation="{op} begins its sum with the first input whose buffer is free to overwrite; with three or more "
        "inputs that depends on which other consumers have finished.",
        cures=(
            Setting(
                "a fixed sum",
                "code",
                "total = a + b + c  # instead of tf.add_n([a, b, c]); for gradients, use a variable in one place only",
                "1.0",
                "sums of two are exact in either order, so nothing is left to the schedule",
            ),
        ),
        useless=("Op determinism does not change AddN.",),
        workaround="Sums of two inputs are safe: addition of two numbers does not depend on their order.",
        sources=(kernel_file("aggregate_ops.cc"), MEASURED),
        grade="source",
    ),
    Entry(
        id="accumulate-n-order",
        title="accumulate_n may add its inputs as they become ready",
        op_types=("AccumulateNV2",),
        devices=("CPU", "GPU"),
        rule=kernel(always, level="medium"),
        varies=always,
        condition="graphs made with the v1 API",
        mechanism="The op is defined to begin before all inputs are there, so their order is open. It could not be "
        "provoked (one result in 250 runs).",
        cures=(
            Setting(
                "add_n",
                "code",
                "tf.add_n(inputs)  # instead of accumulate_n",
                "1.0",
                "waits for all inputs, then adds in list order",
            ),
        ),
        workaround="Use tf.add_n.",
        sources=(REGISTRY, MEASURED),
        grade="inferred",
    ),
)

STEADY = (
    Steady(
        ("Sum", "Mean"),
        ("CPU", "GPU"),
        "On GPUs it varied until about TensorFlow 1.3 and was rewritten in 2017; the 2.21 header has no atomics, "
        "though many answers on the web still repeat the old state. On CPUs the bits were equal for 1, 2 and 8 "
        "threads. A sum as a dot product with ones is no longer needed.",
        (issue(2732), issue(3103), issue(2652), NVIDIA_PAGE, kernel_file("reduction_gpu_kernels.cu.h"), MEASURED),
        "source",
    ),
    Steady(
        ("Prod",),
        ("CPU", "GPU"),
        "Repeats from run to run, but on a CPU its bits change with the number of threads.",
        (MEASURED, kernel_file("reduction_gpu_kernels.cu.h")),
        "measured",
    ),
    Steady(
        (
            "Max",
            "Min",
            "All",
            "Any",
            "UnsortedSegmentMax",
            "UnsortedSegmentMin",
            "SegmentMax",
            "SegmentMin",
            "ResourceScatterMax",
            "ResourceScatterMin",
        ),
        ("CPU", "GPU"),
        "The order in which a maximum, a minimum or a logical value is combined does not change the result.",
        (kernel_file("segment_reduction_ops.h"),),
        "source",
    ),
    Steady(
        (
            "EuclideanNorm",
            "L2Loss",
            "Cumsum",
            "SparseReduceSum",
            "HistogramFixedWidth",
            "RaggedBincount",
            "SparseMatMul",
        ),
        ("CPU",),
        "One result in 250 repetitions with 2 and with 8 threads. Only SparseMatMul changed its bits with the number "
        "of threads.",
        (MEASURED,),
        "measured",
    ),
    Steady(
        ("GatherV2", "ResourceGather", "Gather"),
        ("CPU", "GPU"),
        "Forward and backward repeat. The sum over repeated indices happens later, in UnsortedSegmentSum or in a "
        "scatter, and that op is the one to look at.",
        (nvidia("gather"),),
        "source",
    ),
    Steady(
        ("SparseSegmentSum", "SparseSegmentMean", "SparseSegmentSqrtN"),
        ("CPU", "GPU"),
        "The GPU kernels, new in 2.6, use a segmented reduction with a fixed order. With empty indices the gradient "
        "ops are another matter.",
        (nvidia("segment-reduction"), issue(47974), MEASURED),
        "source",
    ),
    Steady(
        (
            "DynamicStitch",
            "UniqueV2",
            "Where",
            "TopKV2",
            "CombinedNonMaxSuppression",
            "ResizeBicubicGrad",
            "ScaleAndTranslateGrad",
            "LRNGrad",
            "MatrixSolve",
            "SelfAdjointEigV2",
            "ResourceSparseApplyRMSProp",
        ),
        ("CPU",),
        "One result in 250 repetitions with 2 and with 8 threads, and the same bits for 1, 2 and 8 threads.",
        (MEASURED,),
        "measured",
    ),
)
