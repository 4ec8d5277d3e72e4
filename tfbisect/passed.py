"""Which ops a cheap recording (`--ops suspects`) passes by.

Passed by is what the knowledge base holds for elementwise and exact: the bits of its result are decided by those of its
inputs. What a walk must know by itself is recorded all the same: results, what chooses a branch or ends a loop, and
what Python is given. Records nothing; the recorder imports this before the program runs, so it imports nothing heavy.
"""

from collections.abc import Collection, Sequence

from tfbisect import knowledge
from tfbisect.flow import CALLS, SWITCHES
from tfbisect.model import Edge, Node, NodeFlag

ALL, SUSPECTS = "all", "suspects"
CHOICES = (ALL, SUSPECTS)
MAIN_THREAD = 0
_COMPLEX = frozenset({8, 18})  # complex64, complex128: one multiplication rounds several times


def is_passed(op: str, inputs: int, dtypes: Collection[int]) -> bool:
    """Whether an op of this type need not be recorded. inputs: how many; dtypes: TensorFlow's, of its outputs."""
    return knowledge.is_exact_elementwise(op, inputs) and _COMPLEX.isdisjoint(dtypes)


def passed_by(nodes: Sequence[Node], candidates: Collection[int]) -> frozenset[int]:
    """Those of some nodes of a function's graph (for which `is_passed`) that nothing asks for by itself."""
    asked: list[Edge] = []
    for node in nodes:
        data = [edge for edge in node.inputs if edge.slot >= 0]
        if node.op in SWITCHES:
            asked += data[1:]
        elif node.op in ("_Retval", "LoopCond") or node.op in CALLS or node.flags & (NodeFlag.HOST | NodeFlag.OPAQUE):
            asked += data
    seen: set[int] = set()
    while asked:
        number = asked.pop().src
        if number not in seen:
            seen.add(number)
            if nodes[number].flags & NodeFlag.FORWARDER:
                asked += [edge for edge in nodes[number].inputs if edge.slot >= 0]
    return frozenset(candidates) - seen
