"""Calls of the functions inside tf.data: which is which in the other run, and which elements they had a part in.

A function inside tf.data runs in TensorFlow's threads, before the element that it helped to make is taken from an
iterator. Each of its calls is linked to the op that made its dataset, and so to all iterators over that.
"""

from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tfbisect.differences import Pairs
from tfbisect.model import GraphKind, SiteKind
from tfbisect.provenance import Handle, Run

Ints = npt.NDArray[np.int64]


def pair_functions(a: Run, b: Run, to_b: Ints, to_a: Ints) -> None:
    """Pairs calls of functions inside tf.data, which run in any order, by what they took.

    That is a value which a paired call made, or one that no recorded call made and that has the same bits. What is left
    is paired in order: the pipeline's where the function runs one element at a time.
    """
    sides = [[(call, run.graph_of[call]) for call in _functions(run)] for run in (a, b)]
    if not all(sides):
        return
    waiting: dict[Any, list[int]] = {}
    for call, _ in reversed(sides[1]):
        waiting.setdefault((_key(b, call, None), _taken(b, call, None)), []).append(call)
    for call, _ in sides[0]:
        found = waiting.get((_key(a, call, to_b), _taken(a, call, to_b)))
        if found:
            other = found.pop()
            to_b[call], to_a[other] = other, call
    rest: dict[Any, list[int]] = {}
    for call, _ in reversed(sides[1]):
        if to_a[call] < 0:
            rest.setdefault(_key(b, call, None), []).append(call)
    for call, _ in sides[0]:
        left = rest.get(_key(a, call, to_b))
        if to_b[call] < 0 and left:
            other = left.pop()
            to_b[call], to_a[other] = other, call


def _functions(run: Run) -> list[int]:
    graphs = {graph for graph in set(run.graph_of) if run.trace.graphs[graph].kind == GraphKind.SOURCE}
    return [call for call, graph in enumerate(run.graph_of) if graph in graphs]


def _key(run: Run, call: int, partners: Ints | None) -> Any:
    """Which function of which dataset a call is of, in terms of run B."""
    graph = run.flow(call).graph
    maker = run.links.get((call, len(graph.args)), (-1, 0))[0]
    return graph.name, int(partners[maker]) if partners is not None and maker >= 0 else maker


def _taken(run: Run, call: int, partners: Ints | None) -> Any:
    """What a call took, in terms of run B: calls and their results, or bits."""
    flow = run.flow(call)
    found: list[Any] = []
    for argument, node in sorted(flow.graph.args.items()):
        source, result = run.links.get((call, argument), (-1, 0))
        if source >= 0 and run.flow(source).graph.kind == GraphKind.SOURCE:
            found.append(("call", int(partners[source]) if partners is not None else source, result))
            continue
        site = flow.sites.get((node, 0, SiteKind.ARG), -1)
        row = run.row(call, site, 0) if site >= 0 else -1
        found.append(("bits", run.event_digest[row] if row >= 0 else None))
    return tuple(found)


class Pipelines:
    """Differences in the functions of a pipeline, for the elements that come out of it. `pairs`: differing events."""

    def __init__(self, run: Run, pairs: Pairs) -> None:
        self._run, self._pairs = run, pairs
        self._known: dict[Any, tuple[int, ...]] = {}

    def before(self, handle: Handle, row: int) -> tuple[int, ...]:
        """The first and the last difference, recorded before an event, of what fed an iterator."""
        if not self._differing:
            return ()
        return self._earlier(handle, [call for call, _node, _path in self._run.feeders.get(handle, ())], row)

    def before_element(self, row: int) -> tuple[int, ...]:
        """The same for an element that a function inside tf.data took and that no recorded function made."""
        maker = self._run.links.get((self._run.event_call[row], 0)) if self._differing else None
        return self._earlier(maker, [maker[0]], row) if maker is not None else ()

    def _earlier(self, which: Any, calls: list[int], row: int) -> tuple[int, ...]:
        found = self._known.get(which)
        if found is None:
            found = self._known[which] = self._feeding(calls)
        earlier = [number for number in found if self._pairs[number][0] < row]
        return tuple(dict.fromkeys((earlier[0], earlier[-1]))) if earlier else ()

    def _feeding(self, calls: list[int]) -> tuple[int, ...]:
        """The differences in functions of all datasets that these calls made, or made theirs of."""
        seen: set[int] = set()
        numbers: list[int] = []
        while calls:
            call = calls.pop()
            if call in seen or call < 0:
                continue
            seen.add(call)
            numbers += self._differing.get(call, ())
            calls += [self._run.links[call, index][0] for index in self._run.flow(call).graph.args
                      if (call, index) in self._run.links]  # fmt: skip
        return tuple(sorted(numbers, key=lambda number: self._pairs[number][0]))

    @cached_property
    def _differing(self) -> dict[int, list[int]]:
        """{call of the op that made a dataset: the differences in calls of its functions}"""
        run = self._run
        found: dict[int, list[int]] = {}
        sources: list[bool] = (run.trace.kinds == GraphKind.SOURCE).tolist()
        inside = [sources[row[0]] and run.is_computed[site] for site, row in enumerate(run.site_rows)]
        if not any(inside):
            return found
        sites = run.trace.events["site"][self._pairs.rows]
        for number in np.flatnonzero(np.asarray(inside, np.bool_)[sites]).tolist():
            call = run.event_call[self._pairs[number][0]]
            if call < 0:
                continue
            maker = run.links.get((call, len(run.flow(call).graph.args)))
            if maker is not None:
                found.setdefault(maker[0], []).append(number)
        return found
