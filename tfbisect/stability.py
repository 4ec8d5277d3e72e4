"""The words of a shadow run: which ops gave other bits when they ran twice on the same inputs. Frozen, to JSON."""

from dataclasses import dataclass
from typing import Literal

from tfbisect.checked import json_or_none
from tfbisect.model import Json, Opaque, Source

FORMAT = 1
LIMITS = (
    "a kernel that TensorFlow or a library chooses once a process (autotuning, instruction set, thread count): both "
    "executions use the same one, so it looks stable here and may still differ between processes",
    "an op that varies rarely: it is convicted only if its two executions differ now; more calls see more",
)


@dataclass(frozen=True, slots=True)
class UnstableOp:
    """An op whose two executions on the same live inputs differed in `differing` of `executions` pairs."""

    op_type: str
    name: str
    function: str  # the user's; "" for an eager op
    device: str
    source: Source | None
    executions: int
    differing: int

    def to_json(self) -> Json:
        return {
            "op_type": self.op_type,
            "name": self.name,
            "function": self.function,
            "device": self.device,
            "source": json_or_none(self.source),
            "executions": self.executions,
            "differing": self.differing,
        }


@dataclass(frozen=True, slots=True)
class Exempt:
    """Ops of one type that ran once only, and why: a graph's are counted once, eager ones each time they run."""

    op_type: str
    reason: str
    count: int

    def to_json(self) -> Json:
        return {"op_type": self.op_type, "reason": self.reason, "count": self.count}


@dataclass(frozen=True, slots=True)
class Shadow:
    """What a shadow run saw. `ops`: ops that ran twice; `executions`: how often they did.

    verdict: "unstable" where any op differed, "stable" where some ran twice and none did, "nothing ran twice".
    """

    unstable: tuple[UnstableOp, ...]
    exempt: tuple[Exempt, ...]
    opaque: tuple[Opaque, ...]
    ops: int
    executions: int
    problems: tuple[str, ...] = ()
    limits: tuple[str, ...] = LIMITS

    @property
    def verdict(self) -> Literal["unstable", "stable", "nothing ran twice"]:
        if self.unstable:
            return "unstable"
        return "stable" if self.executions else "nothing ran twice"

    def to_json(self) -> Json:
        return {
            "format": FORMAT,
            "verdict": self.verdict,
            "unstable": [op.to_json() for op in self.unstable],
            "exempt": [each.to_json() for each in self.exempt],
            "opaque": [each.to_json() for each in self.opaque],
            "ops": self.ops,
            "executions": self.executions,
            "problems": list(self.problems),
            "limits": list(self.limits),
        }
