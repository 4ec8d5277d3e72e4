"""How the process of a run was set up, as far as it reaches a kernel, for a process that runs one op of it again."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# Variables that choose kernels or how they compute. A replay has those of the recorded run and no others of them. None
# of them names a file: a trace may come from anywhere.
_FAMILIES = (
    "TF_ENABLE_", "TF_DISABLE_", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "TF_DETERMINISTIC_OPS",
    "TF_CUDNN_", "TF_FP16_", "TF_USE_", "TF_MATMUL_", "TF_ONEDNN_", "TF_SET_ONEDNN_", "TF_GPU_",
)  # fmt: skip
_SINGLE = frozenset({
    "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "ONEDNN_DEFAULT_FPMATH_MODE", "DNNL_DEFAULT_FPMATH_MODE",
    "ONEDNN_CPU_ISA_HINTS", "OMP_NUM_THREADS", "CUBLAS_WORKSPACE_CONFIG", "NVIDIA_TF32_OVERRIDE",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Settings:
    """Threads (0: as many as there are cores), environment variables and flags of a recorded run."""

    intra_op: int
    inter_op: int
    environment: Mapping[str, str]
    op_determinism: bool
    tensor_float_32: bool
    cpus: int  # logical CPU devices


def reaches(name: str) -> bool:
    """Whether an environment variable reaches a kernel."""
    return name in _SINGLE or name.startswith(_FAMILIES)


def of(info: Mapping[str, Any], device: str) -> Settings:
    """The settings of a run from its RunInfo. device: `/device:CPU:1`, which wants two logical CPUs.

    A run that had a thread for each core of another machine gets that many threads here.
    """
    threads, flags, variables = (_mapping(info.get(key)) for key in ("threads", "flags", "environment"))
    kept = {
        str(name): str(value)
        for name, value in sorted(variables.items())
        if reaches(str(name)) and not str(value).startswith("sha256:")
    }
    intra_op = _number(threads.get("intra_op"))
    cores = _number(_mapping(info.get("machine")).get("cores"))
    if not intra_op and cores != os.cpu_count() and "TF_NUM_INTRAOP_THREADS" not in kept:
        intra_op = cores
    kind, _, number = device.removeprefix("/device:").partition(":")
    return Settings(
        intra_op=intra_op,
        inter_op=_number(threads.get("inter_op")),
        environment=kept,
        op_determinism=flags.get("op_determinism") is True,
        tensor_float_32=flags.get("tensor_float_32") is not False,
        cpus=int(number) + 1 if kind == "CPU" and number.isdecimal() else 1,
    )


def process_environment(settings: Settings) -> dict[str, str]:
    """The environment for a fresh process: this one's, with what reaches kernels as in the recorded run."""
    return {name: value for name, value in os.environ.items() if not reaches(name)} | dict(settings.environment)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _number(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 100_000 else 0
