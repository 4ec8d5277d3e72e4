"""Which variables a `Session.run` may write, by which ops, and how what they wrote can be known.

Reads an executed graph; reads no variable.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from tensorflow.python.framework import op_def_registry

from tfbisect.recorder import ops
from tfbisect.recorder.controlflow import Branch, Frame, base, slot
from tfbisect.recorder.digest import DT_RESOURCE

VARIABLES = frozenset({"VarHandleOp", "VariableV2", "Variable", "TemporaryVariable"})
_REF_READERS = frozenset({"IsVariableInitialized", "Identity"})
_CARRIERS = ops.HANDLE_CARRIERS | {"RefSwitch", "RefEnter", "RefIdentity", "RefMerge", "RefExit", "RefNextIteration"}


@dataclass(frozen=True, slots=True)
class Write:
    """A variable that a node may write: where its handle goes in, its DataType, and how to tell whether it ran.

    witnesses: watched outputs that are made exactly when the node runs; None where it always runs.
    """

    node: int
    position: int
    variable: str
    dtype: int
    last: bool  # no other op of the call writes the variable after it
    witnesses: tuple[tuple[str, int], ...] | None
    proof: tuple[str, int] | None  # a watched output that gives what this op wrote, in the same iterations


@dataclass(frozen=True, slots=True)
class Graph:
    """An executed graph: NodeDefs in topological order, their loop frames and branches, and the outputs watched."""

    protos: Sequence[Any]
    by_name: Mapping[str, Any]
    frames: Mapping[str, Frame]
    branches: Mapping[str, Branch]
    watched: Set[tuple[str, int]]
    references: Set[tuple[str, int]]  # outputs of writers that are watched: the variable itself


def variable_of(by_name: Mapping[str, Any], ref: str) -> Any | None:
    """The variable that a handle or reference leads to."""
    seen: set[str] = set()
    while not ref.startswith("^") and base(ref) not in seen:
        node = by_name.get(base(ref))
        if node is None or node.op in VARIABLES:
            return node
        seen.add(node.name)
        if node.op not in _CARRIERS and not reference_inputs(node):
            return None
        ref = next(iter(node.input), "^")
    return None


def reference_inputs(node: Any) -> list[int]:
    """Which data inputs of a node are references that it may write."""
    definition = op_def_registry.get(node.op)
    if definition is None or node.op in _REF_READERS or node.op in _CARRIERS:
        return []
    found: list[int] = []
    place = 0
    for arg in definition.input_arg:
        if arg.type_list_attr:
            count = len(node.attr[arg.type_list_attr].list.type)
        else:
            count = node.attr[arg.number_attr].i if arg.number_attr else 1
        found += range(place, place + count) if arg.is_ref else []
        place += count
    return found


def _handle_inputs(node: Any) -> list[int]:
    """Which inputs of a node may be handles of variables that it writes."""
    if node.op in ops.READERS or node.op in _CARRIERS or node.op in ops.SILENT:
        return []
    definition = op_def_registry.get(node.op)
    if definition is None or not any(arg.type == DT_RESOURCE or arg.type_attr for arg in definition.input_arg):
        if not any(arg.type_list_attr for arg in (definition.input_arg if definition else ())):
            return []
    return [place for place, ref in enumerate(node.input) if not ref.startswith("^")]


def find(graph: Graph) -> tuple[list[Write], dict[int, str]]:
    """The writes; and {node: variable} of reads that follow a write of which nothing can be known."""
    by_name, frames, branches = graph.by_name, graph.frames, graph.branches
    writes: list[Write] = []
    found: list[tuple[int, int, Any]] = []
    for number, node in enumerate(graph.protos):
        references = reference_inputs(node)
        for place in references:
            variable = variable_of(by_name, node.input[place])
            if variable is not None:
                found.append((number, place, variable))
        for place in _handle_inputs(node):
            variable = variable_of(by_name, node.input[place]) if place not in references else None
            if variable is not None and variable.op == "VarHandleOp":
                found.append((number, place, variable))
    reads = _reads(graph, {variable.name for _, _, variable in found})
    numbers = dict.fromkeys([number for number, _, _ in found] + list(reads))
    bit = {number: 1 << i for i, number in enumerate(numbers)}
    above = _above(graph.protos, bit)
    for number, place, variable in found:
        others = [other for other, _, same in found if same.name == variable.name and other != number]
        node = graph.protos[number]
        here = frames[node.name], branches[node.name]
        witnesses, proof = None, None
        last = not any(above[other] & bit[number] for other in others)
        if any(here):
            witnesses = _witnesses(graph, node)
        if here[0] or not last:
            for read, name in reads.items():
                proto = graph.protos[read]
                if name != variable.name or (frames[proto.name], branches[proto.name]) != here:
                    continue
                between = [x for x in others if not above[number] & bit[x] and not above[x] & bit[read]]
                if above[read] & bit[number] and not between and (proto.name, 0) in graph.watched:
                    proof = proto.name, 0
        unordered = [x for x in others if not above[number] & bit[x] and not above[x] & bit[number]]
        if proof is None and (node.name, 0) in graph.references and not unordered:
            proof = node.name, 0
        dtype = variable.attr["dtype"].type
        writes.append(Write(number, place, variable.name, dtype, last, witnesses, proof))
    uncertain = {
        read: name
        for read, name in reads.items()
        if not _certain(graph, read, [write for write in writes if write.variable == name], above, bit)
    }
    return writes, uncertain


def _reads(graph: Graph, variables: Set[str]) -> dict[int, str]:
    """{node that reads a variable which the call writes and does nothing else: the variable}"""
    found = {}
    for number, node in enumerate(graph.protos):
        if node.op == "ReadVariableOp" or (node.op == "Identity" and (node.name, 0) in graph.watched):
            variable = variable_of(graph.by_name, node.input[0])
            if variable is not None and variable.name in variables:
                found[number] = variable.name
    return found


def _certain(
    graph: Graph, read: int, writes: Sequence[Write], above: Sequence[int], bit: Mapping[int, int]
) -> bool:  # fmt: skip
    """Whether the write that a read follows is recorded: otherwise the read would seem to be the first to differ."""
    before = [write for write in writes if above[read] & bit[write.node]]
    frame = graph.frames[graph.protos[read].name]
    for write in writes:
        around = graph.frames[graph.protos[write.node].name]
        if around and around[:1] == frame[:1] and write.proof is None:
            return False  # of a loop only the last iteration's write is recorded
    latest = [w for w in before if not any(above[o.node] & bit[w.node] for o in before if o.node != w.node)]
    return all(write.last or write.proof is not None for write in latest)


def _above(protos: Sequence[Any], bit: Mapping[int, int]) -> list[int]:
    """For each node the bits of those that run before it."""
    number = {node.name: i for i, node in enumerate(protos)}
    found = [0] * len(protos)
    for i, node in enumerate(protos):
        for src in (number[base(ref)] for ref in node.input):
            if src < i:
                found[i] |= found[src] | bit.get(src, 0)
    return found


def _witnesses(graph: Graph, node: Any) -> tuple[tuple[str, int], ...]:
    """Watched outputs among what a node takes or gives that run in exactly the same iterations and branches."""
    around = [(base(ref), slot(ref)) for ref in node.input if not ref.startswith("^")] + [(node.name, 0)]
    return tuple(
        key for key in around
        if key in graph.watched and graph.frames[key[0]] == graph.frames[node.name]
        and graph.branches[key[0]] == graph.branches[node.name]
    )  # fmt: skip
