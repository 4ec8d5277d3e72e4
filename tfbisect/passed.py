"""Which ops a cheap recording (`--ops suspects`) passes by.

Passed by is what the knowledge base holds for elementwise and exact: the bits of its result are decided by those of its
inputs. Recorded all the same is what a walk must know by itself (results, what chooses a branch or ends a loop, what
Python is given), and ops in whose result most differences of their inputs end. Records nothing.
"""

from collections.abc import Collection, Sequence

from tfbisect import knowledge
from tfbisect.flow import CALLS, SWITCHES
from tfbisect.model import Edge, Node, NodeFlag

MAIN_THREAD = 0
# DataTypes of tensorflow/core/framework/types.proto
_COMPLEX = frozenset({8, 18})  # one multiplication rounds several times
_BOOL, _INTEGERS = 10, frozenset({3, 4, 5, 6, 9, 17, 22, 23})
_ROUNDS_OFF = frozenset({"Sign", "Floor", "Ceil", "Rint", "Round", "ZerosLike", "OnesLike"})


def is_passed(op: str, inputs: int, dtypes: Collection[int]) -> bool:
    """Whether an op of this type need not be recorded. inputs: how many; dtypes: TensorFlow's, of its outputs."""
    if not knowledge.is_exact_elementwise(op, inputs) or not _COMPLEX.isdisjoint(dtypes):
        return False
    ends = op in _ROUNDS_OFF or _BOOL in dtypes or (op == "Cast" and not _INTEGERS.isdisjoint(dtypes))
    return not ends


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
