"""What can be changed from outside, cheapest first, and which treatment a cause in the knowledge base asks for.

Runs nothing. The lines to paste are the knowledge base's where it has them.
"""

import re
from collections.abc import Mapping, Sequence
from shlex import quote

from tfbisect.knowledge import entries, settings
from tfbisect.knowledge.entry import Setting
from tfbisect.model import Culprit
from tfbisect.remedy import Treatment

SEED = "1"
# Variables that TensorFlow, its libraries and Python read by themselves; any other is the program's own.
_LIBRARIES = re.compile(r"TF_|PYTHON|ONEDNN_|DNNL_|OMP_|MKL_|XLA_|CUDA_|CUDNN_|CUBLAS_|NCCL_|KERAS_")


def _by_environment(setting: Setting, cost: int, *more: Setting, gpu: bool = False) -> Treatment:
    assert setting.env is not None
    stands_for = (setting.name, *(each.name for each in more))
    return Treatment(setting.name, (setting.line,), cost, environment=(setting.env,), stands_for=stands_for, gpu=gpu)


PYTHON_SEED = Treatment(
    "Python's seed",
    (f"random.seed({SEED})  # behind the imports; layers of Keras 3 draw their default seeds from it",),
    cost=0,
    actions=(("seed_python", SEED),),
    stands_for=(settings.SEED_ALL.name,),
)
NUMPY_SEED = Treatment(
    "NumPy's seed",
    (f"numpy.random.seed({SEED})  # reaches numpy.random.*, not generators of numpy.random.default_rng()",),
    cost=0,
    actions=(("seed_numpy", SEED),),
    stands_for=(settings.SEED_ALL.name,),
)
TENSORFLOW_SEED = Treatment(
    "TensorFlow's seed",
    (f"tf.random.set_seed({SEED})  # in v1 programs tf.compat.v1.set_random_seed({SEED}), in each graph",),
    cost=0,
    actions=(("seed_tensorflow", SEED),),
    stands_for=(
        settings.SEED_ALL.name, settings.SEED_GLOBAL.name, settings.SEED_OP.name, settings.SEED_SHUFFLE.name,
    ),
)  # fmt: skip
ALL_SEEDS = (PYTHON_SEED, NUMPY_SEED, TENSORFLOW_SEED)
HASH_SEED = _by_environment(settings.HASH_SEED, 1, settings.SORTED)
FIT_UNSHUFFLED = Treatment(
    "fit(shuffle=False)",
    ("model.fit(..., shuffle=False)  # the rows then come in one order, which trains otherwise",),
    cost=2,
    actions=(("fit_unshuffled",),),
    stands_for=(settings.SEED_SHUFFLE.name,),
)
ORDERED_DATA = Treatment(
    settings.ORDERED_DATA.name,
    (settings.ORDERED_DATA.line,),
    cost=2,
    actions=(("data_ordered",),),
    stands_for=(settings.ORDERED_DATA.name,),
)
SERIAL_LOOPS = Treatment(
    settings.SERIAL_LOOP.name,
    (settings.SERIAL_LOOP.line,),
    cost=3,
    actions=(("loops_serial",),),
    stands_for=(settings.SERIAL_LOOP.name,),
)
ONEDNN_OFF = _by_environment(settings.ONEDNN_OFF, 4)
SERIAL_DATA = Treatment(
    "serial tf.data",
    (settings.SERIAL_MAP.line,),
    cost=5,
    actions=(("data_serial",),),
    stands_for=(settings.SERIAL_MAP.name,),
)
OP_DETERMINISM = Treatment(
    settings.OP_DETERMINISM.name,
    (settings.SEED_ALL.line, settings.OP_DETERMINISM.line),
    cost=6,
    # Random ops raise under it without a seed.
    actions=(*(action for seed in ALL_SEEDS for action in seed.actions), ("op_determinism",)),
    stands_for=(settings.OP_DETERMINISM.name, settings.DETERMINISTIC_OPS_VARIABLE.name),
    note="with all seeds, since random ops raise under it without one",
)
ONE_INTRA_OP_THREAD = _by_environment(settings.ONE_INTRA_OP_THREAD, 7, settings.SAME_THREADS)
ONE_INTER_OP_THREAD = Treatment(
    "one inter-op thread",
    ("tf.config.threading.set_inter_op_parallelism_threads(1)",),
    cost=7,
    environment=(("TF_NUM_INTEROP_THREADS", "1"),),
    stands_for=(settings.PROGRAM_ORDER.name, settings.CONTROL_DEPENDENCIES.name),
)
TF32_OFF = Treatment(
    settings.TF32_OFF.name,
    (settings.TF32_OFF.line,),
    cost=5,
    actions=(("no_tf32",),),
    stands_for=(settings.TF32_OFF.name,),
    gpu=True,
)
CUDNN_DETERMINISTIC = _by_environment(settings.CUDNN_DETERMINISTIC, 4, gpu=True)
CPU_ONLY = Treatment(
    "the CPU only",
    ('os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # before importing tensorflow',),
    cost=20,
    environment=(("CUDA_VISIBLE_DEVICES", "-1"),),
    gpu=True,
)

CATALOGUE = tuple(
    sorted(
        (
            *ALL_SEEDS, HASH_SEED, FIT_UNSHUFFLED, ORDERED_DATA, SERIAL_LOOPS, ONEDNN_OFF, SERIAL_DATA,
            OP_DETERMINISM, ONE_INTRA_OP_THREAD, ONE_INTER_OP_THREAD, TF32_OFF, CUDNN_DETERMINISTIC, CPU_ONLY,
        ),
        key=lambda treatment: treatment.cost,
    )
)  # fmt: skip


def equal_variables(a: Mapping[str, str], b: Mapping[str, str]) -> tuple[Treatment, ...]:
    """For each environment variable in `b`, run B's own, that run A has otherwise: A's value in both runs."""
    found = []
    for name in sorted(name for name, value in b.items() if a.get(name) != value):
        value = a.get(name)
        line = f"unset {name}" if value is None else f"export {name}={quote(value)}"
        own = "" if _LIBRARIES.match(name) else "the program reads it itself: with two values it is two programs"
        found.append(
            Treatment(f"one {name}", (f"{line}  # for both runs",), cost=0, environment=((name, value),), note=own)
        )
    return tuple(found)


def applicable(gpu: bool) -> tuple[Treatment, ...]:
    """The treatments that can change something, cheapest first. The CPU alone is no cure for a GPU."""
    return tuple(each for each in CATALOGUE if (gpu or not each.gpu) and each is not CPU_ONLY)


def asked_for(culprits: Sequence[Culprit], gpu: bool) -> tuple[Treatment, ...]:
    """What the causes of these culprits ask for and can be done from outside: best cause first, then cheapest first."""
    known = {entry.id: entry for entry in entries()}
    found: dict[str, Treatment] = {}
    for culprit in culprits:
        for cause in culprit.causes:
            entry = known.get(cause.id)
            cures = entry.cures if entry is not None else ()
            asked = [treatment for setting in cures for treatment in _for_setting(setting, culprit)]
            for treatment in sorted(asked, key=lambda treatment: treatment.cost):
                if gpu or not treatment.gpu:
                    found.setdefault(treatment.name, treatment)
    return tuple(found.values())


def _for_setting(setting: Setting, culprit: Culprit) -> tuple[Treatment, ...]:
    found = tuple(each for each in _seeds_first(culprit) if setting.name in each.stands_for)
    if found:
        return found
    if setting.name == settings.ON_CPU.name:
        return _pinned(culprit)
    return (_by_environment(setting, 5),) if setting.env is not None else ()


def _seeds_first(culprit: Culprit) -> list[Treatment]:
    """The catalogue with the seed first that this culprit most likely draws from."""
    first = NUMPY_SEED if culprit.category == "host" else TENSORFLOW_SEED
    if any(cause.id == "keras-layer-seed" for cause in culprit.causes[:1]):
        first = PYTHON_SEED
    return [first, *(each for each in CATALOGUE if each is not first)]


def _pinned(culprit: Culprit) -> tuple[Treatment, ...]:
    """The culprit's op type on the CPU, where it ran elsewhere."""
    if "CPU" in culprit.device.upper() or not culprit.op_type.isalnum():
        return ()
    return (
        Treatment(
            f"{culprit.op_type} on the CPU",
            (settings.ON_CPU.line,),
            cost=8,
            actions=(("pin", culprit.op_type, "CPU:0"),),
            gpu=True,
        ),
    )


def to_paste(treatments: Sequence[Treatment]) -> tuple[str, ...]:
    """The lines of these treatments, each once; all seeds in one line."""
    lines: dict[str, None] = {}
    together = set(ALL_SEEDS) <= set(treatments)
    for treatment in treatments:
        own = (settings.SEED_ALL.line,) if together and treatment in ALL_SEEDS else treatment.lines
        lines.update(dict.fromkeys(own))
    return tuple(lines)
