"""The way that a difference takes to the last result below it, event by event.

Blames nothing and measures nothing; `bisector` found what comes from what.
"""

from collections import deque

import numpy as np
import numpy.typing as npt

from tfbisect.bisector import Findings
from tfbisect.reach import Marks

Bools = npt.NDArray[np.bool_]

SEARCHED = 20_000  # differences below the first one up to which the best of all ways is looked for
HOPS = 1_000_000  # of a way that is not looked for but followed


class Ways:
    """counted, kept: for each difference whether it counts, and whether its values were kept."""

    def __init__(self, findings: Findings, counted: Bools, kept: Bools) -> None:
        self._findings, self._counted, self._kept = findings, counted, kept
        self._effects, self._events = findings.effects, len(counted)

    def best(self, start: int) -> list[int]:
        """Differing events from one to the last result below it, or to the last event, each taking the one before.

        Of all ways it is the one with the fewest events whose values were not kept. Where very many come from the
        first, it is one on which each event was preferred that is kept, and then the earliest.
        """
        below = self._effects.below(start)
        if len(below) <= SEARCHED:
            return self._searched(start)
        found = self._followed(start, below.mask, self._events)
        return found or self._followed(start, below.mask, start + HOPS)

    def _end(self, below: Bools) -> int:
        """Of some of the first differences the last one in a result, else the last one."""
        equality = self._findings.equality
        results = below & self._effects.to_results.mask[: len(below)]
        ends = results if results.any() else below
        ran = np.count_nonzero(equality.pairs.rows[: len(below)] < equality.a.trace.events.called)
        called = ends[:ran]  # behind them are constants, which were there before
        return _last(called if called.any() else ends)

    def _searched(self, start: int) -> list[int]:
        effects = self._effects
        cost, before = {start: 0}, {start: -1}
        waiting = deque([start])
        done: set[int] = set()
        while waiting:
            here = waiting.popleft()
            if here in done:
                continue
            done.add(here)
            for follower in effects.followers[here]:
                if follower < self._events and not self._counted[follower]:
                    continue
                free = follower >= self._events or self._kept[follower]
                reached = cost[here] + (0 if free else 1)
                if reached < cost.get(follower, reached + 1):
                    cost[follower], before[follower] = reached, here
                    (waiting.appendleft if free else waiting.append)(follower)
        at = self._end(Marks.of((number for number in done if number < self._events), self._events).mask)
        way = []
        while at >= 0:
            way.append(at)
            at = before[at]
        return [number for number in reversed(way) if number < self._events]

    def _followed(self, start: int, below: Bools, limit: int) -> list[int]:
        """The way up from the last result among the first `limit` differences; [] if it is too long."""
        counts = below.copy()
        counts[: self._events] &= self._counted
        here = self._end(counts[: min(limit, self._events)])
        way, passed = [here], {here}
        while here != start:
            above = [edge for edge in self._effects.edges[here] if counts[edge] and edge not in passed]
            if not above or len(way) > HOPS:
                return []
            here = start if start in above else min(above, key=self._rank)
            way.append(here)
            passed.add(here)
        return [number for number in reversed(way) if number < self._events]

    def _rank(self, number: int) -> tuple[bool, int]:
        return number < self._events and not self._kept[number], number


def _last(mask: Bools) -> int:
    return len(mask) - 1 - int(np.argmax(mask[::-1]))
