"""The words of the knowledge base: `Evidence` goes in, an `Entry` holds what is known, a `Setting` is what to paste.

Holds no facts: those are in the family modules beside it. Chooses nothing: that is the package's `causes_for`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Literal

from tfbisect.model import Difference, NodeFlag

Confidence = Literal["high", "medium", "low"]
Grade = Literal["source", "measured", "inferred"]
Answer = Literal["yes", "no", "partial"]
Kind = Literal["python", "environment", "code"]

RANK: Mapping[str, int] = {"high": 0, "medium": 1, "low": 2}

FLOATS = ("float", "bfloat", "half", "double", "complex")
_TRUE = ("1", "true", "yes", "on")
_FALSE = ("0", "false", "no", "off")


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """What a comparison (or a look at one trace) knows about an op.

    `environment` holds the RunInfo keys that differ between the runs, `info` those of run A, both flattened with dots.
    An empty string or a missing key means "not known", never "no".
    """

    op_type: str
    category: str = ""
    device: str = ""
    dtype: str = ""
    flags: int = 0
    environment: Mapping[str, tuple[object, object]] = field(default_factory=dict)
    inputs: tuple[str, ...] = ()
    attrs: Mapping[str, object] = field(default_factory=dict)
    in_loop: bool = False
    info: Mapping[str, object] = field(default_factory=dict)
    difference: Difference | None = None
    seed_shift: str = ""  # what was made before the op in one run only, so that its seed is another one

    def on(self, kind: str) -> bool:
        """Whether the op may have run on that kind of device; true when the device is not known."""
        return not self.device or kind in self.device.upper()

    @property
    def floating(self) -> bool:
        """Whether the op may compute with floats; true when the dtype is not known."""
        dtype = self.dtype.lower()
        return not dtype or any(word in dtype for word in FLOATS)

    @property
    def random(self) -> bool:
        return bool(self.flags & NodeFlag.RANDOM)

    def get(self, *keys: str) -> object:
        """The first of these RunInfo keys that run A recorded, else None."""
        for key in keys:
            value = self.info.get(key)
            if value is not None:
                return value
        return None

    def variable(self, name: str) -> str | None:
        """An environment variable of run A; None when it is unset or unknown."""
        value = self.info.get(f"environment.{name}")
        return None if value is None else str(value)

    @property
    def one_thread(self) -> bool:
        """Whether run A is known to have had a single intra-op thread."""
        value = self.get("threads.intra_op")
        if value in (None, 0, "0", ""):  # 0 lets TensorFlow choose
            value = self.variable("TF_NUM_INTRAOP_THREADS")
        return str(value) == "1"

    @property
    def op_determinism(self) -> bool:
        """Whether run A is known to have had op determinism on."""
        value = self.get("flags.op_determinism", "determinism.op_determinism")
        if value is None:
            value = self.variable("TF_DETERMINISTIC_OPS") or ""
        return str(value).lower() in _TRUE

    @property
    def onednn_off(self) -> bool:
        return (self.variable("TF_ENABLE_ONEDNN_OPTS") or "").lower() in _FALSE

    @property
    def seeded(self) -> bool | None:
        """Whether TensorFlow's global seed was set in run A; None when that is not known."""
        for key in ("flags.global_seed", "seeds.tensorflow", "seeds.global"):
            if key in self.info:
                return self.info[key] is not None
        return False if "flags.op_determinism" in self.info else None  # TensorFlow was asked, and had no seed

    @property
    def version(self) -> tuple[int, ...]:
        """TensorFlow's version in run A, () when it is not known."""
        return version(str(self.get("versions.tensorflow") or ""))

    def differing(self, patterns: tuple[str, ...]) -> tuple[str, ...]:
        """The settings that differ between the runs and match, in the order of the patterns.

        Case does not matter; a pattern that begins with "!" excludes what it matches.
        """
        found: dict[str, None] = {}
        for pattern in patterns:
            matched = [key for key in self.environment if fnmatchcase(key.lower(), pattern.removeprefix("!").lower())]
            if pattern.startswith("!"):
                found = {key: None for key in found if key not in matched}
            else:
                found.update(dict.fromkeys(matched))
        return tuple(found)


Rule = Callable[[Evidence], Confidence | None]
Hazard = Callable[[Evidence], bool]


def version(text: str) -> tuple[int, ...]:
    """ "2.16.2" -> (2, 16, 2): the leading numbers, () when there are none."""
    numbers = []
    for part in text.split("."):
        if not part.isdecimal():
            break
        numbers.append(int(part))
    return tuple(numbers)


@dataclass(frozen=True, slots=True)
class Setting:
    """One change that cures.

    `line` is the exact text to paste: Python near the top of the program (`python`), an environment variable
    (`environment`) or a change in the code itself (`code`). `since` is the first TensorFlow version it works in, or the
    product and version it belongs to. `env` is the variable to set from outside with the same effect.
    """

    name: str
    kind: Kind
    line: str
    since: str
    effect: str = ""
    env: tuple[str, str] | None = None

    def available(self, running: tuple[int, ...]) -> bool:
        """Whether that TensorFlow version has it (an unknown version has everything)."""
        needed = version(self.since.split(" ")[0])
        return not running or not needed or running >= needed


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Entry:
    """One cause: for which ops, when, how it works, what cures it, and who says so.

    `rule` judges the evidence once op and device match. `varies` says under which settings two runs with equal settings
    can differ; None: they do not. `op_types` are exact names or patterns; `any_op` lets the evidence decide alone.
    `explanation` speaks to the user about one culprit: {op} and {settings} are filled in.
    """

    id: str
    title: str
    op_types: tuple[str, ...]
    devices: tuple[str, ...]
    rule: Rule
    mechanism: str
    workaround: str
    sources: tuple[str, ...]
    grade: Grade
    explanation: str = ""
    condition: str = ""
    versions: str = ""
    cures: tuple[Setting, ...] = ()
    useless: tuple[str, ...] = ()
    raises: Answer = "no"
    raises_note: str = ""
    error_fragments: tuple[str, ...] = ()
    varies: Hazard | None = None
    settings: tuple[str, ...] = ()
    historic: tuple[str, ...] = ()
    any_op: bool = False
    generic: bool = False

    def names(self, op_type: str) -> bool:
        """Whether the entry speaks of this op type by name or pattern."""
        # A pattern is compiled each time there are too many of them; most are plain names.
        patterns = (pattern for pattern in self.op_types if not pattern.isalnum())
        return op_type in self.op_types or any(fnmatchcase(op_type, pattern) for pattern in patterns)

    def names_exactly(self, op_type: str) -> bool:
        """Whether the entry names this op type itself, not by a pattern."""
        return op_type in self.op_types

    def applies(self, evidence: Evidence) -> Confidence | None:
        """How likely this is the cause of what the evidence shows; None if it cannot be."""
        if not self.any_op and not self.names(evidence.op_type):
            return None
        if not any(evidence.on(kind) for kind in self.devices):
            return None
        return self.rule(evidence)


@dataclass(frozen=True, slots=True, eq=False)
class Steady:
    """Op types that are known to give equal bits for equal inputs on these devices, one set-up taken for granted."""

    op_types: tuple[str, ...]
    devices: tuple[str, ...]
    note: str
    sources: tuple[str, ...]
    grade: Grade
