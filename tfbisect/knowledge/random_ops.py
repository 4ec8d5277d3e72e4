"""Random numbers made by TensorFlow ops and Keras: seeds, streams kept in kernels, draws that race.

Shuffles and draws inside tf.data are in `tfdata`; Python's and NumPy's own generators are in `host`.
"""

from tfbisect.knowledge.entry import Confidence, Entry, Evidence, Setting, Steady
from tfbisect.knowledge.rules import SEEDS, THREADS, by_category, setting_differs
from tfbisect.knowledge.settings import (
    CONTROL_DEPENDENCIES,
    GENERATOR,
    PROGRAM_ORDER,
    SAME_THREADS,
    SEED_ALL,
    SEED_GLOBAL,
    SEED_OP,
    SERIAL_LOOP,
    STATELESS_RANDOM,
)
from tfbisect.knowledge.sources import (
    AUTO_CONTROL,
    DETERMINISM,
    MEASURED,
    NVIDIA_PAGE,
    RANDOM_SEED,
    REGISTRY,
    RFC,
    WHEELS,
    issue,
    kernel_file,
)

LEGACY = (
    "RandomUniform",
    "RandomUniformInt",
    "RandomStandardNormal",
    "ParameterizedTruncatedNormal",
    "TruncatedNormal",
    "RandomShuffle",
    "Multinomial",
    "RandomGamma",
    "RandomPoisson",
    "RandomPoissonV2",
)
_SAMPLERS = (
    "UniformCandidateSampler",
    "LogUniformCandidateSampler",
    "LearnedUnigramCandidateSampler",
    "ThreadUnsafeUnigramCandidateSampler",
    "FixedUnigramCandidateSampler",
    "AllCandidateSampler",
)
_GENERATOR_OPS = (
    "StatefulStandardNormal",
    "StatefulStandardNormalV2",
    "StatefulUniform",
    "StatefulUniformInt",
    "StatefulUniformFullInt",
    "StatefulTruncatedNormal",
    "StatefulRandomBinomial",
    "RngSkip",
    "RngReadAndSkip",
)
_STATELESS = (
    "StatelessRandom*",
    "StatelessTruncatedNormal*",
    "StatelessMultinomial",
    "StatelessShuffle",
    "RandomIndexShuffle",
)
_RAISES = "unseeded use raises from 2.7: RuntimeError through the Python API, InvalidArgumentError for the raw op"
_FRAGMENTS = ("random ops must have a seed", "Random ops require a seed to be set")


def seeds_of(evidence: Evidence) -> bool | None:
    """Whether the op has a seed of its own; None when its attributes are not known."""
    values = [evidence.attrs[key] for key in ("seed", "seed2") if key in evidence.attrs]
    return any(value not in (0, None) for value in values) if values else None


def unseeded(evidence: Evidence) -> bool:
    """A random op that may seed itself from the system."""
    own = seeds_of(evidence)
    return own is False or (own is None and evidence.seeded is not True)


def _unseeded(evidence: Evidence) -> Confidence | None:
    if evidence.category not in ("rng", "kernel", "") or not unseeded(evidence):
        return None
    known = seeds_of(evidence) is False or evidence.seeded is False
    return "high" if known or evidence.category == "rng" and not evidence.in_loop else "medium"


def _in_loop(evidence: Evidence) -> Confidence | None:
    """Iterations of one loop, or calls of a parallel map, compete for the kernel's stream."""
    if evidence.category == "race":
        return "high"
    if evidence.category not in ("rng", "kernel", ""):
        return None
    if evidence.in_loop:
        return "medium" if evidence.seeded is False and seeds_of(evidence) is not True else "high"
    return None


def _order(evidence: Evidence) -> Confidence | None:
    """Only the global seed is set: the op's own seed counts the ops created before it."""
    if evidence.category not in ("rng", "structure") or evidence.seeded is False:
        return None
    if evidence.category == "structure":
        return "low"
    return "medium" if evidence.seeded and not evidence.in_loop else "low"


def _layer_seed(evidence: Evidence) -> Confidence | None:
    """No random op drew it: Python chose the value that seeds the generator."""
    if evidence.category != "rng" or evidence.random:
        return None
    return "high"


ENTRIES = (
    Entry(
        id="random-seed-shift",
        title="Seed shift: an op that one run made before this one took its seed",
        op_types=(*LEGACY, *_SAMPLERS, "RandomCrop", "RandomShuffleQueue", "RandomShuffleQueueV2"),
        devices=("CPU", "GPU", "TPU"),
        rule=lambda evidence: "high" if evidence.seed_shift else None,
        condition="only the global seed is set, and one run makes a random op more (a draw for debugging, a layer)",
        mechanism="With a global seed alone, the seed of an op counts the random ops made before it in its graph (in "
        "older releases all ops), and in eager mode it is the next draw of a generator. One more op above shifts the "
        "seeds of all ops below.",
        explanation="{seed_shift}. Without a seed of its own, an op gets one that depends on what was made before it.",
        cures=(SEED_OP, STATELESS_RANDOM),
        workaround="Give each random op and each layer a seed of its own; then what is made before does not matter.",
        sources=(RANDOM_SEED, "https://www.tensorflow.org/api_docs/python/tf/random/set_seed", MEASURED),
        grade="measured",
    ),
    Entry(
        id="random-unseeded",
        title="A random op without a seed",
        op_types=LEGACY,
        devices=("CPU", "GPU", "TPU"),
        rule=_unseeded,
        varies=unseeded,
        condition="neither a global seed nor a seed of its own (attributes seed and seed2 are both 0)",
        mechanism="With both seeds 0 the kernel seeds itself from the system, so every process draws other numbers. "
        "tf.random.shuffle and Keras's fit(shuffle=True) end in RandomShuffle.",
        explanation="{op} drew from a generator that was seeded by the system: no global seed and none of its own.",
        cures=(SEED_ALL, SEED_GLOBAL, SEED_OP),
        useless=("Op determinism does not seed anything: it makes unseeded ops raise.",),
        raises="partial",
        raises_note=_RAISES,
        error_fragments=_FRAGMENTS,
        workaround="Set all seeds before the model is built, or pass seed= to this op.",
        sources=(f"{RANDOM_SEED} and tf.random.set_seed", DETERMINISM, WHEELS, MEASURED),
        grade="measured",
    ),
    Entry(
        id="random-in-loop",
        title="Overlapping iterations compete for one stream of random numbers",
        op_types=(*LEGACY, "While", "StatelessWhile", "Enter", "NextIteration"),
        devices=("CPU", "GPU"),
        rule=_in_loop,
        varies=lambda evidence: evidence.in_loop,
        condition="a stateful random op inside a loop, tf.map_fn or a parallel tf.data map, seeded or not",
        mechanism="A seeded kernel keeps its generator inside and moves it on at every call. tf.while_loop, "
        "tf.map_fn and `for` over a tensor run up to ten iterations at once, and tf.function puts no order between "
        "these ops, so which iteration gets which number depends on scheduling: all seeds set, 91 results in 200 "
        "runs. Resource ops keep their order; these ops do not.",
        explanation="{op} keeps its stream in the kernel, and loop iterations (or parallel map calls) that overlap "
        "take their numbers in scheduling order, even with all seeds set.",
        cures=(SERIAL_LOOP, STATELESS_RANDOM, GENERATOR),
        useless=(
            "Seeds do not help: the numbers are the same, their assignment is not.",
            "Op determinism does not help inside loops (measured: 100 results in 200); in tf.data maps it does.",
        ),
        raises="no",
        workaround="Draw all numbers at once before the loop and index them by the iteration.",
        sources=(issue(9230), issue(14663), AUTO_CONTROL, issue(44491), MEASURED),
        grade="measured",
    ),
    Entry(
        id="random-creation-order",
        title="The seed of this op counts the random ops created before it",
        op_types=(*LEGACY, *_SAMPLERS, "RandomCrop"),
        devices=("CPU", "GPU", "TPU"),
        rule=_order,
        condition="only the global seed is set, and the program creates its ops in another order or adds one",
        mechanism="With a global seed alone, an op's own seed is the number of random ops made in its graph so far "
        "(older releases: of all ops), or in eager mode the next draw of a generator. Code that builds in another "
        "order, because of a set, a flag, a log line or one more layer, shifts every later seed.",
        explanation="Only the global seed is set, so the seed of {op} counts what was created before it; if the runs "
        "build in another order, every later draw changes.",
        cures=(SEED_OP, STATELESS_RANDOM),
        workaround="Give each random op and each layer a seed of its own.",
        sources=(RANDOM_SEED, "https://www.tensorflow.org/api_docs/python/tf/random/set_seed"),
        grade="source",
    ),
    Entry(
        id="keras-layer-seed",
        title="A Keras layer drew its default seed with Python's random module",
        op_types=(
            "Cast",
            "Pack",
            "Const",
            "_EagerConst",
            "VarHandleOp",
            "AssignVariableOp",
            "ReadVariableOp",
            "StatelessRandomGetKeyCounter",
            "StatelessRandomGetAlg",
            *_STATELESS,
        ),
        devices=("CPU", "GPU", "TPU"),
        rule=_layer_seed,
        condition="Keras 3: Dropout, initializers and random layers without a seed of their own, Python's random not "
        "seeded",
        mechanism="Keras 3 layers that draw numbers (Dropout, random augmentation, initializers) keep a seed "
        "generator. Without seed= its start value comes from random.randint of Python, so tf.random.set_seed and "
        "NumPy's seed do not reach it. It enters TensorFlow as a plain value that is cast and stored in a variable.",
        explanation="The value that seeds this generator was chosen in Python. Keras 3 layers such as Dropout take "
        "their default seed from Python's random module, which tf.random.set_seed does not reach.",
        cures=(
            SEED_ALL,
            Setting(
                "a seed for the layer",
                "code",
                "keras.layers.Dropout(0.3, seed=1)",
                "2.16 (Keras 3)",
                "this layer alone repeats",
            ),
        ),
        useless=(
            "tf.random.set_seed alone: the seed is drawn by Python's random.",
            "Op determinism does not seed anything.",
        ),
        workaround="Call keras.utils.set_random_seed(1), or random.seed(1), before the layers are made.",
        sources=(
            "keras/src/random/seed_generator.py (Keras 3.15, make_default_seed)",
            "https://github.com/NVIDIA/framework-reproducibility/pull/15",
        ),
        grade="source",
    ),
    Entry(
        id="random-stateless-seed",
        title="A stateless random op repeats its seed input exactly",
        op_types=_STATELESS,
        devices=("CPU", "GPU", "TPU"),
        rule=lambda evidence: "medium" if evidence.category in ("state", "host", "kernel") else None,
        mechanism="These ops have no hidden state: equal key and counter give equal numbers. When one differs, the "
        "seed it read differs, most often a seed-generator variable of a Keras layer.",
        explanation="{op} depends on its seed alone: look at the variable or the Python value it got its seed from.",
        cures=(SEED_ALL,),
        workaround="Set all seeds before the layer that owns the seed variable is made.",
        sources=("tensorflow/python/ops/stateless_random_ops.py", MEASURED),
        grade="measured",
    ),
    Entry(
        id="random-generator-state",
        title="Draws from one generator happen in another order",
        op_types=_GENERATOR_OPS,
        devices=("CPU", "GPU", "TPU"),
        rule=by_category({"race": "high", "rng": "medium", "state": "medium", "": "low"}),
        condition="v1 graphs and Sessions, several threads, or a generator that was made from another seed",
        mechanism="tf.random.Generator ops read and advance a variable. tf.function keeps their order, also in loops "
        "(measured); a v1 graph does not, and there parallel draws take states in any order (18 results in 250 with "
        "op determinism on).",
        explanation="{op} advances the state of a generator; draws that are not ordered, or a generator that started "
        "elsewhere, give other numbers.",
        cures=(PROGRAM_ORDER, GENERATOR, CONTROL_DEPENDENCIES),
        useless=("Op determinism does not order draws in a v1 Session (measured).",),
        raises="partial",
        raises_note="making a generator from the system's entropy raises RuntimeError; the ops themselves do not raise",
        workaround="Draw with stateless random ops, one seed for each use.",
        sources=("tensorflow/python/ops/stateful_random_ops.py", DETERMINISM, MEASURED),
        grade="measured",
    ),
    Entry(
        id="random-system-entropy",
        title="Numbers taken from the operating system",
        op_types=("NonDeterministicInts",),
        devices=("CPU", "GPU", "TPU"),
        rule=lambda evidence: "high",
        varies=lambda evidence: True,
        mechanism="The op returns entropy of the system by design; "
        "tf.random.Generator.from_non_deterministic_state() uses it.",
        cures=(GENERATOR,),
        useless=("Seeds and op determinism do not change it (the raw op does not even raise, measured).",),
        raises="partial",
        raises_note="the Python wrapper raises RuntimeError, the raw op does not",
        workaround="Build generators with from_seed.",
        sources=(REGISTRY, "tensorflow/python/ops/stateful_random_ops.py", MEASURED),
        grade="measured",
    ),
    Entry(
        id="random-box",
        title="A random box or pooling grid that ignores the global seed",
        op_types=(
            "SampleDistortedBoundingBox",
            "SampleDistortedBoundingBoxV2",
            "FractionalMaxPool",
            "FractionalAvgPool",
        ),
        devices=("CPU",),
        rule=lambda evidence: (
            "high" if evidence.category in ("rng", "kernel", "") and seeds_of(evidence) is not True else None
        ),
        varies=lambda evidence: seeds_of(evidence) is not True,
        condition="no seed of its own; the pooling ops need deterministic=True as well in the v1 API",
        mechanism="These ops do not take the global seed: without one of their own they draw a new box or grid on "
        "every call.",
        cures=(
            SEED_OP,
            Setting(
                "a stateless box",
                "code",
                "tf.image.stateless_sample_distorted_bounding_box(size, boxes, seed=[7, step])",
                "2.4",
                "the box depends on its seed alone",
            ),
        ),
        useless=("tf.random.set_seed alone does not reach these ops.",),
        raises="partial",
        raises_note="the Python API raises ValueError without a seed, the raw box op InvalidArgumentError; raw "
        "FractionalMaxPool does not raise",
        workaround="Pass seed= (and deterministic=True to the v1 pooling functions).",
        sources=(
            RFC,
            "tensorflow/python/ops/image_ops_impl.py",
            "tensorflow/python/ops/nn_ops.py",
            NVIDIA_PAGE,
            MEASURED,
        ),
        grade="measured",
    ),
    Entry(
        id="random-sampler-unseeded",
        title="A sampler without a seed",
        op_types=(*_SAMPLERS, "RandomCrop", "RandomShuffleQueue", "RandomShuffleQueueV2"),
        devices=("CPU", "GPU"),
        rule=_unseeded,
        varies=unseeded,
        condition="neither a global seed nor a seed of its own",
        mechanism="Stateful samplers and shuffling queues seed themselves from the system when both their seeds are "
        "0. A shuffling queue also depends on the order in which its producers filled it.",
        cures=(SEED_GLOBAL, SEED_OP),
        raises="partial",
        raises_note="unseeded use raises",
        error_fragments=_FRAGMENTS,
        workaround="Pass seed=; replace the queue by tf.data and random_crop by tf.image.stateless_random_crop.",
        sources=(REGISTRY, MEASURED),
        grade="inferred",
    ),
    Entry(
        id="random-thread-count",
        title="Seeded samples follow the number of threads",
        op_types=("Multinomial",),
        devices=("CPU",),
        rule=lambda evidence: (
            setting_differs(THREADS)(evidence) or setting_differs(THREADS, level="medium", category="rng")(evidence)
        ),
        settings=THREADS,
        condition="the runs had different thread counts",
        mechanism="Each shard skips ahead in the stream by a fixed number of draws per row, so how the rows are "
        "sharded changes the samples: with one seed, 1 thread gave other samples than 2 or 8.",
        explanation="{op} gives other samples for another number of threads, even with one seed ({settings}).",
        cures=(
            SAME_THREADS,
            Setting("stateless samples", "code", "tf.random.stateless_categorical(logits, n, seed=[7, step])", "2.0"),
        ),
        workaround="Use the same thread count in every run.",
        sources=(kernel_file("multinomial_op.cc"), MEASURED),
        grade="measured",
    ),
    Entry(
        id="random-seeds-differ",
        title="The runs were started with different seeds",
        op_types=("*",),
        devices=("CPU", "GPU", "TPU"),
        rule=setting_differs(SEEDS, category="rng"),
        any_op=True,
        settings=SEEDS,
        mechanism="A seed that the recorder saw is not the same in both runs, so every draw after it differs, as it "
        "should.",
        explanation="The runs were started with different seeds ({settings}).",
        cures=(SEED_ALL,),
        workaround="Start both runs with the same seed, then compare again.",
        sources=("https://www.tensorflow.org/api_docs/python/tf/random/set_seed",),
        grade="source",
    ),
)

STEADY = (
    Steady(
        (
            "StatelessRandomUniformV2",
            "StatelessRandomNormalV2",
            "StatelessRandomUniformIntV2",
            "StatelessRandomGetKeyCounter",
        ),
        ("CPU",),
        "Equal seeds give equal numbers: one result in 200 repetitions of StatelessRandomUniformV2, with 1, 2 and 8 "
        "threads.",
        (MEASURED, "tensorflow/python/ops/stateless_random_ops.py"),
        "measured",
    ),
)
