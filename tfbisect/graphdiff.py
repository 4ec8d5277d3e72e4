"""How the graphs that two runs executed differ: other types, other kernels, ops fused in one and not in the other.

Names differences; whether one of them is to blame for anything is decided elsewhere.
"""

from collections.abc import Iterator

from tfbisect.alignment import Alignment
from tfbisect.flow import Flow
from tfbisect.model import Node, NodeFlag
from tfbisect.nodes import NodePairs
from tfbisect.outcomes import GraphDifference

WALK = 200  # ops of one run only that are passed on the way to one that both have


def graph_differences(alignment: Alignment) -> list[GraphDifference]:
    """Ops that graphs of paired calls do not share. Constants, and ops that hand values on, are left out."""
    found: list[GraphDifference] = []
    for graph_a, graph_b in alignment.first_pair:
        nodes = alignment.nodes(graph_a, graph_b)
        if not nodes.same:
            found += _differences(alignment, graph_a, graph_b, nodes)
    return found


def _differences(alignment: Alignment, graph_a: int, graph_b: int, nodes: NodePairs) -> Iterator[GraphDifference]:
    runs, flows = (alignment.a, alignment.b), (alignment.a.flow_of_graph(graph_a), alignment.b.flow_of_graph(graph_b))
    one, two = flows[0].graph, flows[1].graph
    for number, node in enumerate(one.nodes):
        partner, source = nodes.to_b[number], runs[0].trace.source(node.stack)
        if not _computes(node):
            continue
        if partner < 0:
            instead = _instead(flows[0], flows[1], number, nodes, 0)
            yield GraphDifference("only_a", one.name, node.name, node.op, "", instead, source)
        elif two.nodes[partner].op != node.op:
            yield GraphDifference("type", one.name, node.name, node.op, two.nodes[partner].op, "", source)
        elif two.nodes[partner].attrs != node.attrs:
            yield GraphDifference("attributes", one.name, node.name, node.op, node.op, "", source)
    for number, node in enumerate(two.nodes):
        if nodes.to_a[number] < 0 and _computes(node):
            instead = _instead(flows[1], flows[0], number, nodes, 1)
            source = runs[1].trace.source(node.stack)
            yield GraphDifference("only_b", two.name, node.name, "", node.op, instead, source)


def _computes(node: Node) -> bool:
    return node.op not in ("Const", "NoOp", "_Arg", "_Retval") and not node.flags & NodeFlag.FORWARDER


def _instead(flow: Flow, other: Flow, number: int, nodes: NodePairs, side: int) -> str:
    """What the other graph has in an op's place: what takes its value takes another one there, or does its work."""
    to_other = nodes.to_a if side else nodes.to_b
    todo, seen = [number], {number}
    for at in todo:
        for consumer in flow.consumers[at]:
            partner = to_other[consumer]
            if partner < 0:
                if consumer not in seen and len(seen) < WALK:
                    seen.add(consumer)
                    todo.append(consumer)
                continue
            mine, theirs = flow.nodes[consumer], other.nodes[partner]
            if _computes(mine) and (mine.op, mine.attrs) != (theirs.op, theirs.attrs):
                return _text(theirs, 0)
            places = [place for place, edge in enumerate(flow.data_inputs(consumer)) if edge.src == at]
            inputs = other.data_inputs(partner)
            if places and places[0] < len(inputs):
                target = other.target(inputs[places[0]].src, inputs[places[0]].slot)
                return _text(other.nodes[target.node], target.slot)
    return ""


def _text(node: Node, slot: int) -> str:
    return f"{node.op} {node.name}" + (f" output {slot}" if slot > 0 else "")
