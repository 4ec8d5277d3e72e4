"""What is true of a whole category, for ops that no entry knows: where to look and what to run next.

Claims no mechanism for a single op.
"""

from tfbisect.knowledge.entry import Entry, Rule
from tfbisect.knowledge.rules import ANY_SETTING, in_category
from tfbisect.knowledge.settings import (
    CONTROL_DEPENDENCIES,
    ONE_INTRA_OP_THREAD,
    OP_DETERMINISM,
    PROGRAM_ORDER,
    SAME_SETTINGS,
    SEED_ALL,
    doing,
)
from tfbisect.knowledge.sources import DETERMINISM, NVIDIA_PAGE

_ANYWHERE = ("CPU", "GPU", "TPU")


def _unexplained(category: str) -> Rule:
    return in_category(category, level="low")


ENTRIES = (
    Entry(
        id="kernel-unknown",
        title="A kernel that gave other bits for equal inputs",
        op_types=("*",),
        devices=_ANYWHERE,
        rule=_unexplained("kernel"),
        any_op=True,
        generic=True,
        mechanism="No source names this op. A kernel varies when threads combine floats in arrival order, when its "
        "algorithm is picked by timing, when it reads memory it never wrote, or when an input was not recorded.",
        explanation="On this device {known}. Run it alone on the same inputs many times: if it varies there, the "
        "kernel is at fault; if it repeats, the cause is its surroundings.",
        cures=(
            doing(ONE_INTRA_OP_THREAD, "as a trial: if it repeats then, threads raced in this kernel"),
            doing(OP_DETERMINISM, "picks a deterministic kernel or raises, where TensorFlow has a check"),
        ),
        workaround="Try oneDNN off, then the CPU: what makes it repeat points to the cause.",
        sources=(DETERMINISM,),
        grade="source",
    ),
    Entry(
        id="environment-unknown",
        title="The runs were set up differently",
        op_types=("*",),
        devices=_ANYWHERE,
        rule=lambda evidence: "low" if evidence.category == "environment" and evidence.differing(ANY_SETTING) else None,
        any_op=True,
        generic=True,
        settings=ANY_SETTING,
        mechanism="Bits are only promised for equal hardware, versions and settings.",
        explanation="{op} got equal inputs under another set-up: {settings}.",
        cures=(SAME_SETTINGS,),
        workaround="Change one setting at a time until the runs agree.",
        sources=(DETERMINISM,),
        grade="source",
    ),
    Entry(
        id="rng-unknown",
        title="Random numbers were different",
        op_types=("*",),
        devices=_ANYWHERE,
        rule=_unexplained("rng"),
        any_op=True,
        generic=True,
        mechanism="A draw differs when its seed differs, when its stream started elsewhere, or when draws swapped.",
        explanation="The numbers drawn at {op} differ: look for a seed that was not set, or for one more draw before "
        "this one.",
        cures=(SEED_ALL,),
        workaround="Seed this op or layer by itself.",
        sources=("https://www.tensorflow.org/api_docs/python/tf/random/set_seed", DETERMINISM),
        grade="source",
    ),
    Entry(
        id="input-unknown",
        title="Other data came in",
        op_types=("*",),
        devices=_ANYWHERE,
        rule=_unexplained("input"),
        any_op=True,
        generic=True,
        mechanism="An array, a file, a feed or an element of a dataset was different when TensorFlow got it.",
        explanation="{op} is the first op that took data which differs: compare the arrays, files and their order "
        "before they reach TensorFlow.",
        cures=(SEED_ALL,),
        workaround="Print a hash of the data in both runs. A seed set for everything does not reach generators that "
        "the program makes itself, such as numpy.random.default_rng(): give each its own.",
        sources=(NVIDIA_PAGE, DETERMINISM),
        grade="source",
    ),
    Entry(
        id="state-unknown",
        title="State differed before it was used",
        op_types=("*",),
        devices=_ANYWHERE,
        rule=_unexplained("state"),
        any_op=True,
        generic=True,
        mechanism="A variable, table or iterator held something else when the op read it, and no recorded op wrote "
        "the difference.",
        explanation="The state that {op} read had differed before: look at what made it (initial values, a "
        "checkpoint, code before the recording).",
        cures=(SEED_ALL,),
        workaround="Record from the start of the program, so that the writer is seen.",
        sources=("https://www.tensorflow.org/guide/checkpoint", DETERMINISM),
        grade="source",
    ),
    Entry(
        id="race-unknown",
        title="The same side effects came in another order",
        op_types=("*",),
        devices=_ANYWHERE,
        rule=_unexplained("race"),
        any_op=True,
        generic=True,
        mechanism="Ops or threads that share state ran in another order, and nothing in the program fixes it: v1 "
        "graphs, Python threads that share a variable, overlapping loop iterations, parallel input stages.",
        explanation="{op} shares state with something that ran earlier in one run and later in the other; nothing in "
        "the program orders the two.",
        cures=(CONTROL_DEPENDENCIES, PROGRAM_ORDER),
        workaround="Run the threads or ops that share the state one after another.",
        sources=(DETERMINISM, "tensorflow/python/framework/auto_control_deps.py"),
        grade="source",
    ),
    Entry(
        id="structure-unknown",
        title="The runs executed different ops or shapes",
        op_types=("*",),
        devices=_ANYWHERE,
        rule=_unexplained("structure"),
        any_op=True,
        generic=True,
        mechanism="Python built another graph, took another branch, or fed other shapes: conditions on values, "
        "flags, environment variables, versions, batch sizes, the number of files.",
        explanation="From {op} on the runs did different things. Look at the condition, the shape or the iteration "
        "order that decides it.",
        cures=(SEED_ALL,),
        workaround="Compare the arguments and the environment of the two runs.",
        sources=(NVIDIA_PAGE, "https://www.tensorflow.org/guide/function"),
        grade="source",
    ),
)
