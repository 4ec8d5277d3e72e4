"""The checklist that people pass around, judged for one program by what was tried on it.

Runs nothing. An item is wasted when the runs repeat without it, when it was tried and changed nothing, or when what it
acts on is not there; one that was not tried, or under which the program fails, says so.
"""

from collections.abc import Collection, Sequence

from tfbisect.model import Culprit
from tfbisect.remedy import Advice, Need, Treatment, Trial
from tfbisect.treatments import (
    CPU_ONLY,
    CUDNN_DETERMINISTIC,
    FIT_UNSHUFFLED,
    HASH_SEED,
    NUMPY_SEED,
    ONE_INTER_OP_THREAD,
    ONE_INTRA_OP_THREAD,
    OP_DETERMINISM,
    PYTHON_SEED,
    TENSORFLOW_SEED,
)

_TRIED = (
    ("random.seed", PYTHON_SEED),
    ("numpy.random.seed", NUMPY_SEED),
    ("tf.random.set_seed", TENSORFLOW_SEED),
    ("PYTHONHASHSEED", HASH_SEED),
    ("fit(shuffle=False)", FIT_UNSHUFFLED),
    ("one intra-op thread", ONE_INTRA_OP_THREAD),
    ("one inter-op thread", ONE_INTER_OP_THREAD),
    ("tf.config.experimental.enable_op_determinism", OP_DETERMINISM),
)
_SUMS = ("Sum", "Mean", "BiasAddGrad", "UnsortedSegmentSum", "SegmentSum")


def checklist(
    minimal: Collection[str], trials: Sequence[Trial], culprits: Sequence[Culprit], gpu: bool, modules: Collection[str]
) -> tuple[Advice, ...]:
    """Each item with what it is worth here. `minimal`: names of the set that cures, empty if none does."""

    def judged(item: str, treatment: Treatment) -> Advice:
        return Advice(item, *_worth(treatment, minimal, trials, gpu))

    found = [judged(item, treatment) for item, treatment in _TRIED]
    splits, numpy = "random_state of scikit-learn's splits", found[1]
    if "sklearn" in modules:
        found.append(Advice(splits, numpy.need, f"they draw from NumPy's generator: {numpy.reason}"))
    else:
        found.append(Advice(splits, "wasted", "the program does not use scikit-learn"))
    layers = "seeds of layers and initializers"
    drawn = any(cause.id == "keras-layer-seed" for culprit in culprits for cause in culprit.causes[:1])
    if drawn and PYTHON_SEED.name in minimal:
        found.append(Advice(layers, "would do too", "Keras draws them from Python's random, whose seed is set instead"))
    else:
        found.append(Advice(layers, "wasted", "no layer's seed is what made these runs differ"))
    found.append(judged("the CPU only", CPU_ONLY))
    found.append(judged("deterministic cuDNN (TF_CUDNN_DETERMINISTIC)", CUDNN_DETERMINISTIC))
    found.append(
        Advice(
            "the tensorflow-determinism package",
            "wasted",
            "retired: from TensorFlow 2.8 tf.config.experimental.enable_op_determinism() does what its patch did",
        )
    )
    sums = [culprit for culprit in culprits if culprit.category == "kernel" and culprit.op_type in _SUMS]
    for item in ("a dot product with ones instead of reduce_sum", "integer or quantised sums"):
        if sums and not minimal:
            reason = f"{sums[0].op_type} is the op that differs, and no setting cures it"
            found.append(Advice(item, "would do too", reason))
        else:
            found.append(Advice(item, "wasted", "no sum is the first op that differs"))
    return tuple(found)


def _worth(treatment: Treatment, minimal: Collection[str], trials: Sequence[Trial], gpu: bool) -> tuple[Need, str]:
    if treatment.name in minimal:
        return "needed", "without it the runs differ"
    if treatment.gpu and not gpu:
        return "wasted", "the program ran on the CPU"
    alone = next((trial for trial in trials if trial.settings == (treatment.name,)), None)
    if alone is not None and alone.raised is not None:
        return "wasted", f"the program fails with it: {alone.raised.message}"
    if alone is not None and alone.identical == alone.pairs:
        return "would do too", f"{alone.identical} of {alone.pairs} pairs identical with it alone"
    if alone is None and minimal:
        return "wasted", "the runs repeat without it"
    tried = [trial for trial in trials if treatment.name in trial.settings]
    if any(trial.raised is None for trial in tried):
        return "wasted", "tried, and the runs still differed"
    return "wasted", "the program fails with the settings it was tried with" if tried else "not tried"
