"""What a program wrote into files and may read again: files are outside the graph.

Looks at what was saved by recorded ops; which file it was is not known, so all that was saved before counts.
"""

from collections.abc import Iterator

from tfbisect.equality import Equality
from tfbisect.flow import STRING

READERS = frozenset({"RestoreV2", "Restore", "RestoreSlice", "ReadFile", "LoadDataset"})
_WRITERS = frozenset({"SaveV2", "Save", "SaveSlices", "WriteFile"})


class Saved:
    """The differences that went into files, by when."""

    def __init__(self, equality: Equality) -> None:
        self._equality = equality
        self._found: list[tuple[int, tuple[int, ...]]] | None = None

    def before(self, call: int) -> tuple[int, ...]:
        """The differences that were in the files which a call of run A may read."""
        if self._found is None:
            self._found = list(self._saves())
        return tuple(dict.fromkeys(edge for at, edges in self._found if at < call for edge in edges))

    def _saves(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        a, b = self._equality.runs
        to_b = self._equality.alignment.call_to_b
        writers: dict[int, list[int]] = {}
        for call, graph in enumerate(a.graph_of):
            if graph not in writers:
                nodes = a.flow_of_graph(graph).nodes
                writers[graph] = [i for i, node in enumerate(nodes) if node.op in _WRITERS]
            for node in writers[graph] if to_b[call] >= 0 else ():
                pairs = self._equality.alignment.nodes(graph, b.graph_of[to_b[call]])
                if pairs.to_b[node] >= 0:
                    yield call, tuple(self._edges(call, node, to_b[call], pairs.to_b[node]))

    def _edges(self, call: int, node: int, other: int, partner: int) -> Iterator[int]:
        equality = self._equality
        a, b = equality.runs
        flow_a, flow_b = a.flow(call), b.flow(other)
        names = flow_a.nodes[node].op != "WriteFile"  # the others are also given names, which lie elsewhere each time
        pairs = zip(flow_a.data_inputs(node), flow_b.data_inputs(partner), strict=False)
        for place, (edge_a, edge_b) in enumerate(pairs):
            if place == 0:
                continue  # the file's name
            one = a.input_ref(call, flow_a, node, edge_a, 0)
            two = b.input_ref(other, flow_b, partner, edge_b, 0)
            for edge in equality.compare(one, two).edges:
                known = edge < len(equality.pairs)
                if not (names and known and a.dtype(equality.pairs[edge][0]) == STRING):
                    yield edge
