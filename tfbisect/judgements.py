"""What the bisection found of each difference, kept small: a run that diverged early has millions of them.

Holds what `bisector` says of the two events of a difference, and what it comes from; decides nothing.
"""

import enum
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, overload

import numpy as np
import numpy.typing as npt

from tfbisect.equality import Finding
from tfbisect.reach import Links


class What(enum.IntEnum):
    """What a differing event is."""

    RECEIVER = 1
    CULPRIT = 2
    UNDECIDED = 3
    QUIET = 4  # differs in nothing that matters: the derived digest of a list or dataset


class Judgement(NamedTuple):
    """What a differing event is, and what it comes from."""

    what: What
    edges: tuple[int, ...] = ()
    finding: Finding | None = None
    entry: bool = False  # takes a variable that nothing recorded wrote before
    reason: str = ""  # undecided: why


class Judgements(Sequence[Judgement]):
    """One judgement for each difference, by number. `whats`: what each is, as numbers of `What`.

    Plain receivers are kept as numbers, the rest as objects.
    """

    def __init__(self, plain: Links, judged: Mapping[int, Judgement]) -> None:
        """plain: for each difference what it comes from, if it is a plain receiver; judged: all others."""
        self._judged = dict(judged)
        self._plain = plain.replaced({number: each.edges for number, each in judged.items()}) if judged else plain
        self._changed: dict[int, Judgement] = {}
        self.whats = np.full(len(plain), What.RECEIVER, np.int8)
        numbers = np.fromiter(judged, np.int64, len(judged))
        self.whats[numbers] = np.fromiter((each.what for each in judged.values()), np.int8, len(judged))

    @classmethod
    def of(cls, judged: Sequence[Judgement]) -> "Judgements":
        """From one for each difference."""
        return cls(Links.of([()] * len(judged)), dict(enumerate(judged)))

    def __len__(self) -> int:
        return len(self.whats)

    @overload
    def __getitem__(self, index: int) -> Judgement: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Judgement]: ...

    def __getitem__(self, index: int | slice) -> Judgement | Sequence[Judgement]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        found = self._judged.get(index)
        return Judgement(What.RECEIVER, self._plain[index]) if found is None else found

    def __setitem__(self, number: int, judged: Judgement) -> None:
        self._judged[number] = self._changed[number] = judged
        self.whats[number] = judged.what

    def replaced(self, judged: Mapping[int, Judgement]) -> "Judgements":
        """A copy in which some differences are judged otherwise."""
        found = Judgements(self._plain, self._judged)
        for number, each in judged.items():
            found[number] = each
        return found

    def links(self, mixtures: Sequence[Sequence[int]]) -> Links:
        """What each difference comes from, as it was judged last, and behind them what each mixture is made of."""
        if self._changed or mixtures:
            return self._plain.replaced({number: each.edges for number, each in self._changed.items()}, mixtures)
        return self._plain

    @property
    def changes(self) -> int:
        """How many differences were judged once more."""
        return len(self._changed)

    def numbers(self, *whats: What) -> list[int]:
        """The differences that are one of these."""
        found: list[int] = np.flatnonzero(np.isin(self.whats, whats)).tolist()
        return found

    def with_finding(self) -> Iterator[tuple[int, Judgement]]:
        """(number, judgement) of those that no differing event explains alone, ascending."""
        for number in sorted(number for number, each in self._judged.items() if each.finding is not None):
            yield number, self._judged[number]


def count(whats: npt.NDArray[np.int8], what: What) -> int:
    """How many differences are that."""
    return int(np.count_nonzero(whats == what))
