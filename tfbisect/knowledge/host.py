"""Python in and around the graph: callbacks, values frozen at tracing, hash order, feeds, clocks.

Data that enters through tf.data is in `tfdata`; seeds of Keras layers are in `random_ops`.
"""

from tfbisect.knowledge.entry import Confidence, Entry, Evidence, Setting
from tfbisect.knowledge.rules import HASH, PROGRAM, always, by_category
from tfbisect.knowledge.settings import HASH_SEED, OP_DETERMINISM, SAME_SETTINGS, SEED_ALL, SEED_CALLBACK, SORTED, doing
from tfbisect.knowledge.sources import DETERMINISM, MEASURED, NVIDIA_PAGE, REGISTRY, WHEELS, issue, kernel_file
from tfbisect.knowledge.tfdata import ELEMENT

_CALLBACKS = ("PyFunc", "PyFuncStateless", "EagerPyFunc")
_ARITHMETIC = (
    "Mul",
    "AddV2",
    "Sub",
    "RealDiv",
    "DivNoNan",
    "Atan2",
    "Maximum",
    "Minimum",
    "Pow",
    "SelectV2",
    "Neg",
    "_EagerConst",
)
_STARTED = by_category({"host": "medium", "structure": "medium", "environment": "low", "input": "low", "state": "low"})


def _callback(evidence: Evidence) -> Confidence | None:
    if evidence.category in ("input", "state", "structure"):
        return "medium"
    return "medium" if evidence.category == "environment" and evidence.differing(PROGRAM) else "high"


def _started_differently(evidence: Evidence) -> Confidence | None:
    if not evidence.differing(PROGRAM):
        return None
    if evidence.op_type in _CALLBACKS:
        return "high" if evidence.category in ("environment", "host", "kernel") else "medium"
    return _STARTED(evidence)


def _structure_hash(evidence: Evidence) -> Confidence | None:
    if evidence.category not in ("structure", "host"):
        return None
    differing = evidence.differing(HASH)
    if evidence.category == "structure":
        # What the program was told to do otherwise explains other ops better than a guess at a set.
        told = bool(evidence.differing(PROGRAM))
        likely = hash_is_salted(evidence) and evidence.op_type not in ELEMENT and not told
        return "high" if differing else "medium" if likely else "low"
    return "medium" if differing else None


def hash_is_salted(evidence: Evidence) -> bool:
    """Whether string hashes were different in every process: no PYTHONHASHSEED in run A, as far as that is known."""
    return bool(evidence.info) and evidence.variable("PYTHONHASHSEED") in (None, "", "random")


def _signed_zero(evidence: Evidence) -> Confidence | None:
    if evidence.category != "host" or not evidence.floating:
        return None
    if evidence.difference is not None:
        return "high" if evidence.difference.kind == "zero_sign" else None
    return "low"


ENTRIES = (
    Entry(
        id="python-callback",
        title="Python code inside the graph returned something else",
        op_types=_CALLBACKS,
        devices=("CPU", "GPU"),
        rule=_callback,
        varies=always,
        condition="tf.py_function or tf.numpy_function",
        mechanism="The op runs arbitrary Python: unseeded random numbers, numpy.random.default_rng (which no global "
        "seed reaches), hash() of strings, the order of sets, clocks, files, environment variables and state shared "
        "between calls. Parallel maps and loops call it in any order, and from several threads.",
        explanation="{op} runs Python code of the program, and with equal inputs it returned something else: look "
        "for random numbers, hashes, time, threads, environment variables or shared state in that function.",
        cures=(
            SEED_CALLBACK,
            SEED_ALL,
            HASH_SEED,
            doing(OP_DETERMINISM, "makes parallel tf.data maps around it serial (measured); checks nothing inside"),
        ),
        useless=("tf.keras.utils.set_random_seed does not reach numpy.random.default_rng().",),
        workaround="Make the function depend on its arguments alone: pass a seed in, and build the generator inside.",
        sources=(DETERMINISM, "tensorflow/python/ops/script_ops.py", NVIDIA_PAGE, MEASURED),
        grade="measured",
    ),
    Entry(
        id="started-differently",
        title="The program was started with other settings of its own",
        op_types=("*",),
        devices=("CPU", "GPU", "TPU"),
        rule=_started_differently,
        any_op=True,
        settings=PROGRAM,
        condition="an environment variable or an argument of the program differs",
        mechanism="Python reads environment variables and arguments and decides by them what to build, load, feed or "
        "compute.",
        explanation="The runs were started with other settings ({settings}), and the program's Python code can read "
        "them.",
        cures=(SAME_SETTINGS,),
        workaround="Start both runs with the same arguments and variables, then compare again.",
        sources=("https://docs.python.org/3/library/os.html#os.environ", DETERMINISM),
        grade="source",
    ),
    Entry(
        id="traced-python-value",
        title="A value from Python was frozen into the graph when it was traced",
        op_types=("Const",),
        devices=("CPU", "GPU", "TPU"),
        rule=by_category({"host": "high", "rng": "high", "input": "medium", "structure": "medium", "": "low"}),
        condition="NumPy or Python values used inside a tf.function",
        mechanism="A tf.function runs its Python once, while it is traced. Whatever NumPy, random, time or a file "
        "gives at that moment becomes a constant and stays for the whole run; the next run freezes another one.",
        explanation="The constant was made from a Python or NumPy value while the function was traced; it is drawn "
        "once, frozen for the whole run, and other in the next run.",
        cures=(
            SEED_ALL,
            Setting(
                "a value drawn in the graph",
                "code",
                "noise = tf.random.stateless_uniform(shape, seed=[7, step])  # instead of np.random inside the "
                "tf.function",
                "2.0",
                "drawn at every call, and repeatable",
            ),
            Setting(
                "a value passed in",
                "code",
                "train_step(x, labels, tf.constant(noise))  # draw it outside, pass it as an argument",
                "2.0",
                "the caller decides, and seeds",
            ),
        ),
        useless=("tf.random.set_seed does not reach NumPy.", "Op determinism does not see Python values."),
        workaround="Seed NumPy before the first call of the function.",
        sources=(issue(60848), "https://www.tensorflow.org/guide/function", DETERMINISM),
        grade="source",
    ),
    Entry(
        id="hash-order",
        title="A set (or another hash order) decides the order of ops and variables",
        op_types=("*",),
        devices=("CPU", "GPU", "TPU"),
        rule=_structure_hash,
        any_op=True,
        settings=HASH,
        condition="the program iterates over a set of strings, or over hash() values, while it builds the model",
        mechanism="Python salts the hashes of strings anew in every process, so the iteration order of a set of "
        "names differs between runs (and is constant within one). Layers, variables, captured inputs and seeds then "
        "come in another order. dict keeps insertion order.",
        explanation="From {op} on the runs built or executed other ops, or the same in another order. Iterating over "
        "a set of names does that, since Python salts string hashes in every process ({settings}).",
        cures=(SORTED, HASH_SEED),
        useless=("Seeds do not fix the order of a set.", "Op determinism does not see Python."),
        workaround="Keep names in a list or a dict.",
        sources=(
            "https://docs.python.org/3/using/cmdline.html#envvar-PYTHONHASHSEED",
            "https://github.com/keras-team/keras/issues/2280",
            "https://github.com/GPflow/GPflow/pull/648",
            MEASURED,
        ),
        grade="measured",
    ),
    Entry(
        id="eager-scalar-zero",
        title="Eager mode's cache of scalars takes 0.0 and -0.0 for one value",
        op_types=_ARITHMETIC,
        devices=("CPU", "GPU"),
        rule=_signed_zero,
        condition="eager code that uses both 0.0 and -0.0 as Python scalars in one process",
        mechanism="Eager TensorFlow caches tensors made from Python scalars, and its key compares them with ==. "
        "Whichever of 0.0 and -0.0 came first is handed out for both, so the sign of a zero depends on what ran "
        "before; atan2 and division turn it into pi or infinity.",
        explanation="A Python scalar that {op} takes is 0.0 in one run and -0.0 in the other: eager mode caches "
        "scalars and takes the two for one value, so an earlier use decides the sign.",
        cures=(
            Setting(
                "a NumPy scalar instead of a Python scalar",
                "code",
                "x * np.float32(0.0)  # instead of x * 0.0 or tf.constant(0.0), which both go through the cache",
                "2.0",
                "no cached tensor is handed out (measured)",
            ),
        ),
        workaround="Avoid -0.0 literals in eager code, or run the code in a tf.function.",
        sources=("tensorflow/python/eager/pywrap_tensor_conversion.cc", issue(61939), MEASURED),
        grade="measured",
    ),
    Entry(
        id="python-value",
        title="A value from Python was different",
        op_types=("*",),
        devices=("CPU", "GPU", "TPU"),
        rule=lambda evidence: (
            "medium" if evidence.category == "host" and evidence.op_type not in (*_CALLBACKS, "Const") else None
        ),
        any_op=True,
        generic=True,
        mechanism="TensorFlow got other values from Python before it computed anything.",
        explanation="{op} is the first op that took a Python value which differs. Look at that value on the line "
        "shown: random numbers, hashes, time, files, environment variables, command-line arguments.",
        cures=(SEED_ALL,),
        workaround="Print the value in both runs.",
        sources=(DETERMINISM, NVIDIA_PAGE),
        grade="source",
    ),
    Entry(
        id="fed-value",
        title="The value was fed from Python",
        op_types=("Placeholder", "PlaceholderV2", "PlaceholderWithDefault"),
        devices=("CPU", "GPU"),
        rule=lambda evidence: "high" if evidence.category in ("input", "host", "") else "medium",
        mechanism="A placeholder has no kernel: whatever differs was in the feed_dict.",
        explanation="{op} only passes on what the program fed: compare the feeds of the two runs.",
        cures=(SEED_ALL,),
        workaround="Hash the arrays before they are fed.",
        sources=("https://www.tensorflow.org/api_docs/python/tf/compat/v1/placeholder", NVIDIA_PAGE),
        grade="source",
    ),
    Entry(
        id="wall-clock",
        title="The time of day",
        op_types=("Timestamp",),
        devices=("CPU",),
        rule=lambda evidence: "high",
        varies=always,
        mechanism="The op returns the wall clock.",
        cures=(
            Setting(
                "time as data",
                "code",
                "step_fn(x, now=tf.constant(0.0))  # pass the time in",
                "1.0",
                "the caller decides",
            ),
        ),
        raises="yes",
        raises_note="FailedPreconditionError, from 2.7",
        error_fragments=("Timestamp cannot be called",),
        workaround="Pass time in as data.",
        sources=(kernel_file("logging_ops.cc"), WHEELS, MEASURED),
        grade="measured",
    ),
    Entry(
        id="request-batching",
        title="Requests are batched by arrival time",
        op_types=("Batch", "BatchFunction"),
        devices=("CPU", "GPU"),
        rule=lambda evidence: "high" if evidence.category in ("race", "input", "kernel", "structure", "") else None,
        varies=always,
        mechanism="Requests that arrive close together share a batch, up to a time limit; the size of the batch, its "
        "padding and with it the kernels' blocking follow the arrival times.",
        cures=(
            Setting(
                "no batching",
                "code",
                "tf.nondifferentiable_batch_function(1, 1, 0)  # one thread, batches of one",
                "2.0",
                "fixed batches",
            ),
        ),
        workaround="Bypass the batching while debugging, or send requests from one caller.",
        sources=(REGISTRY, issue(46770)),
        grade="source",
    ),
    Entry(
        id="table-export-order",
        title="A table is exported in the order of its hash map",
        op_types=("LookupTableExport", "LookupTableExportV2"),
        devices=("CPU",),
        rule=lambda evidence: "low" if evidence.category in ("kernel", "state", "race") else None,
        mechanism="No order is promised. It was the same within a process, across processes and across thread counts "
        "for string and integer keys (2.21), so do not blame it first.",
        cures=(),
        workaround="Sort the keys after the export: order = tf.argsort(keys).",
        sources=(REGISTRY, MEASURED),
        grade="measured",
    ),
)
