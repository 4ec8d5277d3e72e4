"""Two runs that may differ by rounding: the first op beyond a tolerance, and how the error grows on its way to the end.

For runs on other devices, versions or settings; runs that should agree to the bit are compared without a tolerance.
Works on kept values and blames no more than they show.
"""

import math
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tfbisect.alignment import Alignment
from tfbisect.bisector import Findings, Suspect
from tfbisect.categories import flattened
from tfbisect.collectives import is_collective
from tfbisect.culprits import Portraits, shown
from tfbisect.drawing import drawn
from tfbisect.effects import Effects
from tfbisect.equality import Equality
from tfbisect.errors import Usage
from tfbisect.flow import VARIANT
from tfbisect.graphdiff import graph_differences
from tfbisect.judgements import Judgement, Judgements, What
from tfbisect.model import Comparison, Coverage, Culprit, GraphKind, SiteKind
from tfbisect.outcomes import TOLERANCE, Growth, Tolerated
from tfbisect.pairwise import aligned, coverage_of, describe, environment_of
from tfbisect.provenance import Run
from tfbisect.remarks import SHOWN, warnings_of
from tfbisect.tables import Trace
from tfbisect.upstream import above

Array = npt.NDArray[Any]

STEPS_OF_GROWTH = 2000
WALK = 5000  # events of one run only that are passed on the way up from an event


@dataclass(frozen=True, slots=True)
class Tolerance:
    """When two numbers count as equal: |a - b| <= atol + rtol * max(|a|, |b|), or at most `ulp` floats apart.

    False when all are 0: then bits count. Raises Usage for a negative or infinite tolerance.
    """

    rtol: float = 0.0
    atol: float = 0.0
    ulp: int = 0

    def __post_init__(self) -> None:
        for name in ("rtol", "atol", "ulp"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise Usage(f"--{name}", found=value, expected="0 or more", hint="--rtol 1e-5 --atol 1e-6 --ulp 4")

    def __bool__(self) -> bool:
        return bool(self.rtol or self.atol or self.ulp)


class Error(NamedTuple):
    """How far apart two values are. max_abs, max_rel and rms are over elements that are finite on both sides."""

    within: bool
    max_abs: float | None
    max_rel: float | None
    rms: float | None
    max_ulp: int | None


def error(a: Array, b: Array, tolerance: Tolerance) -> Error:
    """How far apart two arrays are. Floats of two types are compared as numbers, and their ulp is the coarser type's.

    Arrays of two shapes, or of two types that are not both numbers, are beyond every tolerance.
    """
    if a.shape != b.shape or not (_numeric(a.dtype) and _numeric(b.dtype)):
        same = a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
        return Error(same, None, None, None, None)
    wide = np.complex128 if "c" in (a.dtype.kind, b.dtype.kind) else np.float64
    x, y = a.reshape(-1).astype(wide), b.reshape(-1).astype(wide)
    finite = np.isfinite(x) & np.isfinite(y)
    with np.errstate(all="ignore"):
        apart, scale = np.abs(x - y), np.maximum(np.abs(x), np.abs(y))
        equal = x == y
        if a.dtype.kind in "biu" and b.dtype.kind in "biu":  # float64 holds no integer beyond 2**53 exactly
            equal = a.reshape(-1) == b.reshape(-1)
            apart[~equal & (apart == 0)] = 1
        close = finite & (apart <= tolerance.atol + tolerance.rtol * scale)
        close |= equal | (np.isnan(x) & np.isnan(y))
        steps = _steps(apart, scale, a.dtype, b.dtype)
        if steps is not None:
            close |= finite & (steps <= tolerance.ulp)
        apart, scale = apart[finite], scale[finite]
        most = float(apart.max()) if len(apart) else None
        relative = float((apart / np.where(scale == 0, 1, scale)).max()) if len(apart) else None
        size = float(np.sqrt(np.mean(np.abs(x[finite]) ** 2))) if len(apart) else 0.0
        rms = float(np.sqrt(np.mean(apart**2)) / (size or 1.0)) if len(apart) else None
        if rms is not None and math.isnan(rms):
            rms = math.inf  # both are beyond what a float holds
        ulps = int(min(steps[finite].max(), 2**62)) if steps is not None and len(apart) else None
    return Error(bool(close.all()), most, relative, rms, ulps)


def _numeric(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "biufc" or (dtype.kind == "V" and "float" in dtype.name)


def _steps(apart: Array, scale: Array, *dtypes: np.dtype[Any]) -> Array | None:
    """The distance in floats of the coarser type, by the spacing at the larger of the two; None for integers."""
    known = [found for found in map(_format, dtypes) if found is not None]
    if not known:
        return None
    digits, smallest = min(known)
    _, exponent = np.frexp(scale)
    exponent = np.where(scale == 0, smallest, np.maximum(exponent, smallest))  # subnormal numbers are evenly spaced
    return np.asarray(np.ceil(apart / np.ldexp(1.0, exponent - digits)))


def _format(dtype: np.dtype[Any]) -> tuple[int, int] | None:
    """(binary digits, the leading one included; exponent of the smallest normal number as frexp gives it)"""
    if dtype.kind in "fc":
        return int(np.finfo(dtype).nmant) + 1, int(np.finfo(dtype).minexp) + 1
    return {"bfloat16": (8, -125), "float8_e4m3fn": (4, -5), "float8_e5m2": (3, -13)}.get(dtype.name)


def compare_within(a: Trace, b: Trace, tolerance: Tolerance) -> Comparison:
    """Compare two loaded traces within a tolerance. Raises EmptyTrace, SchemeMismatch, Unrelated and Usage.

    Verdict `identical`: every compared value is bit-equal or within it; `inconclusive`: some that differ were not kept.
    """
    return _Within(aligned(a, b, by_name=True), tolerance).comparison()


EQUAL, WITHIN, BEYOND, UNKNOWN = range(4)


def _above(run: Run, row: int) -> tuple[list[int], bool]:
    """What went into an event, and whether that is all: into a collective op its other members put something, too."""
    rows, complete = above(run, row)
    return rows, complete and not is_collective(run.node(row).op)


@dataclass
class _Within:
    alignment: Alignment
    tolerance: Tolerance
    errors: dict[int, Error] = field(default_factory=dict)  # by number of the difference

    def __post_init__(self) -> None:
        self.a, self.b = self.alignment.a, self.alignment.b
        self.equality = Equality(self.alignment)
        self.pairs = self.equality.pairs
        self.states = [self._measure(number) for number in range(len(self.pairs))]
        self._above: dict[int, tuple[list[int], bool]] = {}

    def _measure(self, number: int) -> int:
        row, other = self.pairs[number]
        if VARIANT in (self.a.dtype(row), self.b.dtype(other)):
            return EQUAL  # a list or dataset: its digest says how it was made, its elements are compared where taken
        one, two = self.a.trace.value(row), self.b.trace.value(other)
        if one is None or two is None:
            return UNKNOWN
        self.errors[number] = found = error(one, two, self.tolerance)
        return WITHIN if found.within else BEYOND

    # -- what went into a value --------------------------------------------------------------------------------------

    def sources(self, number: int) -> tuple[list[int], bool]:
        """The differences that went into one, past what only one run computed; whether no more went into it."""
        if number not in self._above:
            row, other = self.pairs[number]
            mine, all_mine = self._paired_above(0, row)
            theirs, all_theirs = self._paired_above(1, other)
            self._above[number] = list(dict.fromkeys((*mine, *theirs))), all_mine and all_theirs
        return self._above[number]

    def _paired_above(self, side: int, row: int) -> tuple[list[int], bool]:
        run = (self.a, self.b)[side]
        found: list[int] = []
        rows, complete = _above(run, row)
        stack, seen = list(rows), set(rows)
        while stack:
            here = stack.pop()
            number = self.equality.number(side, here)
            if number is not None:
                found.append(number)
            elif self.equality.partner(side, here) < 0 and not run.host_value(here):
                rows, all_of_it = _above(run, here)
                complete &= all_of_it and len(seen) < WALK
                fresh = [each for each in rows if each not in seen] if len(seen) < WALK else []
                seen.update(fresh)
                stack += fresh
        return found, complete

    # -- judging -----------------------------------------------------------------------------------------------------

    def _judge(self, number: int) -> Judgement:
        state = self.states[number]
        sources, complete = self.sources(number)
        if state in (EQUAL, WITHIN):
            return Judgement(What.QUIET if state == EQUAL else What.RECEIVER, tuple(sources))
        reached = {self.states[each] for each in sources}
        if state == UNKNOWN:
            return Judgement(What.UNDECIDED, tuple(sources), reason="its value was not kept")
        if BEYOND in reached:
            return Judgement(What.RECEIVER, tuple(sources))
        if UNKNOWN in reached:
            return Judgement(What.UNDECIDED, tuple(sources), reason="values that went into it were not kept")
        if not complete:
            return Judgement(What.UNDECIDED, tuple(sources), reason="an input of it was not recorded")
        return Judgement(What.CULPRIT, tuple(sources))

    def _place(self, number: int) -> tuple[Any, ...]:
        """The order of execution."""
        row = self.pairs[number][0]
        flow, node, slot, kind = self.a.node_of(row)
        path = self.a.path(self.a.event_path[row])
        return self.a.event_call[row], flow.moment(node, path), kind == SiteKind.WRITE, slot

    @cached_property
    def findings(self) -> Findings:
        judged = Judgements.of([self._judge(number) for number in range(len(self.pairs))])
        effects = Effects(self.equality, judged.links(self.equality.mixtures))
        names = effects.file_names
        suspects, ops = [], set()
        for number in sorted(judged.numbers(What.CULPRIT), key=self._place):
            if number in names:
                continue
            tier = 0 if number in effects.to_results else 1 if number in effects.to_outputs else 2
            row = self.pairs[number][0]
            suspects.append(Suspect(number, 0, row, None, False, tier == 2, tier, self._place(number)))
        suspects.sort(key=lambda suspect: (suspect.tier, suspect.place))
        firsts = []
        for suspect in suspects:
            flow, node, slot, _kind = self.a.node_of(suspect.row)
            op = flow.graph.name, flow.nodes[node].name, slot
            if op not in ops:
                ops.add(op)
                firsts.append(suspect)
        undecided = [number for number in judged.numbers(What.UNDECIDED) if number not in names]
        return Findings(firsts, judged, self.equality, effects, names, undecided)

    # -- telling -----------------------------------------------------------------------------------------------------

    def comparison(self) -> Comparison:
        findings, traces = self.findings, (self.a.trace, self.b.trace)
        environment = environment_of(*(each.info for each in traces))
        values = {item.key: (item.values[0], item.values[1]) for item in environment}
        portraits = Portraits(findings, values, flattened(self.a.trace.info))
        culprits = tuple(
            self._told(suspect, portraits.culprit(suspect, rank))
            for rank, suspect in enumerate(findings.suspects[:SHOWN])
        )
        differences = graph_differences(self.alignment)
        counted = [state for number, state in enumerate(self.states) if number not in findings.file_names]
        tolerated = Tolerated(
            self.tolerance.rtol,
            self.tolerance.atol,
            self.tolerance.ulp,
            equal=self.alignment.compared - len(counted) + counted.count(EQUAL),
            within=counted.count(WITHIN),
            beyond=counted.count(BEYOND),
            not_measured=counted.count(UNKNOWN),
            growth=tuple(self._growth(portraits)),
            graph_differences=tuple(differences[:SHOWN]),
            graph_differences_total=len(differences),
        )
        calls = tuple(map(len, self.alignment.unpaired_calls))
        coverage = coverage_of(self.alignment, len(findings.undecided))
        extra, events = drawn(findings, portraits)
        return Comparison(
            verdict=self._verdict(tolerated, calls),
            runs=tuple(map(describe, traces)),
            warnings=tuple(self._warnings(tolerated, coverage)),
            environment=environment,
            coverage=coverage,
            culprits=culprits,
            extra={**extra, TOLERANCE: tolerated.to_json()},
            events=events,
        )

    def _verdict(self, tolerated: Tolerated, calls: Sequence[int]) -> str:
        if self.findings.suspects:
            return "diverged"
        if tolerated.beyond or tolerated.not_measured or not self.alignment.compared or any(calls):
            return "inconclusive"
        return "identical" if self.a.trace.complete and self.b.trace.complete else "inconclusive"

    def _told(self, suspect: Suspect, culprit: Culprit) -> Culprit:
        sources, _ = self.sources(suspect.number)
        within = sum(self.states[each] == WITHIN for each in sources)
        found = self.errors[suspect.number]
        text = "the first value beyond the tolerance: "
        text += f"{within} of the values that went into it differ, within it; " if within else "all before is equal; "
        text += f"its own largest relative error is {_figure(found.max_rel)}"
        other = self.b.node(self.pairs[suspect.number][1]).op
        if other != culprit.op_type:
            text += f"; run B computed it with {other}"
        size = culprit.difference
        if size is not None and size.kind == "dtype":
            text += f" ({size.basis})"
            size = replace(size, max_abs=found.max_abs, max_rel=found.max_rel, kind="values")
            return replace(culprit, explanation=text, difference=size, causes=())
        if not sources:
            return replace(culprit, explanation=text)
        # What is known of the op is about equal inputs; these are within the tolerance.
        if culprit.category == "environment":
            return replace(culprit, explanation=text)
        return replace(culprit, explanation=text, category="unknown", causes=())

    def _warnings(self, tolerated: Tolerated, coverage: Coverage) -> Iterable[str]:
        undecided = [number for number in self.findings.undecided if self.states[number] == BEYOND]
        agree, unknown = not (tolerated.beyond or tolerated.not_measured), bool(tolerated.not_measured)
        yield from warnings_of(self.findings, coverage, undecided, agree=agree, values=unknown)
        if tolerated.not_measured:
            yield (
                f"{tolerated.not_measured} values differ and were not kept, so their error is not known: "
                "record with --values all"
            )
        if tolerated.within and not tolerated.beyond:
            yield f"{tolerated.within} values differ in bits, all of them within the tolerance"

    # -- growth ------------------------------------------------------------------------------------------------------

    def _growth(self, portraits: Portraits) -> Iterable[Growth]:
        """The errors along one way from where the error enters to the last result, through the first culprit."""
        for number in self._way():
            row, other = self.pairs[number]
            run = self.a
            name, op_type, source = shown(run, row)
            flow = run.node_of(row)[0]
            call = max(run.event_call[row], 0)
            found = self.errors[number]
            yield Growth(
                op_type=op_type,
                op_type_b=shown(self.b, other)[1],
                name=name,
                function="" if flow.graph.kind in (GraphKind.EAGER, GraphKind.ENTRY) else flow.graph.name,
                step=portraits.steps[0].step(call),
                call=portraits.steps[0].ordinal(call),
                iteration=run.path(run.event_path[row]),
                source=source,
                max_abs=found.max_abs,
                max_rel=found.max_rel,
                rms=found.rms,
                max_ulp=found.max_ulp,
                within=found.within,
            )

    def _way(self) -> list[int]:
        """Differences from the inputs to the end: up from the end, through the largest relative error each time."""
        findings = self.findings
        through: Set[int] = frozenset()
        if findings.suspects:
            through = findings.effects.below(findings.suspects[0].number)
        end = self._end(through)
        way: list[int] = []
        while end is not None and len(way) < STEPS_OF_GROWTH:
            way.append(end)
            passed = end in through and not (findings.suspects and end == findings.suspects[0].number)
            above_it = [n for n in self.sources(end)[0] if n in self.errors and n not in way]
            wanted = [n for n in above_it if n in through] if passed else []
            end = max(wanted or above_it, key=self._size, default=None)
        return way[::-1]

    def _end(self, through: Set[int]) -> int | None:
        """The last scalar that reached a result, else the last value: the loss, in a program that has one."""
        candidates = [n for n in (through or self.errors) if n in self.errors and self._float(n)]
        effects = self.findings.effects
        lasting = [n for n in candidates if n in effects.to_results or n in effects.to_outputs] or candidates
        scalars = [n for n in lasting if not self.a.trace.shape(self.a.event_shape[self.pairs[n][0]])]
        losses = [n for n in scalars if self.a.node_of(self.pairs[n][0])[3] == SiteKind.OUTPUT]
        return max(losses or scalars or lasting, key=self._place, default=None)

    def _float(self, number: int) -> bool:
        return self.errors[number].max_ulp is not None

    def _size(self, number: int) -> tuple[float, float]:
        found = self.errors[number]
        return found.rms if found.rms is not None else math.inf, found.max_rel or 0.0


def _figure(value: float | None) -> str:
    return "not known" if value is None else f"{value:.3g}"
