"""Aligns two sequences of keys: which element of one is which of the other.

Knows nothing of what the keys stand for.
"""

from collections import defaultdict
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Likeness = Callable[[int, int], int]

MAX_EDITS = 1500
MAX_SLIDE = 2000


def align(a: Ints, b: Ints, likeness: Likeness | None = None) -> tuple[Ints, Ints]:
    """Places of equal keys that correspond, by the shortest edit script; ascending in `a`.

    What that leaves over is paired by key and occurrence, even crosswise. Where elements were put in among equal keys,
    `likeness(i, j)` (larger is more alike) decides which are the new ones. With very many edits everything is paired by
    key and occurrence.
    """
    if np.array_equal(a, b):
        return np.arange(len(a)), np.arange(len(b))
    start, end = _common_ends(a, b)
    middle_a, middle_b = a[start : len(a) - end].tolist(), b[start : len(b) - end].tolist()
    to_b = np.full(len(a), -1, np.int64)
    to_b[:start] = np.arange(start)
    if end:
        to_b[len(a) - end :] = np.arange(len(b) - end, len(b))
    for i, j in _shortest_edit(middle_a, middle_b) if middle_a and middle_b else ():
        to_b[start + i] = start + j
    if likeness is not None:
        _slide(to_b, a, b, likeness)
    _leftovers(to_b, a, b)
    paired = np.flatnonzero(to_b >= 0)
    return paired, to_b[paired]


def ranks(keys: Ints) -> Ints:
    """For each element how many equal ones come before it."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1]))) if len(keys) else order
    lengths = np.diff(np.append(starts, len(keys)))
    found = np.empty(len(keys), np.int64)
    found[order] = np.arange(len(keys)) - np.repeat(starts, lengths)
    return found


def _common_ends(a: Ints, b: Ints) -> tuple[int, int]:
    """How many elements are equal at the start, and then at the end."""
    shorter = min(len(a), len(b))
    unequal = np.flatnonzero(a[:shorter] != b[:shorter])
    start = int(unequal[0]) if len(unequal) else shorter
    rest = shorter - start
    if not rest:
        return start, 0
    unequal = np.flatnonzero(a[len(a) - rest :][::-1] != b[len(b) - rest :][::-1])
    return start, int(unequal[0]) if len(unequal) else rest


def _shortest_edit(a: list[int], b: list[int]) -> list[tuple[int, int]]:
    """The matches of a shortest edit script (E. Myers, An O(ND) Difference Algorithm, 1986); [] if it is too long."""
    best = {1: 0}
    trace = []
    for edits in range(min(len(a) + len(b), MAX_EDITS) + 1):
        trace.append(dict(best))
        for k in range(-edits, edits + 1, 2):
            down = k == -edits or (k != edits and best[k - 1] < best[k + 1])
            x = best[k + 1] if down else best[k - 1] + 1
            y = x - k
            while x < len(a) and y < len(b) and a[x] == b[y]:
                x, y = x + 1, y + 1
            best[k] = x
            if x >= len(a) and y >= len(b):
                return _matches(trace, len(a), len(b))
    return []


def _matches(trace: list[dict[int, int]], x: int, y: int) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for edits in range(len(trace) - 1, -1, -1):
        best, k = trace[edits], x - y
        down = k == -edits or (k != edits and best[k - 1] < best[k + 1])
        before = k + 1 if down else k - 1
        before_x = best[before]
        before_y = before_x - before
        while x > before_x and y > before_y and (x, y) != (0, 0):
            if x - 1 < 0 or y - 1 < 0:
                break
            x, y = x - 1, y - 1
            found.append((x, y))
        x, y = before_x, before_y
    return found[::-1]


def _slide(to_b: Ints, a: Ints, b: Ints, likeness: Likeness) -> None:
    """Moves each run of new elements among equal keys to where the pairs around it are most alike."""
    to_a = np.full(len(b), -1, np.int64)
    paired = np.flatnonzero(to_b >= 0)
    to_a[to_b[paired]] = paired
    for first, last in _runs(to_a < 0):
        _slide_one(to_a, b, first, last, lambda j, i: likeness(i, j))
    to_b[:] = -1
    kept = np.flatnonzero(to_a >= 0)
    to_b[to_a[kept]] = kept
    for first, last in _runs(to_b < 0):
        _slide_one(to_b, a, first, last, likeness)


def _runs(mask: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    edges = np.flatnonzero(np.diff(np.concatenate(([0], mask.astype(np.int8), [0]))))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


def _slide_one(partner: Ints, keys: Ints, first: int, last: int, likeness: Likeness) -> None:
    """Slides one run of unpaired elements [first, last) up, as far as the keys allow, to its best place."""
    width = last - first
    gains, total = [0], 0
    for step in range(min(first, MAX_SLIDE)):
        moved, place = first - 1 - step, last - 1 - step
        other = int(partner[moved])
        if other < 0 or keys[moved] != keys[place] or (step and other + 1 != int(partner[moved + 1])):
            break
        total += likeness(place, other) - likeness(moved, other)
        gains.append(total)
    best = max(range(len(gains)), key=lambda step: (gains[step], -step))
    for step in range(best):
        moved, place = first - 1 - step, last - 1 - step
        partner[place], partner[moved] = partner[moved], -1
    assert width == last - first


def _leftovers(to_b: Ints, a: Ints, b: Ints) -> None:
    taken = np.zeros(len(b), np.bool_)
    taken[to_b[to_b >= 0]] = True
    rest: dict[int, list[int]] = defaultdict(list)
    for j in np.flatnonzero(~taken)[::-1].tolist():
        rest[int(b[j])].append(j)
    for i in np.flatnonzero(to_b < 0).tolist():
        waiting = rest.get(int(a[i]))
        if waiting:
            to_b[i] = waiting.pop()
