"""In which loop iteration each dump of a `Session.run` was made.

Reads the order of dumps only: a watched graph runs one iteration of a loop at a time (TensorFlow sets
parallel_iterations to 1), so the dumps of a loop's condition tell where each of its iterations begins and ends.
"""

import bisect
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfbisect.recorder.controlflow import Frame, base
from tfbisect.recorder.session_dumps import Dump


@dataclass(frozen=True, slots=True)
class Loops:
    """The loops of an executed graph; `of` makes it.

    conditions: {LoopCond: its frame}. passed: {node: the loops whose condition comes before it in each iteration}.
    """

    frames: Mapping[str, Frame]
    conditions: Mapping[str, Frame]
    passed: Mapping[str, frozenset[Frame]]


def of(protos: Sequence[Any], frames: Mapping[str, Frame]) -> Loops:
    """The loops of NodeDefs in topological order."""
    conditions = {node.name: frames[node.name] for node in protos if node.op == "LoopCond"}
    return Loops(frames, conditions, _passed(protos, frames, conditions))


def _passed(
    protos: Sequence[Any], frames: Mapping[str, Frame], conditions: Mapping[str, Frame]
) -> dict[str, frozenset[Frame]]:
    found: dict[str, frozenset[Frame]] = {}
    for node in protos:
        here: frozenset[Frame] = frozenset().union(*(found.get(base(ref), frozenset()) for ref in node.input))
        if node.op in ("Switch", "RefSwitch") and base(node.input[1]) in conditions:
            here |= {frames[node.name]}
        elif node.op in ("Exit", "RefExit"):
            here -= {frames[base(node.input[0])]}
        found[node.name] = here
    return found


def iterations(loops: Loops, dumps: Sequence[Dump]) -> list[tuple[int, ...] | None]:
    """The loop iteration of each dump, the outermost loop's first; None where it cannot be told.

    `dumps` in the order in which they were written, those of the conditions among them.
    """
    if not loops.conditions:
        return [()] * len(dumps)
    steps: dict[Frame, tuple[list[int], list[tuple[int, ...]]]] = {}  # places of a loop's conditions, and their paths
    at: dict[str, list[int]] = {condition: [] for condition in loops.conditions}
    for place, dump in enumerate(dumps):
        if dump.node in at:
            at[dump.node].append(place)
    for condition, frame in sorted(loops.conditions.items(), key=lambda item: len(item[1])):
        places, paths = [], []
        outer: tuple[int, ...] | None = None
        trip = 0
        for place in at[condition]:
            if outer is None:
                outer, trip = _at(loops, steps, condition, frame[:-1], place, -1), 0
            if outer is None:
                break
            places.append(place)
            paths.append((*outer, trip))
            trip += 1
            if not dumps[place].truth():
                outer = None
        steps[frame] = places, paths
    counts: dict[tuple[str, int], int] = defaultdict(int)
    found: list[tuple[int, ...] | None] = []
    for place, dump in enumerate(dumps):
        found.append(_at(loops, steps, dump.node, loops.frames.get(dump.node, ()), place, counts[dump.node, dump.slot]))
        counts[dump.node, dump.slot] += 1
    return found


def _at(
    loops: Loops, steps: Mapping[Frame, tuple[list[int], list[tuple[int, ...]]]], node: str, frame: Frame, place: int,
    count: int,
) -> tuple[int, ...] | None:  # fmt: skip
    """The iteration of a loop in which a node wrote its dump at `place`, its `count`-th (-1: not known)."""
    if not frame:
        return ()
    places, paths = steps.get(frame, ([], []))
    if frame in loops.passed.get(node, ()):
        at = bisect.bisect_left(places, place) - 1
    else:  # above the condition: it runs once in each iteration
        at = count if count >= 0 else bisect.bisect_left(places, place)
    return paths[at] if 0 <= at < len(paths) else None
