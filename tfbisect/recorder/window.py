"""Which steps are recorded op by op, and what else is followed.

Imports nothing heavy: the command line reads it before the program runs.
"""

import re
from dataclasses import dataclass

from tfbisect.errors import Usage

NONE = "none"
_FORM = re.compile(r"^(\d*):(\d*)$|^(\d+)$")


@dataclass(frozen=True, slots=True)
class Window:
    """The steps from `first` up to but without `last`; None: to the end. `last` 0: no step at all."""

    first: int = 0
    last: int | None = None

    @classmethod
    def parse(cls, text: str) -> "Window":
        """`3990:4010`, `3990:`, `:10`, `7` (that step alone) or `none`. Raises Usage."""
        if text == NONE:
            return cls(0, 0)
        match = _FORM.match(text)
        window = None
        if match is not None and match[3] is not None:
            window = cls(int(match[3]), int(match[3]) + 1)
        elif match is not None:
            window = cls(int(match[1] or 0), int(match[2]) if match[2] else None)
        if window is None or (window.last is not None and window.last <= window.first):
            raise Usage(
                "--steps", found=text, expected="FIRST:LAST, as in 3990:4010, which ends before step 4010",
                hint="python -m tfbisect record --steps 3990:4010 program.py",
            )  # fmt: skip
        return window

    def __str__(self) -> str:
        if self.last == 0:
            return NONE
        return f"{self.first}:{'' if self.last is None else self.last}"

    def holds(self, step: int) -> bool:
        """Whether a step is recorded. What runs before the first step (-1) is, with step 0."""
        return self.first <= max(step, 0) and (self.last is None or max(step, 0) < self.last)

    def is_over(self, step: int) -> bool:
        """Whether a step comes behind the last one that is recorded."""
        return self.last is not None and step >= self.last


@dataclass(frozen=True, slots=True)
class Wish:
    """What to follow in a recording.

    window: the steps that are recorded op by op. then_stop: end the program behind them. state: take digests of the
    state between steps. against: a finished trace to compare with (a path or URL); stop_at_first: end the program once
    it differs.
    """

    window: Window = Window()
    then_stop: bool = False
    state: bool = False
    against: str | None = None
    stop_at_first: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether every step is recorded and nothing else is asked for."""
        return self == PLAIN


PLAIN = Wish()
