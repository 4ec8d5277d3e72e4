"""Eager ops: each one is a call of a graph of one op, recorded from an op callback.

Private TensorFlow API used here, tried on 2.16.2, 2.18.1 and 2.21.0: the arguments of an op callback
(`op_callbacks.add_op_callback`), `EagerTensor._numpy_internal`.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tensorflow.python.framework import op_def_registry
from tensorflow.python.ops import gen_resource_variable_ops

from tfbisect.model import CallState, Edge, GraphKind, Node, NodeFlag, SiteKind
from tfbisect.passed import MAIN_THREAD, is_passed
from tfbisect.recorder import definitions, digest, draws
from tfbisect.recorder import ops as optypes
from tfbisect.recorder.handles import dtype_of, variables_of
from tfbisect.recorder.recording import DATASET, Dataset, Recording, Thread, array_of


@dataclass(slots=True)
class _Plan:
    """What is known of an eager op at one line of the program."""

    graph: int
    outputs: list[int]  # OUTPUT site of each output, -1 where there is nothing to digest
    writes: list[tuple[int, int, int]]  # input position of a variable's handle, WRITE site, DataType
    label: str
    datasets: bool  # some output is a variant: a dataset
    functions: list[str]  # that the op was given
    rows: str  # how to read only the rows that were written: "", "gather" or "gather_nd"
    indices: int


class EagerRecorder:
    """Records eager ops; called by TensorFlow right after each."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._plans: dict[Any, _Plan] = {}
        self._makers: dict[str, bool] = {}

    def __call__(
        self, op_type: Any, inputs: Sequence[Any], attrs: Any, outputs: Any, op_name: Any = None, graph: Any = None
    ) -> None:  # fmt: skip
        """An op callback. Returns None, which leaves the outputs as they are; nothing escapes from it."""
        recording = self._recording
        if graph is not None or not recording.active:  # a graph under construction runs nothing
            return
        thread = recording.thread()
        if thread.muted:
            return
        thread.muted = True
        attrs = attrs or ()  # None: the op has none
        try:
            name = op_type if isinstance(op_type, str) else op_type.decode()
            if not name.startswith("__"):
                with recording.lock:
                    if recording.live or (recording.ever_live and self._makes_resource(name)):
                        self._record(thread, name, inputs, attrs, outputs)
                    else:
                        self._pass_by(name, attrs, outputs)
                if recording.watch is not None and name not in optypes.READERS:
                    handles = [inputs[position] for position in variables_of(inputs)]
                    if handles:
                        recording.watch.wrote(handles, recording.stacks.here(1))
                if recording.watch is not None and not thread.calls:
                    recording.watch.ran()
        except Exception as error:
            recording.fail(f"eager op {op_type}", error)
        finally:
            thread.muted = False

    def _record(
        self, thread: Thread, op: str, inputs: Sequence[Any], attrs: Any, outputs: Any, stack: int | None = None
    ) -> None:
        recording = self._recording
        if stack is None:
            stack = recording.stacks.here(2)
        if outputs is None:
            outputs = ()
        elif not isinstance(outputs, list | tuple):
            outputs = (outputs,)
        # Calls of other threads and callbacks are told apart by what they made, so they are recorded in full.
        cheap = recording.cheap and thread.number == MAIN_THREAD and not thread.calls
        key = op, stack, len(inputs), len(outputs), _hashable(attrs), cheap
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = self._plan(op, stack, inputs, attrs, outputs, cheap)
        writer = recording.writer
        begun = recording.begun(thread) if op in optypes.HOST else -1
        sources = []
        for index, tensor in enumerate(inputs):
            if not recording.is_known(tensor) and tensor.dtype.as_datatype_enum != digest.DT_RESOURCE:
                self._read_by_tensorflow(thread, op, index, tensor, stack)
            sources.append(recording.producer(tensor, thread, op, stack))
        call = begun if begun >= 0 else recording.new_call()
        for index, source in enumerate(sources):
            writer.link(call, index, *source)
        for index, tensor in enumerate(outputs):
            recording.produced(tensor, call, index)
            if recording.entering is not None and tensor.dtype.as_datatype_enum == digest.DT_RESOURCE:
                recording.entering.register(tensor, _name_given(attrs), stack)
            if plan.outputs[index] >= 0:
                recording.array_event(call, plan.outputs[index], array_of(tensor), plan.label)
        if plan.datasets:
            self._dataset(plan, op, stack, call, inputs, outputs)
        for position, site, dtype in plan.writes:
            array = self._written(plan, op, inputs, position, dtype)
            recording.array_event(call, site, array, plan.label)
        writer.call(
            call, plan.graph, thread.number, CallState.OK, recording.parent(thread), recording.step, stack
        )  # fmt: skip
        recording.flush()

    def _dataset(
        self, plan: _Plan, op: str, stack: int, call: int, inputs: Sequence[Any], outputs: Sequence[Any]
    ) -> None:  # fmt: skip
        """Remember where a dataset comes from, and which functions make its elements."""
        before = [tensor.__dict__[DATASET].ancestors for tensor in inputs if DATASET in tensor.__dict__]
        known = Dataset(op, stack, call, frozenset({call}).union(*before))
        for tensor in outputs:
            tensor.__dict__[DATASET] = known
        for function in plan.functions:
            self._recording.function_users[function] = call

    def _makes_resource(self, op: str) -> bool:
        """Whether an op makes a variable, table or iterator: those are recorded wherever they are made."""
        found = self._makers.get(op)
        if found is None:
            definition = op_def_registry.get(op)
            found = definition is not None and any(a.type == digest.DT_RESOURCE for a in definition.output_arg)
            self._makers[op] = found
        return found

    def _pass_by(self, op: str, attrs: Any, outputs: Any) -> None:
        """An op outside the recorded steps: only remember that it made its outputs."""
        recording = self._recording
        makes_resource = self._makes_resource(op)
        if outputs is not None:
            for tensor in outputs if isinstance(outputs, list | tuple) else (outputs,):
                recording.made_earlier(tensor, op)
                if makes_resource and recording.entering is not None:
                    recording.entering.register(tensor, _name_given(attrs))

    def _read_by_tensorflow(self, thread: Thread, op: str, index: int, tensor: Any, stack: int) -> None:
        """Record the read of a variable that Python handed to an op as it is.

        TensorFlow's fast path reads such a variable in C++ and calls nobody back. The op's Python function, whose frame
        called us, still holds the variable under the name of the op's argument.
        """
        variable = _argument(op, index)
        handle = getattr(variable, "handle", None)
        dtype = tensor.dtype.as_datatype_enum
        if dtype_of(handle) != dtype:
            return
        attrs = ("dtype", dtype)
        self._record(thread, "ReadVariableOp", (handle,), attrs, (tensor,), stack)

    def _written(
        self, plan: _Plan, op: str, inputs: Sequence[Any], position: int, dtype: int
    ) -> np.ndarray | None:  # fmt: skip
        """What the variable holds after the op: all of it, or the rows that a scatter wrote."""
        if op == "AssignVariableOp":
            return array_of(inputs[1])  # what it stores is its input
        handle = inputs[position]
        if plan.rows == "gather":
            read = gen_resource_variable_ops.resource_gather(handle, inputs[plan.indices], dtype)
        elif plan.rows == "gather_nd":
            read = gen_resource_variable_ops.resource_gather_nd(handle, inputs[plan.indices], dtype)
        else:
            read = gen_resource_variable_ops.read_variable_op(handle, dtype)
        return array_of(read)

    def _plan(
        self, op: str, stack: int, inputs: Sequence[Any], attrs: Any, outputs: Sequence[Any], cheap: bool
    ) -> _Plan:
        recording = self._recording
        definition = op_def_registry.get(op)
        flags = NodeFlag.NONE
        if definition is not None and definition.is_stateful:
            flags |= NodeFlag.STATEFUL
        if op in optypes.RANDOM:
            flags |= NodeFlag.RANDOM
        if op in optypes.HOST:
            flags |= NodeFlag.HOST
        handles = {} if op in optypes.READERS else variables_of(inputs)
        if handles:
            flags |= NodeFlag.WRITER
        names = [arg.name for arg in definition.input_arg] if definition is not None else []
        rows, indices = "", -1
        if handles and "indices" in names and len(names) == len(inputs):
            rows, indices = "gather" if optypes.ROW_WRITES.match(op) else "gather_nd", names.index("indices")
        count = len(inputs)
        dtypes = [tensor.dtype.as_datatype_enum for tensor in outputs]
        datasets = digest.DT_VARIANT in dtypes
        if datasets:
            flags |= NodeFlag.OPAQUE
        passed = cheap and not handles and is_passed(op, count, dtypes)
        if passed:
            flags |= NodeFlag.PASSED
        nodes = [Node(name=f"arg{index}", op="_Arg", index=index) for index in range(count)]
        given = dict(zip(map(str, attrs[::2]), attrs[1::2], strict=True))
        text = digest.of_text([(k, _plain(value)) for k, value in given.items() if k not in optypes.IGNORED_ATTRS])
        device = getattr(outputs[0], "device", "") if outputs else ""
        nodes.append(Node(
            name=op, op=op, device=device, stack=stack, attrs=text, flags=flags,
            inputs=tuple(Edge(index, 0) for index in range(count)),
        ))  # fmt: skip
        nodes += [Node(name=f"result{i}", op="_Retval", index=i, inputs=(Edge(count, i),)) for i in range(len(outputs))]
        structure = digest.of_text("eager", op, text, count, len(outputs))
        graph = recording.writer.graph(op, op, GraphKind.EAGER, structure, nodes)
        made = definitions.of_eager(op, attrs, device or (getattr(inputs[0], "device", "") if inputs else ""))
        if made is not None:
            recording.writer.definition(graph, count, made)
        seeds = draws.of_eager(op, attrs)
        if seeds is not None:
            draws.note(recording, "eager", graph, [(count, *seeds)], [(op, op, stack, *seeds)])
        sites = [
            -1
            if passed or dtype in (digest.DT_RESOURCE, digest.DT_VARIANT) or optypes.is_undefined(op, index, given)
            else recording.writer.sites(graph, [(count, index, SiteKind.OUTPUT, dtype)])
            for index, dtype in enumerate(dtypes)
        ]
        writes = [
            (position, recording.writer.sites(graph, [(count, position, SiteKind.WRITE, dtype)]), dtype)
            for position, dtype in handles.items()
        ]
        source = recording.stacks.innermost(stack)
        where = f"{source[0]}:{source[1]}" if source else "?"
        functions = [name for value in attrs[1::2] if (name := _function_name(value))]
        return _Plan(graph, sites, writes, f"{op} at {where}", datasets, functions, rows, indices)


def _name_given(attrs: Any) -> str:
    """The name that the program gave a resource: TensorFlow 2.21 keeps it in `debug_name`, as `kernel/`."""
    given = dict(zip(attrs[::2], attrs[1::2], strict=True)).get("debug_name", "")
    text = given.decode() if isinstance(given, bytes) else str(given)
    return text.rstrip("/")


def _argument(op: str, index: int) -> Any:
    """What an op's Python function was given for its data input number `index`; None when that is not to be had."""
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").startswith("tfbisect.recorder"):
        frame = frame.f_back
    definition = op_def_registry.get(op)
    if frame is None or definition is None:
        return None
    given = frame.f_locals
    values: list[Any] = []
    for arg in definition.input_arg:
        if arg.name not in given:
            return None
        value = given[arg.name]
        values += value if (arg.number_attr or arg.type_list_attr) and isinstance(value, list | tuple) else [value]
    return values[index] if index < len(values) else None


def _function_name(value: Any) -> str:
    """TensorFlow's name of a function given as an attribute; '' for anything else."""
    name = getattr(value, "name", "") if hasattr(value, "function_type") or hasattr(value, "captured_inputs") else ""
    return name.decode() if isinstance(name, bytes) else name if isinstance(name, str) else ""


def _hashable(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(_hashable(item) for item in value)
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return value


def _plain(value: Any) -> Any:
    """An attribute's value as it would read in another process: numbers and texts, functions by their user's name."""
    if isinstance(value, bool | int | float | type(None)):
        return value
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if isinstance(value, str):
        return optypes.user_name(value) if value.startswith("__") else value
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if name := _function_name(value):
        return optypes.user_name(name)
    number = getattr(value, "as_datatype_enum", None)
    return number if number is not None else type(value).__name__
