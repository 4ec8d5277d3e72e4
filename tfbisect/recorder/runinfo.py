"""What a run was set up with: versions, devices, threads, flags, environment; as plain JSON.

Asks TensorFlow only for what it has already decided: nothing here starts an eager context or a device.
"""

import hashlib
import json
import os
import platform
import sys
import time
from collections.abc import Mapping
from typing import Any

from tfbisect.recorder.digest import SCHEMES
from tfbisect.version import __version__

# Variables whose values are kept: they reach kernels, devices or the order of things.
_KEPT = (
    "TF_", "CUDA_", "CUBLAS_", "CUDNN_", "NCCL_", "NVIDIA_", "XLA_", "ONEDNN_", "DNNL_", "MKL_", "OMP_", "KMP_",
    "GOMP_", "OPENBLAS_", "KERAS_", "PYTHONHASHSEED", "ROCM_", "HIP_", "HOROVOD_", "SLURM_PROCID", "LD_PRELOAD",
    "MALLOC_", "PYTHONPATH",
)  # fmt: skip
_SECRET = ("KEY", "TOKEN", "SECRET", "PASS", "PWD", "CREDENTIAL", "AUTH", "COOKIE")
_ALWAYS_OTHER = {"_", "SHLVL", "PWD", "OLDPWD", "TERM", "COLUMNS", "LINES", "WINDOWID", "TFBISECT_END_STATE"}


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """The environment as far as it is a matter of the program's results.

    What reaches TensorFlow is kept as it is; short values of other variables too; long or secret-looking ones only as a
    digest, so that a trace can be handed on and a difference is still seen. What reaches TensorFlow comes first.
    """
    result = {}
    for name, value in sorted(variables.items(), key=lambda item: (not item[0].startswith(_KEPT), item[0])):
        if name in _ALWAYS_OTHER:
            continue
        secret = any(word in name.upper() for word in _SECRET)
        if not secret and (name.startswith(_KEPT) or len(value) <= 32):
            result[name] = value[:500]
        else:
            result[name] = f"sha256:{hashlib.sha256(value.encode('utf-8', 'surrogateescape')).hexdigest()[:12]}"
    return result


# What programs that start one process a device tell each of them: its number, and how many there are.
_LAUNCHERS = (
    ("RANK", "WORLD_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("HOROVOD_RANK", "HOROVOD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"), ("SLURM_PROCID", "SLURM_NTASKS"),
)  # fmt: skip


def worker(variables: Mapping[str, str]) -> dict[str, Any]:
    """{"worker": which task of a job of several processes this one is} as its environment tells; {} if it is alone.

    `task` is a name such as "worker:1", `cluster` how many tasks there are of each type.
    """
    try:
        told = json.loads(variables.get("TF_CONFIG") or "{}")
        cluster = {str(kind): len(tasks) for kind, tasks in told.get("cluster", {}).items()}
        task = told.get("task", {})
        found = _task(str(task["type"]), int(task["index"]), cluster) if task and cluster else {}
        if found:
            return found
        for rank, size in _LAUNCHERS:
            if rank in variables and size in variables:
                return _task("rank", int(variables[rank]), {"rank": int(variables[size])})
    except (ValueError, TypeError, KeyError, AttributeError):  # TensorFlow will say what is wrong with it
        pass
    return {}


def _task(kind: str, index: int, cluster: dict[str, int]) -> dict[str, Any]:
    alone = sum(cluster.values()) < 2
    return {} if alone else {"worker": {"task": f"{kind}:{index}", "cluster": cluster}}


def at_start(program: str | None, argv: list[str], options: Mapping[str, Any]) -> dict[str, Any]:
    """What is known before TensorFlow is imported."""
    return {
        "tfbisect": __version__,
        "program": program,
        "argv": list(argv),
        "cwd": os.getcwd(),
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "pid": os.getpid(),
        "environment": environment(os.environ),
        "options": dict(options),
        "digest": dict(SCHEMES),
        "versions": {"python": platform.python_version()},
        "machine": {
            "system": platform.system(),
            "release": platform.release(),
            "architecture": platform.machine(),
            "processor": _processor(),
            "cores": os.cpu_count(),
        },
        **worker(os.environ),
    }


def of_process() -> dict[str, Any]:
    """`of_tensorflow` for the eager context of this process; nothing if there is none yet."""
    context = getattr(sys.modules.get("tensorflow.python.eager.context"), "_context", None)
    started = context is not None and context._context_handle is not None
    return of_tensorflow(context) if started else {}


def of_tensorflow(context: Any) -> dict[str, Any]:
    """What TensorFlow was set up with, once its context is initialized.

    Private TensorFlow API used here, tried on 2.16.2, 2.18.1 and 2.21.0: `context.Context.config / devices /
    optimizer_jit / _seed / _server_def`, `_pywrap_util_port.IsMklEnabled`, `_pywrap_determinism.is_enabled`. What an
    installation lacks is left out.
    """
    info: dict[str, Any] = {"versions": {}, "threads": {}, "flags": {}}
    for name in ("tensorflow", "keras", "numpy", "h5py", "ml_dtypes"):
        module = sys.modules.get(name)
        version = getattr(module, "__version__", None)
        if version is not None:
            info["versions"][name] = str(version)
    _try(info, "devices", lambda: sorted(context.devices()))
    server = _value(lambda: context._server_def)
    if server is not None:
        cluster = {job.name: len(job.tasks) for job in server.cluster.job}
        info |= _task(server.job_name, server.task_index, cluster)
    config = _value(lambda: context.config)
    if config is not None:
        info["threads"] = {
            "intra_op": config.intra_op_parallelism_threads,
            "inter_op": config.inter_op_parallelism_threads,
        }
    flags = info["flags"]

    def determinism() -> bool:
        from tensorflow.python.util import _pywrap_determinism

        return bool(_pywrap_determinism.is_enabled())

    def tf32() -> bool:
        from tensorflow.python.framework import config as tf_config

        return bool(tf_config.tensor_float_32_execution_enabled())

    def onednn() -> bool:
        from tensorflow.python.util import _pywrap_util_port

        return bool(_pywrap_util_port.IsMklEnabled())

    _try(flags, "op_determinism", determinism)
    _try(flags, "tensor_float_32", tf32)
    _try(flags, "onednn_built_in", onednn)
    _try(flags, "jit", lambda: bool(context.optimizer_jit))
    _try(flags, "global_seed", lambda: context._seed)  # the attribute: reading the property would not change it either
    _try(info, "build", _build)
    return info


def _build() -> dict[str, str]:
    from tensorflow.python.platform import build_info

    wanted = ("cuda_version", "cudnn_version", "is_cuda_build", "is_rocm_build")
    return {key: str(build_info.build_info[key]) for key in wanted if key in build_info.build_info}


def _value(ask: Any) -> Any:
    try:
        return ask()
    except Exception:  # an installation without it
        return None


def _try(info: dict[str, Any], key: str, ask: Any) -> None:
    value = _value(ask)
    if value is not None:
        info[key] = value


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor()
