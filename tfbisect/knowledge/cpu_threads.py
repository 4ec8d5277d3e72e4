"""CPU kernels: races between intra-op threads, and bits that follow the thread count, oneDNN or the instruction set.

Races between ops (rather than inside one) are in `state`; random ops are in `random_ops`.
"""

from tfbisect.knowledge.entry import Entry, Setting, Steady
from tfbisect.knowledge.rules import (
    INSTRUCTIONS,
    ONEDNN,
    THREADS,
    always,
    cpu_threads,
    cpu_threads_always,
    kernel,
    setting_differs,
)
from tfbisect.knowledge.settings import (
    ONE_INTRA_OP_THREAD,
    ONEDNN_ISA,
    ONEDNN_OFF,
    OP_DETERMINISM,
    SAME_THREADS,
    UNIQUE_ROWS,
    doing,
)
from tfbisect.knowledge.sources import MEASURED, NVIDIA_PAGE, REGISTRY, issue, kernel_file
from tfbisect.knowledge.sources import ONEDNN as ONEDNN_GUIDE

_SEGMENT_SUM = Setting(
    "a segment sum instead",
    "code",
    "tf.math.unsorted_segment_sum(weights, values, size)  # instead of a bincount with float weights",
    "1.0",
    "this kernel keeps input order",
)
THREADED = (
    "BiasAddGrad",
    "Conv2DBackpropFilter",
    "Conv3DBackpropFilterV2",
    "DepthwiseConv2dNativeBackpropFilter",
    "FusedBatchNorm*",
    "_FusedBatchNormEx",
    "MatMul",
    "_FusedMatMul",
    "BatchMatMulV2",
    "Einsum",
    "Prod",
    "SparseMatMul",
    "_Mkl*",
)
ONEDNN_OPS = (
    "MatMul",
    "_FusedMatMul",
    "BatchMatMulV2",
    "Einsum",
    "Conv2D",
    "Conv3D",
    "_FusedConv2D",
    "_FusedConv3D",
    "Conv2DBackprop*",
    "Conv3DBackprop*",
    "DepthwiseConv2dNative*",
    "FusedBatchNorm*",
    "_FusedBatchNormEx",
    "Softmax",
    "SoftmaxCrossEntropyWithLogits",
    "AvgPool*",
    "MaxPool*",
    "SparseMatrixMatMul",
    "_Mkl*",
)


ENTRIES = (
    Entry(
        id="cpu-scatter-duplicates",
        title="Rows named twice in a scatter update are changed in thread order",
        op_types=(
            "ResourceScatterAdd",
            "ResourceScatterSub",
            "ResourceScatterMul",
            "ResourceScatterDiv",
            "ScatterAdd",
            "ScatterSub",
            "ScatterMul",
            "ScatterDiv",
        ),
        devices=("CPU",),
        rule=kernel(cpu_threads),
        varies=cpu_threads,
        condition="1024 updates or more, at most 10000 of them per row on average, repeated indices, more than one "
        "intra-op thread",
        mechanism="The updates are spread over the intra-op threads, and each takes a lock on a group of rows. Rows "
        "named more than once, such as a token that occurs twice in a batch, are changed in the order in which the "
        "threads get the lock, and float sums depend on the order. Keras 3 reaches this with Embedding and SGD, "
        "which scatters the raw gradient rows; Adam sums them first.",
        explanation="{op} spreads its updates over the CPU threads. Rows that occur more than once in its indices (a "
        "token that occurs twice in a batch) are updated in whichever order the threads get the lock, and float sums "
        "depend on that order.",
        cures=(
            doing(OP_DETERMINISM, "the updates run one after another (measured: one result in 250)"),
            doing(ONE_INTRA_OP_THREAD, "no second thread to race with"),
            UNIQUE_ROWS,
        ),
        useless=(
            "Seeds change nothing here.",
            "One inter-op thread does not help: the race is inside the op.",
        ),
        raises="no",
        raises_note="on the CPU it runs serially; reference variables raise on the GPU",
        workaround="Use an optimizer that sums repeated rows first (Adam), or fewer than 1024 updates a call.",
        versions="the parallel loop came in 2019 (about 2.1) and is in 2.21; it was read in the header and measured "
        "there",
        sources=(kernel_file("scatter_functor.h"), issue(30880), MEASURED),
        grade="measured",
    ),
    Entry(
        id="cpu-crop-and-resize-grad",
        title="Overlapping crops add into one gradient image without a lock",
        op_types=("CropAndResizeGradImage",),
        devices=("CPU",),
        rule=kernel(cpu_threads),
        varies=cpu_threads,
        condition="overlapping boxes, more than one intra-op thread",
        mechanism="The boxes are spread over the threads, which add into the shared gradient image with no lock, so "
        "where boxes overlap the order varies and an update can even be lost.",
        cures=(
            doing(OP_DETERMINISM, "all boxes in one piece (measured: one result in 250)"),
            doing(ONE_INTRA_OP_THREAD, "no second thread to race with"),
        ),
        raises="no",
        raises_note="not on the CPU; the GPU kernel raises",
        error_fragments=("CropAndResizeBackpropImage",),
        workaround="Use boxes that do not overlap.",
        sources=(kernel_file("image/crop_and_resize_op.cc"), issue(42033), MEASURED),
        grade="measured",
    ),
    Entry(
        id="cpu-bincount-float-weights",
        title="Float weights are grouped by worker thread",
        op_types=("Bincount", "DenseBincount", "SparseBincount"),
        devices=("CPU",),
        rule=kernel(cpu_threads_always),
        varies=cpu_threads_always,
        condition="float weights; for DenseBincount and SparseBincount one-dimensional input; more than one intra-op "
        "thread",
        mechanism="Every worker keeps a histogram of its own, and which worker gets which chunk depends on "
        "scheduling, so float weights are added in other groups each time. Integer or absent weights are safe, and "
        "so is two-dimensional input, which is split by row.",
        explanation="{op} keeps one histogram per worker thread, and which worker gets which values varies: float "
        "weights are grouped differently each time.",
        cures=(_SEGMENT_SUM, doing(ONE_INTRA_OP_THREAD, "one worker, one histogram")),
        useless=("Op determinism leaves this race in on the CPU (measured: 31 results in 250).",),
        raises="partial",
        raises_note="on the GPU only, from 2.7",
        workaround="Sum with tf.math.unsorted_segment_sum, or make the weights integers.",
        sources=(kernel_file("bincount_op.cc"), MEASURED),
        grade="measured",
    ),
    Entry(
        id="cpu-sparse-adagrad",
        title="A sparse Adagrad step changes repeated rows without a lock",
        op_types=(
            "ResourceSparseApplyAdagrad",
            "ResourceSparseApplyAdagradV2",
            "SparseApplyAdagrad",
            "SparseApplyAdagradV2",
        ),
        devices=("CPU",),
        rule=kernel(cpu_threads_always),
        varies=cpu_threads_always,
        condition="repeated indices, more than one intra-op thread",
        mechanism="The rows are spread over the threads, which read, change and store accumulator and variable with "
        "no lock. With repeated indices the result depends on how they interleave, and updates can be lost.",
        cures=(doing(ONE_INTRA_OP_THREAD, "no second thread to race with"), UNIQUE_ROWS),
        useless=(
            "Op determinism leaves this race in (measured: 150 results in 250).",
            "use_locking keeps other ops away, it does not order the rows of one op.",
        ),
        workaround="Sum the gradient rows of equal indices before the step, as Keras 2 optimizers did.",
        versions="the parallel loop came in about 2.5; measured on 2.21",
        sources=(kernel_file("training_ops.cc"), issue(44919), MEASURED),
        grade="measured",
    ),
    Entry(
        id="cpu-sdca",
        title="The SDCA optimizer is lock-free and reshuffles on every call",
        op_types=("SdcaOptimizer", "SdcaOptimizerV2"),
        devices=("CPU",),
        rule=kernel(always),
        varies=always,
        mechanism="Workers take examples from a shared counter and change the shared weights as they go, and the "
        "examples are shuffled anew on every call: no setting was found that repeats.",
        useless=(
            "Op determinism does not help (measured).",
            "One intra-op thread is not enough (200 results in 200 calls).",
        ),
        workaround="Use another optimizer when bits must repeat.",
        sources=(kernel_file("sdca_ops.cc"), MEASURED),
        grade="measured",
    ),
    Entry(
        id="parallel-stitch-overlap",
        title="Two inputs write the same row, and either may win",
        op_types=("ParallelDynamicStitch",),
        devices=("CPU", "GPU"),
        rule=kernel(always, exact_dtypes=True, level="medium"),
        varies=cpu_threads_always,
        condition="one index occurs in two inputs, which the op's contract forbids",
        mechanism="The inputs are copied in parallel, so a row that two of them name is written by whoever comes last.",
        cures=(
            Setting(
                "an ordered merge",
                "code",
                "tf.dynamic_stitch(indices, data)  # instead of tf.raw_ops.ParallelDynamicStitch",
                "1.0",
                "the last input wins, always",
            ),
        ),
        useless=("Op determinism does not change it (measured).",),
        workaround="Make the indices of the inputs disjoint.",
        sources=(REGISTRY, MEASURED),
        grade="measured",
    ),
    Entry(
        id="cpu-thread-count",
        title="The number of threads decides how the sum is cut into pieces",
        op_types=THREADED,
        devices=("CPU",),
        rule=setting_differs(THREADS),
        settings=THREADS,
        condition="the runs had different thread counts, or machines with different numbers of cores",
        mechanism="The work is cut into as many pieces as there are threads, and each piece sums its part, so "
        "another number of threads rounds in other places. With one number of threads these kernels repeat. Measured "
        "to change between 1, 2 and 8 threads: bias and filter gradients, batch norm and its gradient, some "
        "products, Prod. Not: Sum, Mean, L2Loss, Cumsum.",
        explanation="{op} repeats with one number of threads, but cuts its work by that number, and the runs differ "
        "in it ({settings}).",
        cures=(
            SAME_THREADS,
            doing(ONE_INTRA_OP_THREAD, "the same cut on every machine; slower"),
        ),
        useless=("Op determinism does not fix bits across thread counts.", "Seeds change nothing here."),
        workaround="Compare with a tolerance when machines must differ.",
        sources=(MEASURED, issue(22398), NVIDIA_PAGE),
        grade="measured",
    ),
    Entry(
        id="onednn-switch",
        title="One run used oneDNN's kernels, the other Eigen's",
        op_types=ONEDNN_OPS,
        devices=("CPU",),
        rule=setting_differs(ONEDNN),
        settings=ONEDNN,
        condition="TF_ENABLE_ONEDNN_OPTS differs, or one machine has oneDNN on by default (Linux x86 from 2.9) and "
        "the other not",
        mechanism="oneDNN and Eigen block and fuse their sums differently. Switching oneDNN off changed the bits of "
        "products, convolutions and their gradients, batch norm, softmax, average pooling and sparse products.",
        explanation="{op} has an oneDNN and an Eigen kernel that round differently, and the runs chose differently "
        "({settings}).",
        cures=(ONEDNN_OFF,),
        useless=("Op determinism does not choose between the two.",),
        workaround="Give both runs the same value, or compare with a tolerance.",
        sources=(issue(50685), issue(56697), MEASURED),
        grade="measured",
    ),
    Entry(
        id="cpu-instruction-set",
        title="Another CPU, other vector instructions",
        op_types=("*",),
        devices=("CPU",),
        rule=setting_differs(INSTRUCTIONS, level="medium"),
        any_op=True,
        settings=INSTRUCTIONS,
        condition="the runs ran on different CPUs",
        mechanism="Kernels pick AVX2, AVX-512 or other code for the CPU they run on, with other widths and fused "
        "multiply-adds, so sums round in other places.",
        explanation="The runs had different CPUs or instruction sets ({settings}), and kernels such as {op} pick "
        "their code by that.",
        cures=(doing(ONEDNN_ISA, "both machines use the same instruction set in oneDNN"),),
        workaround="Compare on one kind of machine, or with a tolerance.",
        sources=(issue(56529), issue(3103), ONEDNN_GUIDE),
        grade="source",
    ),
)

STEADY = (
    Steady(
        (
            "Conv2D",
            "Conv2DBackpropInput",
            "Softmax",
            "AvgPoolGrad",
            "MatMul",
            "SoftmaxCrossEntropyWithLogits",
            "SparseSoftmaxCrossEntropyWithLogits",
            "MaxPoolGrad",
            "CTCLoss",
            "Svd",
            "SparseTensorDenseMatMul",
            "FakeQuantWithMinMaxVarsGradient",
        ),
        ("CPU",),
        "One result in 250 repetitions with 2 and with 8 threads. oneDNN on or off changes the bits of most of them.",
        (MEASURED,),
        "measured",
    ),
    Steady(
        (
            "Conv2DBackpropFilter",
            "Conv3DBackpropFilterV2",
            "DepthwiseConv2dNativeBackpropFilter",
            "FusedBatchNormV3",
            "FusedBatchNormGradV3",
            "BiasAddGrad",
        ),
        ("CPU",),
        "One result in 250 repetitions for a fixed number of threads; another number of threads gives other bits.",
        (MEASURED,),
        "measured",
    ),
    Steady(
        (
            "TensorScatterAdd",
            "ScatterNd",
            "ResourceScatterNdAdd",
            "ResourceScatterUpdate",
            "UnsortedSegmentSum",
            "SegmentSum",
        ),
        ("CPU",),
        "The CPU kernel keeps the order of its input: one result in 250 repetitions, with repeated indices too.",
        (MEASURED, kernel_file("scatter_nd_op_cpu_impl.h")),
        "measured",
    ),
)
