"""Which step of the program runs now, told while it runs.

The rule is that of `steps`, which tells it afterwards from a trace: steps that the program marks (Keras batches,
`tfbisect.step()`, v1 runs of a train op); else calls of the functions that write variables; else, in eager code, rounds
of writes. Records nothing.
"""

import enum
from collections import Counter
from collections.abc import Callable
from typing import Any


class By(enum.IntEnum):
    """How steps are told; a later one takes over from an earlier one, and counts from 0 again."""

    NOTHING = 0
    EAGER = 1
    FUNCTIONS = 2
    MARKS = 3


class Progress:
    """Counts steps. `changed` is called at each change, after it: the program is then between two steps.

    `number`: the step that the program is in, from 0; -1 for none. `late`: during `changed`, whether the step has begun
    with a write that is done already.
    """

    def __init__(self, changed: Callable[[], None]) -> None:
        self.by, self.number, self.late = By.NOTHING, -1, False
        self._changed = changed
        self._calls: Counter[str] = Counter()
        self._round: set[Any] = set()  # what this step wrote, by line and variable
        self._last_round: set[Any] = set()

    def marked(self, number: int) -> None:
        """The program says in which step it is; -1: in none."""
        self.by = By.MARKS
        self._to(number)

    def function(self, name: str) -> None:
        """An outermost call of a function that writes variables begins.

        The function that was called most often is the one that counts: one that only fills variables at the start is
        not, and of two that take turns each step has a call of both.
        """
        if self.by > By.FUNCTIONS:
            return
        self._calls[name] += 1
        if self.by < By.FUNCTIONS:
            self.by, self.number = By.FUNCTIONS, -1
        if self._calls[name] - 1 > self.number:
            self._to(self._calls[name] - 1)

    def written(self, write: Any) -> None:
        """An eager op wrote a variable; write: its line and the variable.

        A step ends with the last write that the step before it had, if it has all of them, so that the next one begins
        before its first op; else before the first write that it did already.
        """
        if self.by > By.EAGER:
            return
        if write in self._round or self.by == By.NOTHING:
            self.late = True
            try:
                self._next_round()
            finally:
                self.late = False
        self._round.add(write)
        if self._last_round and self._round >= self._last_round:
            self._next_round()

    def _next_round(self) -> None:
        number = self.number + 1
        self.by = By.EAGER
        if self._round:
            self._last_round = self._round
        self._round = set()
        self._to(number)

    def _to(self, number: int) -> None:
        if number != self.number:
            self.number = number
            self._changed()
