"""In which loop iteration each dump of a `Session.run` was made.

Uses no clock: dumps of different ops may come in any order. A watched graph runs one iteration of a loop at a time
(TensorFlow sets parallel_iterations to 1), so the dumps of one op come in the order of its iterations, and what the
conditions of loops and branches were says in which iterations the op ran.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfbisect.recorder import controlflow
from tfbisect.recorder.controlflow import Branch, Frame, base, slot
from tfbisect.recorder.session_dumps import Dump, Output

Path = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Loops:
    """The loops and branches of an executed graph; `of` makes it.

    conditions: {LoopCond: its frame}. entries: {loop: branches around it that lead to it}. predicates: {what a Switch
    chooses by: the watched output behind it}; widths: among how many.
    """

    frames: Mapping[str, Frame]
    branches: Mapping[str, Branch]
    conditions: Mapping[str, Frame]
    entries: Mapping[Frame, Branch]
    predicates: Mapping[str, Output]
    widths: Mapping[str, int]

    @property
    def needed(self) -> frozenset[Output]:
        """Outputs that must be watched to tell the iterations."""
        return frozenset((condition, 0) for condition in self.conditions)


def of(protos: Sequence[Any], frames: Mapping[str, Frame]) -> Loops:
    """The loops of NodeDefs in topological order."""
    by_name = {node.name: node for node in protos}
    conditions = {node.name: frames[node.name] for node in protos if node.op == "LoopCond"}
    predicates: dict[str, Output] = {}
    widths: dict[str, int] = {}
    for node in protos if conditions else ():
        if node.op in ("Switch", "RefSwitch", "_SwitchN"):
            ref = controlflow.predicate(by_name, node)
            source = ref
            while by_name[base(source)].op in ("Identity", "Enter", "RefEnter"):  # a loop takes it from around it
                source = by_name[base(source)].input[0]
            predicates[ref] = base(source), slot(source)
            widths[ref] = node.attr["num_outs"].i if node.op == "_SwitchN" else 2
    branches, entries = controlflow.branches_and_entries(protos, frames)
    return Loops(frames, branches, conditions, entries, predicates, widths)


def iterations(loops: Loops, dumps: Sequence[Dump], ended: bool) -> list[Path | None]:
    """The loop iteration of each dump, the outermost loop's first; None where it cannot be told.

    `dumps` of one output in the order in which they were written, those of `loops.needed` among them. ended: the call
    did not fail, so that each op ran as often as it should have.
    """
    if not loops.conditions:
        return [()] * len(dumps)
    told = _Told(loops, dumps, ended)
    counts: dict[Output, int] = defaultdict(int)
    found: list[Path | None] = []
    for dump in dumps:
        key = dump.node, dump.slot
        paths = told.paths(key)
        found.append(paths[counts[key]] if paths is not None else None)
        counts[key] += 1
    return found


class _Told:
    """What the conditions in a call's dumps tell."""

    def __init__(self, loops: Loops, dumps: Sequence[Dump], ended: bool) -> None:
        self._loops, self._ended = loops, ended
        self._dumps: dict[Output, list[Dump]] = defaultdict(list)
        for dump in dumps:
            self._dumps[dump.node, dump.slot].append(dump)
        self._of: dict[Output, list[Path] | None] = {}
        self._rounds: dict[Frame, list[Path] | None] = {}

    def paths(self, key: Output) -> list[Path] | None:
        """The iterations of an output's dumps, in order; None where they cannot be told."""
        if key not in self._of:
            self._of[key] = None  # while it is asked for: what depends on itself cannot be told
            frame = self._loops.frames.get(key[0], ())
            count = len(self._dumps[key])
            ran = self._rounds_of(frame) if key[0] in self._loops.conditions else self._ran(frame, key[0], count)
            if not frame:
                ran = [()] * count
            if ran is not None and len(ran) < count or ran is not None and self._ended and len(ran) != count:
                ran = None
            self._of[key] = ran
        return self._of[key]

    def _ran(self, frame: Frame, node: str, count: int) -> list[Path] | None:
        rounds = self._rounds_of(frame)
        if rounds is None or len(rounds) == count:
            return rounds
        return self._chosen(rounds, self._loops.branches.get(node, frozenset()))

    def _chosen(self, paths: list[Path], branch: Branch) -> list[Path] | None:
        """Those of some iterations in which all these branches were taken."""
        for predicate, output in branch:
            source = self._loops.predicates.get(predicate)
            known = self.paths(source) if source is not None else None
            if source is None or known is None:
                return None
            width = self._loops.widths[predicate]
            dumps = zip(known, self._dumps[source], strict=False)
            taken = {path for path, dump in dumps if _output(dump.scalar(), width) == output}
            depth = len(self._loops.frames.get(source[0], ()))
            paths = [path for path in paths if path[:depth] in taken]
        return paths

    def _rounds_of(self, frame: Frame) -> list[Path] | None:
        """The iterations in which the condition of a loop was evaluated; the last of each run of the loop ends it."""
        if not frame:
            return [()]
        if frame not in self._rounds:
            self._rounds[frame] = None
            self._rounds[frame] = self._count(frame)
        return self._rounds[frame]

    def _count(self, frame: Frame) -> list[Path] | None:
        around = self._rounds_of(frame[:-1])
        entry = self._loops.entries.get(frame)
        condition = next((name for name, of_loop in self._loops.conditions.items() if of_loop == frame), None)
        if around is None or entry is None or condition is None:
            return None
        starts = self._chosen(around, entry)
        if starts is None:
            return None
        found: list[Path] = []
        number = trip = 0
        for dump in self._dumps[condition, 0]:
            if number == len(starts):
                return None
            found.append((*starts[number], trip))
            trip += 1
            if not dump.scalar():
                number, trip = number + 1, 0
        return found


def _output(value: int, width: int) -> int:
    """The output that a Switch of that many hands its input to; the last one takes every other number."""
    return value if 0 <= value < width else width - 1
