"""Which thread of one run is which of the other, and which call where threads share out one piece of work.

Judges nothing. Threads are numbered as they were started; in a pool, which of them does which piece is chance.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tfbisect.model import SiteKind
from tfbisect.provenance import Kind, Run

Ints = npt.NDArray[np.int64]
CALLBACK_THREAD = 65535  # TensorFlow's own threads: what they run has no order


def pair_threads(
    a: Run, b: Run, keys_a: Ints, keys_b: Ints, rows_a: dict[int, Ints], rows_b: dict[int, Ints]
) -> list[tuple[int, int]]:
    """Threads by their numbers, or, where several started at once and raced for those, by what they did."""
    own = [[thread for thread in rows if thread != CALLBACK_THREAD] for rows in (rows_a, rows_b)]
    if max(map(len, own)) < 2:
        return [(thread, thread) for thread in rows_a.keys() & rows_b.keys()]
    scores = []
    for one in rows_a:
        for two in rows_b:
            if CALLBACK_THREAD in (one, two) and one != two:
                continue
            alike = shared(keys_a[rows_a[one]], keys_b[rows_b[two]])
            bits = shared(_digests(a, rows_a[one]), _digests(b, rows_b[two]))
            scores.append((alike, bits, one == two, -one, -two))
    pairs: dict[int, int] = {}
    for alike, _bits, _same, one, two in sorted(scores, reverse=True):
        if alike and -one not in pairs and -two not in pairs.values():
            pairs[-one] = -two
    return sorted(pairs.items())


def pool(keys: Ints, rows: dict[int, Ints]) -> set[int]:
    """Threads that do the same kinds of work as another one: which of them does which piece may be chance."""
    workers = {thread: set(keys[mine].tolist()) for thread, mine in rows.items() if thread not in (0, CALLBACK_THREAD)}
    return {one for one in workers if any(one != two and workers[one] & workers[two] for two in workers)}


def reordered(
    a: Run, b: Run, keys_a: Ints, keys_b: Ints, rows: Sequence[dict[int, Ints]], pairs: Sequence[tuple[int, int]]
) -> bool:
    """Whether threads, paired as they are, took other values from Python: then the work was shared out otherwise."""
    for one, two in pairs:
        rows_a, rows_b = rows[0][one], rows[1][two]
        if not np.array_equal(keys_a[rows_a], keys_b[rows_b]):
            return True
        if any(taken(a, i) != taken(b, j) for i, j in zip(rows_a.tolist(), rows_b.tolist(), strict=True)):
            return True
    return False


def interchangeable(a: Run, b: Run, rows_a: Ints, rows_b: Ints, keys_a: Ints, keys_b: Ints) -> list[tuple[int, int]]:
    """Pairs calls of a pool of threads by what they took and made, then by what they took from Python.

    Of what is left, a call is paired only if it is the only one of its key: nobody can say which of several it is.
    """
    pairs: list[tuple[int, int]] = []
    left = [rows_a.tolist(), rows_b.tolist()]
    sides = ((a, keys_a), (b, keys_b))
    for content in (taken_and_made, taken, None):
        waiting: list[dict[Any, list[int]]] = [{}, {}]
        for found, (run, keys), calls in zip(waiting, sides, left, strict=True):
            for call in calls:
                what = content(run, call) if content else ("only",)
                if what:
                    found.setdefault((int(keys[call]), what), []).append(call)
        for key in waiting[0].keys() & waiting[1].keys():
            one, two = waiting[0][key], waiting[1][key]
            silent = not any(taken_and_made(a, call) for call in one)  # of variants: nothing to mistake
            if content or len(one) == len(two) == 1 or silent:
                pairs += zip(one, two, strict=False)
        for side in (0, 1):
            done = {pair[side] for pair in pairs}
            left[side] = [call for call in left[side] if call not in done]
    return sorted(pairs)


def shared(one: Any, two: Any) -> int:
    """How many elements two arrays have in common, each counted as often as both have it."""
    values, counts = np.unique(one, return_counts=True)
    others, other_counts = np.unique(two, return_counts=True)
    _, at, other_at = np.intersect1d(values, others, assume_unique=True, return_indices=True)
    return int(np.minimum(counts[at], other_counts[other_at]).sum())


def _digests(run: Run, calls: Ints) -> Any:
    """The digests of all events of some calls."""
    mine = np.zeros(len(run.graph_of) + 1, np.bool_)
    mine[calls] = True
    return run.trace.events["digest"][mine[np.asarray(run.event_call, np.int64)]]


def taken(run: Run, call: int) -> tuple[int, ...]:
    """The digests of the host values that a call took."""
    digests = []
    for argument in sorted(run.flow(call).graph.args):
        ref = run.argument(call, argument)
        terminal = run.terminal(ref) if ref is not None else None
        if terminal is not None and terminal.kind == Kind.EVENT and run.host_value(terminal.row):
            digests.append(run.event_digest[terminal.row])
    return tuple(digests)


def made(run: Run, call: int) -> tuple[int, ...]:
    """The digests of what a call made, and of its arguments; sorted, since rows arrive in any order."""
    span = run.trace.events_of(int(run.trace.calls["id"][call]))
    return tuple(sorted(run.event_digest[span]))


def entered(run: Run, call: int) -> tuple[int, ...]:
    """The digests of what came into a call: its arguments, and what ops gave that take identities only (a queue's
    element, say)."""
    flow, found = run.flow(call), []
    span = run.trace.events_of(int(run.trace.calls["id"][call]))
    for row in range(span.start, span.stop):
        _flow, node, _slot, kind = run.node_of(row)
        inputs = range(len(flow.data_inputs(node))) if kind == SiteKind.OUTPUT else ()
        if kind != SiteKind.WRITE and all(
            run.input_handle(call, flow, node, place, run.event_path[row]) is not None for place in inputs
        ):
            found.append(run.event_digest[row])
    return tuple(sorted(found))


def taken_and_made(run: Run, call: int) -> tuple[int, ...]:
    return *taken(run, call), *made(run, call)
