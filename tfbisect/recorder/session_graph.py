"""What the executed graph of a `Session.run` is to the trace: its nodes, what to watch, what it writes, its loops.

Takes the graph as TensorFlow's debugger handed it out and the user's graph; runs nothing, keeps no values. Private
TensorFlow API used here, tried on 2.21.0: `Operation.traceback`, `Operation._original_op`.
"""

import bisect
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from tensorflow.python.framework import op_def_registry

from tfbisect.model import Edge, Node, NodeFlag
from tfbisect.recorder import controlflow, executed, function, ops, origins
from tfbisect.recorder.controlflow import Frame, base, slot
from tfbisect.recorder.digest import DT_RESOURCE, DT_VARIANT, REF
from tfbisect.recorder.session_dumps import Dump
from tfbisect.recorder.twin import outputs_of, user_op

VARIABLES = frozenset({"VarHandleOp", "VariableV2", "Variable", "TemporaryVariable"})
_REF_READERS = frozenset({"IsVariableInitialized", "Identity"})
_CARRIERS = ops.HANDLE_CARRIERS | {"RefSwitch", "RefEnter", "RefIdentity", "RefMerge", "RefExit", "RefNextIteration"}
# Ops whose output may share its buffer with an input, a variable or a feed.
_ALIASES = ops.FORWARDERS | {
    "ReadVariableOp", "Bitcast", "Slice", "StridedSlice", "Split", "SplitV", "Unpack", "Const", "_Arg",
}  # fmt: skip
_ADDS_IN_PLACE = frozenset({"AddN", "_MklAddN"})
ADDN = "not watched: the copy a watch makes could change the order in which the AddN below sums"
LOOP = "recorded with parallel_iterations=1: races between the loop's iterations cannot show"


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
    proof: tuple[str, int] | None  # a watched read that gives what this op wrote, in the same iterations


@dataclass(slots=True)
class Layout:
    """An executed graph as the trace and the watches need it. Nodes are numbered as in `nodes`."""

    protos: list[Any]  # NodeDefs in topological order
    frames: dict[str, Frame]
    nodes: list[Node] = field(default_factory=list)
    watched: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)  # output -> (node, DataType)
    conditions: dict[str, Frame] = field(default_factory=dict)  # LoopCond -> its frame
    passed: dict[str, frozenset[Frame]] = field(default_factory=dict)  # node -> loops whose condition it waits for
    writes: list[Write] = field(default_factory=list)
    unseen: list[tuple[int, str]] = field(default_factory=list)  # node, why
    trains: bool = False


class UserGraph:
    """The user's tf.Graph: which op an executed node was written as, and on which line."""

    def __init__(self, graph: Any, intern: Callable[[Iterable[tuple[str, int, str]]], int]) -> None:
        self._graph, self._intern = graph, intern
        self._stacks: dict[str, int] = {}

    def op(self, name: str) -> Any | None:
        try:
            return self._graph.get_operation_by_name(name)
        except (KeyError, ValueError):
            return None

    def find(self, name: str) -> Any | None:
        """The op of that name; for a node that TensorFlow made, the op it was made for, or the call it stands in."""
        plain = origins._OPTIMIZERS.sub("", name)
        for candidate in dict.fromkeys((name, plain)):
            parts = candidate.split("/")
            for count in range(len(parts), 0, -1):
                found = self.op("/".join(parts[:count]))
                if found is not None:
                    return found
        return None

    def stack(self, op: Any) -> int:
        found = self._stacks.get(op.name)
        if found is None:
            trace = op.traceback  # None in an imported GraphDef
            frames = ((f.filename, f.lineno, f.name) for f in trace) if trace is not None else ()
            found = self._stacks[op.name] = self._intern(frames)
        return found

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


def layout(graph: Any, user: UserGraph, feeds: Sequence[str], session: int) -> Layout:
    """Raises controlflow.Unsupported when the graph's control flow is not of the kinds TensorFlow makes.

    session: its number in the process; variables of the second and later ones are named after it, for they are others.
    """
    protos = controlflow.topological(graph.node)
    frames = controlflow.frames(protos)
    by_name = {node.name: node for node in protos}
    outputs = {node.name: _outputs(node) for node in protos}
    result = Layout(protos, frames)
    result.conditions = {node.name: frames[node.name] for node in protos if node.op == "LoopCond"}
    result.passed = _passed(protos, frames)
    shared = _shared(protos, by_name)
    _watch(result, protos, outputs, shared)
    branches = controlflow.branches(protos, frames)
    _find_writes(result, by_name, frames, branches)
    trainable, initial = user.trainable()
    result.trains = any(
        write.variable in trainable and protos[write.node].name not in initial for write in result.writes
    ) and not any(node.op.startswith("Restore") for node in protos)
    _describe(result, outputs, frames, shared, user, feeds, session)
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
    waiting = [ref for n in protos if n.op in _ADDS_IN_PLACE and n.attr["N"].i > 2 for ref in n.input]
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
        if node.op in ops.SILENT or node.op in VARIABLES or node.op == "HostConst":
            continue
        if types is None:
            result.unseen.append((number, "not a registered op"))
            continue
        if node.op in ops.FORWARDERS and not (node.op == "Identity" and _ref(outputs, node.input[0])):
            continue
        for place, dtype in enumerate(types[: _own_outputs(node, len(types))]):
            plain = dtype % REF
            if (node.name, place) not in taken or plain in (DT_RESOURCE, DT_VARIANT) or dtype > REF:
                continue  # a reference is the variable itself
            if node.name in shared:
                result.unseen.append((number, ADDN))
            else:
                result.watched[node.name, place] = number, plain


def _own_outputs(node: Any, count: int) -> int:
    """How many outputs mean something: oneDNN's further ones and cuDNN's workspace hold bytes nobody wrote."""
    plain = op_def_registry.get(user_op(node.op))
    if ops.ONEDNN.match(node.op):
        fixed = plain is not None and not any(arg.number_attr or arg.type_list_attr for arg in plain.output_arg)
        count = min(count, len(plain.output_arg)) if fixed else 1
    return min(count, 5) if "FusedBatchNorm" in node.op and "Grad" not in node.op else count


# ---------------------------------------------------------------------------------------------------------------------
# Variables
# ---------------------------------------------------------------------------------------------------------------------


def _variable(by_name: Mapping[str, Any], ref: str) -> Any | None:
    """The variable that a handle or reference leads to."""
    seen: set[str] = set()
    while not ref.startswith("^") and base(ref) not in seen:
        node = by_name.get(base(ref))
        if node is None or node.op in VARIABLES:
            return node
        seen.add(node.name)
        if node.op not in _CARRIERS and not _reference_inputs(node):
            return None
        ref = next(iter(node.input), "^")
    return None


def _reference_inputs(node: Any) -> list[int]:
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


def _find_writes(
    result: Layout, by_name: Mapping[str, Any], frames: Mapping[str, Frame],
    branches: Mapping[str, controlflow.Branch],
) -> None:  # fmt: skip
    found: list[tuple[int, int, Any]] = []
    for number, node in enumerate(result.protos):
        references = _reference_inputs(node)
        for place in references:
            variable = _variable(by_name, node.input[place])
            if variable is not None:
                found.append((number, place, variable))
        for place in _handle_inputs(node):
            variable = _variable(by_name, node.input[place]) if place not in references else None
            if variable is not None and variable.op == "VarHandleOp":
                found.append((number, place, variable))
    reads = _reads(result, by_name, {variable.name for _, _, variable in found})
    numbers = dict.fromkeys([number for number, _, _ in found] + list(reads))
    bit = {number: 1 << i for i, number in enumerate(numbers)}
    above = _above(result.protos, bit)
    for number, place, variable in found:
        others = [other for other, _, same in found if same.name == variable.name and other != number]
        node = result.protos[number]
        here = frames[node.name], branches[node.name]
        witnesses, proof = None, None
        last = not any(above[other] & bit[number] for other in others)
        if any(here):
            witnesses = _witnesses(result, node, frames, branches)
        if here[0] or not last:
            for read, name in reads.items():
                proto = result.protos[read]
                if name != variable.name or (frames[proto.name], branches[proto.name]) != here:
                    continue
                between = [x for x in others if not above[number] & bit[x] and not above[x] & bit[read]]
                if above[read] & bit[number] and not between and (proto.name, 0) in result.watched:
                    proof = proto.name, 0
        dtype = variable.attr["dtype"].type
        result.writes.append(Write(number, place, variable.name, dtype, last, witnesses, proof))
    for read, name in reads.items():
        writes = [write for write in result.writes if write.variable == name]
        if not _certain(result, read, writes, frames, above, bit):
            result.watched.pop((result.protos[read].name, 0), None)
            result.unseen.append((read, f"what {name} held before it cannot be told"))


def _reads(result: Layout, by_name: Mapping[str, Any], variables: Set[str]) -> dict[int, str]:
    """{node that reads a variable which the call writes and does nothing else: the variable}"""
    found = {}
    for number, node in enumerate(result.protos):
        if node.op == "ReadVariableOp" or (node.op == "Identity" and (node.name, 0) in result.watched):
            variable = _variable(by_name, node.input[0])
            if variable is not None and variable.name in variables:
                found[number] = variable.name
    return found


def _certain(
    result: Layout, read: int, writes: Sequence[Write], frames: Mapping[str, Frame], above: Sequence[int],
    bit: Mapping[int, int],
) -> bool:  # fmt: skip
    """Whether the write that a read follows is recorded: otherwise the read would seem to be the first to differ."""
    before = [write for write in writes if above[read] & bit[write.node]]
    frame = frames[result.protos[read].name]
    for write in writes:
        around = frames[result.protos[write.node].name]
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


def _witnesses(
    result: Layout, node: Any, frames: Mapping[str, Frame], branches: Mapping[str, controlflow.Branch]
) -> tuple[tuple[str, int], ...]:  # fmt: skip
    """Watched outputs among what a node takes or gives that run in exactly the same iterations and branches."""
    around = [(base(ref), slot(ref)) for ref in node.input if not ref.startswith("^")] + [(node.name, 0)]
    return tuple(
        key for key in around
        if key in result.watched and frames[key[0]] == frames[node.name] and branches[key[0]] == branches[node.name]
    )  # fmt: skip


# ---------------------------------------------------------------------------------------------------------------------
# Nodes
# ---------------------------------------------------------------------------------------------------------------------


def _describe(
    result: Layout, outputs: Mapping[str, list[int] | None], frames: Mapping[str, Frame], shared: frozenset[str],
    user: UserGraph, feeds: Sequence[str], session: int,
) -> None:  # fmt: skip
    """Fill in the nodes as the trace keeps them."""
    protos = result.protos
    number = {node.name: i for i, node in enumerate(protos)}
    by_name = {node.name: node for node in protos}
    writers = {write.node for write in result.writes}
    opaque = {i for i, why in result.unseen if why != ADDN}
    suffix = f" (session {session + 1})" if session else ""
    for local, node in enumerate(protos):
        argument, output = node.op in executed.ARGUMENTS, node.op in executed.RESULTS
        flags = _flags(node, outputs, node.name in shared)
        flags |= NodeFlag.WRITER if local in writers else NodeFlag.NONE
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
            attrs=function._attrs_digest(node),
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
        if slot(ref) == 0 and _reference_inputs(source):
            variable = _variable(by_name, ref)
            if variable is not None:
                data.append(Edge(number[variable.name], 0))
                controls.append(Edge(number[source.name], -1))
                continue
        data.append(Edge(number[source.name], slot(ref)))
    return (*data, *controls)


# ---------------------------------------------------------------------------------------------------------------------
# Loops
# ---------------------------------------------------------------------------------------------------------------------


def _passed(protos: Sequence[Any], frames: Mapping[str, Frame]) -> dict[str, frozenset[Frame]]:
    """{node: the loops whose condition is evaluated before it in each iteration}"""
    conditions = {node.name for node in protos if node.op == "LoopCond"}
    found: dict[str, frozenset[Frame]] = {}
    for node in protos:
        here: frozenset[Frame] = frozenset().union(*(found.get(base(ref), frozenset()) for ref in node.input))
        if node.op in ("Switch", "RefSwitch") and base(node.input[1]) in conditions:
            here |= {frames[node.name]}
        elif node.op in ("Exit", "RefExit"):
            here -= {frames[base(node.input[0])]}
        found[node.name] = here
    return found


def iterations(plan: Layout, dumps: Sequence[Dump]) -> list[tuple[int, ...] | None]:
    """The loop iteration of each dump, the outermost loop's first; None where it cannot be told.

    `dumps` in the order in which they were written. A watched graph runs one iteration of a loop at a time, so the
    dumps of a loop's condition tell where in the sequence each iteration begins and ends.
    """
    if not plan.conditions:
        return [()] * len(dumps)
    steps: dict[Frame, tuple[list[int], list[tuple[int, ...]]]] = {}  # places of a loop's conditions, and their paths
    at: dict[str, list[int]] = {condition: [] for condition in plan.conditions}
    for place, dump in enumerate(dumps):
        if dump.node in at:
            at[dump.node].append(place)
    for condition, frame in sorted(plan.conditions.items(), key=lambda item: len(item[1])):
        places, paths = [], []
        outer: tuple[int, ...] | None = None
        trip = 0
        for place in at[condition]:
            if outer is None:
                outer, trip = _at(plan, steps, condition, frame[:-1], place, -1), 0
            if outer is None:
                break
            places.append(place)
            paths.append((*outer, trip))
            trip += 1
            if not dumps[place].truth():
                outer = None
        steps[frame] = places, paths
    counts: dict[tuple[str, int], int] = defaultdict(int)
    found: list[tuple[int, ...] | None] = []
    for place, dump in enumerate(dumps):
        found.append(_at(plan, steps, dump.node, plan.frames.get(dump.node, ()), place, counts[dump.node, dump.slot]))
        counts[dump.node, dump.slot] += 1
    return found


def _at(
    plan: Layout, steps: Mapping[Frame, tuple[list[int], list[tuple[int, ...]]]], node: str, frame: Frame, place: int,
    count: int,
) -> tuple[int, ...] | None:  # fmt: skip
    """The iteration of a loop in which a node wrote its dump at `place`, its `count`-th (-1: not known)."""
    if not frame:
        return ()
    places, paths = steps.get(frame, ([], []))
    if frame in plan.passed.get(node, ()):
        at = bisect.bisect_left(places, place) - 1
    else:  # above the condition: it runs once in each iteration
        at = count if count >= 0 else bisect.bisect_left(places, place)
    return paths[at] if 0 <= at < len(paths) else None

