"""One op with what it was given, as a graph of its own that anybody's TensorFlow can run.

The graph: a placeholder for each input, a variable that is filled anew for each variable it touches, the op itself as
the one node that was executed (fused ops included), and a read of each variable it wrote. Runs nothing. Private
TensorFlow API used here, tried on 2.21.0: `op_def_registry.get`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt
from tensorflow.core.framework import attr_value_pb2, node_def_pb2, tensor_shape_pb2
from tensorflow.python.framework import op_def_registry

from tfbisect.errors import Usage
from tfbisect.flow import CALLS
from tfbisect.model import NodeFlag, SiteKind
from tfbisect.provenance import Run
from tfbisect.recorder.ops import ONEDNN, RANDOM, READERS
from tfbisect.replayer.executions import Execution, Op
from tfbisect.replayer.values import RESOURCE, STRING, Missing, Values
from tfbisect.tables import dtype_name

Array = npt.NDArray[Any]
AttrValue = attr_value_pb2.AttrValue
NAME = "op"
# Stateful for the sake of a seed or a plan: what they give depends on their inputs and nothing else.
_KEEPS_NO_STATE = re.compile(r"^(CudnnRNN|_FusedBatchNormEx$|_Mkl)")
_INDEX = re.compile(r"/?device:(\w+):(\d+)$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Case:
    """A graph and how to run it: `init` fills the variables, `fetch` runs the op.

    feeds: {placeholder: (DataType number, value)}. results: what each fetched tensor is, as the op's output slot or the
    input position of the variable it wrote. expected: {index in fetch: bytes that the recorded run computed}.
    """

    nodes: tuple[Any, ...]
    feeds: Mapping[str, tuple[int, Array]]
    init: tuple[str, ...]
    fetch: tuple[str, ...]
    results: tuple[tuple[SiteKind, int], ...]
    expected: Mapping[int, bytes]
    device: str  # "/device:CPU:0"; "" where TensorFlow chooses
    kernel: str  # the op type that was executed
    inputs: tuple[str, ...]  # what the op takes, as `name dtype[shape]`


class Unknown(Exception):
    """Values that the trace does not hold. labels: what `--values` must match for all that is needed."""

    def __init__(self, missing: Sequence[Missing], labels: Sequence[str]) -> None:
        super().__init__()
        self.missing, self.labels = tuple(missing), tuple(labels)


class Builder:
    """Builds cases from one run."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._parsed: dict[tuple[int, int], Any] = {}

    def definition(self, graph: int, node: int) -> Any:
        """The NodeDef of an op without name and inputs; None if the trace has none."""
        key = graph, node
        if key not in self._parsed:
            data = self._run.trace.definition(graph, node)
            self._parsed[key] = None if data is None else _parsed(data)
        return self._parsed[key]

    def build(self, op: Op, execution: Execution, slot: int | None) -> Case:
        """The case of one execution. slot: fetch this output alone (None: all that were recorded).

        Raises Usage when the op cannot be run by itself, and Unknown when values were not kept.
        """
        run, (call, node, path) = self._run, execution
        flow = run.flow(call)
        definition = self._checked(op, flow.graph.id, node)
        names, types = _inputs(definition)
        data = flow.data_inputs(node)
        if len(data) != len(names):
            raise _cannot(op, f"{len(data)} inputs in the trace and {len(names)} in its definition")
        values = Values(run, self.definition, lambda each: _inputs(each)[0])
        values.labels[values.label(flow.graph.id, node)] = None
        graph = _Graph(definition)
        for position, dtype in enumerate(types):
            if dtype != RESOURCE:
                value = values.input(call, node, position, path)
                if value is None and dtype == STRING and not values.missing:
                    values.missing[Missing(f"input {names[position]} (string: such values are never kept)")] = None
                graph.feed(names[position], dtype, value)
                continue
            handle = values.handle(call, node, position, path)
            variable = None if handle is None else _dtype_of(run, definition, flow.graph.id, node, position)
            if handle is None or variable is None:
                raise _cannot(op, f"its input {names[position]} is no variable, and what it holds is not recorded")
            before = values.held(handle, call, node, path) if run.reads_state(flow.nodes[node]) else None
            graph.variable(names[position], handle, variable, before)
        if values.missing:
            raise Unknown(tuple(values.missing), tuple(values.labels))
        return graph.case(self._results(op, execution, slot), self._recorded(execution))

    def _checked(self, op: Op, graph: int, node: int) -> Any:
        """The definition of an op that says by itself whether it repeats. Raises Usage for others."""
        here = self._run.trace.graphs[graph].nodes[node]
        definition = self.definition(graph, node)
        if here.op in RANDOM or here.flags & NodeFlag.RANDOM or (definition is not None and definition.op in RANDOM):
            raise _cannot(op, "it draws from a random stream of its own: other numbers each time say nothing")
        if here.flags & NodeFlag.HOST:
            raise _cannot(op, "it calls Python, and Python's side of it is not recorded")
        if here.op in CALLS or (here.flags & NodeFlag.OPAQUE and definition is None):
            raise _cannot(op, "it calls a function, which is more than one op")
        if definition is None:
            hint = "record the run again: python -m tfbisect record -o a.h5 program.py"
            raise _cannot(op, "the trace does not say how it was made (traces of older versions do not)", hint)
        known = op_def_registry.get(definition.op)
        if known is None:
            raise _cannot(op, f"this TensorFlow has no op {definition.op}: it is a custom op or of another version")
        if any(arg.is_ref for arg in known.input_arg):
            raise _cannot(op, "it takes a reference variable of TensorFlow 1")
        stateful = known.is_stateful and not _KEEPS_NO_STATE.match(definition.op)
        if stateful and RESOURCE not in _inputs(definition)[1]:
            raise _cannot(op, "what it does depends on more than its inputs")
        return definition

    def _results(self, op: Op, execution: Execution, slot: int | None) -> list[tuple[SiteKind, int]]:
        """What was recorded of an op and means something: oneDNN's further outputs and workspaces do not."""
        run = self._run
        flow = run.flow(execution.call)
        found = [
            (SiteKind(kind), place)
            for node, place, kind in sorted(flow.sites)
            if node == execution.node and kind in (SiteKind.OUTPUT, SiteKind.WRITE)
        ]
        count = _own_outputs(self.definition(flow.graph.id, execution.node), op.op_type)
        found = [each for each in found if each[0] == SiteKind.WRITE or each[1] < count]
        if slot is not None:
            found = [each for each in found if each == (SiteKind.OUTPUT, slot)]
        if not found:
            which = "no recorded output" if slot is None else f"no recorded output {slot}"
            raise Usage(f"op {op.label}", found=which, expected="an output to compare")
        return found

    def _recorded(self, execution: Execution) -> dict[tuple[SiteKind, int], bytes]:
        """The bytes of what the run computed, where they were kept whole."""
        run, (call, node, path) = self._run, execution
        flow = run.flow(call)
        found = {}
        for (number, place, kind), site in flow.sites.items():
            row = run.row(call, site, path) if number == node else -1
            array = run.trace.value(row) if row >= 0 else None
            partial = kind == SiteKind.WRITE and "indices" in _inputs(self.definition(flow.graph.id, node))[0]
            if array is not None and not partial:
                found[SiteKind(kind), place] = array.tobytes()
        return found


class _Graph:
    """The graph of a case under construction."""

    def __init__(self, definition: Any) -> None:
        self._op = node_def_pb2.NodeDef()
        self._op.CopyFrom(definition)
        self._op.name = NAME
        self._op.device = self._device = _local(definition.device)
        self._nodes: list[Any] = []
        self._feeds: dict[str, tuple[int, Array]] = {}
        self._variables: dict[Any, str] = {}
        self._positions: list[str] = []  # the variable at each input position, "" for none
        self._types: dict[str, int] = {}
        self._init: list[str] = []
        self._told: list[tuple[str, int, Array | None]] = []

    def feed(self, argument: str, dtype: int, value: Array | None) -> None:
        self._told.append((argument, dtype, value))
        self._op.input.append(self._placeholder(f"x{len(self._op.input)}", dtype, value))
        self._positions.append("")

    def variable(self, argument: str, handle: Any, dtype: int, value: Array | None) -> None:
        """An input that is the handle of a variable; the same variable may be given twice."""
        self._told.append((f"variable {argument}", dtype, value))
        name = self._variables.get(handle)
        if name is None:
            name = self._variables[handle] = f"variable{len(self._variables)}"
            self._types[name] = dtype
            shape = tensor_shape_pb2.TensorShapeProto(unknown_rank=value is None)
            if value is not None:
                shape.dim.extend(tensor_shape_pb2.TensorShapeProto.Dim(size=size) for size in value.shape)
            # Without a name of their own, all variables of a session are one.
            attrs = {"dtype": AttrValue(type=dtype), "shared_name": AttrValue(s=name.encode())}
            self._add(name, "VarHandleOp", shape=AttrValue(shape=shape), **attrs)
            if value is not None:
                before = self._placeholder(f"{name}_before", dtype, value)
                typed = AttrValue(type=dtype)
                self._init.append(self._add(f"{name}_fill", "AssignVariableOp", name, before, dtype=typed))
        self._op.input.append(name)
        self._positions.append(name)

    def case(self, results: Sequence[tuple[SiteKind, int]], recorded: Mapping[tuple[SiteKind, int], bytes]) -> Case:
        self._nodes.append(self._op)
        fetch = []
        for kind, place in results:
            if kind == SiteKind.OUTPUT:
                fetch.append(f"{NAME}:{place}")
                continue
            name = self._positions[place]
            dtype = AttrValue(type=self._types[name])
            fetch.append(self._add(f"{name}_after{place}", "ReadVariableOp", name, f"^{NAME}", dtype=dtype) + ":0")
        expected = {index: recorded[each] for index, each in enumerate(results) if each in recorded}
        return Case(
            tuple(self._nodes), self._feeds, tuple(self._init), tuple(fetch), tuple(results), expected, self._device,
            self._op.op, tuple(f"{name} {dtype_name(dtype)}{_dims(value)}" for name, dtype, value in self._told),
        )  # fmt: skip

    def _placeholder(self, name: str, dtype: int, value: Array | None) -> str:
        if value is not None:
            self._feeds[name] = dtype, value
        return self._add(name, "Placeholder", on="", dtype=AttrValue(type=dtype))

    def _add(self, name: str, op: str, *inputs: str, on: str | None = None, **attrs: Any) -> str:
        device = self._device if on is None else on
        node = node_def_pb2.NodeDef(name=name, op=op, input=inputs, device=device)
        for key, value in attrs.items():
            node.attr[key].CopyFrom(value)
        self._nodes.append(node)
        return name


def _dims(value: Array | None) -> str:
    return "" if value is None else str(list(value.shape))


def _parsed(data: bytes) -> Any:
    try:
        return node_def_pb2.NodeDef.FromString(data)
    except Exception:  # protobuf's DecodeError has another home in each version
        return None


def _inputs(definition: Any) -> tuple[list[str], list[int]]:
    """Names and DataTypes of an op's data inputs."""
    names: list[str] = []
    types: list[int] = []
    for arg in op_def_registry.get(definition.op).input_arg:
        if arg.type_list_attr:
            found = list(definition.attr[arg.type_list_attr].list.type)
        else:
            count = definition.attr[arg.number_attr].i if arg.number_attr else 1
            found = [arg.type or definition.attr[arg.type_attr].type] * count
        names += [arg.name] * len(found)
        types += found
    return names, types


def _dtype_of(run: Run, definition: Any, graph: int, node: int, position: int) -> int | None:
    """The DataType of the variable at an input: what the trace says of its write, else the op's attributes."""
    for site_graph, site_node, slot, kind, dtype in run.site_rows:
        if (site_graph, site_node, slot, kind) == (graph, node, position, SiteKind.WRITE):
            return dtype
    if definition.op not in READERS and op_def_registry.get(definition.op).is_stateful and not definition.attr:
        return None
    for name in ("dtype", "T"):
        if name in definition.attr:
            return int(definition.attr[name].type)
    return None


def _own_outputs(definition: Any, op_type: str) -> int:
    """How many outputs mean something: oneDNN's further ones and cuDNN's workspace hold bytes nobody wrote."""
    known = op_def_registry.get(op_type if ONEDNN.match(definition.op) else definition.op)
    if known is None:
        return 1
    if any(arg.number_attr or arg.type_list_attr for arg in known.output_arg):
        return 1 if ONEDNN.match(definition.op) else 2**31
    count = len(known.output_arg)
    return min(count, 5) if "FusedBatchNorm" in definition.op and "Grad" not in definition.op else count


def _local(device: str) -> str:
    """`/device:GPU:0`: the same device of whatever process runs it."""
    found = _INDEX.search(device)
    return f"/device:{found[1].upper()}:{found[2]}" if found else ""


def _cannot(op: Op, why: str, hint: str | None = None) -> Usage:
    return Usage(
        f"op {op.label} cannot be run by itself", found=why, hint=hint or f"python -m tfbisect explain {op.op_type}"
    )
