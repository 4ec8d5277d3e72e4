"""All that differs between two runs, told in bounded space: op by op, step by step, and along the way to a result.

Blames nothing; `bisector` judged each difference.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tfbisect.bisector import Findings
from tfbisect.checked import finite
from tfbisect.culprits import shown
from tfbisect.judgements import What
from tfbisect.model import GraphKind, Json, SiteKind
from tfbisect.reach import BLOCK, gathered, tally
from tfbisect.sizes import COLUMNS, Sizes, columns
from tfbisect.steps import Steps
from tfbisect.tables import dtype_name
from tfbisect.ways import Ways

Ints = npt.NDArray[np.integer]

OPS = 2000  # differing ops that are listed
STEPS = 400  # rows of the time line; neighbouring steps are added up beyond it
POINTS = 200  # of the way to a result
MEASURED_STEPS, MEASURED_OPS = 60, 8  # of the errors in the time line

STATES = ("culprit", "undecided", "receiver")
_QUIET = 3
_CODES = np.zeros(max(What) + 1, np.int8)  # of each `What`
_CODES[[What.CULPRIT, What.UNDECIDED, What.RECEIVER, What.QUIET]] = 0, 1, 2, _QUIET
_NO_STEP = -1

OP_COLUMNS = (
    "state", "op_type", "name", "function", "slot", "events", "step", "last_step", "call", "iteration",
    "source", "dtype", "shape", *COLUMNS,
)  # fmt: skip
EVENT_COLUMNS = (
    "state", "op_type", "name", "function", "slot", "step", "call", "iteration", "file", "line", "dtype", "shape",
)  # fmt: skip


class _Ops(NamedTuple):
    """The differing events by op. group: the op of each event; first: the event that each op is told by."""

    group: Ints
    first: Ints
    counts: Ints
    states: Ints
    last_step: Ints
    order: Ints


class Overview:
    """Tells of all differing events of run A. steps: of run A."""

    def __init__(self, findings: Findings, steps: Steps, sizes: Sizes) -> None:
        self._findings, self._steps, self._sizes = findings, steps, sizes
        self._run = findings.equality.a
        codes = _CODES[findings.judgements.whats]
        codes[list(findings.file_names)] = _QUIET
        if not findings.suspects:
            codes[codes == 0] = 1  # nothing is blamed
        counted = codes != _QUIET
        self._counted = counted
        self._codes: Ints = codes[counted]
        rows = findings.equality.pairs.rows
        self._rows: Ints = rows if counted.all() else rows[counted]

    # -- op by op ----------------------------------------------------------------------------------------------------

    def differing(self) -> Json:
        """Each op that differs at least once: at most OPS of them, culprits first, then as they ran."""
        ops = self._ops
        listed = ops.order[:OPS]
        numbers = self._numbers()[ops.first[listed]].tolist()
        self._sizes.measure(numbers)
        rows, sources = [], dict[tuple[str, int, str], int]()
        for op, number in zip(listed.tolist(), numbers, strict=True):
            cells = self._cells(int(ops.first[op]))
            cells |= {"events": int(ops.counts[op]), "state": STATES[int(ops.states[op])]}
            cells["last_step"] = _step(int(ops.last_step[op]))
            cells |= columns(self._sizes.get(number))
            source = None if cells["file"] is None else (cells["file"], cells["line"], cells["text"])
            cells["source"] = None if source is None else sources.setdefault(source, len(sources))
            rows.append([cells[name] for name in OP_COLUMNS])
        return {
            "columns": list(OP_COLUMNS),
            "rows": rows,
            "sources": [{"file": file, "line": line, "text": text} for file, line, text in sources],
            "ops": len(ops.order),
            "events": len(self._rows),
            "left_out": len(ops.order) - len(rows),
        }

    def events(self) -> "DifferingEvents":
        """All differing events, for tables in memory."""
        return DifferingEvents(len(self._rows), self._columns)

    def _columns(self) -> dict[str, Sequence[Any]]:
        """Column by column; what belongs to an op is looked up once for each op."""
        ops = self._ops
        cells = [self._cells(first) for first in ops.first.tolist()]
        group = ops.group.tolist()
        found: dict[str, Sequence[Any]] = {}
        for name in EVENT_COLUMNS:
            if name not in ("state", "step", "call", "iteration"):
                found[name] = [cells[op][name] for op in group]
        run = self._run
        found["state"] = [STATES[code] for code in self._codes.tolist()]
        found["step"] = [_step(step) for step in self._step.tolist()]
        found["call"] = [self._steps.ordinal(call) if call >= 0 else None for call in self._calls.tolist()]
        found["iteration"] = [run.path(run.event_path[row]) for row in self._rows.tolist()]
        return {name: found[name] for name in EVENT_COLUMNS}

    def _cells(self, at: int) -> Json:
        """What is told of an op, by one of its events."""
        run, row = self._run, int(self._rows[at])
        call = run.event_call[row]
        flow, _node, slot, kind = run.node_of(row)
        name, op_type, source = shown(run, row)
        eager = flow.graph.kind in (GraphKind.EAGER, GraphKind.ENTRY)
        shape = run.trace.shape(run.event_shape[row])
        return {
            "op_type": op_type,
            "name": name,
            "function": "" if eager else flow.graph.name,
            "slot": 0 if kind == SiteKind.WRITE else slot,
            "step": _step(int(self._step_of_call[call])),
            "call": self._steps.ordinal(call) if call >= 0 else None,
            "iteration": list(run.path(run.event_path[row])),
            "file": source.file if source else None,
            "line": source.line if source else None,
            "text": source.text.strip() if source else None,
            "dtype": dtype_name(run.dtype(row)),
            "shape": None if shape is None else list(shape),
        }

    def _numbers(self) -> Ints:
        """The differences that count."""
        return np.flatnonzero(self._counted)

    @property
    def _calls(self) -> Ints:
        """The call of each differing event; -1 for constants."""
        return gathered(self._run.trace.events.call_row, self._rows)

    @cached_property
    def _ops(self) -> _Ops:
        rows = self._rows
        group, count = self._groups()
        # First means executed first, in the order of rows, which only constants are not in.
        at = np.arange(len(rows), dtype=np.int32)
        if np.any(rows[1:] < rows[:-1]):
            at = np.argsort(rows, kind="stable").astype(np.int32)
        first = np.zeros(count, np.int64)
        states = np.full(count, _QUIET, np.int8)
        last_step = np.full(count, _NO_STEP, np.int32)
        for low in range(len(at) // BLOCK * BLOCK, -1, -BLOCK):
            some = at[low : low + BLOCK][::-1]  # the last one that is put down stays
            first[group[some]] = some
            np.minimum.at(states, group[some], self._codes[some])
            calls = self._run.trace.events.call_row[rows[some]]
            np.maximum.at(last_step, group[some], self._step_of_call[calls])
        # An op that is a culprit once is told by the moment it was.
        culprits = np.flatnonzero(self._codes == 0)
        culprits = culprits[np.argsort(rows[culprits], kind="stable")][::-1]
        first[group[culprits]] = culprits
        ranking = np.lexsort((rows[first], states))
        return _Ops(group, first, tally(group, count), states, last_step, ranking)

    def _groups(self) -> tuple[Ints, int]:
        """(the op of each differing event, how many there are): sites, and of eager ops also lines."""
        run = self._run
        sites = gathered(run.trace.events["site"], self._rows)
        eager = (run.trace.kinds == GraphKind.EAGER)[run.trace.sites["graph"]]
        lined = np.flatnonzero(gathered(eager, sites))
        stacks = run.trace.calls["stack"].astype(np.int64)[run.trace.events.call_row[self._rows[lined]]]
        lines = sites[lined].astype(np.int64) << 32 | stacks
        some, other = np.unique(lines), np.flatnonzero((tally(sites, len(eager)) > 0) & ~eager) << 32
        keys = np.sort(np.concatenate((some, other)))
        places = np.searchsorted(keys, np.arange(len(eager)) << 32).astype(np.min_scalar_type(len(keys)))
        group = gathered(places, sites)
        group[lined] = np.searchsorted(keys, lines)
        return group, len(keys)

    @cached_property
    def _step_of_call(self) -> Ints:
        """The step of each call of A, and at the end that of constants: none."""
        steps = [self._steps.step(call) for call in range(len(self._run.graph_of))]
        return np.asarray([_NO_STEP if step is None else step for step in steps] + [_NO_STEP], np.int32)

    @property
    def _step(self) -> Ints:
        return gathered(self._step_of_call, self._calls)

    # -- step by step ------------------------------------------------------------------------------------------------

    def timeline(self) -> list[Json]:
        """For each step (null: outside all) how many events were compared, what differs, and how much."""
        # Counted by call first, constants before all calls: there are a thousand times as many events.
        step = np.roll(self._step_of_call, 1)
        compared = self._by_call(self._findings.equality.alignment.rows_a)
        ranges = _ranges(np.unique(step[compared > 0]))
        lows = np.asarray([low for low, _ in ranges], np.int64)
        order = np.argsort(lows, kind="stable")
        place = order[np.searchsorted(lows[order], step, "right") - 1] if len(order) else np.zeros(len(step), np.int64)

        def by_range(counts: Ints) -> list[int]:
            found = np.zeros(len(ranges), np.int64)
            some = counts > 0
            np.add.at(found, place[some], counts[some])
            return found.tolist()

        paired = by_range(compared)
        counted = zip(
            *(by_range(self._by_call(self._rows[self._codes == code])) for code in range(len(STATES))), strict=True
        )
        errors = self._errors()
        found: list[Json] = []
        for (low, high), count, counts in zip(ranges, paired, counted, strict=True):
            item: Json = {"step": _step(low), "to": _step(high), "compared": count}
            item |= {"differing": sum(counts), **dict(zip(STATES, counts, strict=True))}
            sizes = [size for step, size in errors if low <= step <= high]
            for name in ("max_ulp", "max_abs", "max_rel"):
                largest = max((value for each in sizes if (value := getattr(each, name)) is not None), default=None)
                item[name] = finite(largest)
            found.append(item)
        return found

    def _by_call(self, rows: Ints) -> Ints:
        """How many of some events are constants, and how many are in each call."""
        return np.roll(tally(gathered(self._run.trace.events.call_row, rows), len(self._step_of_call)), 1)

    def _errors(self) -> list[tuple[int, Any]]:
        """Sizes at many steps of the few ops whose values were kept most often, so that steps can be compared."""
        at = np.flatnonzero(self._sizes.kept[self._counted])
        step = self._step_of_call[self._run.trace.events.call_row[self._rows[at]]]
        at, step = at[step != _NO_STEP], step[step != _NO_STEP]
        if not len(at):
            return []
        chosen_steps = np.isin(step, _thinned(np.unique(step), MEASURED_STEPS))
        at, step = at[chosen_steps], step[chosen_steps]
        groups, counts = np.unique(self._ops.group[at], return_counts=True)
        chosen = groups[np.argsort(-counts, kind="stable")[:MEASURED_OPS]]
        of_those = np.isin(self._ops.group[at], chosen)
        at, step = at[of_those], step[of_those]
        _, last = np.unique(np.stack([step, self._ops.group[at]])[:, ::-1], axis=1, return_index=True)
        at, step = at[len(at) - 1 - last], step[len(at) - 1 - last]  # of a step, what an op gave last
        numbers = self._numbers()[at].tolist()
        self._sizes.measure(numbers)
        sizes = zip(step.tolist(), map(self._sizes.get, numbers), strict=True)
        return [(at_step, size) for at_step, size in sizes if size is not None]

    # -- along the way to a result -----------------------------------------------------------------------------------

    def growth(self) -> Json | None:
        """How the first culprit's difference grows on its way to the last result that it reaches.

        None without a culprit, where one run only has it, or where it is too far.
        """
        suspects = self._findings.suspects
        if not suspects or suspects[0].number < 0:
            return None
        way = Ways(self._findings, self._counted, self._sizes.kept).best(suspects[0].number)
        if not way:
            return None
        at = {number: position for position, number in enumerate(way)}
        kept = [number for number in way if self._sizes.kept[number]]
        chosen = np.asarray(kept or way, np.int64)
        told = sorted({*_thinned(chosen, POINTS).tolist(), way[0], way[-1]}, key=at.__getitem__)
        self._sizes.measure(told)
        points = []
        for number in told:
            cells = self._cells(int(np.count_nonzero(self._counted[:number])))
            point = {name: cells[name] for name in ("op_type", "name", "function", "step", "iteration", "file", "line")}
            points.append({"position": at[number], **point, **columns(self._sizes.get(number))})
        return {"events": len(way), "points": points, "left_out": len(way) - len(points)}


class DifferingEvents:
    """The differing events of a comparison as columns, made when they are asked for. Keeps the traces in memory."""

    def __init__(self, count: int, columns: Callable[[], dict[str, Sequence[Any]]]) -> None:
        self._count, self._columns = count, columns

    def __len__(self) -> int:
        return self._count

    def columns(self) -> dict[str, Sequence[Any]]:
        """{name: one value for each event}; the names are those of EVENT_COLUMNS."""
        return self._columns()


def _step(step: int) -> int | None:
    return None if step == _NO_STEP else step


def _ranges(steps: Ints) -> list[tuple[int, int]]:
    """(first, last) of groups of neighbouring steps, STEPS at most; what is outside all steps comes last."""
    real = steps[steps != _NO_STEP].tolist()
    each = -(-len(real) // STEPS) or 1
    found = [(real[i], real[min(i + each, len(real)) - 1]) for i in range(0, len(real), each)]
    return found + [(_NO_STEP, _NO_STEP)] * (len(real) < len(steps))


def _thinned(items: Ints, most: int) -> Ints:
    """At most so many of them, evenly, the first and the last among them."""
    if len(items) <= most:
        return items
    return items[np.unique(np.linspace(0, len(items) - 1, most).round().astype(np.int64))]
