"""GPU kernels that add with atomics or combine partial sums in no fixed order: segments, scatters, losses, images.

Convolutions and other cuDNN ops are in `cudnn`; the CPU side of the same op types is in `cpu_threads`.
"""

from tfbisect.knowledge.entry import Entry, Setting
from tfbisect.knowledge.rules import gpu_always, gpu_scatter, gpu_unless_deterministic, kernel
from tfbisect.knowledge.settings import DETERMINISTIC_OPS_VARIABLE, ON_CPU, OP_DETERMINISM, UNIQUE_ROWS, doing
from tfbisect.knowledge.sources import WHEELS, issue, kernel_file, nvidia

_SEGMENT_VARIABLE = Setting(
    "deterministic segment reductions",
    "environment",
    'os.environ["TF_USE_DETERMINISTIC_SEGMENT_REDUCTIONS"] = "1"  # before TensorFlow runs its first op',
    "2.7",
    "the deterministic kernel for segment reductions alone",
    ("TF_USE_DETERMINISTIC_SEGMENT_REDUCTIONS", "1"),
)
_SEGMENT_CURES = (
    doing(OP_DETERMINISM, "a tree-shaped kernel without atomics"),
    _SEGMENT_VARIABLE,
    doing(DETERMINISTIC_OPS_VARIABLE, "a tree-shaped kernel without atomics; 2.5 and 2.6 raise instead", "2.7"),
)
_SEGMENT_USELESS = ("TF_DISABLE_SEGMENT_REDUCTION_OP_DETERMINISM_EXCEPTIONS=1 only silences the error of 2.5 and 2.6.",)
_SEGMENT_SOURCES = (
    nvidia("segment-reduction"),
    kernel_file("segment_reduction_ops_gpu.cu.h"),
    issue(39751),
    issue(47772),
    issue(51392),
    issue(54276),
    WHEELS,
)
_ON_HOST = "the op runs on the host with the serial CPU kernel, which is slow"
_SCATTER_CURES = (
    doing(OP_DETERMINISM, f"{_ON_HOST}; XLA's scatter gets a deterministic form"),
    UNIQUE_ROWS,
    doing(DETERMINISTIC_OPS_VARIABLE, f"{_ON_HOST}; XLA's scatter still varies", "2.7"),
)
_SCATTER_SOURCES = (nvidia("scatter-nd"), kernel_file("scatter_nd_op.cc"), kernel_file("scatter_nd_util.h"))
_SCATTER_USELESS = (
    "TF_DISABLE_SCATTER_OP_DETERMINISM=1 (2.12 and later) brings the fast, racing kernel back: safe for unique "
    "indices only.",
)
_ROW_SOURCES = (kernel_file("scatter_functor_gpu.cu.h"), kernel_file("resource_variable_ops.cc"), issue(33115))

ENTRIES = (
    Entry(
        id="gpu-unsorted-segment",
        title="Rows of one segment are added atomically on the GPU",
        op_types=("UnsortedSegmentSum", "UnsortedSegmentProd"),
        devices=("GPU",),
        rule=kernel(gpu_unless_deterministic),
        varies=gpu_unless_deterministic,
        condition="float or complex data, and a segment id that occurs at least twice",
        mechanism="Each element goes into its output row by a CUDA atomic. Rows that receive several elements are "
        "summed in the order the threads happen to arrive, and float sums depend on the order. The gradients of "
        "tf.gather and of embedding layers end here when their IndexedSlices are made dense.",
        explanation="{op} adds the rows of a segment with GPU atomics, in arrival order; the gradient of a gather or "
        "an embedding ends in this op.",
        cures=_SEGMENT_CURES,
        useless=_SEGMENT_USELESS,
        raises="partial",
        raises_note="2.5 and 2.6 raise; from 2.7 only native Windows GPU builds do",
        error_fragments=("of unsorted segment reduction op",),
        workaround="Pin the op to the CPU, whose kernel keeps input order, or sum in an integer dtype.",
        versions="the default in every release up to 2.21",
        sources=_SEGMENT_SOURCES,
        grade="source",
    ),
    Entry(
        id="gpu-sorted-segment",
        title="Long segments are pieced together atomically on the GPU",
        op_types=("SegmentSum", "SegmentProd", "SegmentMean"),
        devices=("GPU",),
        rule=kernel(gpu_unless_deterministic),
        varies=gpu_unless_deterministic,
        condition="float or complex data, and a segment longer than one strip of rows",
        mechanism="A thread reduces a short strip of neighbouring rows; the segments at the strip's two ends are "
        "merged into global memory with atomics, so a segment that spans strips is combined in arrival order. "
        "SegmentMean is the same sum divided by the length (its GPU kernel exists from 2.7). NVIDIA could not "
        "provoke a difference in SegmentProd.",
        explanation="{op} merges the ends of each strip of rows with GPU atomics, in arrival order.",
        cures=_SEGMENT_CURES,
        useless=_SEGMENT_USELESS,
        raises="partial",
        raises_note="2.5 and 2.6 raise; from 2.7 only native Windows GPU builds do",
        error_fragments=("of sorted segment reduction op",),
        workaround="Pin the op to the CPU, whose kernel is serial within a segment.",
        versions="the default in every release up to 2.21",
        sources=_SEGMENT_SOURCES,
        grade="source",
    ),
    Entry(
        id="gpu-scatter-nd-add",
        title="Updates with the same index are added atomically on the GPU",
        op_types=(
            "ScatterNd",
            "TensorScatterAdd",
            "TensorScatterSub",
            "ScatterNdAdd",
            "ScatterNdSub",
            "ScatterNdNonAliasingAdd",
            "ResourceScatterNdAdd",
            "ResourceScatterNdSub",
        ),
        devices=("GPU",),
        rule=kernel(gpu_scatter),
        varies=gpu_scatter,
        condition="float or complex data and repeated indices",
        mechanism="Updates that share an index are accumulated by CUDA atomics in arrival order. The gradient of "
        "tf.gather_nd is a ScatterNd. The CPU kernel walks the updates one by one and repeats.",
        explanation="{op} adds updates that share an index with GPU atomics, in arrival order.",
        cures=_SCATTER_CURES,
        useless=_SCATTER_USELESS,
        workaround="Make the indices unique before the op.",
        versions="the default in every release up to 2.21",
        sources=_SCATTER_SOURCES,
        grade="source",
    ),
    Entry(
        id="gpu-scatter-nd-update",
        title="Several updates are stored to one index, and any of them may win",
        op_types=("TensorScatterUpdate", "ScatterNdUpdate", "ResourceScatterNdUpdate"),
        devices=("GPU",),
        rule=kernel(gpu_scatter, exact_dtypes=True),
        varies=gpu_scatter,
        condition="repeated indices with different updates, in any dtype",
        mechanism="GPU threads store to the same place without an order, so the last one to be scheduled wins. On "
        "the CPU the last update in the list wins, always.",
        explanation="{op} has GPU threads storing to the same index; which update survives depends on scheduling.",
        cures=_SCATTER_CURES,
        useless=_SCATTER_USELESS,
        workaround="Decide which update should win before the op, so that each index occurs once.",
        versions="the default in every release up to 2.21",
        sources=_SCATTER_SOURCES,
        grade="source",
    ),
    Entry(
        id="gpu-scatter-row",
        title="Rows of a variable are updated atomically on the GPU",
        op_types=("ResourceScatterAdd", "ResourceScatterSub", "ResourceScatterMul", "ResourceScatterDiv"),
        devices=("GPU",),
        rule=kernel(gpu_scatter),
        varies=gpu_scatter,
        condition="float rows and repeated indices",
        mechanism="Each update changes its row of the variable by an atomic, so rows named more than once are "
        "updated in arrival order.",
        explanation="{op} updates rows that occur more than once in its indices with GPU atomics, in arrival order; "
        "plain SGD on an embedding ends here.",
        cures=(doing(OP_DETERMINISM, "runs the update on the host"), UNIQUE_ROWS),
        useless=_SCATTER_USELESS,
        workaround="Sum the updates of equal rows first, or use an optimizer that densifies the gradient (Adam in "
        "Keras 3).",
        versions="every release with a GPU kernel",
        sources=_ROW_SOURCES,
        grade="source",
    ),
    Entry(
        id="gpu-scatter-row-update",
        title="Several rows are stored to one index of a variable",
        op_types=("ResourceScatterUpdate",),
        devices=("GPU",),
        rule=kernel(gpu_scatter, level="medium"),
        varies=gpu_scatter,
        condition="float rows, and repeated indices with different rows",
        mechanism="The GPU kernel stores rows without atomics or order, so the surviving row depends on scheduling. "
        "The CPU kernel is serial, and rows of integers or booleans are updated there.",
        cures=(doing(OP_DETERMINISM, "runs the update on the host"),),
        useless=_SCATTER_USELESS,
        workaround="Give each index once.",
        sources=_ROW_SOURCES,
        grade="inferred",
    ),
    Entry(
        id="gpu-scatter-ref",
        title="Rows of a reference variable are updated atomically on the GPU",
        op_types=("ScatterAdd", "ScatterSub", "ScatterMul", "ScatterDiv", "ScatterUpdate"),
        devices=("GPU",),
        rule=kernel(gpu_unless_deterministic, exact_dtypes=True),
        varies=gpu_unless_deterministic,
        condition="repeated indices",
        mechanism="The v1 form of the row update: atomics in arrival order, or plain stores for ScatterUpdate. "
        "use_locking keeps other ops away, it does not order the rows of one op.",
        cures=(UNIQUE_ROWS,),
        useless=("use_locking=True does not order the rows within one op.",),
        raises="yes",
        raises_note="on the GPU, from 2.8; the CPU kernel runs serially instead",
        error_fragments=("Scatter ops with ref inputs",),
        workaround="Use resource variables (tf.compat.v1.enable_resource_variables()) and unique indices.",
        sources=(kernel_file("scatter_functor_gpu.cu.h"), kernel_file("scatter_op.cc"), WHEELS),
        grade="source",
    ),
    Entry(
        id="gpu-bias-add-grad",
        title="The bias gradient is summed with atomics, by whichever kernel was faster",
        op_types=("BiasAddGrad",),
        devices=("GPU",),
        rule=kernel(gpu_unless_deterministic),
        varies=gpu_unless_deterministic,
        mechanism="Two kernels are timed on first use, one with atomics and one plain reduction, and the faster is "
        "kept: both the choice and the order of the sum can change.",
        explanation="{op} on a GPU keeps the faster of two kernels, one of which adds with atomics: the sum's order "
        "varies.",
        cures=(
            doing(OP_DETERMINISM, "always the plain reduction"),
            doing(DETERMINISTIC_OPS_VARIABLE, "always the plain reduction", "2.1"),
        ),
        workaround="Add the bias with `+` instead of tf.nn.bias_add, so that its gradient is a Sum.",
        versions="the default in every release up to 2.21",
        sources=(nvidia("bias-addition"), kernel_file("bias_op.cc"), issue(22398), issue(31465)),
        grade="source",
    ),
    Entry(
        id="gpu-sparse-dense-matmul",
        title="Sparse times dense adds each product atomically on the GPU",
        op_types=("SparseTensorDenseMatMul",),
        devices=("GPU",),
        rule=kernel(gpu_unless_deterministic),
        varies=gpu_unless_deterministic,
        mechanism="One thread takes one non-zero and one column and adds the product into the output with an atomic.",
        cures=(ON_CPU,),
        raises="yes",
        raises_note="on the GPU, from 2.6",
        error_fragments=("SparseTensorDenseMatmulOp",),
        workaround="Run it on the CPU (serial kernel), make one operand dense, or use tf.gather and "
        "tf.math.segment_sum.",
        versions="every release; other dtypes than float32 from 2.5",
        sources=(
            nvidia("sparse-dense-matmul"),
            kernel_file("sparse_tensor_dense_matmul_op.cc"),
            issue(18037),
            issue(47749),
            WHEELS,
        ),
        grade="source",
    ),
    Entry(
        id="gpu-softmax-cross-entropy",
        title="The fused cross-entropy reduces over classes in no fixed order",
        op_types=("SoftmaxCrossEntropyWithLogits", "SparseSoftmaxCrossEntropyWithLogits"),
        devices=("GPU",),
        rule=kernel(gpu_unless_deterministic),
        varies=gpu_unless_deterministic,
        mechanism="The fused GPU kernel reduces over the classes in an order that is not fixed, so loss and gradient "
        "both vary. With op determinism on, TensorFlow's Python API builds log-softmax and elementary ops instead, "
        "and this op is gone from the graph.",
        explanation="{op} reduces over the classes in no fixed order on a GPU; loss and gradient both vary.",
        cures=(
            doing(OP_DETERMINISM, "the Python API builds elementary ops instead of the fused one"),
            doing(DETERMINISTIC_OPS_VARIABLE, "the same; dense labels from 2.6, sparse ones from 2.7", "2.7"),
        ),
        raises="partial",
        raises_note="the raw op raises on the GPU; tf.nn.*_cross_entropy_with_logits does not",
        error_fragments=("SoftmaxCrossEntropyWithLogits",),
        workaround="Call tf.nn.(sparse_)softmax_cross_entropy_with_logits, never the raw op, with op determinism on.",
        sources=(
            nvidia("softmax-xent"),
            "tensorflow/python/ops/nn_ops.py",
            issue(38185),
            issue(49178),
            issue(50070),
            WHEELS,
        ),
        grade="source",
    ),
    Entry(
        id="gpu-batch-norm-inference-grad",
        title="Batch norm's offset gradient varies when the layer runs in inference mode",
        op_types=("FusedBatchNormGrad", "FusedBatchNormGradV2", "FusedBatchNormGradV3", "_FusedBatchNormGradEx"),
        devices=("GPU",),
        rule=lambda evidence: (
            None if evidence.attrs.get("is_training") is True else kernel(gpu_unless_deterministic)(evidence)
        ),
        varies=lambda evidence: gpu_unless_deterministic(evidence) and evidence.attrs.get("is_training") is not True,
        condition="attribute is_training is false: fine-tuning with frozen statistics, Grad-CAM, adversarial examples",
        mechanism="With frozen statistics the gradient of the offset (beta) is reduced by a nondeterministic kernel; "
        "the cuDNN path of training mode is not affected.",
        cures=(ON_CPU,),
        raises="partial",
        raises_note="on the GPU with is_training=False, from 2.7",
        error_fragments=("fused batch-norm backprop",),
        workaround="Freeze beta (layer.trainable = False), call the layer with training=True, or run this gradient "
        "on the CPU.",
        sources=(nvidia("fused-batch-norm"), issue(10857), issue(50505), WHEELS),
        grade="source",
    ),
    Entry(
        id="gpu-sparse-optimizer-race",
        title="A sparse optimizer step reads and writes the same row from several GPU threads",
        op_types=(
            "ResourceSparseApply*",
            "SparseApplyAdagrad",
            "SparseApplyAdagradV2",
            "SparseApplyAdadelta",
            "SparseApplyFtrl",
            "SparseApplyFtrlV2",
            "SparseApplyProximalAdagrad",
        ),
        devices=("GPU",),
        rule=kernel(gpu_always, level="medium"),
        varies=gpu_always,
        condition="repeated indices",
        mechanism="GPU threads read, change and store a row without atomics, so with repeated indices updates race "
        "and can be lost. Read from the source of the Adagrad and Keras momentum kernels; for the other optimizers "
        "it is an analogy.",
        cures=(UNIQUE_ROWS,),
        useless=("Op determinism: no check for these ops was found, so it neither cures nor raises.",),
        workaround="Sum the gradient rows of equal indices before the optimizer step.",
        sources=(kernel_file("training_ops_gpu.cu.cc"), issue(44347), issue(44919)),
        grade="inferred",
    ),
)
