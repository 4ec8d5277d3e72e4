"""Weights of a Keras model of which only digests were recorded: what to do next."""

from tfbisect.knowledge.entry import Confidence, Entry, Evidence, Setting

RECORDER = Setting(
    name="a callback that records steps op by op",
    kind="code",
    line='model.fit(..., callbacks=[tfbisect.keras.Recorder("a.h5", steps="FIRST:LAST")])  # around that step, twice',
    since="2.16",
)


def _weight(evidence: Evidence) -> Confidence | None:
    return "high" if evidence.category in ("unknown", "environment") else None


ENTRIES = (
    Entry(
        id="weights-only",
        title="Only digests of the weights were recorded",
        op_types=("Weight",),
        devices=("CPU", "GPU"),
        rule=_weight,
        mechanism="The callback tfbisect.keras.Digest writes digests of a model's weights after each epoch or batch, "
        "and nothing of what computed them. The first weight that differs tells when the runs parted, not why.",
        explanation="All weights were equal before this epoch or batch, and this one was not after it. What computed "
        "it was not recorded: record that part op by op.",
        cures=(RECORDER,),
        workaround="Record the whole program: python -m tfbisect run program.py",
        sources=("tfbisect/keras.py",),
        grade="source",
    ),
)
