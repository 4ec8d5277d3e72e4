"""The differing events of two aligned runs, numbered from 0, kept as columns.

Says which events they are; what they mean is decided elsewhere.
"""

from collections.abc import Iterator, Sequence
from typing import overload

import numpy as np
import numpy.typing as npt

from tfbisect.recorded import Column, column

Ints = npt.NDArray[np.integer]


class Pairs(Sequence[tuple[int, int]]):
    """(event in A, event in B) of each difference. rows: those in A, others: those in B, as arrays."""

    def __init__(self, rows: Ints, others: Ints) -> None:
        self.rows, self.others = rows, others
        self._rows, self._others = column(rows), column(others)

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> tuple[int, int]: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[tuple[int, int]]: ...

    def __getitem__(self, index: int | slice) -> tuple[int, int] | Sequence[tuple[int, int]]:
        if isinstance(index, slice):
            return list(zip(self._rows[index], self._others[index], strict=True))
        return self._rows[index], self._others[index]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._rows, self._others, strict=True)


class Numbers:
    """The number of the difference that an event of A is part of."""

    def __init__(self, pairs: Pairs, events: int) -> None:
        self.array = np.full(events, -1, np.int32)  # of each event; -1: it does not differ
        self.array[pairs.rows] = np.arange(len(pairs), dtype=np.int32)
        self._array: Column = column(self.array)

    def get(self, row: int) -> int | None:
        """None for an event that does not differ, and for -1, which is none."""
        number = self._array[row] if row >= 0 else -1
        return None if number < 0 else number


def distinct(values: Ints, count: int) -> list[int]:
    """The distinct of many numbers from -1 to below `count`, ascending."""
    seen = np.zeros(count + 1, np.bool_)
    seen[values] = True  # -1 is the last place
    found: list[int] = np.flatnonzero(seen[:-1]).tolist()
    return [-1] * bool(seen[-1]) + found
