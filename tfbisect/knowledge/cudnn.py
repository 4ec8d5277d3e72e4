"""cuDNN: which algorithm runs, and which of them add with atomics (convolutions, pooling, CTC, recurrent layers).

TensorFlow's own GPU kernels are in `gpu_atomics` and `gpu_reductions`.
"""

from tfbisect.knowledge.entry import Confidence, Entry, Evidence, Setting
from tfbisect.knowledge.rules import AUTOTUNE, DEVICES, VERSIONS, gpu_always, gpu_unless_deterministic, kernel
from tfbisect.knowledge.settings import (
    CUDNN_DETERMINISTIC,
    CUDNN_FRONTEND,
    DETERMINISTIC_OPS_VARIABLE,
    NO_XLA,
    OP_DETERMINISM,
    doing,
)
from tfbisect.knowledge.sources import AUTO_CONTROL, CUDNN, WHEELS, issue, kernel_file, nvidia

_CHOICE = "only deterministic algorithms, chosen the same way in every process"
_CURES = (
    doing(OP_DETERMINISM, _CHOICE),
    CUDNN_FRONTEND,
    doing(DETERMINISTIC_OPS_VARIABLE, f"{_CHOICE}; 2.5 to 2.7 need TF_CUDNN_USE_FRONTEND=1 as well", "2.1"),
    CUDNN_DETERMINISTIC,
)
_MODERN = (doing(OP_DETERMINISM, _CHOICE), doing(DETERMINISTIC_OPS_VARIABLE, _CHOICE, "2.1"), CUDNN_DETERMINISTIC)
_USELESS = (
    "TF_USE_CUDNN_AUTOTUNE is a misspelling that no release reads; the real name is TF_CUDNN_USE_AUTOTUNE.",
    "TF_CUDNN_USE_AUTOTUNE=0 together with the deterministic switches defeats them in old releases: leave it unset.",
)
_SOURCES = (
    nvidia("cudnn-conv"),
    nvidia("auto-tuning"),
    CUDNN,
    "tensorflow/python/kernel_tests/nn_ops/cudnn_deterministic_base.py",
    issue(53771),
    issue(24747),
    WHEELS,
)


def _autotuned(evidence: Evidence) -> Confidence | None:
    if not gpu_unless_deterministic(evidence) or not evidence.floating:
        return None
    if evidence.category == "environment":
        return "high" if evidence.differing((*AUTOTUNE, *DEVICES, *VERSIONS)) else "medium"
    return "medium" if evidence.category in ("", "kernel", "unknown") else None


ENTRIES = (
    Entry(
        id="cudnn-conv-backprop-filter",
        title="cuDNN's filter gradient adds with atomics",
        op_types=("Conv2DBackpropFilter", "Conv3DBackpropFilter", "Conv3DBackpropFilterV2", "Conv2DBackpropFilterV2"),
        devices=("GPU",),
        rule=kernel(gpu_unless_deterministic),
        varies=gpu_unless_deterministic,
        mechanism="Two of cuDNN's backward-filter algorithms (0 and 3) accumulate with atomics. On top of that "
        "TensorFlow times the algorithms on first use and keeps the fastest, so another process may run another one.",
        explanation="{op} runs a cuDNN algorithm that was picked by timing, and two of the candidates add with "
        "atomics.",
        cures=_CURES,
        useless=_USELESS,
        workaround="Before 2.2 some layer shapes fail under determinism, since one algorithm per direction is "
        "offered: change the layer or run it on the CPU.",
        versions="every release without the settings",
        sources=_SOURCES,
        grade="source",
    ),
    Entry(
        id="cudnn-conv-backprop-input",
        title="cuDNN's input gradient adds with atomics",
        op_types=("Conv2DBackpropInput", "Conv3DBackpropInput", "Conv3DBackpropInputV2", "Conv2DBackpropInputV2"),
        devices=("GPU",),
        rule=kernel(gpu_unless_deterministic),
        varies=gpu_unless_deterministic,
        mechanism="cuDNN's backward-data algorithm 0 accumulates with atomics, and the choice is made by timing. The "
        "forward pass of a transposed convolution is this op as well.",
        explanation="{op} runs a cuDNN algorithm that was picked by timing, and one of the candidates adds with "
        "atomics.",
        cures=_CURES,
        useless=_USELESS,
        workaround="Before 2.2 some layer shapes fail under determinism: change the layer or run it on the CPU.",
        versions="every release without the settings",
        sources=_SOURCES,
        grade="source",
    ),
    Entry(
        id="cudnn-autotune",
        title="Another process may pick another convolution algorithm",
        op_types=("Conv2D", "Conv3D", "_FusedConv2D", "_FusedConv3D"),
        devices=("GPU",),
        rule=_autotuned,
        varies=gpu_unless_deterministic,
        settings=(*AUTOTUNE, *DEVICES, *VERSIONS),
        mechanism="Each forward algorithm repeats, but the one that runs is picked by timing: results agree within a "
        "process and can round differently in the next. Inside XLA the forward convolution was itself seen to vary.",
        explanation="{op} repeats within a process, but the cuDNN algorithm is picked by timing, so another process "
        "may round differently.",
        cures=_CURES,
        useless=_USELESS,
        workaround="Replay the op in fresh processes: a few values, each fixed within its process, show the choice.",
        versions="every release without the settings",
        sources=_SOURCES,
        grade="source",
    ),
    Entry(
        id="cudnn-depthwise-filter-grad",
        title="The depthwise filter gradient adds block sums atomically",
        op_types=("DepthwiseConv2dNativeBackpropFilter",),
        devices=("GPU",),
        rule=kernel(gpu_unless_deterministic),
        varies=gpu_unless_deterministic,
        mechanism="TensorFlow's own kernel adds the partial sums of its blocks into the filter with atomics. From "
        "2.10 op determinism routes the op to cuDNN's grouped convolution instead.",
        cures=(doing(OP_DETERMINISM, "cuDNN's grouped convolution instead of TensorFlow's kernel", "2.10"),),
        useless=("TF_DISABLE_DEPTHWISE_CONV_DETERMINISM_EXCEPTIONS=1 (2.9 only) just silences the error.",),
        raises="partial",
        raises_note="2.7 to 2.9; from 2.10 only when built for a cuDNN older than 7.6.3",
        error_fragments=("DepthwiseConvBackpropFilter",),
        workaround="Upgrade to 2.10 or later, or run the layer on the CPU.",
        sources=(
            nvidia("depthwise-conv"),
            kernel_file("depthwise_conv_op_gpu.h"),
            issue(47174),
            issue(51920),
            issue(55657),
            WHEELS,
        ),
        grade="source",
    ),
    Entry(
        id="cudnn-max-pool-grad",
        title="cuDNN's max-pool gradient adds with atomics",
        op_types=("MaxPoolGrad", "MaxPoolGradV2", "MaxPool3DGrad"),
        devices=("GPU",),
        rule=kernel(gpu_unless_deterministic),
        varies=gpu_unless_deterministic,
        condition="overlapping windows",
        mechanism="Unless told otherwise cuDNN scatters the gradients of overlapping windows with atomics.",
        cures=_MODERN,
        raises="partial",
        raises_note="only inside XLA, from 2.8; the text says GPU, yet it was raised on a machine without one too",
        error_fragments=("GPU MaxPool gradient ops",),
        workaround="Do not compile the function that holds it with XLA; Keras stops using XLA by itself under op "
        "determinism.",
        sources=(
            nvidia("max-pool"),
            CUDNN,
            "tensorflow/compiler/tf2xla/kernels/pooling_ops.cc",
            "keras/src/trainers/trainer.py (Keras 3.15)",
            WHEELS,
        ),
        grade="source",
    ),
    Entry(
        id="cudnn-ctc-loss",
        title="cuDNN's default CTC algorithm is not deterministic",
        op_types=("CTCLoss", "CTCLossV2"),
        devices=("GPU",),
        rule=kernel(gpu_unless_deterministic),
        varies=gpu_unless_deterministic,
        mechanism="cuDNN offers two CTC algorithms, one of them nondeterministic; a bug kept TensorFlow from using "
        "the other before 2.6.",
        cures=(doing(OP_DETERMINISM, _CHOICE), doing(DETERMINISTIC_OPS_VARIABLE, _CHOICE, "2.6")),
        workaround="Compute the loss on the CPU in versions before 2.6.",
        sources=(nvidia("ctc-loss"), CUDNN, issue(38151), issue(52227)),
        grade="source",
    ),
    Entry(
        id="cudnn-rnn",
        title="cuDNN's recurrent layers: own dropout generator, algorithm picked by timing",
        op_types=(
            "CudnnRNN",
            "CudnnRNNV2",
            "CudnnRNNV3",
            "CudnnRNNBackprop",
            "CudnnRNNBackpropV2",
            "CudnnRNNBackpropV3",
        ),
        devices=("GPU",),
        rule=kernel(gpu_always, level="medium"),
        varies=gpu_always,
        mechanism="The op keeps a dropout generator of its own, may time its algorithms on first use, and is left "
        "out of tf.function's ordering of side effects. Users reported LSTM training that does not repeat; no "
        "maintainer confirmed the cause.",
        cures=(
            Setting(
                "cuDNN RNN autotuning off",
                "environment",
                'os.environ["TF_CUDNN_RNN_USE_AUTOTUNE"] = "0"  # before TensorFlow runs its first op',
                "1.x",
                "the recurrent algorithm is no longer picked by timing",
                ("TF_CUDNN_RNN_USE_AUTOTUNE", "0"),
            ),
        ),
        useless=("Op determinism: no check for these ops was found in the wheels.",),
        workaround="Give the layer a seed for its dropout; keras.layers.LSTM(..., use_cudnn=False) shows whether "
        "cuDNN is the cause.",
        sources=(issue(59281), issue(60192), AUTO_CONTROL, "tensorflow/core/util/use_cudnn.cc", WHEELS),
        grade="inferred",
    ),
    Entry(
        id="xla-convolution-autotune",
        title="XLA times its convolution kernels, and even the forward pass can vary",
        op_types=("XlaConv", "XlaConvV2"),
        devices=("GPU",),
        rule=kernel(gpu_unless_deterministic, level="medium"),
        varies=gpu_unless_deterministic,
        mechanism="Inside XLA the convolution algorithm is autotuned per compilation; TensorFlow's own tests note "
        "that the forward pass varies there without op determinism.",
        cures=(doing(OP_DETERMINISM, _CHOICE), NO_XLA),
        workaround="Run the same function without jit_compile to see whether XLA is the cause.",
        sources=("tensorflow/python/kernel_tests/nn_ops/cudnn_deterministic_base.py",),
        grade="inferred",
    ),
)
