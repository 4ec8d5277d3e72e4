"""What more than two runs, or a tolerance, add to a comparison: frozen dataclasses, to and from JSON.

Vocabulary only, as `model` is. In the JSON of a comparison they stand under `many_runs` and `tolerance`.
"""

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from tfbisect.errors import Damaged
from tfbisect.model import Comparison, Json, Source

_Converters = Mapping[str, Callable[[Any], Any]]

MANY_RUNS, TOLERANCE = "many_runs", "tolerance"
CHANCES = (0.5, 0.2, 0.1, 0.05, 0.01)
SURE = 0.95


T = TypeVar("T", bound="_Part")


class _Part:
    """To and from JSON; `_CONVERT` says how fields that are no plain JSON are read."""

    _CONVERT: ClassVar[_Converters] = {}

    def to_json(self) -> Json:
        return {item.name: _plain(getattr(self, item.name)) for item in dataclasses.fields(self)}  # type: ignore[arg-type]

    @classmethod
    def from_json(cls: type[T], data: Any) -> T:
        """The inverse of `to_json`. Raises Damaged for anything else."""
        try:
            fields = [item.name for item in dataclasses.fields(cls)]  # type: ignore[arg-type]
            return cls(**{name: cls._CONVERT.get(name, _same)(data[name]) for name in fields})
        except KeyError as error:
            raise Damaged("result", found="no key " + str(error), expected="the JSON of a comparison") from error
        except (TypeError, ValueError, AttributeError) as error:
            raise Damaged("result", found=error, expected="the JSON of a comparison") from error


def _same(value: Any) -> Any:
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no infinity; float() reads it back
    return value.to_json() if hasattr(value, "to_json") else value


def _ints(values: Iterable[Any]) -> tuple[int, ...]:
    return tuple(int(value) for value in values)


def _groups(values: Iterable[Iterable[Any]]) -> tuple[tuple[int, ...], ...]:
    return tuple(_ints(group) for group in values)


def _source(value: Any) -> Source | None:
    return None if value is None else Source.from_json(value)


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def _int(value: Any) -> int | None:
    return None if value is None else int(value)


# ---------------------------------------------------------------------------------------------------------------------
# Many runs. Runs are numbered from 0, in the order of `runs`.
# ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RunPair(_Part):
    """Two of the runs compared."""

    _CONVERT: ClassVar[_Converters] = {"runs": _ints, "verdict": str, "compared": int, "differing": int}

    runs: tuple[int, ...]
    verdict: str
    compared: int
    differing: int


@dataclass(frozen=True, slots=True)
class EventGroups(_Part):
    """Which runs gave the same output at a culprit, an event of the first run; `missing`: those without."""

    _CONVERT: ClassVar[_Converters] = {
        "op_type": str, "name": str, "function": str, "slot": int, "call": _int, "step": _int, "iteration": _ints,
        "source": _source, "groups": _groups, "missing": _ints, "seen_in": _ints, "pairs": int,
    }  # fmt: skip

    op_type: str
    name: str
    function: str
    slot: int
    call: int | None
    step: int | None
    iteration: tuple[int, ...]
    source: Source | None
    groups: tuple[tuple[int, ...], ...]
    missing: tuple[int, ...]
    seen_in: tuple[int, ...]  # the runs that, compared with the first, show it as a culprit
    pairs: int  # comparisons in which it could have shown


@dataclass(frozen=True, slots=True)
class Doubt(_Part):
    """What `agreeing` of `pairs` compared pairs leave open.

    A divergence that a pair shows with probability p stays unseen in k pairs with probability (1 - p) ** k. `unseen`:
    (p, that) for a few p; `excluded`: the p from which on it would have been seen with 95 of 100.
    """

    _CONVERT: ClassVar[_Converters] = {
        "pairs": int, "agreeing": int, "excluded": float,
        "unseen": lambda values: tuple((float(p), float(q)) for p, q in values),
    }  # fmt: skip

    pairs: int
    agreeing: int
    unseen: tuple[tuple[float, float], ...]
    excluded: float


def doubt(pairs: int, agreeing: int) -> Doubt:
    """What `pairs` compared pairs leave open, of which `agreeing` agreed."""
    unseen = tuple((p, (1 - p) ** pairs) for p in CHANCES)
    return Doubt(pairs, agreeing, unseen, 1 - (1 - SURE) ** (1 / pairs) if pairs else 1.0)


@dataclass(frozen=True, slots=True)
class CrossCheck(_Part):
    """Grouping by (op, digests of the inputs) over all runs and iterations, which needs no alignment.

    checked: events grouped; not_checkable: no function of recorded inputs; confirmed: culprits that gave several
    outputs for equal inputs; contradicted: those that did not, and are not blamed; unnamed: ops that did and are no
    culprit of any compared pair.
    """

    _CONVERT: ClassVar[_Converters] = {
        "checked": int, "not_checkable": int, "left_out": int, "confirmed": int,
        "contradicted": lambda values: tuple(map(str, values)), "unnamed": lambda values: tuple(map(str, values)),
    }  # fmt: skip

    checked: int
    not_checkable: int
    left_out: int
    confirmed: int
    contradicted: tuple[str, ...]
    unnamed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ManyRuns(_Part):
    """What all runs together show. outcomes: runs that ended with the same values, differences that die out left out;
    outputs: (how many distinct outputs, how many events of the first run had that many)."""

    _CONVERT: ClassVar[_Converters] = {
        "outcomes": _groups, "pairs": lambda values: tuple(map(RunPair.from_json, values)),
        "outputs": lambda values: tuple((int(n), int(m)) for n, m in values),
        "culprits": lambda values: tuple(map(EventGroups.from_json, values)),
        "doubt": Doubt.from_json, "cross_check": CrossCheck.from_json,
    }  # fmt: skip

    outcomes: tuple[tuple[int, ...], ...]
    pairs: tuple[RunPair, ...]
    outputs: tuple[tuple[int, int], ...]
    culprits: tuple[EventGroups, ...]
    doubt: Doubt
    cross_check: CrossCheck


# ---------------------------------------------------------------------------------------------------------------------
# Tolerance
# ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Growth(_Part):
    """The error at one op on the way from the inputs to the result. max_abs and max_rel are over finite elements; rms:
    root mean square of the error over that of run A's values; max_ulp in the coarser of the two types."""

    _CONVERT: ClassVar[_Converters] = {
        "op_type": str, "op_type_b": str, "name": str, "function": str, "step": _int, "call": _int, "iteration": _ints,
        "source": _source, "max_abs": _number, "max_rel": _number, "rms": _number, "max_ulp": _int, "within": bool,
    }  # fmt: skip

    op_type: str
    op_type_b: str
    name: str
    function: str
    step: int | None
    call: int | None
    iteration: tuple[int, ...]
    source: Source | None
    max_abs: float | None
    max_rel: float | None
    rms: float | None
    max_ulp: int | None
    within: bool


@dataclass(frozen=True, slots=True)
class GraphDifference(_Part):
    """An op that the graphs of the two runs do not share. kind: "type" (one name, two types), "attributes" (one type,
    other attributes, kernel or number of outputs), "only_a", "only_b". instead: what the other run has in its place, as
    where ops were fused; "" if that cannot be told."""

    _CONVERT: ClassVar[_Converters] = {
        "kind": str, "function": str, "name": str, "op_type_a": str, "op_type_b": str, "instead": str,
        "source": _source,
    }  # fmt: skip

    kind: str
    function: str
    name: str
    op_type_a: str
    op_type_b: str
    instead: str
    source: Source | None


@dataclass(frozen=True, slots=True)
class Tolerated(_Part):
    """A comparison within a tolerance. equal: bit-identical values; within, beyond: differing ones; not_measured:
    differing ones of which a value was not kept."""

    _CONVERT: ClassVar[_Converters] = {
        "rtol": float, "atol": float, "ulp": int, "equal": int, "within": int, "beyond": int, "not_measured": int,
        "growth": lambda values: tuple(map(Growth.from_json, values)),
        "graph_differences": lambda values: tuple(map(GraphDifference.from_json, values)),
        "graph_differences_total": int,
    }  # fmt: skip

    rtol: float
    atol: float
    ulp: int
    equal: int
    within: int
    beyond: int
    not_measured: int
    growth: tuple[Growth, ...]
    graph_differences: tuple[GraphDifference, ...]
    graph_differences_total: int


def many_runs_of(comparison: Comparison) -> ManyRuns | None:
    """What a comparison of more than two runs holds of them all; None for two. Raises Damaged."""
    data = comparison.extra.get(MANY_RUNS)
    return None if data is None else ManyRuns.from_json(data)


def tolerated_of(comparison: Comparison) -> Tolerated | None:
    """What a comparison within a tolerance holds of it; None without one. Raises Damaged."""
    data = comparison.extra.get(TOLERANCE)
    return None if data is None else Tolerated.from_json(data)
