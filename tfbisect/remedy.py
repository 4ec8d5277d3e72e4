"""The words of a cure: a treatment, how it was tried and what came of it. Frozen, to JSON; decides and runs nothing."""

from dataclasses import dataclass
from typing import Literal

from tfbisect.checked import json_or_none
from tfbisect.model import Culprit, Json

FORMAT = 1

Verdict = Literal["cured", "not cured", "repeats", "unfinished"]
Need = Literal["needed", "would do too", "wasted"]


@dataclass(frozen=True, slots=True)
class Treatment:
    """One change that is made from outside.

    `lines` are to paste. `environment` is set before Python starts (None: unset); `actions` are what
    `recorder.treatment` does as the program imports things. `stands_for`: names of the knowledge base's settings with
    the same effect. `cost` orders treatments: the lower, the less it slows down or changes the program.
    """

    name: str
    lines: tuple[str, ...]
    cost: int
    environment: tuple[tuple[str, str | None], ...] = ()
    actions: tuple[tuple[str, ...], ...] = ()
    stands_for: tuple[str, ...] = ()
    gpu: bool = False  # changes nothing where TensorFlow has no GPU
    note: str = ""


@dataclass(frozen=True, slots=True)
class Raised:
    """The program ended otherwise under a treatment: its last message, and what is known of the op that raised."""

    message: str
    op_types: tuple[str, ...] = ()
    workaround: str = ""

    def to_json(self) -> Json:
        return {"message": self.message, "op_types": list(self.op_types), "workaround": self.workaround}


@dataclass(frozen=True, slots=True)
class Trial:
    """Settings together, and in how many of the pairs of recorded runs nothing that matters differed.

    step_time: the time of a call of the program's busiest function (the median, in the faster run) against that of the
    untreated runs; of the whole program where it calls none twice; None where no run ended.
    """

    settings: tuple[str, ...]
    identical: int
    pairs: int
    step_time: float | None = None
    raised: Raised | None = None
    own: tuple[str, ...] = ()  # what the program sets itself, so that its value stands

    def to_json(self) -> Json:
        return {
            "settings": list(self.settings),
            "identical": self.identical,
            "pairs": self.pairs,
            "step_time": self.step_time,
            "raised": json_or_none(self.raised),
            "own": list(self.own),
        }


@dataclass(frozen=True, slots=True)
class Plain:
    """The proof without the recorder: pairs of plain runs that left the same variables, output and exit status.

    `untreated`: the first difference between untreated plain runs, "" if there was none; `treated`: likewise.
    """

    identical: int
    pairs: int
    untreated: str
    untreated_pairs: int
    treated: str = ""
    step_time: float | None = None

    def to_json(self) -> Json:
        return {
            "identical": self.identical,
            "pairs": self.pairs,
            "untreated": self.untreated,
            "untreated_pairs": self.untreated_pairs,
            "treated": self.treated,
            "step_time": self.step_time,
        }


@dataclass(frozen=True, slots=True)
class Advice:
    """One item of the checklist that people pass around, and whether this program needs it."""

    item: str
    need: Need
    reason: str

    def to_json(self) -> Json:
        return {"item": self.item, "need": self.need, "reason": self.reason}


@dataclass(frozen=True, slots=True)
class Cure:
    """What `cure` found.

    `culprits`: of the untreated pair that diverged; `remaining`: those that no setting reached.
    """

    verdict: Verdict
    program: tuple[str, ...]
    runs: int
    untreated: Trial
    culprits: tuple[Culprit, ...] = ()
    trials: tuple[Trial, ...] = ()
    minimal: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    plain: Plain | None = None
    remaining: tuple[Culprit, ...] = ()
    checklist: tuple[Advice, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def proof(self) -> Trial | None:
        """The trial of the minimal set."""
        return next((trial for trial in self.trials if self.minimal and set(trial.settings) == set(self.minimal)), None)

    def to_json(self) -> Json:
        return {
            "format": FORMAT,
            "verdict": self.verdict,
            "program": list(self.program),
            "runs": self.runs,
            "untreated": self.untreated.to_json(),
            "culprits": [culprit.to_json() for culprit in self.culprits],
            "trials": [trial.to_json() for trial in self.trials],
            "minimal": list(self.minimal),
            "lines": list(self.lines),
            "plain": json_or_none(self.plain),
            "remaining": [culprit.to_json() for culprit in self.remaining],
            "checklist": [advice.to_json() for advice in self.checklist],
            "notes": list(self.notes),
        }
