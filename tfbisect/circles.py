"""Differences that only explain each other: ops that ran in another order. Knows links, no events."""

from collections.abc import Callable
from typing import Any

import numpy as np

from tfbisect.reach import Bools, Links


def starts(links: Links, grounded: Bools, count: int, order: Callable[[int], Any]) -> list[int]:
    """Of the first `count` differences those in which a circle began, that lead back to nothing that is grounded.

    links: for each difference those that it comes from. grounded: the differences that need no explanation; all that
    come from nothing must be. order: sorts them as they ran.
    """
    if links.acyclic:
        return []
    below = links.back
    known = below.closure(grounded)
    found = []
    for number in sorted(np.flatnonzero(~known[:count]).tolist(), key=order):
        if not known[number]:
            found.append(number)
            one = np.zeros(len(links), np.bool_)
            one[number] = True
            known |= below.closure(one)
    return found
