"""Which event of one run is which of the other, once their calls are paired, and which of them differ.

Array work, a part at a time: there are a thousand times more events than calls. Judges nothing.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tfbisect.events import BLOCK
from tfbisect.nodes import NodePairs
from tfbisect.provenance import Run
from tfbisect.sequences import ranks
from tfbisect.tables import Trace

Ints = npt.NDArray[np.integer]
Bools = npt.NDArray[np.bool_]
Nodes = Callable[[int, int], NodePairs]


class EventPairs(NamedTuple):
    """Paired events, by their rows in A, constants last; `rows_a is rows_b` where all rows are equal."""

    rows_a: Ints
    rows_b: Ints
    differs: Bools


def pair_events(
    a: Run, b: Run, call_to_a: Sequence[int], nodes: Nodes, graphs: Iterable[tuple[int, int]]
) -> EventPairs:
    """Pair the events of paired calls. nodes: of two graphs; graphs: those that ran in paired calls, in A and in B."""
    rows_a, rows_b = _in_calls(a, b, np.asarray(call_to_a, np.int32), nodes)
    constants = _constants(a.trace, b.trace, nodes, graphs)
    if len(constants):
        rows_a = np.concatenate((rows_a, constants[:, 0]), dtype=rows_a.dtype)
        rows_b = np.concatenate((rows_b, constants[:, 1]), dtype=rows_b.dtype)
    return EventPairs(rows_a, rows_b, _differing(a.trace, b.trace, rows_a, rows_b))


def partners(rows: Ints, others: Ints, count: int) -> Ints:
    """For each of `count` events its partner; -1 for none."""
    found = np.full(count, -1, rows.dtype)
    found[rows[::-1]] = others[::-1]  # a constant met in several pairs of graphs keeps its first partner
    return found


def packed(*sides: Sequence[npt.NDArray[Any]]) -> list[npt.NDArray[np.int64]]:
    """One number for each row of columns, equal for equal rows of the sides."""
    columns = list(zip(*sides, strict=True))
    found = [np.zeros(len(side[0]), np.int64) for side in sides]
    for column in columns:
        width = 1 + max((int(part.max()) for part in column if len(part)), default=0)
        if max((int(p.max()) for p in found if len(p)), default=0) >= 2**62 // width:
            _, inverse = np.unique(np.concatenate(found), return_inverse=True)
            found = np.split(inverse.reshape(-1).astype(np.int64), np.cumsum([len(p) for p in found])[:-1])
        found = [p * width + part for p, part in zip(found, column, strict=True)]
    return found


def common(one: Ints, two: Ints) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Where the numbers that both have are; each side has a number once."""
    if np.array_equal(one, two):
        return np.arange(len(one)), np.arange(len(two))
    _, at_one, at_two = np.intersect1d(one, two, assume_unique=True, return_indices=True)
    order = np.argsort(at_one, kind="stable")
    return at_one[order], at_two[order]


# ---------------------------------------------------------------------------------------------------------------------
# In calls
# ---------------------------------------------------------------------------------------------------------------------


def _in_calls(a: Run, b: Run, to_a: npt.NDArray[np.int32], nodes: Nodes) -> tuple[Ints, Ints]:
    one, two = a.trace.events, b.trace.events
    homes = np.append(to_a, np.int32(-1))[two.call_row]  # the call of A that each event of B is in
    sites = _sites_as_in_a(a, b, to_a, nodes)
    paths = _renumbered(a.trace.iteration, b.trace.iteration, one["path"], two["path"])
    ran_a, ran_b = one.call_row >= 0, (homes >= 0) & (sites >= 0)
    own = [table[column] for table, column in zip(paths, (one["path"], two["path"]), strict=True)]
    alike = _row_by_row((one.call_row, homes), (one["site"], sites), (own[0], own[1]))
    if alike and np.array_equal(ran_a, ran_b):
        rows = _numbers(ran_a)
        return rows, rows
    rows_a, rows_b = _numbers(ran_a), _numbers(ran_b)
    if np.any(np.diff(homes[rows_b]) < 0):
        rows_b = rows_b[np.argsort(homes[rows_b], kind="stable")]
    found = []
    for part_a, part_b in _parts(rows_a, one.call_row[rows_a], rows_b, homes[rows_b]):
        columns_a = one.call_row[part_a], one["site"][part_a], own[0][part_a]
        columns_b = homes[part_b], sites[part_b], own[1][part_b]
        keys_a, keys_b = packed(columns_a, columns_b)
        if _repeated(keys_a) or _repeated(keys_b):
            keys_a, keys_b = packed((keys_a, ranks(keys_a)), (keys_b, ranks(keys_b)))
        at_a, at_b = common(keys_a, keys_b)
        found.append((part_a[at_a], part_b[at_b]))
    if not found:
        return rows_a[:0], rows_b[:0]
    return np.concatenate([each[0] for each in found]), np.concatenate([each[1] for each in found])


def _numbers(mask: Bools) -> Ints:
    """Which are True; rows of a trace take half the memory unless there are very many."""
    return np.flatnonzero(mask).astype(np.int32 if len(mask) < 2**31 else np.int64)


def _parts(rows_a: Ints, calls_a: Ints, rows_b: Ints, calls_b: Ints) -> Iterator[tuple[Ints, Ints]]:
    """Rows of the same calls, together some BLOCK of them; the calls ascend."""
    low_a = low_b = 0
    while low_a < len(rows_a):
        last = calls_a[min(low_a + BLOCK, len(rows_a)) - 1]
        high_a, high_b = int(np.searchsorted(calls_a, last, "right")), int(np.searchsorted(calls_b, last, "right"))
        yield rows_a[low_a:high_a], rows_b[low_b:high_b]
        low_a, low_b = high_a, high_b


def _row_by_row(*columns: tuple[Ints, Ints]) -> bool:
    """Whether events were recorded in the same order, as they are where two runs did the same in one thread."""
    return all(len(one) == len(two) and bool(np.all((one == two) | (two < 0))) for one, two in columns)


def _repeated(keys: Ints) -> bool:
    ordered = np.sort(keys)
    return bool(np.any(ordered[1:] == ordered[:-1]))


def _renumbered(
    meaning_a: Callable[[int], Any], meaning_b: Callable[[int], Any], ids_a: Ints, ids_b: Ints
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """For the ids of two runs numbers that are equal where they mean the same."""
    numbers: dict[Any, int] = {}
    tables = []
    for meaning, ids in ((meaning_a, ids_a), (meaning_b, ids_b)):
        used = np.zeros(int(ids.max()) + 1 if len(ids) else 0, np.bool_)
        used[ids] = True
        own = np.zeros(len(used), np.int32)
        for number in np.flatnonzero(used).tolist():
            own[number] = numbers.setdefault(meaning(number), len(numbers))
        tables.append(own)
    return tables[0], tables[1]


def _sites_as_in_a(a: Run, b: Run, to_a: npt.NDArray[np.int32], nodes: Nodes) -> npt.NDArray[np.int32]:
    """For each event of B the site in A that is the same place of the same op; -1 if there is none."""
    graphs_a, graphs_b = np.asarray(a.graph_of, np.int64), np.asarray(b.graph_of, np.int64)
    events = b.trace.events
    found = np.full(len(events), -1, np.int32)
    calls = np.flatnonzero(to_a >= 0)
    if not len(calls):
        return found
    width, graphs = len(b.trace.sites), len(b.trace.graphs) + 1
    unique, inverse = np.unique(graphs_a[to_a[calls]] * graphs + graphs_b[calls], return_inverse=True)
    pair_of = np.full(len(to_a) + 1, -1, np.int64)  # of each call of B which two graphs ran; behind them none
    pair_of[calls] = inverse.reshape(-1)
    tables = []
    for number, item in enumerate(unique.tolist()):
        own, other = _paired_sites(a.trace, b.trace, nodes, *divmod(item, graphs))
        tables.append((number * width + other, own))
    keys = np.concatenate([table[0] for table in tables])
    values = np.concatenate([table[1] for table in tables])
    order = np.argsort(keys, kind="stable")
    keys, values = keys[order], values[order]
    for low in range(0, len(found) if len(keys) else 0, BLOCK):
        span = slice(low, low + BLOCK)
        pairs = pair_of[events.call_row[span]]
        wanted = pairs * width + events["site"][span]
        at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        found[span] = np.where((keys[at] == wanted) & (pairs >= 0), values[at], -1)
    return found


def _paired_sites(a: Trace, b: Trace, nodes: Nodes, graph_a: int, graph_b: int) -> tuple[Ints, Ints]:
    own, other = a.sites_of(graph_a).astype(np.int64), b.sites_of(graph_b).astype(np.int64)
    columns = ["node", "slot", "kind"]
    alike = len(own) == len(other) and np.array_equal(a.sites[own][columns], b.sites[other][columns])
    if alike and a.graphs[graph_a].structure == b.graphs[graph_b].structure:
        return own, other
    to_b = nodes(graph_a, graph_b).to_b
    rows_b = b.sites[other][columns].tolist()
    places = {(node, slot, kind): site for site, (node, slot, kind) in zip(other.tolist(), rows_b, strict=True)}
    pairs_found = []
    for site, (node, slot, kind) in zip(own.tolist(), a.sites[own][columns].tolist(), strict=True):
        two = places.get((to_b[node], slot, kind))
        if two is not None:
            pairs_found.append((site, two))
    table = np.asarray(pairs_found, np.int64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


# ---------------------------------------------------------------------------------------------------------------------
# Constants, and what differs
# ---------------------------------------------------------------------------------------------------------------------


def _constants(a: Trace, b: Trace, nodes: Nodes, graphs: Iterable[tuple[int, int]]) -> npt.NDArray[np.int64]:
    found: dict[tuple[int, int], None] = {}
    if a.events.called == len(a.events):
        return np.zeros((0, 2), np.int64)
    for graph_a, graph_b in graphs:
        of_a, of_b = a.constants(graph_a), b.constants(graph_b)
        if not of_a or not of_b:
            continue
        to_b = nodes(graph_a, graph_b).to_b
        for node, row in of_a.items():
            other = of_b.get(to_b[node])
            if other is not None:
                found.setdefault((row, other))
    return np.asarray(list(found), np.int64).reshape(-1, 2)


def _differing(a: Trace, b: Trace, rows_a: Ints, rows_b: Ints) -> Bools:
    shapes = _renumbered(a.shape, b.shape, a.events["shape"], b.events["shape"])
    dtypes = a.sites["dtype"], b.sites["dtype"]
    found = np.zeros(len(rows_a), np.bool_)
    for low in range(0, len(rows_a), BLOCK):
        one, two = rows_a[low : low + BLOCK], rows_b[low : low + BLOCK]
        differs = a.events["digest"][one] != b.events["digest"][two]
        mine, theirs = a.events["shape"][one], b.events["shape"][two]
        differs |= (mine > 0) & (theirs > 0) & (shapes[0][mine] != shapes[1][theirs])
        differs |= dtypes[0][a.events["site"][one]] != dtypes[1][b.events["site"][two]]
        found[low : low + BLOCK] = differs
    return found
