"""How large many differences are, where values were kept: read in one go from each trace, within a budget.

Measures what it is asked for; which differences matter is decided elsewhere.
"""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from tfbisect.equality import Equality
from tfbisect.metrics import difference
from tfbisect.model import Difference
from tfbisect.reach import gathered

EVENTS = 1500  # that are measured of one comparison
BYTES = 64 * 2**20  # of values that are read of each run


class Sizes:
    """Sizes of differing events by number; what is beyond the budget stays without."""

    def __init__(self, equality: Equality) -> None:
        self._equality = equality
        self._found: dict[int, Difference | None] = {}
        self._bytes = 0
        self._runs = (equality.a.trace, equality.b.trace)
        rows = equality.pairs.rows, equality.pairs.others
        kept = [gathered(run.events["value"], mine) > 0 for run, mine in zip(self._runs, rows, strict=True)]
        self.kept: npt.NDArray[np.bool_] = kept[0] & kept[1]  # of each difference, in both runs

    def measure(self, numbers: Iterable[int]) -> None:
        """Look at the values of some differing events; what was not kept is skipped."""
        wanted: list[int] = []
        for number in numbers:
            if number in self._found or not self.kept[number]:
                continue
            length = self._length(number)
            if len(self._found) + len(wanted) >= EVENTS or self._bytes + length > BYTES:
                break
            self._bytes += length
            wanted.append(number)
        sides = [
            run.values([self._equality.pairs[number][side] for number in wanted]) for side, run in enumerate(self._runs)
        ]
        for number, one, two in zip(wanted, *sides, strict=True):
            self._found[number] = difference(one, two) if one is not None and two is not None else None

    def get(self, number: int) -> Difference | None:
        """The size of a difference if it was measured."""
        return self._found.get(number)

    def _length(self, number: int) -> int:
        run, row = self._runs[0], self._equality.pairs[number][0]
        return run.value_length(int(run.events["value"][row]))


def columns(size: Difference | None) -> dict[str, int | float | str | None]:
    """The figures of a size under the names that reports use; infinities, which JSON lacks, as text."""
    if size is None:
        return dict.fromkeys(COLUMNS)
    data = size.to_json()
    return {name: data[name] for name in COLUMNS}


COLUMNS = ("differing", "elements", "max_ulp", "max_abs", "max_rel")
