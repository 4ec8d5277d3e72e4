"""Eager writes that were paired by their line alone, though they are of different variables.

Judges nothing. One line of the user's, a call of Keras's `fit`, can stand for writes of many variables.
"""

from collections.abc import Sequence

from tfbisect.model import GraphKind
from tfbisect.provenance import Run


def strange_writes(a: Run, b: Run, to_b: Sequence[int], to_a: Sequence[int]) -> list[int]:
    """The paired calls of A that write a variable which one run only made, where the partner writes one of another
    dtype or shape which both made.

    A variable that was made anew, as after a restart, has the dtype and shape of the one it stands for.
    """
    found: list[int] = []
    for call, writes in a.writes_in.items():
        other = to_b[call] if call >= 0 else -1
        if other < 0 or a.flow(call).graph.kind != GraphKind.EAGER or len(writes) != 1:
            continue
        theirs = b.writes_in.get(other, ())
        makers = a.links.get((call, 0), (-1, 0))[0], b.links.get((other, 0), (-1, 0))[0]
        if len(theirs) != 1 or min(makers) < 0 or (to_b[makers[0]] < 0) == (to_a[makers[1]] < 0):
            continue
        one, two = writes[0][1].row, theirs[0][1].row
        if min(one, two) >= 0 and _kind(a, one) != _kind(b, two):
            found.append(call)
    return found


def _kind(run: Run, row: int) -> tuple[int, tuple[int, ...] | None]:
    return run.dtype(row), run.trace.shape(run.event_shape[row])
