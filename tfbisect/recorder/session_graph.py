"""What the executed graph of a `Session.run` is to the trace: its nodes, their lines, what to watch.

Takes the graph as TensorFlow's debugger handed it out and the user's graph; runs nothing, keeps no values. Private
TensorFlow API used here, tried on 2.21.0: `Operation.traceback`, `Operation._original_op`, `Graph._get_function`.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tensorflow.python.framework import op_def_registry

from tfbisect.model import Edge, Node, NodeFlag
from tfbisect.recorder import controlflow, draws, executed, function, ops, origins, session_loops, session_writes
from tfbisect.recorder.controlflow import Frame, base, slot
from tfbisect.recorder.digest import DT_BOOL, DT_RESOURCE, DT_VARIANT, REF
from tfbisect.recorder.session_loops import Loops
from tfbisect.recorder.session_writes import Write
from tfbisect.recorder.twin import outputs_of, user_op

# Ops whose output may share its buffer with an input, a variable or a feed.
_ALIASES = ops.ALIASES | {"Const", "_Arg"}
_BRANCHES = {
    "body": "body", "cond": "cond", "then": "then_branch", "else": "else_branch", "branch": "branches",
}  # fmt: skip
_LOWERED = re.compile(r"_\d+$")
ADDN = "not watched: the copy a watch makes could change the order in which the AddN below sums"
LOOP = "recorded with parallel_iterations=1: races between the loop's iterations cannot show"


@dataclass(slots=True)
class Layout:
    """An executed graph as the trace and the watches need it. Nodes are numbered as in `nodes`."""

    protos: list[Any]  # NodeDefs in topological order
    loops: Loops
    nodes: list[Node] = field(default_factory=list)
    watched: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)  # output -> (node, DataType)
    references: dict[tuple[str, int], int] = field(default_factory=dict)  # DataTypes of variables that writers hand on
    writes: list[Write] = field(default_factory=list)
    unseen: list[tuple[int, str]] = field(default_factory=list)  # node, why
    trains: bool = False

    @property
    def outputs(self) -> dict[tuple[str, int], int]:
        """All outputs that are watched, with their DataTypes."""
        events = {key: dtype for key, (_node, dtype) in self.watched.items()}
        return {**events, **self.references, **dict.fromkeys(self.loops.needed - events.keys(), DT_BOOL)}

    @property
    def on_host(self) -> bool:
        """Whether every op runs on a CPU."""
        return all("CPU" in node.device or not node.device for node in self.protos)


class UserGraph:
    """The user's tf.Graph: which op an executed node was written as, and on which line."""

    def __init__(self, graph: Any, number: int, intern: Callable[[Iterable[tuple[str, int, str]]], int]) -> None:
        """number: that of the session in the process."""
        self._graph, self.number, self._intern = graph, number, intern
        self._stacks: dict[Any, int] = {}
        self._looked_at = 0  # ops of the graph whose seeds were looked at

    def op(self, name: str) -> Any | None:
        return _op(self._graph, name)

    def find(self, name: str) -> Any | None:
        """The op of that name; for a node that TensorFlow made, the op it was made for, or the call it stands in."""
        plain = origins._OPTIMIZERS.sub("", name)
        for candidate in dict.fromkeys((name, plain)):
            parts = candidate.split("/")
            for count in range(len(parts), 0, -1):
                found = self.op("/".join(parts[:count]))
                if found is not None:
                    return self._inside(found, parts[count:])
        return None

    def _inside(self, call: Any, parts: list[str]) -> Any:
        """The op in the function that a call, branch or loop runs which became the node of that name below the call's.

        Lowered, an op of a loop's body is `LOOP/body/_1/OP`, one of a branch `COND/then/_2/OP`, one of a plain call
        `CALL/OP` (core/common_runtime/lower_while_op.cc, lower_if_op.cc, lower_case_op.cc).
        """
        while parts:
            branch = _BRANCHES.get(parts[0].rstrip("0123456789"))
            plain = branch is None
            name = "f" if branch is None else branch
            if name not in call.node_def.attr or not (plain or _LOWERED.match("/".join(parts[1:2]))):
                return call
            functions = call.get_attr(name)
            if isinstance(functions, list):
                functions = functions[int(parts[0][len("branch") :])]
            called = call.graph._get_function(functions.name)
            graph, parts = getattr(called, "graph", None), parts if plain else parts[2:]
            for count in range(len(parts), 0, -1):
                inner = _op(graph, "/".join(parts[:count]))
                if inner is not None:
                    call, parts = inner, parts[count:]
                    break
            else:
                return call
        return call

    def stack(self, op: Any) -> int:
        found = self._stacks.get(op)
        if found is None:
            trace = op.traceback  # None in an imported GraphDef
            frames = ((f.filename, f.lineno, f.name) for f in trace) if trace is not None else ()
            found = self._stacks[op] = self._intern(frames)
        return found

    def draws(self) -> list[draws.Made]:
        """The ops with seeds that were made since the last time this was asked."""
        made = self._graph.get_operations()
        new, self._looked_at = made[self._looked_at :], len(made)
        return [
            (op.name, op.type, self.stack(op), op.get_attr("seed"), op.get_attr("seed2"))
            for op in new
            if draws.seeded(op.type)
        ]

    def trainable(self) -> tuple[frozenset[str], frozenset[str]]:
        """Names of the trainable variables' ops, and of the ops that give variables their first values."""
        trainable, initial = set(), set()
        for name in ("trainable_variables", "variables", "local_variables"):
            for variable in self._graph.get_collection_ref(name):
                handle = getattr(getattr(variable, "op", None), "name", None)
                if handle is not None and name == "trainable_variables":
                    trainable.add(handle)
                initializer = getattr(getattr(variable, "initializer", None), "name", None)
                if initializer is not None:
                    initial.add(initializer)
        return frozenset(trainable), frozenset(initial)

    def reads(self, variable: str) -> str | None:
        """A tensor that is there already and holds a variable, so that nothing has to be added to the graph."""
        op = self.op(variable)
        if op is None:
            return None
        if op.type != "VarHandleOp":
            return f"{variable}:0"
        for reader in op.outputs[0].consumers():
            if reader.type == "ReadVariableOp" and not reader.control_inputs:
                return str(reader.outputs[0].name)
        return None


def _op(graph: Any, name: str) -> Any | None:
    try:
        return graph.get_operation_by_name(name)
    except (AttributeError, KeyError, ValueError):  # no graph is kept of a function that was imported
        return None


def layout(graph: Any, user: UserGraph, feeds: Sequence[str]) -> Layout:
    """Raises controlflow.Unsupported when the graph's control flow is not of the kinds TensorFlow makes.

    Variables of the second and later sessions are named after their session, for they are others.
    """
    protos = controlflow.topological(graph.node)
    frames = controlflow.frames(protos)
    by_name = {node.name: node for node in protos}
    outputs = {node.name: _outputs(node) for node in protos}
    result = Layout(protos, session_loops.of(protos, frames))
    shared = _shared(protos, by_name)
    _watch(result, protos, outputs, shared)
    executed_graph = session_writes.Graph(
        protos, by_name, frames, result.loops.branches, result.watched.keys(), result.references.keys()
    )
    result.writes, uncertain = session_writes.find(executed_graph)
    for read, variable in uncertain.items():
        result.watched.pop((protos[read].name, 0), None)
        result.unseen.append((read, f"what {variable} held before it cannot be told"))
    trainable, initial = user.trainable()
    result.trains = any(
        write.variable in trainable and protos[write.node].name not in initial for write in result.writes
    ) and not any(node.op.startswith("Restore") for node in protos)
    _describe(result, outputs, frames, shared, user, feeds)
    return result


def _outputs(node: Any) -> list[int] | None:
    """The DataTypes of a node's outputs; None for an op that Python does not know."""
    if node.op == "_Arg":
        return [node.attr["T"].type]
    try:
        return [dtype for _name, _index, dtype in outputs_of(node)]
    except controlflow.Unsupported:
        return None


def _ref(outputs: Mapping[str, list[int] | None], ref: str) -> bool:
    types = outputs.get(base(ref)) or []
    return slot(ref) in range(len(types)) and types[slot(ref)] > REF


def _shared(protos: Sequence[Any], by_name: Mapping[str, Any]) -> frozenset[str]:
    """Nodes above an AddN of three or more inputs whose outputs may share a buffer with something else.

    AddN sums into the first input whose buffer nobody else holds, and starts with it. A watch hands a private copy on.
    """
    found: set[str] = set()
    waiting = [ref for n in protos if ops.adds_in_place(n) for ref in n.input]
    while waiting:
        node = by_name[base(waiting.pop())]
        if node.op in _ALIASES and node.name not in found:
            found.add(node.name)
            waiting += [ref for ref in node.input if not ref.startswith("^")]
    return frozenset(found)


def _watch(
    result: Layout, protos: Sequence[Any], outputs: Mapping[str, list[int] | None], shared: frozenset[str]
) -> None:
    """Choose what is watched: outputs that something takes and whose bits are the op's own."""
    taken = {(base(ref), slot(ref)) for node in protos for ref in node.input if not ref.startswith("^")}
    for number, node in enumerate(protos):
        types = outputs[node.name]
        if node.op in ops.SILENT or node.op in session_writes.VARIABLES or node.op == "HostConst":
            continue
        if types is None:
            result.unseen.append((number, "not a registered op"))
            continue
        if node.op in ops.FORWARDERS and not (node.op == "Identity" and _ref(outputs, node.input[0])):
            continue
        for place, dtype in enumerate(types[: own_outputs(node.op, len(types))]):
            plain = dtype % REF
            if (node.name, place) not in taken or plain in (DT_RESOURCE, DT_VARIANT):
                continue
            if dtype > REF:  # the variable itself, which has events where something writes it
                if place == 0 and session_writes.reference_inputs(node):
                    result.references[node.name, place] = plain
                continue
            if node.name in shared:
                result.unseen.append((number, ADDN))
            else:
                result.watched[node.name, place] = number, plain


def own_outputs(op: str, count: int) -> int:
    """How many outputs mean something: oneDNN's further ones and cuDNN's workspace hold bytes nobody wrote."""
    plain = op_def_registry.get(user_op(op))
    if ops.ONEDNN.match(op):
        fixed = plain is not None and not any(arg.number_attr or arg.type_list_attr for arg in plain.output_arg)
        count = min(count, len(plain.output_arg)) if fixed else 1
    return min(count, 5) if "FusedBatchNorm" in op and "Grad" not in op else count


def _describe(
    result: Layout, outputs: Mapping[str, list[int] | None], frames: Mapping[str, Frame], shared: frozenset[str],
    user: UserGraph, feeds: Sequence[str],
) -> None:  # fmt: skip
    """Fill in the nodes as the trace keeps them."""
    protos = result.protos
    number = {node.name: i for i, node in enumerate(protos)}
    by_name = {node.name: node for node in protos}
    writers = {write.node for write in result.writes}
    last_only = {write.node for write in result.writes if frames[protos[write.node].name] and write.proof is None}
    opaque = {i for i, why in result.unseen if why != ADDN}
    suffix = f" (session {user.number + 1})" if user.number else ""
    for local, node in enumerate(protos):
        argument, output = node.op in executed.ARGUMENTS, node.op in executed.RESULTS
        flags = _flags(node, outputs, node.name in shared)
        flags |= NodeFlag.WRITER if local in writers else NodeFlag.NONE
        flags |= NodeFlag.LAST_ONLY if local in last_only else NodeFlag.NONE
        flags |= NodeFlag.OPAQUE if local in opaque else NodeFlag.NONE
        index = node.attr["index"].i if argument or output else -1
        name = node.name
        if argument and index < len(feeds) and feeds[index].removesuffix(":0") not in number:
            name = feeds[index].removesuffix(":0")
        elif not any(not ref.startswith("^") for ref in node.input) and _is_handle(node, outputs):
            name += suffix
        op = user.find(node.name) if not argument and not output else None
        forward = getattr(op, "_original_op", None)
        forward_name = forward.name if forward is not None else ""
        result.nodes.append(Node(
            name=name,
            op="_Arg" if argument else "_Retval" if output else user_op(node.op),
            device=node.device,
            stack=user.stack(op) if op is not None else 0,
            attrs=function.attrs_digest(node),
            index=index,
            forward=number.get(forward_name, -1) if forward_name else -1,
            forward_name=forward_name,
            flags=flags,
            frame=frames[node.name],
            inputs=_edges(node, by_name, number),
        ))  # fmt: skip


def _flags(node: Any, outputs: Mapping[str, list[int] | None], shared: bool) -> NodeFlag:
    flags = NodeFlag.NONE
    if node.op in ops.FORWARDERS and not (node.op == "Identity" and _ref(outputs, node.input[0])):
        flags |= NodeFlag.FORWARDER
    if shared and node.op in ("ReadVariableOp", "Identity"):
        flags |= NodeFlag.FORWARDER  # not watched: what reads it is then compared with the variable itself
    if node.op in ops.RANDOM:
        flags |= NodeFlag.RANDOM
    if node.op in ops.HOST:
        flags |= NodeFlag.HOST
    if node.op in ("PartitionedCall", "StatefulPartitionedCall", "XlaLaunch", "_XlaRun") or "f" in node.attr:
        flags |= NodeFlag.OPAQUE
    definition = op_def_registry.get(node.op)
    if definition is not None and definition.is_stateful:
        if node.op not in executed.ARGUMENTS and node.op not in executed.RESULTS:
            flags |= NodeFlag.STATEFUL
    return flags


def _is_handle(node: Any, outputs: Mapping[str, list[int] | None]) -> bool:
    types = outputs[node.name]
    return bool(types) and (types[0] == DT_RESOURCE or types[0] > REF)  # type: ignore[index]


def _edges(node: Any, by_name: Mapping[str, Any], number: Mapping[str, int]) -> tuple[Edge, ...]:
    """A node's inputs. The reference that a writer hands on is the variable itself, after it was written."""
    data, controls = [], []
    for ref in node.input:
        if ref.startswith("^"):
            controls.append(Edge(number[base(ref)], -1))
            continue
        source = by_name[base(ref)]
        if slot(ref) == 0 and session_writes.reference_inputs(source):
            variable = session_writes.variable_of(by_name, ref)
            if variable is not None:
                data.append(Edge(number[variable.name], 0))
                controls.append(Edge(number[source.name], -1))
                continue
        data.append(Edge(number[source.name], slot(ref)))
    return (*data, *controls)
