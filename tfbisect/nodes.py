"""Which node of a function's graph in one run is which in the other, where the two graphs are not the same.

Knows one pair of graphs, no calls and no events.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from tfbisect.flow import NEXTS
from tfbisect.model import Edge, Graph
from tfbisect.recorded import Recorded


class NodePairs(NamedTuple):
    """Which node of a graph in A is which in B; -1 for none."""

    to_b: Sequence[int]
    to_a: Sequence[int]
    same: bool  # the graphs have the same structure
    changed: frozenset[int]  # nodes of A whose partner has other attributes or inputs
    by_inputs: frozenset[int] = frozenset()  # nodes of A whose partner has another name

    def reason(self, node: int) -> str:
        """Why a node of A has the partner it has."""
        if self.same:
            return "graphs of equal structure"
        if self.to_b[node] < 0:
            return "no partner"
        if node in self.changed:
            return "the op's name, though its attributes or inputs are other ones"
        return "the op's type, attributes and inputs" + ("" if node in self.by_inputs else ", and its name")


def pair_nodes(
    run_a: Recorded,
    a: Graph,
    run_b: Recorded,
    b: Graph,
    arguments: Iterable[tuple[int, int]],
    *,
    any_type: bool = False,
) -> NodePairs:
    """Pairs ops by name and paired inputs, else by type, attributes and paired inputs in their order, else by name.

    `any_type`: by name even where the types differ, as they do where ops were fused or given to another library.

    Constants count by their bits, and are paired through the ops that take them: their names say little once ops were
    put in. `arguments`: which _Arg is which.
    """
    to_b, to_a = [-1] * len(a.nodes), [-1] * len(b.nodes)
    changed: set[int] = set()
    sides = _Side(run_a, a), _Side(run_b, b)

    def join(one: int, two: int) -> None:
        to_b[one], to_a[two] = two, one

    for one, two in arguments:
        join(one, two)
    exact: dict[Any, list[int]] = defaultdict(list)
    itself = range(len(b.nodes))
    for two in sides[1].order:
        exact[sides[1].token(two, itself)].append(two)
    names_a, names_b = ({node.name: i for i, node in enumerate(graph.nodes)} for graph in (a, b))
    for one in sides[0].order:
        node = a.nodes[one]
        if node.op == "_Retval":
            two = b.results.get(node.index, -1)
            if two >= 0:
                join(one, two)
                if sides[0].token(one, to_b) != sides[1].token(two, itself):
                    changed.add(one)
            continue
        named = names_b.get(node.name, -1)
        if named >= 0 and (to_a[named] >= 0 or not (any_type or b.nodes[named].op == node.op)):
            named = -1
        candidates = [two for two in exact.get(sides[0].token(one, to_b), ()) if to_a[two] < 0]
        if candidates:
            # Its namesake, else one that is nobody's.
            join(one, min(candidates, key=lambda two: (two != named, b.nodes[two].name in names_a)))
        elif named >= 0:
            join(one, named)
            if sides[0].token(one, to_b, bits=False) != sides[1].token(named, itself, bits=False):
                changed.add(one)
    waiting = [one for one, two in enumerate(to_b) if two >= 0]
    for one in waiting:  # grows: by the constants that paired constants were folded from
        for x, y in zip(sides[0].data(one), sides[1].data(to_b[one]), strict=False):
            if sides[0].constant(x.src) and sides[1].constant(y.src) and to_b[x.src] < 0 and to_a[y.src] < 0:
                join(x.src, y.src)
                waiting.append(x.src)
    renamed = (one for one, two in enumerate(to_b) if two >= 0 and a.nodes[one].name != b.nodes[two].name)
    return NodePairs(to_b, to_a, False, frozenset(changed), frozenset(renamed))


class _Side:
    """A graph as the pairing of nodes sees it."""

    def __init__(self, run: Recorded, graph: Graph) -> None:
        self._run, self._graph = run, graph
        self._flow = run.flow_of_graph(graph.id)
        self._bits = {node: run.event_digest[row] for node, row in run.trace.constants(graph.id).items()}
        self.order = [i for i in self._flow.order if graph.nodes[i].op != "_Arg" and not self.constant(i)]

    def constant(self, node: int) -> bool:
        return self._graph.nodes[node].op == "Const"

    def data(self, node: int) -> tuple[Edge, ...]:
        return self._flow.data_inputs(node)

    def token(self, number: int, names: Sequence[int], bits: bool = True) -> Any:
        """What makes ops of two graphs one: type, attributes, and inputs by `names`, the numbers of nodes in B.

        The back edges of loops are left out. Without `bits` all constants are the same.
        """
        node = self._graph.nodes[number]
        inputs: list[Any] = []
        for edge in self._flow.data_inputs(number):
            if self.constant(edge.src):
                inputs.append(("bits", self._bits.get(edge.src) if bits else None))
            elif self._graph.nodes[edge.src].op in NEXTS:
                inputs.append("next")
            else:
                inputs.append((names[edge.src], edge.slot))
        return node.op, node.attrs, tuple(inputs)
