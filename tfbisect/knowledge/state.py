"""Variables, tables and other state: what differed before the run, and side effects that nothing orders.

Races inside one kernel are in `cpu_threads` and `gpu_atomics`; generators are in `random_ops`.
"""

from tfbisect.knowledge.entry import Confidence, Entry, Evidence, Setting
from tfbisect.knowledge.rules import race
from tfbisect.knowledge.settings import CONTROL_DEPENDENCIES, OP_DETERMINISM, PROGRAM_ORDER, SEED_ALL, doing
from tfbisect.knowledge.sources import (
    AUTO_CONTROL,
    DETERMINISM,
    MAKE_DETERMINISTIC,
    MEASURED,
    NVIDIA_PAGE,
    REGISTRY,
    RFC,
    VARIABLE_V1,
    issue,
)

_READS = (
    "ReadVariableOp",
    "ResourceGather",
    "ResourceGatherNd",
    "VarHandleOp",
    "VariableV2",
    "Variable",
    "_ReadVariablesOp",
)
_UPDATES = (
    "ResourceApply*",
    "Apply*",
    "ResourceSparseApply*",
    "AssignVariableOp",
    "AssignAddVariableOp",
    "AssignSubVariableOp",
)
_RESOURCE_VARIABLES = Setting(
    "resource variables",
    "python",
    "tf.compat.v1.enable_resource_variables()  # before the first variable",
    "1.11",
    "a read gives a value of its own instead of the variable's buffer",
)
_SESSION = "Op determinism does not order side effects in a v1 Session (measured)."
_ONE_INTER = "One inter-op thread reduces these races but does not remove them: the calling thread works beside the "
"pool (measured)."


def _other_start(evidence: Evidence) -> Confidence | None:
    return "medium" if evidence.category == "state" else None


def _aliased(evidence: Evidence) -> Confidence | None:
    return "medium" if evidence.category == "race" else "low" if evidence.category in ("kernel", "state") else None


ENTRIES = (
    Entry(
        id="state-not-restored",
        title="State that the checkpoint did not hold: optimizer slots, counters, generators",
        op_types=(*_READS, *_UPDATES, "LookupTableFindV2", "StatelessRandomGetKeyCounter"),
        devices=("CPU", "GPU", "TPU"),
        rule=lambda evidence: "high" if evidence.category == "state" else None,
        condition="one run continued another (restore, load, a rebuilt optimizer) and the other did not",
        mechanism="A checkpoint restores the objects it tracks and no others. An optimizer that is built anew starts "
        "with zero momentum and step 0, a model saved as weights has no optimizer at all, and generators and data "
        "iterators start over. The first step after the restore still looks right; the first read of the forgotten "
        "state does not.",
        explanation="{op} read state that differed before anything recorded wrote it. After a restore that is "
        "usually state the checkpoint did not hold, such as optimizer slots, step counters or generator states.",
        cures=(
            Setting(
                "a complete checkpoint",
                "code",
                "tf.train.Checkpoint(model=model, optimizer=optimizer, step=step)  # ... .read(path).assert_consumed()",
                "2.0",
                "the optimizer's slots are saved and restored with the weights, and what is missing is named",
            ),
            Setting(
                "a complete Keras file",
                "code",
                'model.save("model.keras")  # weights, optimizer and compile state; not save_weights',
                "2.12",
                "keras.models.load_model gives the optimizer back",
            ),
        ),
        useless=("Seeds and op determinism do not bring state back.",),
        workaround="Compare the optimizer's variables in both runs right after the restore.",
        sources=(issue(27049), issue(40342), "https://www.tensorflow.org/guide/checkpoint"),
        grade="source",
    ),
    Entry(
        id="state-other-start",
        title="The variable started from another value",
        op_types=(*_READS, *_UPDATES),
        devices=("CPU", "GPU", "TPU"),
        rule=_other_start,
        condition="initial weights drawn without a seed, other files loaded, a variable written before recording began",
        mechanism="Nothing that was recorded wrote the variable, so it came with its value: from an initializer that "
        "drew unseeded numbers, from a file, or from code that ran before the recorder.",
        explanation="The variable read by {op} already differed when the recording began: unseeded initial weights, "
        "another weights file, or code that ran earlier.",
        cures=(SEED_ALL,),
        workaround="Record from the start of the program, or print a hash of the weights before training.",
        sources=(NVIDIA_PAGE, DETERMINISM),
        grade="source",
    ),
    Entry(
        id="race-assign-add",
        title="Several updates of one variable are applied in scheduling order",
        op_types=("AssignAdd", "AssignSub", "AssignAddVariableOp", "AssignSubVariableOp"),
        devices=("CPU", "GPU"),
        rule=race("high", weak="medium", unsettled=("state", "kernel")),
        condition="v1 graphs with more than one update of a variable",
        mechanism="Updates of a resource variable are atomic but not ordered, so a float sum depends on the schedule "
        "(30 results in 250 runs). With reference variables and use_locking=False two updates can also overwrite "
        "each other.",
        explanation="Several ops such as {op} add to one variable with no order between them; float sums depend on "
        "the order.",
        cures=(
            Setting(
                "one update",
                "code",
                "variable.assign_add(tf.add_n(increments))  # sum first, assign once",
                "1.0",
                "one update, one order",
            ),
            CONTROL_DEPENDENCIES,
            PROGRAM_ORDER,
        ),
        useless=(_SESSION, _ONE_INTER, "use_locking=True prevents lost updates, not another order (measured)."),
        workaround="Sum the increments first.",
        sources=(MEASURED, VARIABLE_V1, AUTO_CONTROL, DETERMINISM),
        grade="measured",
    ),
    Entry(
        id="race-read-write",
        title="A read and a write of one variable have no order",
        op_types=(
            *_READS,
            "AssignVariableOp",
            "Assign",
            "AssignAddVariableOp",
            "AssignSubVariableOp",
            "AssignAdd",
            "AssignSub",
        ),
        devices=("CPU", "GPU"),
        rule=race("high", weak="low", unsettled=("state", "kernel")),
        condition="v1 graphs and Sessions, or a variable that several Python threads use",
        mechanism="In a v1 graph nothing orders a read and an assignment unless a control dependency does, so the "
        "read returns the old or the new value (18 results in 250 runs). The read's only input is the handle, so its "
        "inputs look equal. In tf.function resource ops keep program order.",
        explanation="{op} and a write of the same variable have no order in this graph, so a read sees the old or "
        "the new value.",
        cures=(CONTROL_DEPENDENCIES, PROGRAM_ORDER),
        useless=(_SESSION, _ONE_INTER),
        workaround="Decide whether the read must see the update, and make the one depend on the other.",
        sources=(
            "https://github.com/rwth-i6/returnn/issues/1205",
            AUTO_CONTROL,
            VARIABLE_V1,
            DETERMINISM,
            MEASURED,
        ),
        grade="measured",
    ),
    Entry(
        id="race-reference-variable",
        title="A reference variable's buffer was read while it changed",
        op_types=("VariableV2", "Variable", "Identity", "Switch", "RefSwitch"),
        devices=("CPU", "GPU"),
        rule=_aliased,
        condition="v1 reference variables",
        mechanism="A reference variable hands out its own buffer. An Identity, or the predicate of a tf.cond, can "
        "alias it and so see a later write.",
        cures=(_RESOURCE_VARIABLES,),
        useless=(_SESSION,),
        workaround="Make variables with use_resource=True.",
        sources=(VARIABLE_V1,),
        grade="source",
    ),
    Entry(
        id="race-optimizer-step",
        title="An optimizer step has no order against reads of its variable",
        op_types=("ResourceApply*", "Apply*"),
        devices=("CPU", "GPU"),
        rule=race("medium", weak="low", unsettled=("state",)),
        condition="v1 graphs with gate_gradients below GATE_GRAPH, parameter servers, asynchronous replicas",
        mechanism="The dense step itself repeats. In a v1 graph it may begin before all reads of the old weights are "
        "done, and asynchronous replicas apply their steps in any order; parameter servers are outside every "
        "guarantee.",
        cures=(
            Setting(
                "gated gradients",
                "code",
                "optimizer.minimize(loss, gate_gradients=tf.compat.v1.train.Optimizer.GATE_GRAPH)",
                "1.0",
                "all gradients are computed before any is applied",
            ),
            PROGRAM_ORDER,
        ),
        useless=(_SESSION,),
        workaround="Train synchronously.",
        sources=(NVIDIA_PAGE, "tensorflow/python/training/optimizer.py", DETERMINISM),
        grade="source",
    ),
    Entry(
        id="race-accumulator",
        title="Gradients are accumulated as they arrive",
        op_types=(
            "AccumulatorApplyGradient",
            "SparseAccumulatorApplyGradient",
            "ResourceAccumulatorApplyGradient",
            "*AccumulatorTakeGradient",
        ),
        devices=("CPU", "GPU"),
        rule=race("high", weak="high", unsettled=("state", "kernel")),
        varies=lambda evidence: evidence.op_type.endswith("ApplyGradient"),
        condition="SyncReplicasOptimizer and other v1 towers",
        mechanism="Parallel towers add to one accumulator in arrival order (30 results in 250 runs with 16 of them).",
        cures=(CONTROL_DEPENDENCIES,),
        useless=(_SESSION,),
        workaround="Average the towers' gradients with tf.add_n, two at a time if bits must not depend on the "
        "schedule.",
        sources=(MEASURED, REGISTRY, RFC),
        grade="measured",
    ),
    Entry(
        id="race-staging",
        title="A staging area is filled and drained without an order",
        op_types=("Stage", "Unstage", "MapStage", "MapUnstage", "OrderedMapStage", "OrderedMapUnstage"),
        devices=("CPU", "GPU"),
        rule=race("medium", weak="low"),
        condition="v1 graphs with several puts or gets in a run",
        mechanism="Stage and unstage ops of one area meet like the two ends of a queue, with no order among several "
        "of them.",
        cures=(CONTROL_DEPENDENCIES,),
        workaround="One put and one get per step.",
        sources=(REGISTRY, RFC),
        grade="inferred",
    ),
    Entry(
        id="race-table",
        title="A mutable table is read and written without an order",
        op_types=(
            "LookupTableFind",
            "LookupTableFindV2",
            "LookupTableInsert",
            "LookupTableInsertV2",
            "LookupTableRemoveV2",
            "LookupTableSizeV2",
        ),
        devices=("CPU", "GPU"),
        rule=race("high", weak="low", unsettled=("state",)),
        condition="v1 graphs, or a table that a tf.data pipeline and a training step share",
        mechanism="A mutable table is shared state; lookups and inserts of a v1 graph, or of a prefetching pipeline "
        "beside the step, interleave freely.",
        cures=(
            CONTROL_DEPENDENCIES,
            PROGRAM_ORDER,
            doing(OP_DETERMINISM, "tf.data stages with such state run serially"),
        ),
        workaround="Use immutable tables in pipelines.",
        sources=(MAKE_DETERMINISTIC, REGISTRY),
        grade="inferred",
    ),
    Entry(
        id="race-tensor-array-gradient",
        title="Repeated writes to one slot of a gradient TensorArray add up in any order",
        op_types=(
            "TensorArrayGrad",
            "TensorArrayGradV2",
            "TensorArrayGradV3",
            "TensorArrayWrite",
            "TensorArrayWriteV2",
            "TensorArrayWriteV3",
        ),
        devices=("CPU", "GPU"),
        rule=race("medium", weak="low", unsettled=("kernel",)),
        condition="v1 while loops whose body reads one slot more than once",
        mechanism="Gradient TensorArrays accumulate what is written to one slot; from overlapping iterations the "
        "order is open.",
        cures=(
            Setting(
                "new control flow",
                "python",
                "tf.compat.v1.enable_control_flow_v2()",
                "1.15",
                "loops use TensorLists, which are values",
            ),
        ),
        workaround="parallel_iterations=1 on the loop.",
        sources=(REGISTRY, RFC),
        grade="inferred",
    ),
)
