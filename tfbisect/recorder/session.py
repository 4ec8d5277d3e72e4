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
from typing import Any

import numpy as np
from tensorflow.core.protobuf import config_pb2
from tensorflow.python.client import pywrap_tf_session as c_api
from tensorflow.python.framework import errors

from tfbisect.errors import first_line
from tfbisect.model import CallState
from tfbisect.recorder import (
    controlflow,
    digest,
    executed,
    session_dumps,
    session_graph,
    session_loops,
    session_memory,
    session_plan,
    session_probe,
)
from tfbisect.recorder.policy import AUTO_TENSOR_BYTES, LARGEST
from tfbisect.recorder.recording import CALLBACK_THREAD, Recording
from tfbisect.recorder.session_dumps import DEBUG_OP, Dump, Folders, Output
from tfbisect.recorder.session_graph import UserGraph
from tfbisect.recorder.session_loops import Path
from tfbisect.recorder.session_memory import Memory, Unavailable
from tfbisect.recorder.session_plan import Lane, Plan, Signature

Plain = Callable[..., Any]
SPARE_BYTES = 256 * 2**20  # disk space that stays free beyond twice what the last call of its kind dumped
SCALAR = 8  # bytes that are kept of what a loop or branch depends on
THROUGH = "seen through TensorFlow's debug nodes, one loop iteration at a time,"
FILES, IN_MEMORY = "by way of files: ", "in memory (tried beforehand in a process of its own)"
METADATA = "the run metadata that the program asked for shows the recorder's own nodes"
_QUEUE_RUNNER = "QueueRunnerThread-"  # how tf.compat.v1.train.QueueRunner names its threads


@dataclass(slots=True)
class _Known:
    """What is known of one session."""

    user: UserGraph
    plans: dict[Signature, Plan] = field(default_factory=dict)


@dataclass(slots=True)
class _Result:
    """What a call left behind."""

    dumps: list[Dump]
    paths: list[Path | None]
    variables: Mapping[str, Any]


class SessionRecorder:
    """Runs the calls of sessions watched and turns what is dumped into events."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._known: weakref.WeakKeyDictionary[Any, _Known] = weakref.WeakKeyDictionary()
        self._numbers = 0
        self._lock = threading.RLock()
        self._folders: Folders | None = None
        self._memory: Memory | None = None
        self._own_step = -1

    def release(self) -> None:
        """The recording is over: the callables and the folder go."""
        with self._lock:
            for session, known in list(self._known.items()):
                for plan in known.plans.values():
                    handles = [lane.handle for lane in plan.lanes] + ([plan.reader] if plan.reader is not None else [])
                    for inbox in (lane.inbox for lane in plan.lanes if lane.inbox is not None):
                        inbox.open = False
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
            signature = session_plan.signature_of(options, feed_dict, fetch_list, target_list)
            plan = self._plan(session, signature)
            self._mark_step(plan)
            lane = self._lane(session, plan) if recording.live and not plan.reason else None
            if not recording.live:
                pass  # outside the window that is recorded
            elif lane is None:
                with recording.lock:
                    recording.unseen(plan.name, "Session.run", plan.reason or "the disk has no room for its dumps")
            elif run_metadata is not None:
                with recording.lock:
                    recording.unseen(plan.name, "Session.run", METADATA)
        except Exception as error:
            recording.fail("preparing Session.run", error)
        if plan is None or lane is None:
            return self._told(plain(session, options, feed_dict, fetch_list, target_list, run_metadata))
        values = list(feed_dict.values())
        call, step = self._begin(plan, values)
        state = CallState.FAILED
        try:
            with recording.open_call(call):
                outputs = c_api.TF_SessionRunCallable(session._session, lane.handle, values, run_metadata)
            state = CallState.OK
            return self._told([_own(value) for value in outputs])
        finally:
            self._end(session, plan, lane, call, step, state)

    def _mark_step(self, plan: Plan) -> None:
        """A call that trains begins a step, unless the program marks steps itself."""
        recording = self._recording
        mine = recording.step == self._own_step
        if plan.layout is not None and plan.layout.trains and mine and not _in_queue_runner():
            recording.mark_step(True)
            self._own_step = recording.step

    def _told(self, outputs: Any) -> Any:
        """The outputs back; whoever takes digests of the state hears of them."""
        if self._recording.watch is not None:
            self._recording.watch.fetched(outputs)
        return outputs

    def _begin(self, plan: Plan, values: Sequence[Any]) -> tuple[int, int]:
        """Record what is fed; -> (call, step)."""
        recording = self._recording
        with recording.lock:
            try:
                thread, step = recording.thread(), -1 if _in_queue_runner() else recording.step
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
            variables = self._variables(session, plan) if recording.active else {}
            dumps = lane.take() if recording.active else []
            if lane.inbox is None:
                plan.nbytes = sum(dump.nbytes for dump in dumps)
            with self._lock:
                plan.lanes.append(lane)
            if not recording.active:
                return self.release()  # it ended while this call ran
            assert plan.layout is not None
            paths = session_loops.iterations(plan.layout.loops, dumps, state == CallState.OK)
            result = _Result(dumps, paths, variables)
            stack = recording.stacks.here(2)
            with recording.lock:
                if recording.active:
                    self._append(plan, call, step, state, result, stack)
        except Exception as error:
            recording.fail(f"results of {plan.name}", error)

    def _append(self, plan: Plan, call: int, step: int, state: CallState, result: _Result, stack: int) -> None:
        recording, writer = self._recording, self._recording.writer
        ran: dict[Output, Path] = {}
        proofs: dict[Output, list[tuple[Dump, Path]]] = {
            write.proof: [] for _site, write in plan.writes if write.proof is not None
        }
        for dump, path in zip(result.dumps, result.paths, strict=True):
            key = dump.node, dump.slot
            site = plan.sites.get(key, -1)
            if site < 0 and key not in proofs:
                continue
            if path is None:
                recording.unseen(dump.node, "", "its loop iteration could not be told")
                continue
            ran[key] = path
            if key in proofs:
                proofs[key].append((dump, path))
            if site < 0:
                continue
            kept = 0
            if key in plan.wanted and dump.dtype != digest.DT_STRING and recording.policy.admits(dump.nbytes):
                kept = writer.offered(dump.data) if dump.data is not None else 0
            writer.event(call, site, writer.iteration(path), writer.shape(dump.shape), dump.digest, kept)
            recording.events += 1
        self._append_writes(plan, call, ran, result.variables, proofs)
        thread = recording.thread()
        # which of a queue's threads makes which call is a matter of chance
        number = CALLBACK_THREAD if _in_queue_runner() else thread.number
        writer.call(call, plan.graph, number, state, recording.parent(thread), step, stack)
        recording.flush()

    def _append_writes(
        self, plan: Plan, call: int, ran: Mapping[Output, Path], variables: Mapping[str, Any],
        proofs: Mapping[Output, list[tuple[Dump, Path]]],
    ) -> None:  # fmt: skip
        """What the variables hold now is what the last op wrote."""
        recording, writer = self._recording, self._recording.writer
        for site, write in plan.writes:
            if write.proof is not None:
                for dump, at in proofs.get(write.proof, ()):
                    writer.event(call, site, writer.iteration(at), writer.shape(dump.shape), dump.digest)
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
                kept = writer.offered(value.tobytes())
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
            why = f"its variables could not be read: {first_line(error)}"
            with self._recording.lock:
                self._recording.unseen(plan.name, "Session.run", why)
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
        folder, inbox = self._folders.new(), None
        if self._memory is not None and plan.layout.on_host:
            limit = LARGEST if self._recording.policy.wants_large else AUTO_TENSOR_BYTES
            scalars = dict.fromkeys((*plan.layout.loops.needed, *plan.layout.loops.predicates.values()), SCALAR)
            inbox = self._memory.inbox({**scalars, **dict.fromkeys(plan.wanted, limit)})
        options = plan.signature.callable_options()
        watches = options.run_options.debug_options.debug_tensor_watch_opts
        for (node, slot), dtype in plan.layout.outputs.items():
            url = inbox.url if inbox is not None and dtype in session_memory.DTYPES else f"file://{folder}"
            watches.add(node_name=node, output_slot=slot, debug_ops=[DEBUG_OP], debug_urls=[url])
        handle = _callable(session, options)
        session_dumps.clear(folder)  # the graphs once more
        return Lane(handle, folder, inbox)

    def _plan(self, session: Any, signature: Signature) -> Plan:
        with self._lock:
            known = self._known.get(session)
            if known is None:
                user = UserGraph(session.graph, self._numbers, self._recording.stacks.of_frames)
                known = self._known[session] = _Known(user)
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
            plan.layout = session_graph.layout(graph, known.user, signature.feeds)
            self._find_reads(session, known, plan)
            wants = self._recording.policy.wants
            plan.wanted = frozenset(key for key in plan.layout.watched if wants(f"{plan.name}/{key[0]}"))
            plan.lanes.append(self._new_lane(session, plan))
        except (executed.NotToBeHad, controlflow.Unsupported, errors.OpError) as error:
            # an error of the program's own: the plain call raises it
            plan.reason, plan.layout = first_line(error), None
            return plan
        with self._recording.lock:
            session_plan.register(self._recording, plan, known.user)
        return plan

    def _prepare(self) -> None:
        if self._folders is None:
            folders = Folders()
            try:
                if not session_dumps.lift_disk_limit(folders.new()):
                    raise executed.NotToBeHad("TensorFlow's debugger does not dump into files here")
            except BaseException:
                folders.close()
                raise
            self._folders = folders
            self._choose_transport()

    def _choose_transport(self) -> None:
        """Dumps stay in memory where that was tried and worked; it is up to `session_probe` to say."""
        why = session_probe.usable()
        if not why:
            try:
                self._memory = Memory()
            except Unavailable as error:
                why = str(error)
        how = f"files ({why})" if why else "memory"
        with self._recording.lock:
            self._recording.writer.journal({"kind": "info", "run": {"options": {"sessions": how}}})
            self._recording.unseen("Session.run", "Session.run", f"{THROUGH} {FILES + why if why else IN_MEMORY}")

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


def _in_queue_runner() -> bool:
    """Whether the calling thread fills a queue of the program's."""
    return threading.current_thread().name.startswith(_QUEUE_RUNNER)


def _own(value: Any) -> Any:
    """A result that nothing else changes later.

    A callable hands out the buffer of a variable, feed or constant itself; `Session.run` copies one that is shared
    (python/client/tf_session_helper.cc: RunCallableHelper and TF_Run_wrapper_helper).
    """
    shared = isinstance(value, np.ndarray) and not value.flags.owndata and not value.dtype.hasobject
    return value.copy() if shared else value


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
