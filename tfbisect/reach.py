"""Numbered things that come from each other, as arrays: what each comes from, and all that some of them lead to.

Knows numbers only; what they stand for is `judgements`'s. Chains can be as long as there are numbers, so nothing here
goes level by level.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from functools import cached_property
from typing import TypeVar, overload

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.integer]
Bools = npt.NDArray[np.bool_]
T = TypeVar("T", bound=np.generic)

BLOCK = 1 << 18  # numbers that are turned around at once
STRIDE = 4096  # steps before the other of two searches has its turn


class Links(Sequence[tuple[int, ...]]):
    """For each number a few others, in order.

    starts: one more than there are numbers; the others of number n are items[starts[n]:starts[n + 1]].
    """

    def __init__(self, starts: Ints, items: Ints, back: "Links | None" = None) -> None:
        """back: the same links in the other direction, if these were made of them."""
        self.starts, self.items, self._back = starts, items, back
        self._starts: Sequence[int] = starts.data
        self._items: Sequence[int] = np.ascontiguousarray(items).data

    @classmethod
    def of(cls, lists: Iterable[Collection[int]]) -> "Links":
        """From a list for each number."""
        kept = list(lists)
        items = np.fromiter((item for each in kept for item in each), np.int32)
        return cls(_starts(np.fromiter(map(len, kept), np.int64, len(kept))), items)

    def __len__(self) -> int:
        return len(self._starts) - 1

    @overload
    def __getitem__(self, index: int) -> tuple[int, ...]: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[tuple[int, ...]]: ...

    def __getitem__(self, index: int | slice) -> tuple[int, ...] | Sequence[tuple[int, ...]]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        return tuple(self._items[self._starts[index] : self._starts[index + 1]])

    def replaced(self, lists: Mapping[int, Sequence[int]], more: Sequence[Sequence[int]] = ()) -> "Links":
        """The same with other lists for some numbers, and with more numbers at the end."""
        lists = dict(sorted(lists.items())) | dict(enumerate(more, len(self)))
        numbers = np.fromiter(lists, np.int64, len(lists))
        counts = np.zeros(len(self) + len(more), np.int64)
        counts[: len(self)] = np.diff(self.starts)
        stays = np.ones(len(counts), np.bool_)
        stays[numbers] = False
        old = np.repeat(stays[: len(self)], counts[: len(self)])
        counts[numbers] = np.fromiter(map(len, lists.values()), np.int64, len(lists))
        starts = _starts(counts)
        new = np.repeat(stays, counts)
        items = np.empty(len(new), np.int32)
        items[new] = self.items[old]
        items[~new] = np.fromiter((item for each in lists.values() for item in each), np.int32)
        return Links(starts, items)

    @property
    def back(self) -> "Links":
        """The same in the other direction: for each number those that have it among their others, ascending."""
        if self._back is None:
            self._back = self._reversed()
        return self._back

    def _reversed(self) -> "Links":
        starts = _starts(tally(self.items, len(self)))
        items, free = np.empty(len(self.items), np.int32), starts[:-1].copy()
        for low, some in self._blocks():
            owners = np.repeat(np.arange(low, low + len(some) - 1, dtype=np.int32), np.diff(some))
            block = self.items[some[0] : some[-1]]
            order = np.argsort(block, kind="stable")
            ordered = block[order]
            first = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))[: len(ordered)]
            counts = np.diff(np.append(first, len(ordered)))
            items[free[ordered] + np.arange(len(ordered)) - np.repeat(first, counts)] = owners[order]
            free[ordered[first]] += counts.astype(free.dtype)
        found = Links(starts, items, self)
        found.__dict__["acyclic"] = self.acyclic
        return found

    def _blocks(self) -> Iterator[tuple[int, Ints]]:
        """(the first of some numbers, their part of `starts`), all of them a part at a time."""
        for low in range(0, len(self), BLOCK):
            yield low, self.starts[low : low + BLOCK + 1]

    @cached_property
    def acyclic(self) -> bool:
        """Whether it is plain to see that nothing comes from itself. False: it may all the same be so."""
        for low, starts in self._blocks():
            items = self.items[starts[0] : starts[-1]]
            owners = np.repeat(np.arange(low, low + len(starts) - 1), np.diff(starts))
            # Of a circle at least one leads to a number that is not smaller, and that has others itself.
            ahead = items[items >= owners]
            if np.any(self.starts[ahead + 1] > self.starts[ahead]):
                return False
        return True

    def closure(self, start: Bools) -> Bools:
        """All that can be reached from some along the links, these included.

        Where there are no circles, it looks at the same time for what can not be reached, and is done as soon as either
        is known: of a run that diverged early nearly all is reached, and little else has to be looked at.
        """
        reached, gone = start.copy(), np.zeros(len(self), np.bool_)
        searches = [self._spread(reached)]
        if self.acyclic:
            searches.append(self._dwindle(start, gone))
        while True:
            for search, found in zip(searches, (reached, gone), strict=False):
                if next(search, True):
                    return reached if found is reached else ~gone

    def _spread(self, reached: Bools) -> Iterator[bool]:
        """Marks all that is reached from what is marked; False after every few steps."""
        starts, items, marks = self._starts, self._items, reached.view(np.uint8).data
        first = np.flatnonzero(reached).astype(np.int32)
        for low in range(0, len(first), STRIDE):
            waiting: list[int] = first[low : low + STRIDE].tolist()
            steps = 0
            while waiting:
                here = waiting.pop()
                for item in items[starts[here] : starts[here + 1]]:
                    if not marks[item]:
                        marks[item] = 1
                        waiting.append(item)
                steps += 1
                if not steps % STRIDE:
                    yield False
            yield False

    def _dwindle(self, start: Bools, gone: Bools) -> Iterator[bool]:
        """Marks all that is not reached; False after every few steps."""
        starts, items, marks, begun = self._starts, self._items, gone.view(np.uint8).data, start.view(np.uint8).data
        ways = np.diff(self.back.starts)  # how many may still lead here
        first = np.flatnonzero((ways == 0) & ~start).astype(np.int32)
        left = ways.data
        for low in range(0, len(first), STRIDE):
            waiting: list[int] = first[low : low + STRIDE].tolist()
            steps = 0
            while waiting:
                here = waiting.pop()
                marks[here] = 1
                for item in items[starts[here] : starts[here + 1]]:
                    left[item] -= 1
                    if not left[item] and not begun[item]:
                        waiting.append(item)
                steps += 1
                if not steps % STRIDE:
                    yield False
            yield False


class Growing:
    """Links that are made a part at a time."""

    def __init__(self) -> None:
        self._counts = np.zeros(0, np.int32)
        self._items = np.zeros(0, np.int32)

    def add(self, counts: Ints, items: Ints) -> None:
        """How many others each of the next numbers has, and these."""
        for name, more in (("_counts", counts), ("_items", items)):
            array = getattr(self, name)
            before = len(array)
            array.resize(before + len(more), refcheck=False)
            array[before:] = more

    def links(self) -> Links:
        return Links(_starts(self._counts), self._items)


class Marks(Set[int]):
    """A set of numbers from 0 on, a byte each."""

    def __init__(self, mask: Bools) -> None:
        self.mask = mask

    @classmethod
    def of(cls, numbers: Iterable[int], count: int) -> "Marks":
        """Some of `count` numbers."""
        mask = np.zeros(count, np.bool_)
        mask[np.fromiter(numbers, np.int64)] = True
        return cls(mask)

    def __contains__(self, number: object) -> bool:
        return isinstance(number, int) and 0 <= number < len(self.mask) and bool(self.mask[number])

    def __iter__(self) -> Iterator[int]:
        yield from np.flatnonzero(self.mask).tolist()

    def __len__(self) -> int:
        return int(np.count_nonzero(self.mask))

    @classmethod
    def _from_iterable(cls, numbers: Iterable[int]) -> frozenset[int]:  # type: ignore[override]
        return frozenset(numbers)

    def united(self, other: "Marks") -> "Marks":
        """What is in one of two that count equally many numbers."""
        return Marks(self.mask | other.mask)

    def isdisjoint(self, other: Iterable[int]) -> bool:
        return not any(number in self for number in other)


def gathered(table: npt.NDArray[T], numbers: Ints) -> npt.NDArray[T]:
    """`table[numbers]`, which would make a copy of the numbers, twice as large, on the way."""
    found = np.empty(len(numbers), table.dtype)
    for low in range(0, len(numbers), BLOCK):
        found[low : low + BLOCK] = table[numbers[low : low + BLOCK]]
    return found


def tally(numbers: Ints, count: int) -> Ints:
    """How often each number below `count` is among some; -1 stands for the last one."""
    found: Ints = np.zeros(count, np.int32 if len(numbers) < 2**31 else np.int64)
    for low in range(0, len(numbers), BLOCK):
        part = numbers[low : low + BLOCK].astype(np.int64) % count
        first = int(part.min())
        counts = np.bincount(part - first)
        found[first : first + len(counts)] += counts.astype(found.dtype)
    return found


def _starts(counts: Ints) -> Ints:
    """Where each of several lists begins that stand one behind the other, and where the last one ends."""
    starts: Ints = np.zeros(len(counts) + 1, np.int32 if int(counts.sum(dtype=np.int64)) < 2**31 else np.int64)
    np.cumsum(counts, out=starts[1:])
    return starts
