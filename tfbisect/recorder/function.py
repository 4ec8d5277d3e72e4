"""tf.function calls: which twin runs in a function's place, and what its rows say.

Replaces nothing in TensorFlow by itself: `hooks` sends every call here. Private TensorFlow API used here, tried on
2.16.2, 2.18.1 and 2.21.0: `execute.execute / execute_with_cancellation`, `cancellation.context`,
`context.Context.function_call_options / add_function_def / remove_function / has_function`.
"""

import contextlib
import dataclasses
import itertools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tensorflow.core.protobuf import config_pb2
from tensorflow.python.eager import cancellation, execute
from tensorflow.python.framework import dtypes, errors, op_def_registry, ops, tensor_util
from tensorflow.python.ops import gen_data_flow_ops, summary_ops_v2

from tfbisect.errors import first_line
from tfbisect.model import NO_CALL, CallState, Edge, GraphKind, Node, NodeFlag, SiteKind
from tfbisect.recorder import controlflow, definitions, digest, draws, executed, shapes
from tfbisect.recorder import ops as optypes
from tfbisect.recorder.handles import variables_of
from tfbisect.recorder.origins import Origins
from tfbisect.recorder.recording import Recording, array_of
from tfbisect.recorder.rows import GroupReader
from tfbisect.recorder.twin import (
    GROUP_SIZE,
    PATH,
    QUEUE,
    QUEUE_SHAPES,
    QUEUE_TYPES,
    Group,
    Twin,
    TwinBuilder,
    note_kernels,
    user_op,
)

# Of the process, not of one recording: twins and rows of an earlier recording may still be about.
_fresh, _group_numbers = itertools.count(), itertools.count()
Plain = Callable[[Any, bytes, Sequence[Any], int], Any]


@dataclass(slots=True)
class Plan:
    """How calls of a function run and what is recorded of them."""

    function: str  # TensorFlow's name
    user: str  # the user's
    graph: int
    arguments: list[int]  # ARG site of each argument, -1 for resources
    takers: list[tuple[str, int]]  # for each argument, op type and stack of the first op that takes it
    twin: str | None = None
    attrs: tuple[Any, ...] = ()
    draws: bool = False
    groups: tuple[int, ...] = ()  # numbers of the twin's groups
    results: list[int] = field(default_factory=list)  # OUTPUT site of each result, where no twin records them
    passing: bool = False  # the next call may get a twin
    reason: str = ""  # why there is no twin, or what is to be said about it


class FunctionRecorder:
    """Runs functions as their twins and turns the twins' rows into events."""

    builder = TwinBuilder

    def __init__(
        self, recording: Recording, context: Any, plain: Plain, before: frozenset[str], expand_xla: bool
    ) -> None:
        self._recording, self._context, self._plain = recording, context, plain
        self._expand_xla = expand_xla  # run functions that XLA would compile op by op: another program
        self._before = before  # functions that may have run before recording began
        self._plans: dict[tuple[Any, ...], Plan] = {}
        self._groups: dict[int, GroupReader] = {}
        self._build_lock = threading.RLock()
        self._rows: dict[int, list[tuple[GroupReader, np.ndarray, bytes]]] = {}
        self._queue: Any = None
        self._no_call: list[Any] = []  # the arguments of a twin that belong to no call
        self._origins = Origins(context, recording.stacks.of_frames)
        self._one_device: bool | None = None
        self._listed: set[str] = set()  # functions whose text is in the trace
        self._streams: dict[str, bool] = {}  # whether a function holds a random stream, by name
        self.host = ""

    @property
    def has_streams(self) -> bool:
        """Whether a twin holds a random stream: its function must go on as the twin to its last call."""
        return any(plan.draws and plan.twin for plan in self._plans.values())

    def release(self, streams: bool = False) -> None:
        """The recording is over: only functions with a random stream keep their twins, unless those are to go too."""
        with self._build_lock:
            for name in {key[0] for key, plan in self._plans.items() if streams or not plan.draws}:
                self.forget(name)

    def forget(self, name: str) -> None:
        """A function is gone: its twins go too. Called from a destructor, so it takes no lock and raises nothing."""
        self._streams.pop(name, None)
        for key in [key for key in list(self._plans) if key[0] == name]:
            plan = self._plans.pop(key, None)
            if plan is not None and plan.twin is not None:
                for number in plan.groups:
                    self._groups.pop(number, None)
                with contextlib.suppress(Exception):
                    self._context.remove_function(plan.twin)

    # --- a call -------------------------------------------------------------------------------------------------

    def call(self, name: bytes, inputs: Sequence[Any], num_outputs: int) -> Any:
        """Run function `name` as `Context.call_function` would, recorded. Errors of the user's own pass through."""
        recording = self._recording
        thread = recording.thread()
        if thread.muted:
            return self._plain(self._context, name, inputs, num_outputs)
        live, plan = recording.live, None
        try:
            if not recording.active:
                plan = self._plans.get(self._key(name.decode(), inputs))
            elif live or self._must_be_twin(name.decode()):
                plan = self._plan(name.decode(), inputs, num_outputs)
        except Exception as error:
            recording.fail(f"preparing {name.decode()}", error)
            plan = self._drawing(name.decode())
            if plan is None:
                return self._plain(self._context, name, inputs, num_outputs)
        if not recording.active and not (plan is not None and plan.twin and plan.draws):
            return self._plain(self._context, name, inputs, num_outputs)
        if plan is None:
            return self._pass_by(name, inputs, num_outputs)
        call, limit = self._begin(plan, inputs) if live else (recording.new_call(), 0)
        state, outputs = CallState.FAILED, None
        try:
            with recording.open_call(call):
                outputs = self._run(plan, name, inputs, num_outputs, call, limit)
            state = CallState.OK
            return outputs
        finally:
            self._end(plan, call, state, outputs or (), live)

    def _drawing(self, name: str) -> Plan | None:
        """A plan by which a function with a random stream ran before: it must go on as that twin, whatever happens."""
        plans = (plan for key, plan in self._plans.items() if key[0] == name and plan.draws and plan.twin)
        return next(plans, None)

    def _must_be_twin(self, name: str) -> bool:
        """Whether a function is its twin outside the recorded steps too: a random stream must not change kernels."""
        if not self._recording.ever_live:
            return False
        found = self._streams.get(name)
        if found is None:
            found = self._streams[name] = self._holds_stream(self._context.get_function_def(name))
        return found

    def _pass_by(self, name: bytes, inputs: Sequence[Any], num_outputs: int) -> Any:
        """Run a function as it is, outside the recorded steps; calls within it are known to be inside."""
        recording = self._recording
        with recording.open_call(recording.new_call()):
            outputs = self._plain(self._context, name, inputs, num_outputs)
        try:
            for tensor in outputs or ():
                recording.made_earlier(tensor, optypes.user_name(name.decode()))
        except Exception as error:
            recording.fail(f"results of {name.decode()}", error)
        return outputs

    def _run(
        self, plan: Plan, name: bytes, inputs: Sequence[Any], num_outputs: int, call: int, limit: int
    ) -> Any:  # fmt: skip
        with self._recording.muted():
            if plan.twin is None:
                return self._plain(self._context, name, inputs, num_outputs)
            # NumPy arrays, not Python numbers: those would go through TensorFlow's cache of eager scalars
            row = np.full(PATH, -1, np.int64)
            row[0] = call
            try:
                extra = [self._tensor(row), self._tensor(np.array([1, limit], np.int32))]
            except Exception as error:
                self._recording.fail(f"arguments of {plan.user}", error)
                if not plan.draws:
                    return self._plain(self._context, name, inputs, num_outputs)
                extra = self._no_call  # a random stream must go on in the kernel where it began
            manager = cancellation.context()
            try:
                if manager is None:
                    outputs = execute.execute(
                        plan.twin, num_outputs=num_outputs, inputs=[*inputs, *extra], attrs=plan.attrs,
                        ctx=self._context,
                    )  # fmt: skip
                else:
                    outputs = execute.execute_with_cancellation(
                        plan.twin, num_outputs=num_outputs, inputs=[*inputs, *extra], attrs=plan.attrs,
                        ctx=self._context, cancellation_manager=manager,
                    )  # fmt: skip
            except errors.OpError as error:
                error._message = _with_name(error.message, plan.twin, plan.function)
                raise
        return outputs or None

    def _tensor(self, array: np.ndarray) -> Any:
        return ops.EagerTensor(array, self.host, None)

    def _begin(self, plan: Plan, inputs: Sequence[Any]) -> tuple[int, int]:
        """Record the arguments; -> (call, bytes of each value to hand over)."""
        recording = self._recording
        if not recording.active:
            return recording.new_call(), 0
        with recording.lock:
            thread = recording.thread()
            try:
                here = recording.stacks.here(1)  # for ops without a line of their own: of a loaded function, say
                takers = [(op, stack or here) for op, stack in plan.takers]
                sources = [recording.producer(tensor, thread, *takers[i]) for i, tensor in enumerate(inputs)]
                call = recording.new_call()
                for index, tensor in enumerate(inputs):
                    recording.writer.link(call, index, *sources[index])
                    if plan.arguments[index] >= 0:
                        recording.array_event(call, plan.arguments[index], array_of(tensor), f"{plan.user}/arguments")
                return call, recording.policy.limit()
            except Exception as error:
                recording.fail(f"arguments of {plan.user}", error)
                return recording.new_call(), 0

    def _end(self, plan: Plan, call: int, state: CallState, outputs: Sequence[Any], live: bool) -> None:
        recording = self._recording
        with recording.lock:
            try:
                self._drain()
                rows = self._rows.pop(call, [])
                if not recording.active:
                    return
                if not live:
                    for tensor in outputs:
                        recording.made_earlier(tensor, plan.user)
                    return
                for reader, path, blob in rows:
                    reader.record(recording, call, path, blob)
                for index, tensor in enumerate(outputs):
                    recording.produced(tensor, call, index)
                    if plan.results:
                        array = array_of(tensor)
                        recording.array_event(call, plan.results[index], array, f"{plan.user}/results")
                if plan.reason:
                    recording.unseen(plan.user, "PartitionedCall", plan.reason)
                thread = recording.thread()
                recording.writer.call(
                    call, plan.graph, thread.number, state, recording.parent(thread), recording.step,
                    recording.stacks.here(1),
                )  # fmt: skip
                recording.flush()
            except Exception as error:
                recording.fail(f"results of {plan.user}", error)

    def _drain(self) -> None:
        """Take all rows off the queue; those of calls still running wait for their call's end."""
        if self._queue is None:
            return
        with self._recording.muted():
            size = gen_data_flow_ops.queue_size_v2(self._queue)
            if not int(size._numpy_internal()):
                return
            rows = gen_data_flow_ops.queue_dequeue_many_v2(self._queue, size, component_types=QUEUE_TYPES)
            numbers, paths, blobs = (row._numpy_internal() for row in rows)
        for number, path, blob in zip(numbers.tolist(), paths, blobs.tolist(), strict=True):
            reader = self._groups.get(number)
            if reader is not None and path[0] >= 0:  # else of a call that an earlier recording saw, or that none did
                self._rows.setdefault(int(path[0]), []).append((reader, path, blob))

    # --- plans ----------------------------------------------------------------------------------------------------

    def _plan(self, name: str, inputs: Sequence[Any], num_outputs: int) -> Plan:
        """The plan for a call; made when there is none yet."""
        context, key = self._context, self._key(name, inputs)
        plan = self._plans.get(key)
        if plan is None:
            with self._build_lock, self._recording.muted():
                plan = self._plans.get(key)
                if plan is None:
                    context.ensure_initialized()
                    if self._queue is None:
                        self._prepare()
                    plan = self._make(name, inputs, num_outputs, key[1])
                    if not plan.passing:
                        self._plans[key] = plan
        return plan

    def _key(self, name: str, inputs: Sequence[Any]) -> tuple[str, tuple[Any, ...], Any, tuple[Any, ...]]:
        """All that TensorFlow keys its kernels by."""
        context = self._context
        attrs = tuple(itertools.chain(*context.function_call_options.as_attrs().items()))
        return name, attrs, context.device_name, self._placement(inputs)

    def _placement(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """Where the inputs lie, where there is a choice: TensorFlow places ops by it."""
        if self._one_device is None:
            self._context.ensure_initialized()
            self._one_device = len(self._context.devices()) == 1
        if self._one_device:
            return ()
        return tuple(
            tensor.backing_device if tensor.dtype != dtypes.resource else tensor.device for tensor in inputs
        )  # fmt: skip

    def _prepare(self) -> None:
        self.host = next(d for d in self._context.devices() if d.endswith("/device:CPU:0"))
        with ops.device(self.host):
            self._queue = gen_data_flow_ops.fifo_queue_v2(
                component_types=QUEUE_TYPES, shapes=[list(s) for s in QUEUE_SHAPES], capacity=2**31 - 1,
                shared_name=QUEUE,
            )  # fmt: skip

    def _make(self, name: str, inputs: Sequence[Any], num_outputs: int, attrs: tuple[Any, ...]) -> Plan:
        definition = self._context.get_function_def(name)
        user = optypes.user_name(name)
        passing = False
        try:
            if name in self._before and self._holds_stream(definition):
                raise executed.NotToBeHad("it draws random numbers and may have run before recording began")
            if self._context.is_async():
                raise executed.NotToBeHad("eager execution is asynchronous: a cancelled probe would poison it")
            passing = _user_collects_metadata()
            if passing:
                raise executed.NotToBeHad("the program collects run metadata")
            expanded = self._expand_xla and executed.is_compiled(self._context, definition)
            if expanded:
                definition, originals = executed.without_xla(self._context, definition)
                self._origins.alias(originals)
            probed = definition.signature.name
            graph = executed.executed_graph(self._context, probed, inputs, num_outputs, attrs)
            twin = self.builder(
                f"{name}__twin{next(_fresh)}", definition, graph, variables=variables_of(inputs), host=self.host,
                shapes=shapes.certain(graph, definition),
                keep=lambda node, nbytes: self._recording.policy.carried(f"{user}/{node}", nbytes),
                group_size=1 if self._recording.policy.wants_large else GROUP_SIZE, next_group=_group_numbers,
                cheap=self._recording.cheap,
            ).build()  # fmt: skip
            twin_attrs = _without_optimizer(attrs)
            self._try(twin, inputs, num_outputs, twin_attrs)
        except (executed.NotToBeHad, controlflow.Unsupported, errors.OpError) as error:
            plan = self._opaque_plan(name, user, definition, first_line(error))
            plan.passing = passing and not self._holds_stream(definition)  # a stream must go on where it began
            return plan
        plan = self._twin_plan(name, user, definition, twin, twin_attrs)
        if expanded:
            plan.reason = "XLA compiles it in the plain run; recorded op by op without XLA, which is another program"
        return plan

    def _holds_stream(self, definition: Any) -> bool:
        """Whether a function, or one that it calls, holds a kernel with a random stream of its own."""
        functions = executed.library(self._context, definition).values()
        return any(node.op in optypes.RANDOM for function in functions for node in function.node_def)

    def _try(self, twin: Twin, inputs: Sequence[Any], num_outputs: int, attrs: tuple[Any, ...]) -> None:
        """Register the twin and instantiate it without running a kernel. Raises OpError when TensorFlow refuses it."""
        self._context.add_function_def(twin.definition)
        name = twin.definition.signature.name
        cancelled = cancellation.CancellationManager()
        cancelled.start_cancel()
        extra = self._no_call = [self._tensor(np.full(PATH, -1, np.int64)), self._tensor(np.array([1, 0], np.int32))]
        try:
            execute.execute_with_cancellation(
                name, num_outputs=num_outputs, inputs=[*inputs, *extra], attrs=attrs, ctx=self._context,
                cancellation_manager=cancelled,
            )  # fmt: skip
        except errors.CancelledError:
            pass
        except errors.OpError:
            self._context.remove_function(name)
            raise

    def _opaque_plan(self, name: str, user: str, definition: Any, reason: str) -> Plan:
        signature = definition.signature
        nodes = [
            Node(name=arg.name, op="_Arg", index=index, attrs=digest.of_text(arg.type))
            for index, arg in enumerate(signature.input_arg)
        ]
        flags = NodeFlag.OPAQUE | NodeFlag.STATEFUL
        everything = tuple(Edge(index, 0) for index in range(len(nodes)))
        nodes.append(Node(name=user, op="PartitionedCall", function=user, flags=flags, inputs=everything))
        op = len(nodes) - 1
        nodes += [
            Node(name=f"result{index}", op="_Retval", index=index, inputs=(Edge(op, index),))
            for index in range(len(signature.output_arg))
        ]
        recording = self._recording
        with recording.lock:
            structure = digest.of_text("opaque", user, [(n.name, n.op) for n in nodes])
            graph = recording.writer.graph(user, name, GraphKind.OPAQUE, structure, nodes)
            arguments = self._argument_sites(graph, nodes, signature.input_arg)
            first = recording.writer.sites(
                graph, [(op, i, SiteKind.OUTPUT, arg.type) for i, arg in enumerate(signature.output_arg)]
            )
        self._origins.forget()
        self._written(name)
        results = [first + index for index in range(len(signature.output_arg))]
        takers = [(user, 0)] * len(arguments)
        return Plan(name, user, graph, arguments, takers, results=results, reason=reason)

    def _argument_sites(self, graph: int, nodes: Sequence[Node], arguments: Sequence[Any]) -> list[int]:
        sites = [-1] * len(arguments)
        for local, node in enumerate(nodes):
            if node.op == "_Arg":
                dtype = arguments[node.index].type
                if dtype not in (digest.DT_RESOURCE, digest.DT_VARIANT):
                    sites[node.index] = self._recording.writer.sites(graph, [(local, 0, SiteKind.ARG, dtype)])
        return sites

    def _twin_plan(self, name: str, user: str, definition: Any, twin: Twin, attrs: tuple[Any, ...]) -> Plan:
        nodes = self._nodes(definition, twin)
        folded = self._folded(definition, twin, nodes)
        structure = digest.of_text(user, [(n.name, n.op, n.attrs, n.inputs, n.index) for n in nodes])
        recording = self._recording
        written = self._origins.takers(name)
        takers = _takers(nodes, [written.get(arg.name, (user, 0)) for arg in definition.signature.input_arg])
        with recording.lock:
            graph = recording.writer.graph(user, name, GraphKind.TWIN, structure, nodes)
            note_kernels(recording.writer, graph, twin.nodes)
            arguments = self._argument_sites(graph, nodes, definition.signature.input_arg)
            for local, node in enumerate(twin.nodes):
                made = definitions.of_node(node)
                if made is not None:
                    recording.writer.definition(graph, local, made)
            self._constants(graph, [*enumerate(twin.nodes), *folded], user)
            drawing = draws.made_of(definition.node_def, lambda node: self._stack(definition, node))
            draws.note(recording, f"function {graph}", graph, draws.of_nodes(twin.nodes), drawing)
            for number, group in twin.groups.items():
                first = recording.writer.sites(graph, [(t.node, t.slot, t.kind, t.dtype) for t in group.taps])
                self._groups[number] = self._reader(graph, first, group)
            for local, _slot, why in twin.unrecorded:
                if not why.startswith("dtype 21"):  # a variant forwards what went into it
                    recording.unseen(nodes[local].name, nodes[local].op, why, nodes[local].stack)
        self._written(name)
        twin_name = twin.definition.signature.name
        return Plan(
            name, user, graph, arguments, takers, twin=twin_name, attrs=attrs, draws=twin.draws,
            groups=tuple(twin.groups),
        )  # fmt: skip

    def _written(self, name: str) -> None:
        """Keep what Python wrote: where TensorFlow optimizes two versions otherwise, that still tells what changed."""
        if name not in self._listed:
            self._listed.add(name)
            nodes = self._origins.written(name, attrs_digest)
            with self._recording.lock:
                self._recording.writer.graph(optypes.user_name(name), name, GraphKind.WRITTEN, 0, nodes)

    def _reader(self, _graph: int, first_site: int, group: Group) -> GroupReader:
        """What takes the rows of one group of a graph's taps."""
        return GroupReader(first_site, group)

    def _folded(self, definition: Any, twin: Twin, nodes: list[Node]) -> list[tuple[int, Any]]:
        """Add the program's constants that TensorFlow folded into others to the nodes; -> (node, NodeDef) of each.

        A whole branch can become one constant that has the last op's name. With the constants it was made of as its
        inputs, the one that differs can be told, and its line.
        """
        folded = self._origins.folded(definition.signature.name, twin.nodes)
        executed_names = {node.name for node in nodes}
        numbers = {n.name: i for i, n in enumerate(twin.nodes) if n.op == "Const" and i not in folded}
        added: list[tuple[int, Any]] = []
        for local, made_of in folded.items():
            sources = []
            if not made_of:  # its own line says nothing of the value that differs
                nodes[local] = dataclasses.replace(nodes[local], flags=nodes[local].flags | NodeFlag.OPAQUE)
            for path, origin, source in made_of:
                name = path if path in numbers or path not in executed_names else f"{path} as written"
                if name not in numbers:
                    numbers[name] = len(nodes)
                    nodes.append(Node(
                        name=name, op="Const", function=origin.function, stack=origin.stack,
                        attrs=attrs_digest(source),
                    ))  # fmt: skip
                    added.append((numbers[name], source))
                sources.append(Edge(numbers[name], 0))
            if sources:
                nodes[local] = dataclasses.replace(nodes[local], inputs=(*sources, *nodes[local].inputs))
        return added

    def _constants(self, graph: int, nodes: Sequence[tuple[int, Any]], user: str) -> None:
        """Constants are events that hold for every call of the graph."""
        for local, node in nodes:
            if node.op != "Const":
                continue
            dtype = node.attr["dtype"].type
            site = self._recording.writer.sites(graph, [(local, 0, SiteKind.CONST, dtype)])
            try:
                array = np.asarray(tensor_util.MakeNdarray(node.attr["value"].tensor))
            except Exception:  # a variant or another type that NumPy has none for
                self._recording.unseen(node.name, "Const", f"dtype {dtype}")
                continue
            self._recording.array_event(NO_CALL, site, array, f"{user}/{node.name}")

    def _stack(self, definition: Any, node: Any) -> int:
        origin = self._origins.of(definition.signature.name, node, user_op(node.op))
        return origin.stack if origin else 0

    def _nodes(self, definition: Any, twin: Twin) -> list[Node]:
        """The twin's original nodes as the trace keeps them; arguments that nothing uses are added at the end."""
        number = {node.name: local for local, node in enumerate(twin.nodes)}
        unrecorded = {local for local, _slot, why in twin.unrecorded if not why.startswith("dtype 21")}
        self._origins.forget()
        result = []
        for local, node in enumerate(twin.nodes):
            flags = NodeFlag.FORWARDER if node.op in optypes.FORWARDERS else NodeFlag.NONE
            if node.op in optypes.RANDOM:
                flags |= NodeFlag.RANDOM
            if node.op in optypes.HOST:
                flags |= NodeFlag.HOST
            if local in twin.writes:
                flags |= NodeFlag.WRITER
            if local in unrecorded:
                flags |= NodeFlag.OPAQUE
            if local in twin.passed:
                flags |= NodeFlag.PASSED
            if node.op in ("PartitionedCall", "StatefulPartitionedCall", "XlaLaunch", "_XlaRun") or "f" in node.attr:
                flags |= NodeFlag.OPAQUE
            argument = node.op in executed.ARGUMENTS
            result_ = node.op in executed.RESULTS
            plain = argument or result_
            if not plain and _stateful(node.op):
                flags |= NodeFlag.STATEFUL
            origin = None if plain else self._origins.of(definition.signature.name, node, user_op(node.op))
            forward = origin.forward if origin else ""
            result.append(Node(
                name=node.name,
                op="_Arg" if argument else "_Retval" if result_ else user_op(node.op),
                device=node.device,
                function=origin.function if origin else "",
                stack=origin.stack if origin else 0,
                attrs=attrs_digest(node),
                index=node.attr["index"].i if plain else -1,
                forward=number.get(forward, -1) if forward else -1,
                forward_name=forward,
                flags=flags,
                frame=twin.frames[node.name],
                inputs=tuple(Edge(number[controlflow.base(r)], controlflow.slot(r)) for r in node.input),
            ))  # fmt: skip
        used = {node.index for node in result if node.op == "_Arg"}
        for index, arg in enumerate(definition.signature.input_arg):
            if index not in used:
                result.append(Node(name=arg.name, op="_Arg", index=index))
        return result


def _stateful(op: str) -> bool:
    definition = op_def_registry.get(op)
    return definition is not None and bool(definition.is_stateful)


def attrs_digest(node: Any) -> int:
    """Digest of a node's attributes that mean the same in another process: no tokens, uids or placements.

    Of a kernel that stands for an op of another name, only the op's own attributes: the kernel is TensorFlow's choice.
    """
    rows = []
    plain = user_op(node.op)
    own = None if plain == node.op else {attr.name for attr in op_def_registry.get(plain).attr} | {"fused_ops"}
    for key in sorted(node.attr):
        if key in optypes.IGNORED_ATTRS or key.startswith("_Xla") or (own is not None and key not in own):
            continue
        value = node.attr[key]
        if value.HasField("func"):
            rows.append((key, optypes.user_name(value.func.name)))
        elif value.HasField("list") and value.list.func:
            rows.append((key, [optypes.user_name(f.name) for f in value.list.func]))  # type: ignore[arg-type]
        else:
            rows.append((key, value.SerializeToString(deterministic=True)))
    return digest.of_text(rows)


def _takers(nodes: Sequence[Node], found: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """For each argument, op type and stack of the first op that takes its value; as found for what only branches."""
    carries: dict[int, int] = {local: node.index for local, node in enumerate(nodes) if node.op == "_Arg"}
    done: set[int] = set()
    for local, node in enumerate(nodes):
        for edge in node.inputs:
            argument = carries.get(edge.src)
            if argument is None or edge.slot < 0:
                continue
            if NodeFlag.FORWARDER in node.flags:
                if node.op not in ("Exit", "NextIteration"):  # behind a loop's body it is another value
                    carries.setdefault(local, argument)
            elif argument not in done and node.op != "_Retval":
                done.add(argument)
                found[argument] = node.op, node.stack
    return found


def _without_optimizer(attrs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Call attributes under which TensorFlow takes the graph as it is: it is optimized already."""
    pairs = dict(zip(attrs[::2], attrs[1::2], strict=True))
    config = config_pb2.ConfigProto()
    config.ParseFromString(pairs["config_proto"])
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = -1
    pairs["config_proto"] = config.SerializeToString(deterministic=True)
    return tuple(itertools.chain(*pairs.items()))


def _with_name(message: Any, twin: str, function: str) -> str:
    text = message.decode("utf-8", "replace") if isinstance(message, bytes) else str(message)
    return text.replace(twin, function)


def _user_collects_metadata() -> bool:
    """Whether `tf.summary.trace_on` is collecting graphs: the probe would end that."""
    return getattr(summary_ops_v2, "_current_trace_context", None) is not None
