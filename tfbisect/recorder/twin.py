"""From an executed graph to its twin: a function of the same signature whose ops also put digests on a queue.

Builds a FunctionDef and says what its rows will mean; runs nothing and knows no trace. Private TensorFlow API used
here, tried on 2.16.2, 2.18.1 and 2.21.0: `op_def_registry.get`.

How a value is tapped: `Fingerprint` hashes its bytes as one row (Reshape); its shape goes beside it. All taps
that run in the same iterations form groups; a group is one row: the call and loop path, the group's number, and one
string with shapes, digests and the first bytes of each value, as many as the call asks for.

A tap holds a buffer, and a buffer that is still held changes which buffer an op may reuse: AddN sums in that order, so
without care recording makes repeatable programs unrepeatable (seen on ResNet-50). So what depends on it waits until the
taps have let go (a *gate*): an AddN of three or more, ops that write variables, and what side effects are ordered
before. Everything else goes on beside its taps.
"""

import collections
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tensorflow.core.framework import attr_value_pb2, function_pb2, node_def_pb2, tensor_pb2, tensor_shape_pb2
from tensorflow.python.framework import op_def_registry

from tfbisect.model import Edge, Node, NodeFlag, SiteKind
from tfbisect.passed import is_passed, passed_by
from tfbisect.recorder import controlflow, ops
from tfbisect.recorder.controlflow import base, slot
from tfbisect.recorder.digest import DT_BOOL, DT_RESOURCE, DT_STRING, DT_UINT8, ITEMSIZE, REF, digestible
from tfbisect.recorder.executed import ARGUMENTS, RESULTS
from tfbisect.trace import TraceWriter

DEPTH = 6  # nested loops that a path can name
PATH = 1 + DEPTH  # a row's path: the call, then the iteration in each loop from the outermost in, -1 for none
QUEUE = "tfbisect"  # shared_name: the same FIFOQueueV2 from eager code and from any function body
GROUP_SIZE = 64
MOST_FAILING = 100  # ops before which rows are put away; each costs a walk over the graph
DT_INT32, DT_INT64 = 3, 9
AttrValue = attr_value_pb2.AttrValue


@dataclass(frozen=True, slots=True)
class Tap:
    """One recorded value: local node number, slot, kind of site, DataType; its shape where that is certain.

    carried: which of its bytes travel beside the digest: "" none, "limit" as many as the call asks for, "all".
    """

    node: int
    slot: int
    kind: SiteKind
    dtype: int
    shape: tuple[int, ...] | None
    carried: str


@dataclass(frozen=True, slots=True)
class Group:
    """The taps that share a row, in the order of the row's parts."""

    taps: tuple[Tap, ...]


@dataclass(slots=True)
class Twin:
    """A twin's definition and what its rows mean."""

    definition: Any
    nodes: Sequence[Any]  # NodeDefs of the executed graph in topological order: a Tap's node is an index into them
    frames: Mapping[str, controlflow.Frame]
    groups: dict[int, Group] = field(default_factory=dict)
    unrecorded: list[tuple[int, int, str]] = field(default_factory=list)  # node, slot, why
    draws: bool = False  # holds a kernel with a random stream of its own
    writes: frozenset[int] = frozenset()  # nodes that may write a variable
    passed: frozenset[int] = frozenset()  # nodes that are not tapped, since their inputs decide their bits


def outputs_of(node: Any) -> list[tuple[str, int, int]]:
    """(output argument's name, index within it, DataType) of a NodeDef, in slot order."""
    definition = op_def_registry.get(node.op)
    if definition is None:
        raise controlflow.Unsupported(f"{node.op} is not a registered op")
    result: list[tuple[str, int, int]] = []
    for arg in definition.output_arg:
        if arg.type_list_attr:
            result += [(arg.name, i, t) for i, t in enumerate(node.attr[arg.type_list_attr].list.type)]
        else:
            count = node.attr[arg.number_attr].i if arg.number_attr else 1
            dtype = arg.type or node.attr[arg.type_attr].type
            result += [(arg.name, i, dtype + (REF if arg.is_ref else 0)) for i in range(count)]
    return result


def input_names(node: Any) -> list[str]:
    """The name of the input argument at each data input of a NodeDef."""
    result: list[str] = []
    for arg in op_def_registry.get(node.op).input_arg:
        if arg.type_list_attr:
            result += [arg.name] * len(node.attr[arg.type_list_attr].list.type)
        else:
            result += [arg.name] * (node.attr[arg.number_attr].i if arg.number_attr else 1)
    return result


def user_op(op: str) -> str:
    """The op type a user knows for an executed one: `_MklMatMul` and `_FusedMatMul` are a `MatMul` by another kernel.

    A fused op is named after the one that computes; what was fused onto it (a bias, an activation) is cheap.
    """
    if not op.startswith(("_Mkl", "_Fused")):
        return op
    plain = ops.ONEDNN.sub("", op).removeprefix("_")
    for name in (plain, ops.FUSED.sub("", plain), ops.FUSED_NAMES.get(plain, "")):
        if name and op_def_registry.get(name) is not None:
            return name
    return op


def note_kernels(writer: TraceWriter, graph: int, nodes: Iterable[Any]) -> None:
    """Write down which ops of a graph ran as a kernel of another name; nodes: in the order they have in the trace."""
    kernels = {str(local): node.op for local, node in enumerate(nodes) if user_op(node.op) != node.op}
    if kernels:
        writer.journal({"kind": "executed", "graph": graph, "ops": kernels})


def _type(dtype: int) -> Any:
    return AttrValue(type=dtype)


def _shape(*dims: int) -> Any:
    return tensor_shape_pb2.TensorShapeProto(dim=[tensor_shape_pb2.TensorShapeProto.Dim(size=d) for d in dims])


QUEUE_TYPES = [DT_INT64, DT_INT64, DT_STRING]  # group, path, blob
QUEUE_SHAPES = [(), (PATH,), ()]
_QUEUE_ATTRS = {
    "component_types": AttrValue(list=AttrValue.ListValue(type=QUEUE_TYPES)),
    "shapes": AttrValue(list=AttrValue.ListValue(shape=[_shape(*dims) for dims in QUEUE_SHAPES])),
    "shared_name": AttrValue(s=QUEUE.encode()),
    "capacity": AttrValue(i=2**31 - 1),
}
_NUMPY = {DT_INT32: np.int32, DT_INT64: np.int64}


class TwinBuilder:
    """Builds one twin.

    variables: {argument number: DataType of the variable its handle names}; a handle that is missing names no variable.
    host: the device of the queue. shapes: {(node, slot): shape} that are certain. keep(node name, bytes of the value or
    None): how its bytes travel, as Tap.carried says. next_group: gives group numbers that no other twin uses. cheap:
    leave out what `passed` says.
    """

    def __init__(
        self, name: str, source: Any, graph: Any, *, variables: Mapping[int, int], host: str,
        shapes: Mapping[tuple[str, int], tuple[int, ...]], keep: Callable[[str, int | None], str],
        group_size: int, next_group: "itertools.count[int]", cheap: bool = False,
    ) -> None:  # fmt: skip
        self._source, self._keep, self._host, self._shapes = source, keep, host, shapes
        self._variables, self._group_size, self._next_group = variables, group_size, next_group
        ordered = controlflow.topological(graph.node)
        self._frame = controlflow.frames(ordered)
        self._branch = controlflow.branches(ordered, self._frame)
        self._number = {node.name: number for number, node in enumerate(ordered)}
        self._original = {node.name: node for node in ordered}
        self._outputs = {n.name: outputs_of(n) for n in ordered if n.op not in ARGUMENTS + RESULTS}
        self._arguments = {n.name: n.attr["index"].i for n in ordered if n.op in ARGUMENTS}
        self._results = {n.attr["index"].i: n.input[0] for n in ordered if n.op in RESULTS}
        self._nodes: dict[str, Any] = {}
        self._extra: list[Any] = []
        self._gates: dict[str, list[str]] = collections.defaultdict(list)
        self._must_run: list[str] = []
        self._shared: dict[controlflow.Frame, dict[str, str]] = {}
        self._open: dict[tuple[Any, ...], list[tuple[Tap, str, str | None]]] = collections.defaultdict(list)
        taken = {arg.name for arg in source.signature.input_arg} | set(self._original)
        self._prefix = next(p for p in map("tfbisect{}".format, itertools.count()) if not _starts_any(taken, p))
        self.twin = Twin(None, ordered, self._frame)
        if cheap:
            self.twin.passed = self._passed()
        self._name = name

    def build(self) -> Twin:
        """The finished twin. Raises controlflow.Unsupported when the graph is of a kind that cannot be tapped."""
        if any(len(frame) > DEPTH for frame in self._frame.values()):
            raise controlflow.Unsupported(f"loops nested deeper than {DEPTH}")
        for node in self.twin.nodes:
            if node.name in self._outputs:
                copy = node_def_pb2.NodeDef()
                copy.CopyFrom(node)
                del copy.input[:]
                copy.input.extend(ref for ref in map(self._reference, node.input) if ref)
                self._nodes[node.name] = copy
                if op_def_registry.get(node.op).is_stateful and node.op not in ("ReadVariableOp", "VarHandleOp"):
                    self._must_run.append(node.name)
                self.twin.draws = self.twin.draws or node.op in ops.RANDOM
        self._shared[()] = {"path": f"{self._prefix}_call", "limit": f"{self._prefix}_limit", "anchor": ""}
        self._counters()
        writes, failing = set(), 0
        for node in self.twin.nodes:
            if node.op in ops.MAY_FAIL and failing < MOST_FAILING:
                failing += 1
                self._put_away_before(node)
            if node.name in self._nodes and node.op not in ops.SILENT:
                self._tap_outputs(node)
                if self._tap_writes(node):
                    writes.add(self._number[node.name])
        self.twin.writes = frozenset(writes)
        for key in list(self._open):
            self._close_group(key)
        self._gate()
        self.twin.definition = self._definition()
        return self.twin

    def _passed(self) -> frozenset[int]:
        """The numbers of the nodes that a cheap recording passes by."""
        nodes, candidates = [], []
        for number, node in enumerate(self.twin.nodes):
            flags = NodeFlag.FORWARDER if node.op in ops.FORWARDERS else NodeFlag.NONE
            flags |= NodeFlag.HOST if node.op in ops.HOST else NodeFlag.NONE
            flags |= NodeFlag.OPAQUE if "f" in node.attr else NodeFlag.NONE
            edges = [Edge(self._number[base(ref)], slot(ref)) for ref in node.input]
            op = "_Retval" if node.op in RESULTS else user_op(node.op)
            nodes.append(Node(node.name, op, flags=flags, inputs=tuple(edges)))
            types = [dtype for _, _, dtype in self._outputs.get(node.name, ())]
            if types and is_passed(op, sum(edge.slot >= 0 for edge in edges), types):
                candidates.append(number)
        return passed_by(nodes, candidates)

    # --- references and small parts -------------------------------------------------------------------------------

    def _reference(self, text: str) -> str | None:
        """GraphDef's `node:2` as FunctionDef's `node:output_argument:index`; None where nothing is to be waited for."""
        name = base(text)
        if text.startswith("^"):
            return None if name in self._arguments else text
        if name in self._arguments:
            return str(self._source.signature.input_arg[self._arguments[name]].name)
        output = self._outputs[name][slot(text)]
        return f"{name}:{output[0]}:{output[1]}"

    def _add(self, name: str, op: str, inputs: Sequence[str], device: str = "", **attrs: Any) -> str:
        node = node_def_pb2.NodeDef(name=f"{self._prefix}/{name}", op=op, input=inputs, device=device)
        for key, value in attrs.items():
            node.attr[key].CopyFrom(value)
        self._extra.append(node)
        return str(node.name)

    def _constant(self, name: str, value: Any, dtype: int, anchor: str, device: str = "") -> str:
        """A constant; `anchor`, a control input, puts it into the loop frame where it is used."""
        if isinstance(value, bytes):
            tensor = tensor_pb2.TensorProto(dtype=dtype, tensor_shape=_shape(), string_val=[value])
        else:
            array = np.asarray(value, _NUMPY[dtype])
            tensor = tensor_pb2.TensorProto(
                dtype=dtype, tensor_shape=_shape(*array.shape), tensor_content=array.tobytes()
            )
        inputs = [anchor] if anchor else []
        value_attr = AttrValue(tensor=tensor)
        return self._add(name, "Const", inputs, device, dtype=_type(dtype), value=value_attr) + ":output:0"

    def _concat(self, name: str, refs: Sequence[str], axis: str, dtype: int, device: str = "") -> str:
        if len(refs) == 1:
            return refs[0]
        return (
            self._add(
                name, "ConcatV2", [*refs, axis], device, T=_type(dtype), Tidx=_type(DT_INT32), N=AttrValue(i=len(refs))
            )
            + ":output:0"
        )

    def _part(self, frame: controlflow.Frame, key: str) -> str:
        """A constant or the queue, once for each frame."""
        shared = self._shared[frame]
        if key not in shared:
            name, anchor = f"frame{list(self._shared).index(frame)}/{key}", shared["anchor"]
            if key == "queue":
                shared[key] = self._add(name, "FIFOQueueV2", [anchor] if anchor else [], self._host, **_QUEUE_ATTRS)
                shared[key] += ":handle:0"
            elif key == "method":
                shared[key] = self._constant(name, b"farmhash64", DT_STRING, anchor)
            elif key == "end":
                shared[key] = self._constant(name, [-1], DT_INT64, anchor)
            else:
                value = {"row": [1, -1], "axis0": 0, "axis1": 1, "zeros": [0, 0], "ones": [1, 1]}[key]
                shared[key] = self._constant(name, value, DT_INT32, anchor)
        return shared[key]

    # --- loop frames: each counts its own iterations ------------------------------------------------------------

    def _counters(self) -> None:
        """For each loop frame a private counter, whose value is the path of the iteration.

        start = the parent's path with 1 added at this depth (where it was -1) -> Enter -> Merge -> Switch(LoopCond) ->
        AddV2 -> NextIteration. parallel_iterations lets iterations overtake each other, so nothing that counts
        arrivals could tell them apart.
        """
        enters: dict[controlflow.Frame, Any] = {}
        conditions: dict[controlflow.Frame, Any] = {}
        for node in self.twin.nodes:
            if node.op == "Enter":
                enters.setdefault(self._frame[node.name], node)
            elif node.op == "LoopCond":
                conditions.setdefault(self._frame[node.name], node)
        for number, frame in enumerate(sorted(enters, key=len), 1):
            enter, condition, parent = enters[frame], conditions.get(frame), self._shared[frame[:-1]]
            device = condition.device if condition is not None else enter.device
            one = [0] * PATH
            one[len(frame)] = 1
            int64, prefix = _type(DT_INT64), f"frame{number}"
            loop = {
                "frame_name": enter.attr["frame_name"],
                # the executor takes it from whichever Enter of the frame comes first: it must be the same
                "parallel_iterations": enter.attr["parallel_iterations"],
            }
            place = self._constant(f"{prefix}/place", one, DT_INT64, parent["anchor"], device)
            start = self._add(f"{prefix}/start", "AddV2", [parent["path"], place], device, T=int64) + ":z:0"
            path = self._add(
                f"{prefix}/enter", "Enter", [start], device, T=int64, is_constant=AttrValue(b=condition is None), **loop
            ) + ":output:0"  # fmt: skip
            limit = self._add(
                f"{prefix}/limit", "Enter", [parent["limit"]], device, T=_type(DT_INT32),
                is_constant=AttrValue(b=True), **loop,
            ) + ":output:0"  # fmt: skip
            if condition is not None:
                again = f"{self._prefix}/{prefix}/next:output:0"
                path = self._add(f"{prefix}/path", "Merge", [path, again], device, T=int64, N=AttrValue(i=2))
                anchor, path = f"^{path}", f"{path}:output:0"
                switch = self._add(f"{prefix}/switch", "Switch", [path, f"{condition.name}:output:0"], device, T=int64)
                step = self._constant(f"{prefix}/step", one, DT_INT64, anchor, device)
                more = self._add(f"{prefix}/more", "AddV2", [f"{switch}:output_true:0", step], device, T=int64)
                self._add(f"{prefix}/next", "NextIteration", [f"{more}:z:0"], device, T=int64)
            else:  # a frame that never iterates
                anchor = f"^{base(path)}"
            self._shared[frame] = {"path": path, "limit": limit, "anchor": anchor}

    # --- taps ---------------------------------------------------------------------------------------------------

    def _tap_outputs(self, node: Any) -> None:
        number = self._number[node.name]
        if node.op in ops.FORWARDERS or number in self.twin.passed:
            return
        for output, (name, index, dtype) in enumerate(self._outputs[node.name]):
            if ops.is_undefined(node.op, output, node.attr):
                continue
            if dtype > REF:
                self.twin.unrecorded.append((number, output, "reference variable"))
            elif digestible(dtype):
                self._tap(node, f"{node.name}:{name}:{index}", self._planned(node, output, SiteKind.OUTPUT, dtype))
            elif dtype != DT_RESOURCE:
                self.twin.unrecorded.append((number, output, f"dtype {dtype}"))

    def _tap_writes(self, node: Any) -> bool:
        """Record what a variable holds after this op wrote it; whether the op may write one.

        Behind a scatter only the rows that it wrote: it puts the variable into copy-on-read mode, where reading all
        of it would copy all of it.
        """
        found = False
        if node.op in ops.READERS or node.op in ops.LOOP_OPS:
            return found
        names = input_names(node)
        for position, ref in enumerate(self._nodes[node.name].input):
            if ref.startswith("^") or position >= len(node.input):
                break
            dtype = self._variable(node.input[position])
            if dtype is None:
                continue
            found = True
            tap = self._planned(node, position, SiteKind.WRITE, dtype)
            if not digestible(dtype):
                self.twin.unrecorded.append((tap.node, position, f"variable of dtype {dtype}"))
                continue
            name, here = f"write{len(self._extra)}", f"^{node.name}"
            if "indices" in names:
                indices = self._nodes[node.name].input[names.index("indices")]
                op = "ResourceGather" if ops.ROW_WRITES.match(node.op) else "ResourceGatherNd"
                read = self._add(
                    name, op, [ref, indices, here], node.device, dtype=_type(dtype), Tindices=node.attr["Tindices"]
                ) + ":output:0"  # fmt: skip
            else:
                read = self._add(name, "ReadVariableOp", [ref, here], node.device, dtype=_type(dtype)) + ":value:0"
            self._tap(node, read, tap)
        return found

    def _variable(self, ref: str) -> int | None:
        """The DataType of the variable whose handle `ref` is; None when it is none (a table, an iterator, a value)."""
        for _ in range(len(self._original)):
            name = base(ref)
            if name in self._arguments:
                return self._variables.get(self._arguments[name])
            node = self._original[name]
            if node.op == "VarHandleOp":
                return int(node.attr["dtype"].type)
            if node.op not in ops.HANDLE_CARRIERS or not node.input:
                return None
            ref = node.input[0]
        return None

    def _planned(self, node: Any, slot_: int, kind: SiteKind, dtype: int) -> Tap:
        shape = self._shapes.get((node.name, slot_)) if kind == SiteKind.OUTPUT else None
        nbytes = None if shape is None or dtype not in ITEMSIZE else math.prod(shape) * ITEMSIZE[dtype]
        carried = self._keep(node.name, nbytes) if dtype in ITEMSIZE else ""
        return Tap(self._number[node.name], slot_, kind, dtype, shape, carried)

    def _tap(self, node: Any, ref: str, tap: Tap) -> None:
        frame = self._frame[node.name]
        name, dtype, device = f"{tap.node}.{tap.kind.value}.{tap.slot}", tap.dtype, node.device
        shape = None
        if tap.shape is None:
            shape = self._add(
                f"{name}/shape", "Shape", [ref], device, T=_type(dtype), out_type=_type(DT_INT64)
            ) + ":output:0"  # fmt: skip
        raw = dtype
        if tap.carried and dtype == DT_BOOL:
            ref = self._add(f"{name}/bytes", "Cast", [ref], device, SrcT=_type(dtype), DstT=_type(DT_UINT8)) + ":y:0"
        elif tap.carried and dtype != DT_UINT8:
            ref = self._add(f"{name}/bytes", "Bitcast", [ref], device, T=_type(dtype), type=_type(DT_UINT8))
            ref += ":output:0"
        if tap.carried:
            raw = DT_UINT8
        flat = self._add(
            f"{name}/flat", "Reshape", [ref, self._part(frame, "row")], device, T=_type(raw), Tshape=_type(DT_INT32)
        ) + ":output:0"  # fmt: skip
        part = self._add(
            f"{name}/digest", "Fingerprint", [flat, self._part(frame, "method")], device, T=_type(raw)
        ) + ":fingerprint:0"  # fmt: skip
        kept = flat
        if tap.carried == "limit":
            limit = self._shared[frame]["limit"]
            zeros, ones = self._part(frame, "zeros"), self._part(frame, "ones")
            kept = self._add(
                f"{name}/kept", "StridedSlice", [flat, zeros, limit, ones], device, T=_type(DT_UINT8),
                Index=_type(DT_INT32),
            ) + ":output:0"  # fmt: skip
        if tap.carried:  # the bytes are the buffer itself: joined with the digest they are a copy, and it is free
            part = self._concat(f"{name}/part", [part, kept], self._part(frame, "axis1"), DT_UINT8, device)
        self._gates[node.name] += [base(part), *([base(shape)] if shape else [])]
        key = frame, self._branch[node.name]
        self._open[key].append((tap, part, shape))
        if len(self._open[key]) >= self._group_size:
            self._close_group(key)

    def _put_away_before(self, node: Any) -> None:
        """Rows of what an op that may fail depends on are on the queue before it runs.

        It waits for nothing else: ops also wait for each other in ways that a graph does not show (a collective for its
        other members), and an edge from anything but what comes before it anyway could stop the program for good.
        """
        before = self._before(node)
        for key in list(self._open):
            frame, branch = key
            if frame != self._frame[node.name] or not branch <= self._branch[node.name]:
                continue  # another loop or branch: it need not run when this op does
            mine = [member for member in self._open[key] if member[0].node in before]
            others = [member for member in self._open[key] if member[0].node not in before]
            if mine:
                self._open[key] = mine
                self._nodes[node.name].input.append(f"^{self._close_group(key)}")
                if others:
                    self._open[key] = others

    def _before(self, node: Any) -> set[int]:
        """The numbers of all nodes that a node depends on."""
        found: set[int] = set()
        waiting = [node]
        while waiting:
            for ref in waiting.pop().input:
                number = self._number[base(ref)]
                if number not in found:
                    found.add(number)
                    waiting.append(self._original[base(ref)])
        return found

    def _close_group(self, key: tuple[Any, ...]) -> str:
        """The row of a group: its number, the path, and a string: uncertain shapes (each ended by -1), then parts."""
        members, frame, number = self._open.pop(key), key[0], next(self._next_group)
        name, end = f"group{number}", self._part(frame, "end")
        parts = [part for _, part, _ in members]
        uncertain = list(itertools.chain(*((shape, end) for _, _, shape in members if shape)))
        if uncertain:
            shapes = self._concat(f"{name}/shapes", uncertain, self._part(frame, "axis0"), DT_INT64, self._host)
            shapes = self._add(
                f"{name}/shape_bytes", "Bitcast", [shapes], self._host, T=_type(DT_INT64), type=_type(DT_UINT8)
            ) + ":output:0"  # fmt: skip
            shapes = self._add(
                f"{name}/shape_row", "Reshape", [shapes, self._part(frame, "row")], self._host, T=_type(DT_UINT8),
                Tshape=_type(DT_INT32),
            ) + ":output:0"  # fmt: skip
            parts.insert(0, shapes)
        blob = self._concat(f"{name}/row", parts, self._part(frame, "axis1"), DT_UINT8, self._host)
        blob = self._add(f"{name}/blob", "SerializeTensor", [blob], self._host, T=_type(DT_UINT8)) + ":serialized:0"
        which = self._constant(f"{name}/number", number, DT_INT64, self._shared[frame]["anchor"], self._host)
        put = self._add(
            f"{name}/put", "QueueEnqueueV2",
            [self._part(frame, "queue"), which, self._shared[frame]["path"], blob], self._host,
            Tcomponents=AttrValue(list=AttrValue.ListValue(type=QUEUE_TYPES)),
        )  # fmt: skip
        self._must_run.append(put)
        self.twin.groups[number] = Group(tuple(tap for tap, _, _ in members))
        return put

    # --- finish ---------------------------------------------------------------------------------------------------

    def _gate(self) -> None:
        """What the holding of a buffer could change waits for the taps of what it consumes.

        Control edges order side effects: what a variable holds must be read by its tap before a later write. A Merge
        has them too, where lowering orders a branch's writes through it.
        """
        for number, node in enumerate(self.twin.nodes):
            copy = self._nodes.get(node.name)
            if copy is None:
                continue
            whole = ops.adds_in_place(node) or number in self.twin.writes
            held = [ref for ref in node.input if whole or ref.startswith("^")]
            waits = {f"^{gate}" for name in self._sharing(held) for gate in self._gates.get(name, ())}
            copy.input.extend(sorted(waits))

    def _sharing(self, refs: Iterable[str]) -> set[str]:
        """The nodes whose buffers these values may be; not through a Merge, which one dead input never reaches."""
        found: set[str] = set()
        waiting = list(refs)
        while waiting:
            name = base(waiting.pop())
            if name in found or name not in self._original:
                continue
            found.add(name)
            node = self._original[name]
            if node.op in ops.ALIASES and (node.op not in ops.LOOP_OPS or node.op in ("Switch", "_SwitchN")):
                waiting += [ref for ref in node.input if not ref.startswith("^")]
        return found

    def _definition(self) -> Any:
        twin = function_pb2.FunctionDef()
        twin.signature.CopyFrom(self._source.signature)
        twin.signature.name = self._name
        twin.signature.is_stateful = True
        del twin.signature.control_output[:]
        twin.signature.input_arg.add(name=f"{self._prefix}_call", type=DT_INT64)
        twin.signature.input_arg.add(name=f"{self._prefix}_limit", type=DT_INT32)
        for key, attr in self._source.attr.items():
            twin.attr[key].CopyFrom(attr)
        for index, attrs in self._source.arg_attr.items():
            twin.arg_attr[index].CopyFrom(attrs)
        twin.node_def.extend([*self._nodes.values(), *self._extra])
        for index, argument in enumerate(twin.signature.output_arg):
            reference = self._reference(self._results[index])
            assert reference is not None
            twin.ret[argument.name] = reference
        for name in dict.fromkeys(self._must_run):
            twin.control_ret[name] = name
            twin.signature.control_output.append(name)
        return twin


def _starts_any(names: set[str], prefix: str) -> bool:
    return any(name.startswith(prefix) for name in names)
