"""Functions inside tf.data (`map`, `filter`, `interleave`, ...): which copy runs in a function's place, and its events.

tf.data calls such a function from its own threads, fuses what it can, and asks whether it has side effects: a stateful
one can be neither saved in a checkpoint of the iterator nor run elsewhere. So the copy has one node more, a stateless
host callback that is handed what the others made, and gives each result on after it. Nothing else changes: no seed, no
signature, no order. What is not handed over, because holding or watching it could change bits: what an
`AddN` of three or more adds (it adds in the order in which it may reuse buffers) and what goes into or comes out of an
op that oneDNN may rewrite together with its neighbours.

Private TensorFlow API used here, tried on 2.21.0: `structured_function.StructuredFunctionWrapper.function` (hooked by
`hooks`), `script_ops._py_funcs.insert`, `context.Context.add_function_def / remove_function / get_function_def`.
"""

import contextlib
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tensorflow.core.framework import function_pb2
from tensorflow.python.framework import op_def_registry, tensor_util
from tensorflow.python.ops import script_ops

from tfbisect.model import NO_CALL, CallState, Edge, GraphKind, Node, NodeFlag, SiteKind
from tfbisect.recorder import digest
from tfbisect.recorder import ops as optypes
from tfbisect.recorder.controlflow import Unsupported
from tfbisect.recorder.function import attrs_digest
from tfbisect.recorder.origins import Origins
from tfbisect.recorder.recording import CALLBACK_THREAD, DATASET, Dataset, Recording
from tfbisect.recorder.twin import outputs_of

# What a host callback can be handed as a NumPy array (tensorflow/python/lib/core/py_func.cc).
_ARRAYS = frozenset({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 14, 17, 18, 19, 22, 23})
# Ops that oneDNN rewrites, alone or with a neighbour (tensorflow/core/common_runtime/mkl_layout_pass.cc).
_REWRITTEN = frozenset({
    "AvgPool", "AvgPool3D", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "BiasAdd", "Conv2D", "Conv3D",
    "DepthwiseConv2dNative", "Einsum", "Elu", "FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3", "LeakyRelu",
    "LRN", "MatMul", "MaxPool", "MaxPool3D", "Pad", "Relu", "Relu6", "Softmax", "Tanh", "Transpose",
})  # fmt: skip
_NEVER = optypes.SILENT | {"Placeholder"}
_KEPT = 200_000  # results that an argument can be traced to, the newest
_fresh = itertools.count()
_callbacks: list["_Callback"] = []  # of the process: TensorFlow holds them by weak references
Result = tuple[int, int]  # call, result


@dataclass(slots=True)
class _Graph:
    """A function as the trace knows it: its graph, and for each array that the callback gets its site and label."""

    id: int
    sites: list[int]
    dtypes: list[int]
    labels: list[str]
    arguments: dict[int, int]  # place among the arrays -> argument
    results: list[int]  # for each result the place among the arrays, -1 where it was not handed over
    resources: list[int]  # arguments that are handles or variants
    element: Dataset  # what the arguments come from


@dataclass(slots=True, eq=False)
class _Copy:
    """The copy that runs in a function's place. tf.data knows it by `name`, Python by everything else of `function`."""

    function: Any
    name: str

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self.function, attribute)


class _Callback:
    """What a copy calls. A dataset may run its copies long after the recording is over: then it does nothing."""

    def __init__(self, record: Callable[[Sequence[Any]], None]) -> None:
        self.record: Callable[[Sequence[Any]], None] | None = record

    def __call__(self, *arrays: Any) -> list[Any]:
        record = self.record
        if record is not None:
            record(arrays)
        return []


@dataclass(slots=True)
class DataRecorder:
    """Makes copies of functions for tf.data, and events of what they are handed."""

    recording: Recording
    context: Any
    _copies: dict[str, _Copy] = field(default_factory=dict)
    _callbacks: list["_Callback"] = field(default_factory=list)
    _made: dict[tuple[int, tuple[int, ...], str], tuple[int, int, int]] = field(default_factory=dict)
    _origins: Origins | None = None

    def replaced(self, function: Any, dataset: Any) -> Any:
        """What tf.data is to run in place of a concrete function; the function itself where it must be left alone.

        dataset: the dataset whose elements the function takes, or None.
        """
        name = function.name.decode() if isinstance(function.name, bytes) else str(function.name)
        known = self._copies.get(name)
        if known is not None:
            return known
        recording = self.recording
        try:
            with recording.muted(), recording.lock:
                made = self._copy(name, function, dataset)
        except Exception as error:
            recording.unseen(optypes.user_name(name), "tf.data function", f"{type(error).__name__}: {error}"[:200])
            return function
        self._copies[name] = made
        return made

    def forget(self, name: str) -> None:
        """A function is gone: its copy goes too (datasets keep what they need of it)."""
        copy = self._copies.pop(name, None)
        if copy is not None:
            self.recording.function_users.pop(copy.name, None)
            with contextlib.suppress(Exception):
                self.context.remove_function(copy.name)

    def release(self) -> None:
        """The recording is over: the callbacks keep nothing of it."""
        for callback in self._callbacks:
            callback.record = None

    # --- the copy -------------------------------------------------------------------------------------------------

    def _copy(self, name: str, function: Any, dataset: Any) -> _Copy:
        definition = self.context.get_function_def(name)
        taps = _taps(definition)
        element = self._element(dataset)
        graph = self._graph(name, definition, taps, element)
        copy = function_pb2.FunctionDef()
        copy.CopyFrom(definition)
        copy.signature.name = f"{name}__data{next(_fresh)}"
        callback = self._callback(graph, copy.signature.name)
        self._callbacks.append(callback)
        _callbacks.append(callback)
        token = script_ops._py_funcs.insert(callback)
        node = copy.node_def.add(name="tfbisect_record", op="PyFuncStateless", input=[ref for ref, *_ in taps])
        node.attr["token"].s = token.encode()
        node.attr["Tin"].list.type.extend([dtype for *_, dtype in taps])
        node.attr["Tout"].list.SetInParent()
        # a control output of the function: else the optimizer takes a node without outputs for one that does nothing
        copy.control_ret[node.name] = node.name
        copy.signature.control_output.append(node.name)
        types = {arg.name: arg.type for arg in definition.signature.output_arg}
        for number, (result, ref) in enumerate(sorted(definition.ret.items())):
            passed = copy.node_def.add(name=f"tfbisect_result{number}", op="Identity", input=[ref, "^tfbisect_record"])
            passed.attr["T"].type = types[result]
            copy.ret[result] = f"tfbisect_result{number}:output:0"
        self.context.add_function_def(copy)
        return _Copy(function, copy.signature.name)

    def _element(self, dataset: Any) -> Dataset:
        """The dataset that a function's arguments come from."""
        variant = getattr(dataset, "_variant_tensor", None)
        known = getattr(variant, "__dict__", {}).get(DATASET)
        return known or Dataset(type(dataset).__name__.lstrip("_"), self.recording.stacks.here(1), -1, frozenset())

    def _graph(
        self, name: str, definition: Any, taps: Sequence[tuple[str, str, int, int]], element: Dataset
    ) -> _Graph:  # fmt: skip
        recording = self.recording
        if self._origins is None:
            self._origins = Origins(self.context, recording.stacks.of_frames)
        user = optypes.user_name(name)
        arguments = [arg.name for arg in definition.signature.input_arg]
        nodes = [Node(name=arg, op="_Arg", index=index) for index, arg in enumerate(arguments)]
        number = {arg: index for index, arg in enumerate(arguments)}
        number |= {node.name: len(arguments) + index for index, node in enumerate(definition.node_def)}
        slots = {ref: slot for node in definition.node_def for slot, (ref, _) in enumerate(_outputs(node))}
        tapped = {source for _ref, source, _slot, _dtype in taps}
        for node in definition.node_def:
            origin = self._origins.of(name, node, node.op)
            nodes.append(Node(
                name=node.name, op=node.op, device=node.device, function=origin.function, stack=origin.stack,
                attrs=attrs_digest(node), flags=_flags(node, node.name in tapped),
                inputs=tuple(_edges(node, number, slots)),
            ))  # fmt: skip
        results = [definition.ret[arg.name] for arg in definition.signature.output_arg]
        for index, ref in enumerate(results):
            made = Edge(number[ref.partition(":")[0]], slots.get(ref, 0))
            nodes.append(Node(name=f"result{index}", op="_Retval", index=index, inputs=(made,)))
        structure = digest.of_text("data", user, [(n.name, n.op, n.attrs, n.inputs, n.index) for n in nodes])
        graph = recording.writer.graph(user, name, GraphKind.SOURCE, structure, nodes)
        sites, labels, places = [], [], {}
        for place, (_ref, source, slot, dtype) in enumerate(taps):
            kind = SiteKind.ARG if number[source] < len(arguments) else SiteKind.OUTPUT
            if kind == SiteKind.ARG:
                places[place] = number[source]
            sites.append(recording.writer.sites(graph, [(number[source], slot, kind, dtype)]))
            labels.append(f"{user}/{source}")
        self._constants(graph, definition, number, user)
        handed = {ref: place for place, (ref, *_) in enumerate(taps)}
        resources = [index for index in range(len(arguments)) if index not in places.values()]
        dtypes = [dtype for *_, dtype in taps]
        return _Graph(
            graph, sites, dtypes, labels, places, [handed.get(ref, -1) for ref in results], resources, element
        )

    def _constants(self, graph: int, definition: Any, number: dict[str, int], user: str) -> None:
        for node in definition.node_def:
            if node.op == "Const" and node.attr["dtype"].type in _ARRAYS:
                dtype = node.attr["dtype"].type
                site = self.recording.writer.sites(graph, [(number[node.name], 0, SiteKind.CONST, dtype)])
                array = np.asarray(tensor_util.MakeNdarray(node.attr["value"].tensor))
                self.recording.array_event(NO_CALL, site, array, f"{user}/{node.name}")

    # --- its events -----------------------------------------------------------------------------------------------

    def _callback(self, graph: _Graph, name: str) -> _Callback:
        recording = self.recording

        def record(arrays: Sequence[Any]) -> None:
            if recording.active:
                with recording.lock:
                    try:
                        if recording.active:
                            self._record(graph, name, [np.asarray(array) for array in arrays])
                    except Exception as error:
                        recording.fail("a function inside tf.data", error)

        return _Callback(record)

    def _record(self, graph: _Graph, name: str, arrays: Sequence[np.ndarray]) -> None:
        recording, writer = self.recording, self.recording.writer
        digests = [digest.of_array(array) for array in arrays]
        sources: dict[int, Result] = {}
        for place, argument in graph.arguments.items():
            made = self._made.get(_content(digests[place], arrays[place]))
            upstream = made is not None and made[2] in graph.element.ancestors
            if made is None or not upstream:
                entry = recording.element(graph.element, arrays[place], graph.dtypes[place], digests[place])
                sources[argument] = entry, 0
            else:
                sources[argument] = made[:2]
        call = recording.new_call()
        for argument, source in sources.items():
            writer.link(call, argument, *source)
        user = recording.function_users.get(name, -1)
        if user >= 0:
            writer.link(call, len(graph.arguments) + len(graph.resources), user, 0)
        for place, array in enumerate(arrays):
            recording.array_event(call, graph.sites[place], array, graph.labels[place], digests[place])
        for result, place in enumerate(graph.results):
            if place >= 0 and place not in graph.arguments:
                self._made[_content(digests[place], arrays[place])] = call, result, user
        while len(self._made) > _KEPT:
            self._made.pop(next(iter(self._made)))
        writer.call(call, graph.id, CALLBACK_THREAD, CallState.OK, -1, -1, 0)
        recording.flush()


def _content(value: int, array: np.ndarray) -> tuple[int, tuple[int, ...], str]:
    return value, array.shape, array.dtype.str


def _flags(node: Any, tapped: bool) -> NodeFlag:
    flags = NodeFlag.FORWARDER if node.op in optypes.FORWARDERS else NodeFlag.NONE
    definition = op_def_registry.get(node.op)
    if definition is not None and definition.is_stateful:
        flags |= NodeFlag.STATEFUL
    if node.op in optypes.RANDOM:
        flags |= NodeFlag.RANDOM
    if node.op in optypes.HOST:
        flags |= NodeFlag.HOST
    boxes = any(value.HasField("func") or value.list.func for value in node.attr.values())
    if boxes or not (tapped or node.op in optypes.FORWARDERS or node.op in optypes.SILENT):
        flags |= NodeFlag.OPAQUE
    return flags


# --- FunctionDefs -------------------------------------------------------------------------------------------------


def _outputs(node: Any) -> list[tuple[str, int]]:
    """(`name:output:index` as a FunctionDef refers to it, DataType) of each output of a NodeDef, in order."""
    try:
        return [(f"{node.name}:{name}:{index}", dtype) for name, index, dtype in outputs_of(node)]
    except Unsupported:  # an op that Python does not know
        return []


def _edges(node: Any, number: dict[str, int], slots: dict[str, int]) -> list[Edge]:
    return [
        Edge(number[ref[1:]], -1) if ref.startswith("^") else Edge(number[ref.partition(":")[0]], slots.get(ref, 0))
        for ref in node.input
    ]


def _taps(definition: Any) -> list[tuple[str, str, int, int]]:
    """(reference, node or argument, slot, DataType) of each value that the callback is handed."""
    found = [(arg.name, arg.name, 0, arg.type) for arg in definition.signature.input_arg if arg.type in _ARRAYS]
    left_alone = _left_alone(definition)
    for node in definition.node_def:
        if node.op in _NEVER or node.op in optypes.FORWARDERS or node.name in left_alone:
            continue
        for slot, (ref, dtype) in enumerate(_outputs(node)):
            if dtype in _ARRAYS and not optypes.is_undefined(node.op, slot, node.attr):
                found.append((ref, node.name, slot, dtype))
    return found


def _left_alone(definition: Any) -> set[str]:
    """Nodes whose outputs may not be held or watched."""
    nodes = {node.name: node for node in definition.node_def}
    found: set[str] = set()

    def leave(refs: Sequence[str]) -> None:
        """These values, and what they are other names of."""
        for ref in refs:
            node = nodes.get(ref.partition(":")[0])
            if node is None or node.name in found:
                continue
            found.add(node.name)
            if node.op in optypes.FORWARDERS:
                leave(node.input)

    for node in definition.node_def:
        if node.op in _REWRITTEN:
            found.add(node.name)
        if node.op in _REWRITTEN or optypes.adds_in_place(node):
            leave(node.input)
    return found
