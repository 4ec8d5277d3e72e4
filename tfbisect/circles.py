"""Differences that only explain each other: ops that ran in another order. Knows edges, no events."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any


def starts(
    edges: Sequence[Sequence[int]], grounded: Iterable[int], count: int, order: Callable[[int], Any]
) -> list[int]:  # fmt: skip
    """Of the first `count` differences those in which a circle began, that lead back to nothing that is grounded.

    edges: for each difference those that it comes from. order: sorts them as they ran.
    """
    below: list[list[int]] = [[] for _ in edges]
    for number, sources in enumerate(edges):
        for source in sources:
            below[source].append(number)
    known = _reached(below, grounded)
    found = []
    for number in sorted((number for number in range(count) if number not in known), key=order):
        if number not in known:
            found.append(number)
            known |= _reached(below, [number])
    return found


def _reached(below: Sequence[Sequence[int]], start: Iterable[int]) -> set[int]:
    waiting = list(start)
    found = set(waiting)
    while waiting:
        more = [number for number in below[waiting.pop()] if number not in found]
        found.update(more)
        waiting += more
    return found
