"""What two versions of a function that Python traced do differently, as it was written.

TensorFlow fuses, folds and prunes two versions of a function in two ways, so the ops that ran in one run only need not
be those that the program has more of. Knows no calls and no events; whether a change matters is `bisector`'s.
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from tfbisect.alignment import Alignment
from tfbisect.flow import CALLS
from tfbisect.model import Graph, GraphKind, Node
from tfbisect.sequences import align

# Ops that stand for what is around them, or only tell of it: that there is one more is a consequence, or nothing.
_QUIET = frozenset({
    "Const", "Identity", "IdentityN", "NoOp", "Placeholder", "StopGradient", "ReadVariableOp", "PrintV2", "Print",
    "StringFormat", "Assert",
})  # fmt: skip


class Change(NamedTuple):
    """A thing that two versions of a function have otherwise.

    what: "extra" (an op that one version has more), "attrs" (an op of other attributes), "constant" (of another value)
    or "edge" (an op that takes other values). node: in `graph`, a WRITTEN one of run `side` (0 is A).
    """

    what: str
    side: int
    graph: int
    node: int


class _Versions:
    """A function as both runs wrote it: which op is which, and the changes in their order."""

    def __init__(self, graphs: tuple[Graph, Graph], lines: Sequence[Sequence[Any]]) -> None:
        self.graphs, self._lines = graphs, lines
        numbers: dict[Any, int] = {}
        one, two = (
            np.asarray(
                [
                    # a call's attributes tell of what it calls, which stands behind it
                    numbers.setdefault((node.op, node.op in CALLS or node.attrs, node.function, line), len(numbers))
                    for node, line in zip(graph.nodes, own, strict=True)
                ],
                np.int64,
            )
            for graph, own in zip(graphs, lines, strict=True)
        )
        pairs = align(one, two)
        self.to_b: dict[int, int] = dict(zip(pairs[0].tolist(), pairs[1].tolist(), strict=True))
        self.to_a = {two: one for one, two in self.to_b.items()}
        self._names = [{node.name: i for i, node in enumerate(graph.nodes)} for graph in graphs]
        self._above: dict[tuple[int, int], set[int]] = {}
        self.changes = list(self._found())

    def _found(self) -> Iterator[Change]:
        a, b = self.graphs
        some = False
        for gaps in _gaps(self.to_b, len(a.nodes), len(b.nodes)):
            ops = [[(i, graph.nodes[i].op) for i in gap] for gap, graph in zip(gaps, self.graphs, strict=True)]
            loud = [[i for i, op in gap if op not in _QUIET and op not in CALLS] for gap in ops]
            constants = [[i for i, op in gap if op == "Const"] for gap in ops]
            if any(loud):
                some = True
                yield self._loud(loud)
            elif all(constants):
                some = True
                yield Change("constant", 0, a.id, constants[0][0])
        for one, two in () if some else self.to_b.items():
            inputs = [self.to_b.get(edge.src, -1) for edge in a.nodes[one].inputs]
            if inputs != [edge.src for edge in b.nodes[two].inputs]:
                yield Change("edge", 0, a.id, one)

    def _loud(self, loud: Sequence[Sequence[int]]) -> Change:
        """Of ops that stand in the same place, the one that its run has more."""
        keys = [
            {(graph.nodes[i].op, lines[i]): i for i in reversed(gap)}
            for gap, graph, lines in zip(loud, self.graphs, self._lines, strict=True)
        ]
        both = [place for key, place in keys[0].items() if key in keys[1]]
        if both and len(loud[0]) == len(loud[1]):
            return Change("attrs", 0, self.graphs[0].id, min(both))
        candidates = [
            (self._lines[side][i] in self._lines[1 - side], place, side, i)
            for side in (0, 1)
            for place, i in enumerate(loud[side])
        ]
        _known, _place, side, node = min(candidates)
        return Change("extra", side, self.graphs[side].id, node)

    def above(self, names: tuple[str, str]) -> list[Change]:
        """The changes that an op comes from, by its name in A and in B; all of them if that says nothing."""
        places = [_place(own, name) for own, name in zip(self._names, names, strict=True)]
        if max(places) < 0:
            return self.changes
        if places[0] < 0:
            places[0] = self.to_a.get(places[1], -1)
        if places[1] < 0:
            places[1] = self.to_b.get(places[0], -1)
        found = [
            change
            for change in self.changes
            if places[change.side] < 0 or change.node in self._ancestors(change.side, places[change.side])
        ]
        # None: names of ops move when others are put in, and of several equal constants TensorFlow keeps any one.
        return found or self.changes

    def _ancestors(self, side: int, node: int) -> set[int]:
        found = self._above.get((side, node))
        if found is None:
            found, waiting = {node}, [node]
            nodes = self.graphs[side].nodes
            while waiting:
                more = [edge.src for edge in nodes[waiting.pop()].inputs if edge.src not in found]
                found.update(more)
                waiting += more
            self._above[side, node] = found
        return found


class Written:
    """The changes between the functions of two aligned runs."""

    def __init__(self, alignment: Alignment) -> None:
        self._by_text = alignment.by_text
        self._traces = alignment.a.trace, alignment.b.trace
        self._graphs: list[dict[str, int]] = []
        for trace in self._traces:
            known = np.flatnonzero(trace.kinds == GraphKind.WRITTEN).tolist()
            self._graphs.append({trace.graphs[number].raw_name: number for number in known})
        self._known: dict[tuple[int, int], _Versions] = {}

    def change(self, graph_a: int, graph_b: int, names: tuple[str, str] = ("", "")) -> Change | None:
        """The first change between two functions that ran; None if there is none, or it is not known how they read.

        names: of an op in A and in B. Of several changes those count which the op comes from, if there are such.
        """
        raw = [trace.graphs[number].raw_name for trace, number in zip(self._traces, (graph_a, graph_b), strict=True)]
        numbers = [graphs.get(name, -1) for graphs, name in zip(self._graphs, raw, strict=True)]
        if min(numbers) < 0:
            return None
        key = numbers[0], numbers[1]
        if key not in self._known:
            graphs = self._traces[0].graphs[key[0]], self._traces[1].graphs[key[1]]
            lines = [[self._line(side, node) for node in graph.nodes] for side, graph in enumerate(graphs)]
            self._known[key] = _Versions(graphs, lines)
        return next(iter(self._known[key].above(names)), None)

    def name(self, change: Change) -> str:
        """The name of the op that a change is of."""
        return self._traces[change.side].graphs[change.graph].nodes[change.node].name

    def _line(self, side: int, node: Node) -> Any:
        source = self._traces[side].source(node.stack)
        if source is None:
            return None
        return source.text if self._by_text and source.text else (source.line, source.text)


def _place(known: dict[str, int], name: str) -> int:
    """Which op an executed one was made of, by its name; -1 if that says nothing.

    Optimizers name theirs after one that was written: `Exp/unary_ops_composition`, `.../AddOpsRewrite_add`.
    """
    outer = name
    while outer and outer not in known:
        outer = outer.rpartition("/")[0]
    if not outer and name:
        outer = max((each for each in known if name.endswith("_" + each)), key=len, default="")
    return known.get(outer, -1)


def _gaps(to_b: dict[int, int], count_a: int, count_b: int) -> Iterator[tuple[range, range]]:
    """What stands between the pairs, in A and in B; pairs that cross others are left out."""
    pairs = [(-1, -1)]
    for one, two in sorted(to_b.items()):
        if two > pairs[-1][1]:
            pairs.append((one, two))
    pairs.append((count_a, count_b))
    for (one, two), (next_one, next_two) in itertools.pairwise(pairs):
        if next_one > one + 1 or next_two > two + 1:
            yield range(one + 1, next_one), range(two + 1, next_two)
