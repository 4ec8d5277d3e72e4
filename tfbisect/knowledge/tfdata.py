"""tf.data and older input pipelines: shuffles, parallel stages, sources, queues; all of it surfaces at one get_next op.

A dataset runs outside the recorded graph, so most entries here speak of the op where the element comes out.
"""

from tfbisect.knowledge.entry import Confidence, Entry, Evidence, Setting
from tfbisect.knowledge.rules import always, by_category, race
from tfbisect.knowledge.settings import (
    CONTROL_DEPENDENCIES,
    OP_DETERMINISM,
    ORDERED_DATA,
    SEED_ALL,
    SEED_SHUFFLE,
    SERIAL_MAP,
    SORTED,
    STATELESS_RANDOM,
    doing,
)
from tfbisect.knowledge.sources import DETERMINISM, MAKE_DETERMINISTIC, MEASURED, NVIDIA_PAGE, REGISTRY, RFC, issue

ELEMENT = ("IteratorGetNext", "IteratorGetNextSync", "IteratorGetNextAsOptional", "MultiDeviceIteratorGetNextFromShard")
_REWRITE = doing(OP_DETERMINISM, "tf.data keeps order and runs stateful functions one after another (measured)")
_STATEFUL_STAGES = (
    "ParallelMapDataset",
    "ParallelMapDatasetV2",
    "MapAndBatchDataset",
    "ParallelInterleaveDatasetV2",
    "ParallelInterleaveDatasetV3",
    "ParallelInterleaveDatasetV4",
)
_SHUFFLES = (
    "ShuffleDataset",
    "ShuffleDatasetV2",
    "ShuffleDatasetV3",
    "ShuffleAndRepeatDataset",
    "ShuffleAndRepeatDatasetV2",
    "RandomDataset",
    "RandomDatasetV2",
    "DirectedInterleaveDataset",
    "SamplingDataset",
)


def _shuffle(evidence: Evidence) -> Confidence | None:
    """Other elements: an unseeded shuffle is likely unless the global seed was set."""
    if evidence.category == "race":
        return None  # equal elements, only the order or the assignment differs
    if evidence.category not in ("input", "rng", "kernel", ""):
        return None
    if evidence.seeded:
        return "low"
    return "high" if evidence.seeded is False or evidence.op_type not in ELEMENT else "medium"


def _stateful_map(evidence: Evidence) -> Confidence | None:
    if evidence.op_determinism:
        return None
    if evidence.category == "race":
        return "high"
    if evidence.category in ("input", "rng", "kernel", ""):
        return "medium" if evidence.seeded is not False else "low"
    return None


def _out_of_order(evidence: Evidence) -> Confidence | None:
    if evidence.op_determinism:
        return None
    deterministic = str(evidence.attrs.get("deterministic", "")).lower()
    if deterministic == "true":
        return None
    if evidence.category == "race":
        return "high" if deterministic == "false" else "medium"
    return "low" if evidence.category in ("input", "kernel", "") else None


ENTRIES = (
    Entry(
        id="tfdata-unseeded-shuffle",
        title="A shuffle, sample or random dataset without a seed",
        op_types=(*ELEMENT, *_SHUFFLES),
        devices=("CPU", "GPU", "TPU"),
        rule=_shuffle,
        varies=lambda evidence: evidence.op_type not in ELEMENT and evidence.seeded is not True,
        condition="no seed argument and no global seed; Keras's fit shuffles arrays unless shuffle=False",
        mechanism="The order comes from a generator that is seeded by the system unless a seed is given. It also "
        "concerns Dataset.list_files, which shuffles unless told not to, sample_from_datasets and Dataset.random. "
        "With reshuffle_each_iteration epoch 2 differs from epoch 1 by design; two runs agree epoch by epoch once "
        "they are seeded.",
        explanation="Other elements, or another order, came out of the input pipeline: an unseeded shuffle is the "
        "usual reason (model.fit shuffles arrays by default, Dataset.list_files shuffles file names).",
        cures=(SEED_ALL, SEED_SHUFFLE),
        useless=("Op determinism does not seed a shuffle: without a global seed it raises.",),
        raises="partial",
        raises_note="unseeded use raises RuntimeError when no global seed is set either",
        workaround="Pass shuffle=False or seed=, and make the datasets in the same program order in both runs.",
        versions="before 2.3 reshuffling under MirroredStrategy varied as well",
        sources=(DETERMINISM, issue(38197), "https://github.com/keras-team/keras/issues/8906", NVIDIA_PAGE, MEASURED),
        grade="measured",
    ),
    Entry(
        id="tfdata-parallel-stateful-map",
        title="Parallel map calls share one generator, counter or table",
        op_types=(*ELEMENT, *_STATEFUL_STAGES),
        devices=("CPU", "GPU", "TPU"),
        rule=_stateful_map,
        varies=lambda evidence: evidence.op_type in _STATEFUL_STAGES and not evidence.op_determinism,
        condition="num_parallel_calls with random ops (tf.image.random_*), py_function state or tables in the function",
        mechanism="deterministic=True keeps the order of the elements, not the order of the calls: functions with "
        "state run at the same time, so which element gets which number varies even with all seeds set (200 results "
        "in 200 runs).",
        explanation="Calls of a parallel map compete for one stream of random numbers (or for other state), so which "
        "element gets which number varies, even with seeds and deterministic=True.",
        cures=(_REWRITE, SERIAL_MAP, STATELESS_RANDOM),
        useless=("Seeds and deterministic=True do not help here.",),
        workaround="Draw the random parameters in a serial map first and pass them to a parallel map without state.",
        sources=(issue(13932), issue(44491), MAKE_DETERMINISTIC, DETERMINISM, NVIDIA_PAGE, MEASURED),
        grade="measured",
    ),
    Entry(
        id="tfdata-out-of-order",
        title="A parallel stage may hand out whatever is ready first",
        op_types=(
            *ELEMENT,
            *_STATEFUL_STAGES,
            "ParallelInterleaveDataset",
            "ExperimentalParallelInterleaveDataset",
            "LegacyParallelInterleaveDatasetV2",
            "ParallelBatchDataset",
            "ParallelFilterDataset",
            "ParseExampleDataset",
            "ParseExampleDatasetV2",
        ),
        devices=("CPU", "GPU", "TPU"),
        rule=_out_of_order,
        varies=lambda evidence: (
            evidence.op_type not in ELEMENT
            and not evidence.op_determinism
            and str(evidence.attrs.get("deterministic", "")).lower() == "false"
        ),
        condition="deterministic=False, sloppy=True or options.deterministic = False",
        mechanism="With the order given up, elements leave the stage as they finish. The documentation of the "
        "experimental parallel interleave itself warns of it.",
        explanation="The same elements may have come in another order: a parallel stage with deterministic=False "
        "hands out what is ready first.",
        cures=(ORDERED_DATA, _REWRITE),
        workaround="Leave deterministic at its default.",
        sources=(MAKE_DETERMINISTIC, DETERMINISM, REGISTRY, MEASURED),
        grade="measured",
    ),
    Entry(
        id="tfdata-other-source",
        title="The data itself was different",
        op_types=(
            *ELEMENT,
            "GeneratorDataset",
            "TensorDataset",
            "TensorSliceDataset",
            "ReadFile",
            "MatchingFiles",
            "TFRecordDataset*",
        ),
        devices=("CPU", "GPU", "TPU"),
        rule=by_category({"input": "medium", "structure": "medium"}),
        condition="files changed, a directory listed in another order, arrays made by unseeded NumPy, a Python "
        "generator with state",
        mechanism="tf.data repeats what its source gives it. Arrays drawn by NumPy or split by scikit-learn without "
        "a seed, files in the order of the file system, and Python generators that use hashes, time or threads "
        "differ before TensorFlow sees them.",
        explanation="The elements differ before TensorFlow computes anything: compare the arrays, the file list and "
        "the batch size that the program puts in.",
        cures=(
            SEED_ALL,
            SORTED,
            Setting(
                "a seeded split",
                "code",
                "train_test_split(x, y, random_state=1); numpy.random.default_rng(1)",
                "scikit-learn, NumPy",
                "these generators take no global seed",
            ),
        ),
        workaround="Print a hash of the first batch in both runs.",
        sources=(NVIDIA_PAGE, DETERMINISM),
        grade="source",
    ),
    Entry(
        id="keras-dataset-workers",
        title="Keras data workers run the program's __getitem__ in several threads",
        op_types=ELEMENT,
        devices=("CPU", "GPU", "TPU"),
        rule=lambda evidence: "low" if evidence.category in ("input", "race") else None,
        condition="a keras.utils.PyDataset (or Sequence) with workers above 1, or shuffled without Python's seed",
        mechanism="With workers above 1, batches are made in threads or processes; code in __getitem__ that draws "
        "random numbers or counts does so in any order. The order of batches is shuffled with Python's random module.",
        explanation="If the data comes from a keras PyDataset with several workers, its __getitem__ calls draw "
        "random numbers in any order.",
        cures=(
            Setting(
                "one worker",
                "code",
                "MyDataset(..., workers=1, use_multiprocessing=False)",
                "2.16 (Keras 3)",
                "one batch is made after another",
            ),
            SEED_ALL,
        ),
        workaround="Seed a generator from the batch index inside __getitem__: numpy.random.default_rng(index).",
        sources=("keras/src/trainers/data_adapters/py_dataset_adapter.py (Keras 3.15)", NVIDIA_PAGE),
        grade="source",
    ),
    Entry(
        id="tfdata-prefetch-state",
        title="The pipeline runs ahead and shares state with the training step",
        op_types=("PrefetchDataset", *ELEMENT),
        devices=("CPU", "GPU", "TPU"),
        rule=lambda evidence: "low" if evidence.category == "race" and not evidence.op_determinism else None,
        condition="a variable, table or generator that both the pipeline and the step touch",
        mechanism="Prefetching works in a thread of its own, so its reads and draws interleave freely with those of "
        "the step.",
        cures=(doing(OP_DETERMINISM, "drops the stage when the pipeline has such state"),),
        workaround="Keep state out of the pipeline.",
        sources=(MAKE_DETERMINISTIC, DETERMINISM),
        grade="source",
    ),
    Entry(
        id="tfdata-snapshot",
        title="A snapshot may be read in another order than it was written",
        op_types=("SnapshotDataset", "SnapshotDatasetV2"),
        devices=("CPU",),
        rule=race("medium", weak="low"),
        varies=always,
        condition="more than one reader or writer thread",
        mechanism="The snapshot API says itself that several reader or writer threads make the order nondeterministic.",
        cures=(ORDERED_DATA,),
        workaround="Read with one shard, or with a reader function that interleaves deterministically.",
        sources=("tensorflow/python/data/experimental/ops/snapshot.py",),
        grade="source",
    ),
    Entry(
        id="tfdata-service",
        title="tf.data service hands out elements as its workers deliver them",
        op_types=("DataServiceDataset*",),
        devices=("CPU",),
        rule=race("high", weak="medium"),
        varies=always,
        condition="the default first-come-first-served reading, or dynamic sharding",
        mechanism="Elements are given to consumers as they arrive from remote workers, and workers process the data "
        "in orders of their own.",
        cures=(
            Setting(
                "round-robin reading",
                "code",
                "tf.data.experimental.service.distribute(..., consumer_index=i, num_consumers=n)",
                "2.4",
                "strict order among the consumers of one job",
            ),
        ),
        workaround="Debug with a local dataset; use static sharding.",
        sources=("tensorflow/python/data/experimental/ops/data_service_ops.py",),
        grade="source",
    ),
    Entry(
        id="v1-racing-get-next",
        title="Two get_next ops of one run take elements in either order",
        op_types=ELEMENT,
        devices=("CPU", "GPU"),
        rule=lambda evidence: "medium" if evidence.category == "race" else None,
        condition="a v1 graph with more than one get_next on an iterator",
        mechanism="Nothing orders two get_next ops in a Session run, so which of them gets which element varies (245 "
        "results in 250 runs with eight of them). In tf.function they keep program order.",
        cures=(
            Setting(
                "one get_next",
                "code",
                "features, labels = iterator.get_next()  # once per step; reuse the tensors",
                "1.4",
            ),
            CONTROL_DEPENDENCIES,
        ),
        useless=(
            "Op determinism does not help in a Session (measured).",
            "One inter-op thread does not help (149 results in 150).",
        ),
        workaround="Call get_next once.",
        sources=(RFC, MEASURED),
        grade="measured",
    ),
    Entry(
        id="v1-queue-producers",
        title="Several threads fill one queue in arrival order",
        op_types=(
            "QueueEnqueue*",
            "QueueDequeue*",
            "ReaderRead",
            "ReaderReadV2",
            "ReaderReadUpTo",
            "ReaderReadUpToV2",
            "RandomShuffleQueue*",
            "RecordInput",
        ),
        devices=("CPU", "GPU"),
        rule=race("high", weak="high", unsettled=("input", "state", "kernel")),
        varies=always,
        condition="queue runners, tf.train.batch(num_threads > 1), several readers of one file queue",
        mechanism="Queues keep the order of arrival, and with several producers that order is open; a dequeue is "
        "only where it shows. Readers that share a queue of file names split the files by chance.",
        explanation="{op} hands out what several producer threads put in, in arrival order; look at the producers, "
        "not at this op.",
        cures=(
            Setting(
                "one producer",
                "code",
                "tf.compat.v1.train.batch(tensors, batch_size, num_threads=1)",
                "1.0",
                "arrival order is fixed",
            ),
        ),
        useless=("Op determinism does not help (measured).", "Seeds do not help."),
        workaround="Move the input to tf.data.",
        sources=(issue(9441), issue(13847), issue(2732), MEASURED),
        grade="measured",
    ),
)
