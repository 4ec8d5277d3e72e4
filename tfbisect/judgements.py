"""What the bisection found of each difference, kept small: a run that diverged early has millions of them.

Holds what `bisector` says of the two events of a difference, and what it comes from; decides nothing.
"""

import enum
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, overload

import numpy as np
import numpy.typing as npt

from tfbisect.equality import Finding
from tfbisect.reach import Growing, Links
from tfbisect.receivers import Part


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


def judged_by_parts(parts: Iterable[Part], judge: Callable[[int], Judgement]) -> "Judgements":
    """The plain receivers of all parts, and what `judge` says of each of the rest."""
    links, judged = Growing(), dict[int, Judgement]()
    for part in parts:
        rest = np.flatnonzero(~part.plain)
        for number in (rest + part.first).tolist():
            judged[number] = judge(number)
        edges = [judged[number].edges for number in (rest + part.first).tolist()]
        part.counts[rest] = np.fromiter(map(len, edges), np.int32, len(edges))
        items = np.empty(int(part.counts.sum()), np.int32)
        plain = np.repeat(part.plain, part.counts)
        items[plain] = part.items
        items[~plain] = np.fromiter(itertools.chain.from_iterable(edges), np.int32)
        links.add(part.counts, items)
    return Judgements(links.links(), judged)


class Judgements(Sequence[Judgement]):
    """One judgement for each difference, by number. `whats`: what each is, as numbers of `What`.

    Plain receivers are kept as numbers, the rest as objects.
    """

    def __init__(self, links: Links, judged: Mapping[int, Judgement]) -> None:
        """links: what each difference comes from; judged: all but plain receivers."""
        self._judged, self._links = dict(judged), links
        self._changed: dict[int, Judgement] = {}
        self.whats = np.full(len(links), What.RECEIVER, np.int8)
        numbers = np.fromiter(judged, np.int64, len(judged))
        self.whats[numbers] = np.fromiter((each.what for each in judged.values()), np.int8, len(judged))

    @classmethod
    def of(cls, judged: Sequence[Judgement]) -> "Judgements":
        """From one for each difference."""
        return cls(Links.of(each.edges for each in judged), dict(enumerate(judged)))

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
        return Judgement(What.RECEIVER, self._links[index]) if found is None else found

    def __setitem__(self, number: int, judged: Judgement) -> None:
        self._judged[number] = self._changed[number] = judged
        self.whats[number] = judged.what

    def replaced(self, judged: Mapping[int, Judgement]) -> "Judgements":
        """A copy in which some differences are judged otherwise."""
        found = Judgements(self._links, self._judged)
        for number, each in judged.items():
            found[number] = each
        return found

    def links(self, mixtures: Sequence[Sequence[int]]) -> Links:
        """What each difference comes from, as it was judged last, and behind them what each mixture is made of."""
        if self._changed or mixtures:
            return self._links.replaced({number: each.edges for number, each in self._changed.items()}, mixtures)
        return self._links

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
