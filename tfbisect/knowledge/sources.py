"""Where the facts come from: short names for the references the entries cite.

Nothing is looked up here; a reference is a web address or the name of a file of TensorFlow's source or wheel.
"""

_NVIDIA = "https://github.com/NVIDIA/framework-reproducibility/blob/master/doc/d9m"
NVIDIA_PAGE = f"{_NVIDIA}/tensorflow.md"
DETERMINISM = "https://www.tensorflow.org/api_docs/python/tf/config/experimental/enable_op_determinism"
RFC = "https://github.com/tensorflow/community/blob/master/rfcs/20210119-determinism.md"
WHEELS = "determinism messages in the official Linux wheels of TensorFlow 2.5.3 to 2.21.0"
MEASURED = "measured with TensorFlow 2.21.0 on two CPU cores, 200 or more repetitions a case"
CUDNN = "NVIDIA cuDNN developer guide, section on reproducibility"
CUBLAS = "https://docs.nvidia.com/cuda/cublas/index.html#results-reproducibility"
ONEDNN = "https://uxlfoundation.github.io/oneDNN/dev_guide_attributes_deterministic.html"
AUTO_CONTROL = "tensorflow/python/framework/auto_control_deps.py (LEGACY_RANDOM_OPS)"
RANDOM_SEED = "tensorflow/python/framework/random_seed.py"
MAKE_DETERMINISTIC = "tensorflow/core/grappler/optimizers/data/make_deterministic.h"
VARIABLE_V1 = "tensorflow/python/ops/variable_v1.py"
REGISTRY = "TensorFlow 2.21 op registry (attributes and documentation of the op)"


def issue(number: int) -> str:
    """An issue or pull request of TensorFlow."""
    return f"https://github.com/tensorflow/tensorflow/issues/{number}"


def kernel_file(name: str) -> str:
    return f"tensorflow/core/kernels/{name}"


def nvidia(section: str) -> str:
    """A section of NVIDIA's table of nondeterministic ops."""
    return f"{_NVIDIA}/tensorflow_status.md#{section}"
