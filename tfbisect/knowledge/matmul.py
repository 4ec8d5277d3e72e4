"""Matrix products: TensorFloat-32, cuBLAS streams and algorithm choice, cuSPARSE, blocking by batch size.

What thread counts and oneDNN do to products on a CPU is in `cpu_threads`; the oneDNN batch-matmul bug is in `memory`.
"""

from tfbisect.knowledge.entry import Confidence, Entry, Evidence, Setting
from tfbisect.knowledge.rules import AUTOTUNE, DEVICES, PRECISION, TF32, gpu_always, kernel, setting_differs
from tfbisect.knowledge.settings import CUBLAS_WORKSPACE, ON_CPU, TF32_OFF
from tfbisect.knowledge.sources import CUBLAS, MEASURED, WHEELS, issue

PRODUCTS = ("MatMul", "_FusedMatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "Einsum")
_CONVOLUTIONS = ("Conv2D", "Conv3D", "_FusedConv2D", "Conv2DBackprop*", "Conv3DBackprop*", "DepthwiseConv2dNative*")


def _tf32(evidence: Evidence) -> Confidence | None:
    if evidence.category != "environment" or not evidence.on("GPU") or not evidence.floating:
        return None
    if evidence.differing(TF32):
        return "high"
    return "medium" if evidence.device and evidence.differing((*DEVICES, *PRECISION)) else None


def _another_shape(evidence: Evidence) -> Confidence | None:
    return "medium" if evidence.category == "structure" else None


ENTRIES = (
    Entry(
        id="tf32-products",
        title="One run rounds the factors to TensorFloat-32",
        op_types=(*PRODUCTS, *_CONVOLUTIONS),
        devices=("GPU",),
        rule=_tf32,
        settings=(*TF32, *DEVICES),
        condition="float32 on an Ampere or later GPU; the setting or the GPU differs between the runs",
        mechanism="From Ampere on, float32 factors are cut to ten mantissa bits before they are multiplied, unless "
        "TensorFloat-32 is switched off. Relative differences of about 1e-3 against a CPU, an older GPU or full "
        "float32 follow. It changes bits, it does not make them vary.",
        explanation="{op} may have used TensorFloat-32 in one run only ({settings}): its factors then keep ten "
        "mantissa bits.",
        cures=(TF32_OFF,),
        useless=("Op determinism does not touch TensorFloat-32.",),
        workaround="Compare with a tolerance, or give both runs the same setting and the same kind of GPU.",
        sources=(
            "https://www.tensorflow.org/api_docs/python/tf/config/experimental/enable_tensor_float_32_execution",
            "https://github.com/tensorflow/community/pull/287",
            issue(127577),
        ),
        grade="source",
    ),
    Entry(
        id="cublas-streams",
        title="cuBLAS repeats only while a single stream is active",
        op_types=PRODUCTS,
        devices=("GPU",),
        rule=kernel(gpu_always, level="medium"),
        varies=gpu_always,
        condition="several CUDA streams at work, or another GPU model or CUDA version",
        mechanism="cuBLAS promises equal bits for one toolkit, one architecture and one number of multiprocessors, "
        "and only while one stream is active; with several, the workspace that is free decides which kernel runs.",
        cures=(CUBLAS_WORKSPACE,),
        useless=("Op determinism does not set the cuBLAS workspace.",),
        workaround="Run on one stream and one GPU to see whether this is the cause.",
        sources=(CUBLAS, issue(46770)),
        grade="source",
    ),
    Entry(
        id="cublas-autotune",
        title="The matrix-product kernel was picked by timing",
        op_types=PRODUCTS,
        devices=("GPU",),
        rule=lambda evidence: (
            "high"
            if evidence.on("GPU") and setting_differs(AUTOTUNE)(evidence)
            else "low"
            if evidence.on("GPU") and evidence.category == "kernel" and bool(evidence.device)
            else None
        ),
        settings=AUTOTUNE,
        condition="TF_USE_CUBLASLT or TF_MATMUL_AUTOTUNE_ENABLE is set",
        mechanism="With these variables set, TensorFlow times several cublasLt kernels on first use and keeps the "
        "fastest, so another process may round differently.",
        cures=(
            Setting(
                "no autotuned products",
                "environment",
                'os.environ.pop("TF_USE_CUBLASLT", None); os.environ["TF_MATMUL_AUTOTUNE_ENABLE"] = "0"  # before '
                "importing tensorflow",
                "2.21 (variables seen there)",
                "the kernel is no longer picked by timing",
                ("TF_MATMUL_AUTOTUNE_ENABLE", "0"),
            ),
        ),
        workaround="Leave both variables unset, the default.",
        sources=("tensorflow/core/util/matmul_autotune.cc", WHEELS),
        grade="inferred",
    ),
    Entry(
        id="cusparse-transposed",
        title="cuSPARSE may vary when the sparse operand is transposed",
        op_types=("SparseMatrixMatMul",),
        devices=("GPU",),
        rule=lambda evidence: (
            None
            if evidence.attrs.get("transpose_a") is False and evidence.attrs.get("adjoint_a") is False
            else kernel(gpu_always, level="medium")(evidence)
        ),
        varies=lambda evidence: (
            gpu_always(evidence)
            and (evidence.attrs.get("transpose_a") is True or evidence.attrs.get("adjoint_a") is True)
        ),
        condition="transpose_a or adjoint_a is set",
        mechanism="NVIDIA's documentation of the sparse product allows small differences between runs for a "
        "transposed sparse operand.",
        cures=(ON_CPU,),
        useless=("Op determinism: no check for this op was found in the wheels.",),
        workaround="Store the transposed matrix instead of asking for the transposition in the product.",
        sources=("https://docs.nvidia.com/cuda/cusparse/ (cusparseSpMM)", WHEELS),
        grade="inferred",
    ),
    Entry(
        id="batch-size-blocking",
        title="A product is blocked by its number of rows, so a row's bits depend on its batch",
        op_types=(*PRODUCTS, "IteratorGetNext"),
        devices=("CPU", "GPU"),
        rule=_another_shape,
        condition="the runs score or train on batches of different size",
        mechanism="The kernel and its blocking depend on the shape of the factors, so one row scored alone and the "
        "same row within a batch sum their products in different orders.",
        explanation="The runs feed batches of different shapes. Nothing is comparable op by op from here on, and "
        "even equal rows round differently in products of another size.",
        cures=(
            Setting(
                "one batch size",
                "code",
                "model.predict(rows, batch_size=32)  # the same number in both runs; pad the last batch",
                "2.0",
                "both runs multiply matrices of the same shape",
            ),
        ),
        workaround="Compare predictions with a tolerance when batch sizes must differ.",
        sources=(issue(11610), issue(46770), issue(39663)),
        grade="source",
    ),
    Entry(
        id="wrong-product-avx512",
        title="Wrong and varying products on some AVX-512 CPUs",
        op_types=("MatMul", "_FusedMatMul", "_MklMatMul", "_MklFusedMatMul", "_MklNativeFusedMatMul"),
        devices=("CPU",),
        rule=lambda evidence: (
            None
            if evidence.onednn_off or evidence.category not in ("kernel", "") or not evidence.floating
            else "medium"
            if evidence.version[:2] == (2, 13)
            else "low"
        ),
        condition="reported for TensorFlow 2.13 with oneDNN on CPUs with AVX-512 VNNI",
        mechanism="A plain product on one set-up repeats on a CPU (2.21, measured); a report for 2.13 shows wrong "
        "values that changed from run to run until oneDNN was switched off.",
        explanation="{op} on a CPU normally repeats. A report for 2.13 shows wrong, varying products through oneDNN "
        "on AVX-512 CPUs: check the result against NumPy.",
        cures=(
            Setting(
                "oneDNN off",
                "environment",
                'os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"  # before importing tensorflow',
                "2.9 (default on from there on Linux x86)",
                "Eigen kernels instead of oneDNN's",
                ("TF_ENABLE_ONEDNN_OPTS", "0"),
            ),
        ),
        workaround="Upgrade TensorFlow, and compare the product with a float64 NumPy product.",
        sources=(issue(61510), MEASURED),
        grade="source",
    ),
)
