"""Sums over replicas, devices and workers.

Each replica's own ops are in the other families: look there first when only one replica differs.
"""

from tfbisect.knowledge.entry import Confidence, Entry, Evidence, Setting, Steady
from tfbisect.knowledge.rules import KERNEL_CATEGORIES, always, gpu_always, kernel
from tfbisect.knowledge.settings import NCCL_RING, NVLS_OFF
from tfbisect.knowledge.sources import MEASURED, NVIDIA_PAGE, REGISTRY

_NCCL = "https://github.com/NVIDIA/nccl/issues"
_ONE_DEVICE = Setting(
    "sums on one device",
    "code",
    "tf.distribute.MirroredStrategy(cross_device_ops=tf.distribute.ReductionToOneDevice())",
    "2.0",
    "the replicas' values are copied to one device and added there",
)


def _on_cpu(evidence: Evidence) -> Confidence | None:
    return "low" if evidence.device and not evidence.on("GPU") and evidence.category in KERNEL_CATEGORIES else None


ENTRIES = (
    Entry(
        id="nccl-order",
        title="NCCL chooses how to sum over the GPUs",
        op_types=(
            "NcclAllReduce",
            "NcclReduce",
            "CollectiveReduce",
            "CollectiveReduceV2",
            "CollectiveReduceV3",
            "CollectiveReduceScatterV2",
        ),
        devices=("GPU",),
        rule=kernel(gpu_always),
        varies=gpu_always,
        condition="sums over two or more GPUs; with two, only the algorithm can matter, not the order",
        mechanism="The order follows NCCL's algorithm (ring, tree, in-switch), which depends on message size, "
        "topology and version. The in-switch sum (NVLS) differs between calls, as its authors say. How gradients are "
        "packed together changes results as well.",
        explanation="{op} sums over the GPUs in an order that NCCL chooses; sums inside the switch (NVLS) differ "
        "from call to call.",
        cures=(NVLS_OFF, NCCL_RING, _ONE_DEVICE),
        useless=("Op determinism does not reach NCCL.",),
        workaround="Use the same number of GPUs and the same topology in both runs.",
        sources=(f"{_NCCL}/1497", f"{_NCCL}/157", "tensorflow/python/distribute/cross_device_ops.py"),
        grade="source",
    ),
    Entry(
        id="collective-cpu",
        title="TensorFlow's own ring sums in a fixed order",
        op_types=("CollectiveReduce", "CollectiveReduceV2", "CollectiveReduceV3", "CollectiveReduceScatterV2"),
        devices=("CPU",),
        rule=_on_cpu,
        mechanism="On CPUs the built-in ring adds in the order of the ring: one result in 200 runs on four logical "
        "devices. A difference here more likely comes from another number of workers or from an input that was not "
        "recorded.",
        cures=(_ONE_DEVICE,),
        workaround="Check that both runs had the same devices and workers.",
        sources=(MEASURED, REGISTRY),
        grade="measured",
    ),
    Entry(
        id="replica-sum",
        title="The backend chooses the order of a sum over replicas",
        op_types=("CrossReplicaSum", "XlaAllReduce", "XlaReduceScatter"),
        devices=("GPU", "TPU"),
        rule=kernel(always, level="low"),
        mechanism="These ops name the groups to sum over, not the order; the backend decides it.",
        cures=(),
        workaround="Compare with a single replica.",
        sources=(REGISTRY,),
        grade="inferred",
    ),
    Entry(
        id="horovod-fusion",
        title="Horovod packs tensors together by timing",
        op_types=("HorovodAllreduce", "HorovodGroupedAllreduce", "HorovodReducescatter"),
        historic=("HorovodAllreduce", "HorovodGroupedAllreduce", "HorovodReducescatter"),
        devices=("CPU", "GPU"),
        rule=kernel(always),
        varies=always,
        condition="tensor fusion is on, the default",
        mechanism="Gradients that are ready within a cycle are summed as one message, so the grouping follows the "
        "timing and with it the order of the sums.",
        cures=(
            Setting(
                "no tensor fusion",
                "environment",
                'os.environ["HOROVOD_FUSION_THRESHOLD"] = "0"  # before importing horovod',
                "Horovod",
                "each tensor is summed alone",
                ("HOROVOD_FUSION_THRESHOLD", "0"),
            ),
        ),
        workaround="Train on one process to see whether this is the cause.",
        sources=(NVIDIA_PAGE, "https://github.com/horovod/horovod/issues/1548"),
        grade="source",
    ),
)

STEADY = (
    Steady(
        ("CollectiveReduce", "CollectiveReduceV2"),
        ("CPU",),
        "The built-in ring over four logical CPUs: one result in 200 runs.",
        (MEASURED,),
        "measured",
    ),
)
