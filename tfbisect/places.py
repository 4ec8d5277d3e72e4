"""Where the event of a site in a call is, among the rows of a trace's events.

Array work and searches in it: a dictionary of so many places would take ten times the memory.
"""

import bisect
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tfbisect.events import BLOCK, CheckedEvents

Ints = npt.NDArray[np.integer]


class Places:
    """The events outside loops, or those in loops, of a trace with so many calls and sites."""

    def __init__(self, events: CheckedEvents, calls: int, *, loops: bool) -> None:
        self._loops = loops
        path, count = events["path"], events.called
        self._paths = int(path.max()) + 1 if len(path) else 1
        looped = path[:count] > 0 if self._paths > 1 else np.zeros(count if loops else 0, np.bool_)
        whole = not loops and not looped.any()
        rows: Ints = np.zeros(0, np.int32) if whole else np.flatnonzero(looped if loops else ~looped).astype(np.int32)
        if whole:
            self._starts = events.starts(calls)
            keys: Ints = events["site"][:count]
        else:
            counts = np.bincount(events.call_row[rows], minlength=calls)
            self._starts = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)))
            keys = events["site"][rows]
            if loops:
                keys = keys.astype(np.int64) * self._paths + path[rows]
        order = _order(keys, self._starts)
        if order is not None:
            keys, rows = keys[order], order if whole else rows[order]
        self._keys_array, self._rows_array = keys, None if whole and order is None else rows
        self._keys: Sequence[int] = np.ascontiguousarray(keys).data
        self._rows: Sequence[int] | None = None if self._rows_array is None else self._rows_array.data
        self._bounds: Sequence[int] = self._starts.data

    def row(self, call: int, site: int, path: int = 0) -> int:
        """The event of a site in a call; of several the last; -1 if there is none."""
        if path >= self._paths:
            return -1
        key = site * self._paths + path if self._loops else site
        low = self._bounds[call]
        at = bisect.bisect_right(self._keys, key, low, self._bounds[call + 1]) - 1
        if at < low or self._keys[at] != key:
            return -1
        return at if self._rows is None else self._rows[at]

    def rows(self, calls: Ints, site: int) -> npt.NDArray[np.int64]:
        """The events of a site outside loops in many calls; of several the last; -1 where there is none."""
        low, high = self._starts[calls], self._starts[calls + 1]
        keys = self._keys_array
        if not len(keys) or not len(calls):
            return np.full(len(calls), -1, np.int64)
        # In most calls of a function it is in the same place as in the first.
        first = bisect.bisect_right(self._keys, site, int(low[0]), int(high[0])) - 1 - int(low[0])
        at = low + first
        last = np.minimum(at + 1, len(keys) - 1)
        here = (first >= 0) & (at < high)
        here &= keys[np.where(here, at, 0)] == site
        here &= (at + 1 >= high) | (keys[last] != site)
        rest = np.flatnonzero(~here)
        if len(rest):
            at[rest] = self._searched(low[rest], high[rest], site)
        if self._rows_array is None:
            return at
        return np.where(at >= 0, self._rows_array[at], -1)

    def _searched(self, low: Ints, high: Ints, site: int) -> npt.NDArray[np.int64]:
        """The same for spans of keys, by bisection of all at once."""
        begin, keys = low, self._keys_array
        low, high = low.copy(), high.copy()
        while True:
            open_ = low < high
            if not open_.any():
                break
            middle = (low + high) // 2
            right = open_ & (keys[np.where(open_, middle, 0)] <= site)
            low[right] = middle[right] + 1
            high[open_ & ~right] = middle[open_ & ~right]
        at = low - 1
        found = (at >= begin) & (keys[np.maximum(at, 0)] == site)
        return np.where(found, at, -1)


def _order(keys: Ints, starts: npt.NDArray[np.int64]) -> Ints | None:
    """The order that sorts the keys of each call; None if they are sorted."""
    falls = np.flatnonzero(keys[1:] < keys[:-1]) + 1
    if not len(falls) or bool(np.all(starts[np.searchsorted(starts, falls)] == falls)):
        return None
    order = np.arange(len(keys), dtype=np.int32)
    low = 0
    while low < len(starts) - 1:  # calls together that have BLOCK keys at least
        high = int(np.searchsorted(starts, starts[low] + BLOCK, "left"))
        high = min(max(high, low + 1), len(starts) - 1)
        span = slice(int(starts[low]), int(starts[high]))
        calls = np.repeat(np.arange(high - low), np.diff(starts[low : high + 1]))
        order[span] = span.start + np.lexsort((keys[span], calls))
        low = high
    return order
