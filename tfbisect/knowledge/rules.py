"""When a cause can be the cause: hazards (settings under which equal runs differ) and rules over the evidence.

Holds no facts about single ops.
"""

from collections.abc import Mapping

from tfbisect.knowledge.entry import Confidence, Evidence, Hazard, Rule

# Settings as patterns over flattened RunInfo keys; case does not matter, "!" excludes.
THREADS = (
    "threads.*",
    "*TF_NUM_INTRAOP_THREADS",
    "*TF_NUM_INTEROP_THREADS",
    "*OMP_NUM_THREADS",
    "machine.cores",
    "*cpu_count*",
)
ONEDNN = ("*TF_ENABLE_ONEDNN_OPTS", "flags.onednn*", "*TF_ENABLE_MKL*", "*DNNL_*")
INSTRUCTIONS = ("machine.processor", "machine.architecture", "*ONEDNN_MAX_CPU_ISA", "*cpu_model*")
XLA = ("*xla*", "*jit*")
TF32 = ("*tensor_float_32*", "*tf32*")
AUTOTUNE = ("*autotune*", "*cudnn*", "*cublas*", "!build.*")
DETERMINISM = ("*op_determinism*", "*TF_DETERMINISTIC_OPS", "*TF_CUDNN_DETERMINISTIC", "determinism.*")
VERSIONS = (
    "versions.tensorflow",
    "build.*",
    "*cuda_version*",
    "*cudnn_version*",
    "*driver*",
    "versions.keras",
    "versions.numpy",
    "versions.ml_dtypes",
)
DEVICES = ("devices*", "*CUDA_VISIBLE_DEVICES", "*HIP_VISIBLE_DEVICES", "machine.gpu*", "*gpu_name*")
PRECISION = (*TF32, "*dtype_policy*", "*mixed_precision*", "*floatx*", "*TF_FP16*")
HASH = ("*PYTHONHASHSEED", "*hash_seed*", "*hash_randomization*")
SEEDS = ("seeds.*", "*global_seed", "*random_seed")
PROGRAM = (
    "environment.*",
    "argv*",
    "!environment.TF_*",
    "!environment.ONEDNN_*",
    "!environment.XLA_*",
    "!environment.OMP_*",
    "!environment.TFBISECT*",
    "!environment.PYTHONHASHSEED",
)
ANY_SETTING = ("*", "!time", "!pid", "!cwd", "!tfbisect", "!options*", "!digest*")

KERNEL_CATEGORIES = ("", "kernel", "race", "unknown")


def gpu_unless_deterministic(evidence: Evidence) -> bool:
    return evidence.on("GPU") and not evidence.op_determinism


def gpu_scatter(evidence: Evidence) -> bool:
    """A race between scattered updates that op determinism removes, unless it was told to leave the scatters alone."""
    told = (evidence.variable("TF_DISABLE_SCATTER_OP_DETERMINISM") or "").lower() in ("1", "true")
    return evidence.on("GPU") and (told or not evidence.op_determinism)


def gpu_always(evidence: Evidence) -> bool:
    return evidence.on("GPU")


def cpu_threads(evidence: Evidence) -> bool:
    """A race between intra-op threads that op determinism removes."""
    return evidence.on("CPU") and not evidence.one_thread and not evidence.op_determinism


def cpu_threads_always(evidence: Evidence) -> bool:
    """A race between intra-op threads that op determinism leaves in."""
    return evidence.on("CPU") and not evidence.one_thread


def always(evidence: Evidence) -> bool:
    return True


def kernel(hazard: Hazard, *, exact_dtypes: bool = False, level: Confidence = "high") -> Rule:
    """A pure kernel that varies by itself: `level` when the settings allow it.

    Floats only unless `exact_dtypes`. When the runs were set up differently too, that is the likelier reason.
    """

    def rule(evidence: Evidence) -> Confidence | None:
        if not hazard(evidence) or not (exact_dtypes or evidence.floating):
            return None
        if evidence.category in KERNEL_CATEGORIES:
            return level if evidence.device else weaker(level)
        return weaker(level) if evidence.category == "environment" else None

    return rule


def setting_differs(patterns: tuple[str, ...], *, level: Confidence = "high", category: str = "environment") -> Rule:
    """A repeatable op whose bits follow a setting, and that setting differs between the runs."""

    def rule(evidence: Evidence) -> Confidence | None:
        if evidence.category != category or not evidence.differing(patterns):
            return None
        return level

    return rule


def by_category(levels: Mapping[str, Confidence]) -> Rule:
    """The category alone decides; "" is an op whose category is not known."""

    def rule(evidence: Evidence) -> Confidence | None:
        return levels.get(evidence.category)

    return rule


def in_category(*categories: str, level: Confidence = "medium") -> Rule:
    def rule(evidence: Evidence) -> Confidence | None:
        return level if evidence.category in categories else None

    return rule


def race(
    level: Confidence = "high", *, weak: Confidence = "medium", unsettled: tuple[str, ...] = ("state", "input")
) -> Rule:
    """An order of side effects: `level` if the comparison saw a race, `weak` if it saw what a race leaves behind."""

    def rule(evidence: Evidence) -> Confidence | None:
        if evidence.category == "race":
            return level
        return weak if evidence.category in unsettled or evidence.category == "" else None

    return rule


def weaker(level: Confidence) -> Confidence:
    return "medium" if level == "high" else "low"
