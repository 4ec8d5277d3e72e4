"""Session.run: the executed graph runs with TensorFlow's own debug watches on it, and what they dump becomes events.

Replaces nothing in TensorFlow by itself: `hooks` sends every call here. Adds nothing to the program's graph. Private
TensorFlow API used here, tried on 2.21.0: `BaseSession._session / _extend_graph / _target`,
`pywrap_tf_session.TF_SessionMakeCallable / TF_SessionRunCallable / TF_SessionReleaseCallable / TF_OperationName`.

A call's signature (feeds, fetches, targets, options) is first made into a callable with one watch, `*`: creating its
executors hands the executed graph out, and runs nothing. A second callable watches each output of each executed node.
It holds the session's own kernels, so random streams, queues and variables are the program's.
"""

import contextlib
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tensorflow.core.protobuf import config_pb2
from tensorflow.python.client import pywrap_tf_session as c_api
from tensorflow.python.framework import errors, tensor_util

from tfbisect.model import NO_CALL, CallState, GraphKind, Node, NodeFlag, SiteKind
from tfbisect.recorder import controlflow, digest, executed, session_dumps, session_graph
from tfbisect.recorder.recording import CALLBACK_THREAD, Recording
from tfbisect.recorder.session_dumps import DEBUG_OP, Dump, Folders
from tfbisect.recorder.session_graph import Layout, UserGraph

Plain = Callable[..., Any]
SPARE_BYTES = 256 * 2**20  # disk space that stays free beyond twice what the last call of its kind dumped
METADATA = "the run metadata that the program asked for shows the recorder's own nodes"
_QUEUE_RUNNER = "QueueRunnerThread-"  # how tf.compat.v1.train.QueueRunner names its threads


class Signature(NamedTuple):
    """What makes two calls of a session run the same executors."""

    feeds: tuple[str, ...]
    fetches: tuple[str, ...]
    targets: tuple[str, ...]
    options: bytes

    def callable_options(self) -> Any:
        options = config_pb2.CallableOptions(feed=self.feeds, fetch=self.fetches, target=self.targets)
        options.run_options.ParseFromString(self.options)
        return options

    @property
    def name(self) -> str:
        """How a report names the call: by what it fetches and runs."""
        names = [*(fetch.removesuffix(":0") for fetch in self.fetches), *self.targets]
        more = f", {len(names) - 3} more" if len(names) > 3 else ""
        return f"Session.run({', '.join(names[:3])}{more})"


@dataclass(slots=True)
class Lane:
    """A callable for one call at a time: where its dumps go is fixed when it is made."""

    handle: Any
    folder: Path


@dataclass(slots=True)
class Plan:
    """How calls of a signature run and what is recorded of them."""

    signature: Signature
    name: str
    reason: str = ""  # why it is not recorded
    layout: Layout | None = None
    graph: int = -1
    arguments: list[int] = field(default_factory=list)  # ARG site of each feed, -1 where it has none
    hosts: list[tuple[int, int]] = field(default_factory=list)  # for each feed, graph and site of its value
    sites: dict[tuple[str, int], int] = field(default_factory=dict)
    wanted: frozenset[tuple[str, int]] = frozenset()  # outputs whose values may be kept
    writes: list[tuple[int, session_graph.Write]] = field(default_factory=list)  # with their sites
    reader: Any = None  # callable that reads the variables in `read`
    read: tuple[str, ...] = ()
    lanes: list[Lane] = field(default_factory=list)  # those not in use
    nbytes: int = 0  # what the last call dumped


@dataclass(slots=True)
class _Known:
    """What is known of one session."""

    number: int
    user: UserGraph
    plans: dict[Signature, Plan] = field(default_factory=dict)


@dataclass(slots=True)
class _Result:
    """What a call left behind."""

    dumps: list[Dump]
    paths: list[tuple[int, ...] | None]
    digests: list[int]
    variables: Mapping[str, Any]


class SessionRecorder:
    """Runs the calls of sessions watched and turns what is dumped into events."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._known: weakref.WeakKeyDictionary[Any, _Known] = weakref.WeakKeyDictionary()
        self._numbers = 0
        self._lock = threading.RLock()
        self._folders: Folders | None = None
        self._own_step = -1

    @staticmethod
    def info() -> dict[str, Any]:
        """For a trace whose graphs are all of sessions: their events are hashed on the host, not inside a twin."""
        return {"digest": {"graph": digest.SCHEMES["host"]}}

    def release(self) -> None:
        """The recording is over: the callables and the folder go."""
        with self._lock:
            for session, known in list(self._known.items()):
                for plan in known.plans.values():
                    handles = [lane.handle for lane in plan.lanes] + ([plan.reader] if plan.reader is not None else [])
                    plan.lanes.clear()
                    for handle in handles:
                        _release(session, handle)
            self._known = weakref.WeakKeyDictionary()
            if self._folders is not None:
                self._folders.close()

    # --- a call -------------------------------------------------------------------------------------------------

    def run(
        self, session: Any, plain: Plain, options: Any, feed_dict: Mapping[Any, Any], fetch_list: Sequence[Any],
        target_list: Sequence[Any], run_metadata: Any,
    ) -> Any:  # fmt: skip
        """Run what `BaseSession._call_tf_sessionrun` would, recorded. Errors of the user's own pass through."""
        recording = self._recording
        if recording.thread().muted or not recording.active:
            return plain(session, options, feed_dict, fetch_list, target_list, run_metadata)
        plan, lane = None, None
        try:
            signature = _signature(options, feed_dict, fetch_list, target_list)
            plan = self._plan(session, signature)
            lane = self._lane(session, plan) if not plan.reason else None
            if lane is None:
                with recording.lock:
                    recording.unseen(plan.name, "Session.run", plan.reason or "the disk has no room for its dumps")
            elif run_metadata is not None:
                with recording.lock:
                    recording.unseen(plan.name, "Session.run", METADATA)
        except Exception as error:
            recording.fail("preparing Session.run", error)
        if plan is None or lane is None:
            return plain(session, options, feed_dict, fetch_list, target_list, run_metadata)
        values = list(feed_dict.values())
        call, step = self._begin(plan, values)
        state = CallState.FAILED
        try:
            with recording.open_call(call):
                outputs = c_api.TF_SessionRunCallable(session._session, lane.handle, values, run_metadata)
            state = CallState.OK
            return outputs
        finally:
            self._end(session, plan, lane, call, step, state)

    def _begin(self, plan: Plan, values: Sequence[Any]) -> tuple[int, int]:
        """Record what is fed; -> (call, step)."""
        recording = self._recording
        with recording.lock:
            try:
                queue = threading.current_thread().name.startswith(_QUEUE_RUNNER)
                if plan.layout is not None and plan.layout.trains and recording.step == self._own_step and not queue:
                    recording.mark_step(True)  # unless the program marks steps itself
                    self._own_step = recording.step
                thread, step = recording.thread(), -1 if queue else recording.step
                stack = recording.stacks.here(2)
                sources = []
                for index, value in enumerate(values):
                    if plan.arguments[index] < 0 or not isinstance(value, np.ndarray):
                        continue
                    graph, site = plan.hosts[index]
                    host = recording.new_call()
                    known = recording.array_event(host, site, value, f"{plan.name}/feeds")
                    parent = recording.parent(thread)
                    recording.writer.call(host, graph, thread.number, CallState.OK, parent, step, stack)
                    sources.append((index, host, known))
                call = recording.new_call()
                for index, host, known in sources:
                    recording.writer.link(call, index, host, 0)
                    label = f"{plan.name}/feeds"
                    recording.array_event(call, plan.arguments[index], values[index], label, known)
                return call, step
            except Exception as error:
                recording.fail(f"feeds of {plan.name}", error)
                return recording.new_call(), -1

    def _end(self, session: Any, plan: Plan, lane: Lane, call: int, step: int, state: CallState) -> None:
        recording = self._recording
        try:
            variables = self._variables(session, plan) if state == CallState.OK and recording.active else {}
            dumps = session_dumps.take(lane.folder) if recording.active else []
            plan.nbytes = sum(dump.nbytes for dump in dumps)
            with self._lock:
                plan.lanes.append(lane)
            if not recording.active:
                return self.release()  # it ended while this call ran
            assert plan.layout is not None
            paths = session_graph.iterations(plan.layout, dumps)
            result = _Result(dumps, paths, [dump.digest for dump in dumps], variables)
            stack = recording.stacks.here(2)
            with recording.lock:
                if recording.active:
                    self._append(plan, call, step, state, result, stack)
        except Exception as error:
            recording.fail(f"results of {plan.name}", error)

    def _append(self, plan: Plan, call: int, step: int, state: CallState, result: _Result, stack: int) -> None:
        recording, writer = self._recording, self._recording.writer
        ran: dict[tuple[str, int], tuple[int, ...]] = {}
        proofs: dict[tuple[str, int], list[tuple[Dump, tuple[int, ...], int]]] = {
            write.proof: [] for _site, write in plan.writes if write.proof is not None
        }
        for dump, path, number in zip(result.dumps, result.paths, result.digests, strict=True):
            key = dump.node, dump.slot
            site = plan.sites.get(key, -1)
            if site < 0:
                continue
            if path is None:
                recording.unseen(dump.node, "", "its loop iteration could not be told")
                continue
            ran[key] = path
            if key in proofs:
                proofs[key].append((dump, path, number))
            kept = 0
            if key in plan.wanted and isinstance(dump.data, memoryview) and recording.policy.admits(dump.nbytes):
                kept = writer.value(dump.data)
            writer.event(call, site, writer.iteration(path), writer.shape(dump.shape), number, kept)
            recording.events += 1
        self._append_writes(plan, call, ran, result.variables, proofs)
        thread = recording.thread()
        number = thread.number
        if threading.current_thread().name.startswith(_QUEUE_RUNNER):
            number = CALLBACK_THREAD  # which of a queue's threads makes which call is a matter of chance
        writer.call(call, plan.graph, number, state, recording.parent(thread), step, stack)
        recording.flush()

    def _append_writes(
        self, plan: Plan, call: int, ran: Mapping[tuple[str, int], tuple[int, ...]], variables: Mapping[str, Any],
        proofs: Mapping[tuple[str, int], list[tuple[Dump, tuple[int, ...], int]]],
    ) -> None:  # fmt: skip
        """What the variables hold now is what the last op wrote."""
        recording, writer = self._recording, self._recording.writer
        for site, write in plan.writes:
            if write.proof is not None:
                for dump, at, number in proofs.get(write.proof, ()):
                    writer.event(call, site, writer.iteration(at), writer.shape(dump.shape), number)
                    recording.events += 1
                continue
            value = variables.get(write.variable)
            path: tuple[int, ...] = ()
            if write.witnesses is not None:
                seen = [ran[key] for key in write.witnesses if key in ran]
                if not seen:
                    continue  # in a branch that was not taken
                path = max(seen)
            if value is None:
                continue
            kept = 0
            label = f"{plan.name}/{write.variable}"
            if not value.dtype.hasobject and recording.policy.wants(label) and recording.policy.admits(value.nbytes):
                kept = writer.value(value.tobytes())
            number = digest.of_array(value)
            writer.event(call, site, writer.iteration(path), writer.shape(value.shape), number, kept)
            recording.events += 1

    def _variables(self, session: Any, plan: Plan) -> Mapping[str, Any]:
        """What the variables hold that the call may have written."""
        if plan.reader is None:
            return {}
        try:
            values = c_api.TF_SessionRunCallable(session._session, plan.reader, [], None)
        except errors.OpError as error:  # not initialized yet, or the session was closed meanwhile
            with self._recording.lock:
                self._recording.unseen(plan.name, "Session.run", f"its variables could not be read: {_line(error)}")
            return {}
        return {name: np.asarray(value) for name, value in zip(plan.read, values, strict=True)}

    # --- plans ----------------------------------------------------------------------------------------------------

    def _lane(self, session: Any, plan: Plan) -> Lane | None:
        """A callable to run now; None where the disk has no room for what it would dump."""
        with self._lock:
            assert self._folders is not None
            if not self._folders.room_for(2 * plan.nbytes + SPARE_BYTES):
                return None
            return plan.lanes.pop() if plan.lanes else self._new_lane(session, plan)

    def _new_lane(self, session: Any, plan: Plan) -> Lane:
        assert self._folders is not None and plan.layout is not None
        folder = self._folders.new()
        options = plan.signature.callable_options()
        watches = options.run_options.debug_options.debug_tensor_watch_opts
        for node, slot in [*plan.layout.watched, *((condition, 0) for condition in plan.layout.conditions)]:
            watches.add(node_name=node, output_slot=slot, debug_ops=[DEBUG_OP], debug_urls=[f"file://{folder}"])
        handle = _callable(session, options)
        session_dumps.clear(folder)  # the graphs once more
        return Lane(handle, folder)

    def _plan(self, session: Any, signature: Signature) -> Plan:
        with self._lock:
            known = self._known.get(session)
            if known is None:
                user = UserGraph(session.graph, self._recording.stacks.of_frames)
                known = self._known[session] = _Known(self._numbers, user)
                self._numbers += 1
            plan = known.plans.get(signature)
            if plan is None:
                with self._recording.muted():
                    plan = known.plans[signature] = self._make(session, known, signature)
            return plan

    def _make(self, session: Any, known: _Known, signature: Signature) -> Plan:
        plan = Plan(signature, signature.name)
        options = signature.callable_options()
        if getattr(session, "_target", b""):
            plan.reason = "it runs in another process"
            return plan
        if options.run_options.debug_options.debug_tensor_watch_opts:
            plan.reason = "the program watches it with TensorFlow's debugger"
            return plan
        try:
            self._prepare()
            assert self._folders is not None
            folder = self._folders.new()
            options.run_options.debug_options.debug_tensor_watch_opts.add(
                node_name="*", output_slot=-1, debug_ops=[DEBUG_OP], debug_urls=[f"file://{folder}"]
            )
            try:
                _release(session, _callable(session, options))
            finally:
                graphs = session_dumps.take_graphs(folder)
            if not graphs:
                raise executed.NotToBeHad("TensorFlow did not hand out the executed graph")
            graph = executed.joined(graphs)
            plan.layout = session_graph.layout(graph, known.user, signature.feeds, known.number)
            self._find_reads(session, known, plan)
            plan.lanes.append(self._new_lane(session, plan))
        except (executed.NotToBeHad, controlflow.Unsupported, errors.OpError) as error:
            plan.reason, plan.layout = _line(error), None  # an error of the program's own: the plain call raises it
            return plan
        with self._recording.lock:
            self._register(plan, known)
        return plan

    def _prepare(self) -> None:
        if self._folders is None:
            folders = Folders()
            if not session_dumps.lift_disk_limit(folders.new()):
                folders.close()
                raise executed.NotToBeHad("TensorFlow's debugger does not dump into files here")
            self._folders = folders

    def _find_reads(self, session: Any, known: _Known, plan: Plan) -> None:
        assert plan.layout is not None
        tensors = {}
        for variable in dict.fromkeys(write.variable for write in plan.layout.writes):
            tensor = known.user.reads(variable)
            if tensor is not None:
                tensors[variable] = tensor
        if tensors:
            plan.reader = _callable(session, config_pb2.CallableOptions(fetch=list(tensors.values())))
            plan.read = tuple(tensors)

    def _register(self, plan: Plan, known: _Known) -> None:
        """Write the graph, its sites and its constants into the trace."""
        recording, writer, layout = self._recording, self._recording.writer, plan.layout
        assert layout is not None
        nodes = [*layout.nodes]
        arguments = {node.index: local for local, node in enumerate(nodes) if node.op == "_Arg"}
        for index, feed in enumerate(plan.signature.feeds):  # those that the optimizer found unused
            if index not in arguments:
                arguments[index] = len(nodes)
                nodes.append(Node(name=feed.removesuffix(":0"), op="_Arg", index=index))
        structure = digest.of_text(plan.name, [(n.name, n.op, n.attrs, n.inputs, n.index) for n in nodes])
        signature = plan.signature
        raw = f"{list(signature.feeds)} -> {list(signature.fetches)}, {list(signature.targets)}"
        plan.graph = writer.graph(plan.name, raw, GraphKind.TWIN, structure, nodes)
        for index, feed in enumerate(signature.feeds):
            dtype = layout.protos[arguments[index]].attr["T"].type if arguments[index] < len(layout.protos) else 0
            if dtype in (digest.DT_RESOURCE, digest.DT_VARIANT):
                plan.arguments.append(-1)
                plan.hosts.append((-1, -1))
                continue
            plan.arguments.append(writer.sites(plan.graph, [(arguments[index], 0, SiteKind.ARG, dtype)]))
            plan.hosts.append(self._host_graph(known, feed, dtype))
        for key, (local, dtype) in layout.watched.items():
            plan.sites[key] = writer.sites(plan.graph, [(local, key[1], SiteKind.OUTPUT, dtype)])
        wants = recording.policy.wants
        plan.wanted = frozenset(key for key in plan.sites if wants(f"{plan.name}/{key[0]}"))
        self._register_writes(plan)
        for local, node in enumerate(layout.protos):
            if node.op in ("Const", "HostConst"):
                self._constant(plan, local, node)
        for local, why in layout.unseen:
            recording.unseen(nodes[local].name, nodes[local].op, why, nodes[local].stack)
        for condition in layout.conditions:
            if _parallel(known.user, layout, condition):
                recording.unseen(layout.conditions[condition][-1], "Enter", session_graph.LOOP)

    def _register_writes(self, plan: Plan) -> None:
        recording, layout = self._recording, plan.layout
        assert layout is not None
        for write in layout.writes:
            node = layout.nodes[write.node]
            reason = ""
            if write.proof is not None:
                pass
            elif write.variable not in plan.read:
                reason = f"the graph has no op that reads {write.variable}"
            elif not write.last:
                reason = f"{write.variable} is written again in the same call"
            elif write.witnesses == ():
                reason = f"whether it wrote {write.variable} cannot be told"
            if reason:
                recording.unseen(node.name, node.op, reason, node.stack)
                continue
            row = write.node, write.position, SiteKind.WRITE, write.dtype
            plan.writes.append((recording.writer.sites(plan.graph, [row]), write))

    def _host_graph(self, known: _Known, feed: str, dtype: int) -> tuple[int, int]:
        """The graph and site of values that Python feeds: named after what they are fed to."""
        name = feed.removesuffix(":0")
        op = known.user.op(feed.partition(":")[0])
        stack = known.user.stack(op) if op is not None else 0
        op_type = op.type if op is not None else "Placeholder"
        node = Node(name=name, op=op_type, stack=stack, flags=NodeFlag.HOSTVALUE, attrs=digest.of_text(dtype))
        structure = digest.of_text("feed", name, dtype)
        graph = self._recording.writer.graph(name, name, GraphKind.EAGER, structure, [node])
        return graph, self._recording.writer.sites(graph, [(0, 0, SiteKind.OUTPUT, dtype)])

    def _constant(self, plan: Plan, local: int, node: Any) -> None:
        dtype = node.attr["dtype"].type
        site = self._recording.writer.sites(plan.graph, [(local, 0, SiteKind.CONST, dtype)])
        try:
            array = np.asarray(tensor_util.MakeNdarray(node.attr["value"].tensor))
        except Exception:  # a variant or another type that NumPy has none for
            self._recording.unseen(node.name, node.op, f"dtype {dtype}")
            return
        self._recording.array_event(NO_CALL, site, array, f"{plan.name}/{node.name}")


def _signature(
    options: Any, feed_dict: Mapping[Any, Any], fetch_list: Sequence[Any], target_list: Sequence[Any]
) -> Signature:  # fmt: skip
    ends = (feed_dict, fetch_list)
    feeds, fetches = (tuple(f"{c_api.TF_OperationName(end.oper)}:{end.index}" for end in part) for part in ends)
    targets = tuple(c_api.TF_OperationName(target) for target in target_list)
    return Signature(feeds, fetches, targets, c_api.TF_GetBuffer(options) if options else b"")


def _callable(session: Any, options: Any) -> Any:
    """A callable's handle. `BaseSession._Callable` is not used: it would keep the session alive."""
    session._extend_graph()
    buffer = c_api.TF_NewBufferFromString(options.SerializeToString())
    try:
        return c_api.TF_SessionMakeCallable(session._session, buffer)
    finally:
        c_api.TF_DeleteBuffer(buffer)


def _release(session: Any, handle: Any) -> None:
    with contextlib.suppress(Exception):
        if session._session is not None and not session._closed:
            c_api.TF_SessionReleaseCallable(session._session, handle)


def _parallel(user: UserGraph, layout: Layout, condition: str) -> bool:
    """Whether a loop runs several iterations at once in the plain run."""
    frame = layout.conditions[condition]
    for node in layout.protos:
        if node.op in ("Enter", "RefEnter") and layout.frames[node.name] == frame:
            op = user.find(node.name)
            if op is not None and any(name == "parallel_iterations" for name in op.node_def.attr):
                return int(op.get_attr("parallel_iterations")) > 1
    return True


def _line(error: Exception) -> str:
    text = error.message if isinstance(error, errors.OpError) else str(error)
    return str(text).splitlines()[0][:200] if text else type(error).__name__
