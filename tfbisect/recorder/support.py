"""What is supported here: the installation, the private TensorFlow names that recording needs, and a trial recording.

Imports TensorFlow and runs a few ops; records nothing of a program. The names are those of `private`.
"""

import importlib
import importlib.metadata
import os
import platform
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfbisect import recorder, trace
from tfbisect.errors import first_line
from tfbisect.model import GraphKind, SiteKind
from tfbisect.recorder import private, runinfo

PACKAGES = ("tensorflow", "keras", "numpy", "h5py", "xxhash", "rich", "ml_dtypes", "shtab", "pytest")
# Settings that decide whether a program repeats; tf.config and tf.keras.utils may set more while it runs.
SETTINGS = (
    "TF_DETERMINISTIC_OPS", "TF_CUDNN_DETERMINISTIC", "TF_ENABLE_ONEDNN_OPTS", "TF_NUM_INTRAOP_THREADS",
    "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS", "TF_XLA_FLAGS", "XLA_FLAGS", "NVIDIA_TF32_OVERRIDE",
    "CUBLAS_WORKSPACE_CONFIG", "CUDA_VISIBLE_DEVICES", "TF_USE_LEGACY_KERAS", "KERAS_BACKEND", "PYTHONHASHSEED",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Support:
    """problems: what keeps recording from working here, in words; [] if nothing does."""

    system: str
    packages: Mapping[str, str | None]
    devices: tuple[str, ...]
    cuda: str
    xla: str
    missing: tuple[str, ...]
    recording: str
    settings: Mapping[str, str | None]
    problems: tuple[str, ...]


def examine() -> Support:
    """Look at this installation, and record a small function. Raises nothing that TensorFlow raises."""
    packages = {name: _version(name) for name in PACKAGES}
    settings: dict[str, str | None] = {name: os.environ.get(name) for name in SETTINGS}
    system = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    try:
        tf: Any = importlib.import_module("tensorflow")
    except Exception as error:
        problem = f"TensorFlow cannot be imported: {first_line(error)}"
        return Support(system, packages, (), "unknown", "unknown", (), "not tried", settings, (problem,))
    lacking = private.lacking()
    missing = tuple(name.where for name in lacking)
    problems = [f"{private.sentence([name])}: {name.part.value}" for name in lacking]
    recorded = "not tried"
    if not missing:
        recorded, problem = _trial(tf)
        problems += [problem] if problem else []
    build = tf.sysconfig.get_build_info()
    cuda = f"built with {build.get('cuda_version')}" if build.get("is_cuda_build") else "not in this build"
    devices = tuple(f"{device.name.rpartition('physical_device:')[2]}" for device in tf.config.list_physical_devices())
    xla, effective = _xla(tf), runinfo.of_process()
    settings |= {f"in effect: {key}": str(value) for key, value in sorted(effective.get("flags", {}).items())}
    settings |= {f"in effect: {key} threads": str(value) for key, value in effective.get("threads", {}).items()}
    return Support(system, packages, devices, cuda, xla, missing, recorded, settings, tuple(problems))


def _trial(tf: Any) -> tuple[str, str]:
    """(what recording a small function gave, what is wrong with it or "")."""

    @tf.function  # type: ignore[untyped-decorator]
    def step(x: Any) -> Any:
        return tf.reduce_sum(tf.nn.relu(x) * 2.0)

    try:
        plain = float(step(tf.constant([1.0, -2.0, 3.0])))
        with tempfile.TemporaryDirectory(prefix="tfbisect-doctor-") as folder:
            path = Path(folder) / "trial.h5"
            with recorder.record(path):
                recorded = float(step(tf.constant([1.0, -2.0, 3.0])))
            run = trace.load(path)
    except Exception as error:
        return "failed", f"recording failed: {type(error).__name__}: {first_line(error)}"
    twins = [graph for graph in run.graphs if graph.kind == GraphKind.TWIN]
    outputs = int((run.sites["kind"][run.events["site"]] == SiteKind.OUTPUT).sum())
    if recorded != plain:
        return "failed", f"a recorded function gave {recorded}, the plain one {plain}"
    if not run.complete:
        return "failed", f"the recording ended early: {'; '.join(run.problems)}"
    if not twins:
        reasons = "; ".join(item.reason for item in run.opaque)
        return "from outside only", f"the graph of a function could not be had: {reasons}"
    return f"works: {outputs} outputs of ops recorded, the result is the same", ""


def _xla(tf: Any) -> str:
    @tf.function(jit_compile=True)  # type: ignore[untyped-decorator]
    def double(x: Any) -> Any:
        return x * 2.0

    try:
        double(tf.constant(1.0))
    except Exception as error:
        return f"does not compile here: {first_line(error)}"
    return "works; compiled functions are recorded from outside, or with --xla expand op by op without XLA"


def _version(package: str) -> str | None:
    for name in (package, f"{package}-cpu", f"{package}_cpu"):
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None
