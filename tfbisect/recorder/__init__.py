"""The tracer: records what TensorFlow runs in this process into a trace.

Compares nothing. Importing it imports neither TensorFlow nor numpy: a program that is recorded does so itself, after it
has set what must be set before.
"""

import atexit
import builtins
import contextlib
import importlib.machinery
import os
import sys
import threading
import traceback
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tfbisect.choices import ALL, EXPAND, OPAQUE, OPS, SUSPECTS, XLA
from tfbisect.errors import OutputExists, ProgramNotFound, Usage, printable
from tfbisect.recorder import private, treatment
from tfbisect.recorder.hooks import Hooks, Listener
from tfbisect.recorder.policy import ValuePolicy, pattern
from tfbisect.recorder.private import Part
from tfbisect.recorder.stacks import UserCode
from tfbisect.recorder.window import PLAIN, Window, Wish

if TYPE_CHECKING:
    from tfbisect.recorder.data import DataRecorder
    from tfbisect.recorder.eager import EagerRecorder
    from tfbisect.recorder.function import FunctionRecorder
    from tfbisect.recorder.recording import Recording
    from tfbisect.recorder.session import SessionRecorder
    from tfbisect.recorder.watch import Watch
    from tfbisect.tables import Trace
    from tfbisect.trace import TraceWriter

_current: "_Session | None" = None  # the one recording of this process


class _Begun(NamedTuple):
    """Where the user's code began a recording. frame: its `id`; the frame itself holds tensors, so it is not kept."""

    frame: int
    file: str
    function: str
    line: int


@dataclass(frozen=True, slots=True)
class _Request:
    """What is asked of a recording, see `record`. program: the file that runs as `__main__`, where we run one."""

    path: str | os.PathLike[str]
    values: str
    force: bool
    xla: str
    data: bool
    argv: Sequence[str]
    program: str | None
    wish: Wish
    fresh_streams: bool = False  # see `record_afresh`
    ops: str = ALL  # see `passed`


class _Session(Listener):
    """A recording from its request to its end. The file and TensorFlow's parts are made when TensorFlow first runs."""

    def __init__(self, request: _Request, begun: _Begun | None = None) -> None:
        self.path = Path(request.path)
        if self.path.exists() and not request.force:
            raise OutputExists(f"trace {self.path}", found="a file or folder of that name", expected="none")
        if not self.path.absolute().parent.is_dir():
            raise Usage(f"output {self.path}", found="no such folder", expected="an existing folder")
        if request.xla not in XLA:
            raise Usage("xla", found=request.xla, expected=" or ".join(XLA))
        if request.ops not in OPS:
            raise Usage("ops", found=request.ops, expected=" or ".join(OPS))
        pattern(request.values)
        self.wants_data = request.data
        self._request, self._wish, self._begun = request, request.wish, begun
        self._lock = threading.RLock()
        self._hooks = Hooks(self)
        self._pid = os.getpid()
        self._recording: Recording | None = None
        self._functions: FunctionRecorder | None = None
        self._eager: EagerRecorder | None = None
        self._sessions: SessionRecorder | None = None
        self._data: DataRecorder | None = None
        self._watch: Watch | None = None
        self._other: Trace | None = None  # the finished one to compare with
        self._before: frozenset[str] = frozenset()
        self.failed = False

    def start(self) -> None:
        """Begin. What this TensorFlow lacks costs what stands on it (`private`), and is said; it is no error."""
        if "tensorflow" in sys.modules:
            self.open()  # a file that cannot be written is an error now, not a warning later
            if self.failed:
                return
        context = getattr(sys.modules.get("tensorflow.python.eager.context"), "_context", None)
        if context is not None and context._context_handle is not None and not self._request.fresh_streams:
            self._before = frozenset(_text(name) for name in context.list_function_names())
        self._hooks.install()

    def stop(self, exit_status: int | None = None, reason: str | None = None) -> None:
        """End the trace and take the hooks out. A second call does nothing. Errors of tfbisect's own are only said."""
        with self._lock:
            if os.getpid() != self._pid or self.unopened:
                return
            try:
                recording = self.open()
            except Exception as error:
                return self._give_up(error)
            streams = self._functions is not None and self._functions.has_streams and not self._request.fresh_streams
            self._hooks.remove(keep_calls=streams)
            if recording.active:
                try:
                    if self._watch is not None and self._watch.stopped is None:
                        self._watch.finish()
                    self._tell_tensorflow(recording)
                except Exception as error:
                    recording.fail("the end of the program", error)
                whole = reason is None or self._wish.then_stop  # all that was to be recorded
                recording.close(exit_status, reason, "complete" if whole else "stopped")
            with contextlib.suppress(Exception):  # what was to be recorded is; these only free memory
                if self._functions is not None:
                    self._functions.release(streams=self._request.fresh_streams)
                if self._sessions is not None:
                    self._sessions.release()
                if self._data is not None:
                    self._data.release()

    @property
    def unopened(self) -> bool:
        """Whether the trace could not be made, as was said then."""
        return self.failed and self._recording is None

    @property
    def stopped(self) -> int | None:
        """The exit status that the program was ended with before its own end; None if it was not."""
        return self._watch.stopped if self._watch is not None else None

    @property
    def events(self) -> int:
        """How many values were recorded so far."""
        return self._recording.events if self._recording is not None else 0

    @property
    def summary(self) -> str:
        recording, events = self._recording, self.events
        note = " (incomplete: see the warning above)" if recording and recording.broken else ""
        compared = self._watch.compared if self._watch is not None else ""
        return f"trace {printable(self.path)}: {events:,} events{compared}{note}"

    def write_end_state(self, path: str) -> None:
        """Say what the program left behind; reading it is not recorded."""
        from tfbisect.recorder import endstate

        with self.open().muted():
            endstate.write(path)

    # --- the hooks' listener ------------------------------------------------------------------------------------

    def imported(self) -> None:
        try:
            if os.getpid() == self._pid and private.lacking():
                self.open()
        except Exception as error:
            self._give_up(error)

    def not_attached(self, error: Exception) -> None:
        if os.getpid() == self._pid:
            self._give_up(error)

    def call_function(
        self, context: Any, plain: Callable[..., Any], name: bytes, inputs: Sequence[Any], outputs: int
    ) -> Any:  # fmt: skip
        if os.getpid() != self._pid:
            return plain(context, name, inputs, outputs)
        if self.failed and self._functions is None:
            return plain(context, name, inputs, outputs)
        if self._functions is None:
            try:
                self._start_functions(context, plain)
            except Exception as error:
                self._give_up(error)
                return plain(context, name, inputs, outputs)
        try:
            if self._recording is None or self._recording.active:  # else only functions with random streams go on
                self._hooks.attach()
        except Exception as error:
            self._give_up(error)
        assert self._functions is not None
        if self._watch is not None:
            return self._watch.call(self._functions, context, name, inputs, outputs)
        return self._functions.call(name, inputs, outputs)

    def function_removed(self, context: Any, name: str) -> None:
        if os.getpid() != self._pid:
            return
        for part in (self._functions, self._data, self._watch):
            if part is not None:
                with contextlib.suppress(Exception):  # it is called from destructors
                    part.forget(name)

    def op_callback(self, *args: Any, **kwargs: Any) -> None:
        if kwargs.get("graph") is not None or os.getpid() != self._pid or self.failed:
            return
        if self._eager is None:
            try:
                self._start_eager()
            except Exception as error:
                self._give_up(error)
                return
        assert self._eager is not None
        self._eager(*args, **kwargs)

    def data_function(self, function: Any, dataset: Any) -> Any:
        context: Any = sys.modules["tensorflow.python.eager.context"]
        if os.getpid() != self._pid or self.failed:
            return function
        try:
            if not self.open().active:
                return function
        except Exception as error:
            self._give_up(error)
            return function
        if not context.executing_eagerly() or not hasattr(function, "captured_inputs"):
            name = str(getattr(function, "name", "function"))
            self.open().unseen(name, "tf.data function", "its dataset is made inside a function or graph")
            return function
        if self._data is None:
            try:
                self._start_data(context.context())
            except Exception as error:
                self._give_up(error)
                return function
        assert self._data is not None
        return self._data.replaced(function, dataset)

    def tensor_read(self, tensor: Any) -> None:
        if self._recording is not None and os.getpid() == self._pid:
            self._recording.read(tensor)

    def python_op(self) -> contextlib.AbstractContextManager[None]:
        if self._recording is None or os.getpid() != self._pid:
            return contextlib.nullcontext()
        return self._recording.python_op()

    def session_run(self, session: Any, plain: Callable[..., Any], *args: Any) -> Any:
        if os.getpid() != self._pid or self.failed:
            return plain(session, *args)
        if self._sessions is None:
            try:
                self._start_sessions()
            except Exception as error:
                self._give_up(error)
                return plain(session, *args)
        assert self._sessions is not None
        return self._sessions.run(session, plain, *args)

    def session_partial_run(self) -> None:
        if os.getpid() == self._pid and not self.failed:
            try:
                recording = self.open()
                with recording.lock:
                    recording.unseen("Session.partial_run", "Session.partial_run", "partial runs are left alone")
            except Exception as error:
                self._give_up(error)

    def session_unknown(self) -> None:
        if os.getpid() == self._pid and not self.failed:
            try:
                self.failed = True
                self.open().give_up(private.sentence(private.lacking(Part.SESSIONS)), "recording stopped")
            except Exception as error:
                self._give_up(error)

    def step(self, begins: bool = True) -> None:
        if os.getpid() == self._pid and not self.failed:
            try:
                self.open().mark_step(begins)
            except Exception as error:
                self._give_up(error)

    # --- parts, made on first use -----------------------------------------------------------------------------------

    def open(self) -> "Recording":
        with self._lock:
            if self._recording is None:
                from tfbisect.recorder import runinfo
                from tfbisect.recorder.recording import Recording

                request, steps = self._request, None
                if self._wish.window != Window():
                    steps = str(self._wish.window)
                policy = ValuePolicy(request.values)
                writer = self._writer(policy, steps)
                self._recording = Recording(
                    writer, policy, request.program, self._begun.frame if self._begun else 0
                )  # fmt: skip
                self._recording.cheap = request.ops == SUSPECTS
                options: dict[str, Any] = {"values": request.values, "xla": request.xla, "data": request.data}
                missing = private.lacking()
                if not any(name.part in (Part.ALL, Part.READS, Part.PYTHON) for name in missing):
                    options["reads"] = True
                if self._begun is not None:
                    options["begun"] = self._begun[1:]
                if steps is not None:
                    options["steps"] = steps
                if request.ops != ALL:
                    options["ops"] = request.ops
                run = runinfo.at_start(request.program, list(request.argv), options)
                writer.journal({"kind": "info", "run": run})
                writer.flush()
                if not self._wish.is_plain:
                    self._start_watch(self._recording)
                self._tell_missing(self._recording, missing)
            return self._recording

    def _tell_missing(self, recording: "Recording", missing: "Sequence[private.Name]") -> None:
        """Say once what this TensorFlow lacks and what that costs; end the trace where nothing can be recorded."""
        from tfbisect.recorder.recording import say

        vital = [name for name in missing if name.part == Part.ALL]
        if vital:
            self.failed = True
            recording.give_up(f"{private.sentence(vital)}; see python -m tfbisect doctor", Part.ALL.value)
            self._hooks.remove()
            return
        idle = {Part.SESSIONS, Part.RESTORING, *(() if self.wants_data else (Part.DATA,))}  # told where it is met
        missing = [name for name in missing if name.part not in idle]
        for name in missing:
            recording.unseen(name.short, name.short, f"{private.version()} has none: {name.part.value}")
        if missing:
            costs = "; ".join(dict.fromkeys(name.part.value for name in missing))
            say(f"{private.sentence(missing)}: {costs}; see python -m tfbisect doctor")

    def _writer(self, policy: "ValuePolicy", steps: str | None) -> "TraceWriter":
        from tfbisect.trace import TraceWriter, load

        if self._wish.against is None:
            return TraceWriter(self.path, force=self._request.force)
        from tfbisect.recorder import against

        self._other = against.other_run(load(self._wish.against), steps, self._request.ops)
        return against.ComparingWriter(self.path, self._other, policy, force=self._request.force)

    def _start_watch(self, recording: "Recording") -> None:
        from tfbisect.recorder import entering, state, watch

        recording.entering = entering.Entering(recording)
        keeper = None
        if self._wish.state:
            states = self._other.states if self._other is not None else None
            keeper = state.StateKeeper(recording, recording.entering, states)
        self._watch = watch.Watch(recording, self._wish, keeper, self._end_program)

    def _end_program(self, reason: str, status: int) -> None:
        self.stop(status, reason)

    def _start_eager(self) -> None:
        with self._lock:
            if self._eager is None:
                from tfbisect.recorder.eager import EagerRecorder

                self._eager = EagerRecorder(self.open())

    def _start_data(self, context: Any) -> None:
        with self._lock:
            if self._data is None:
                from tfbisect.recorder.data import DataRecorder

                context.ensure_initialized()
                self._data = DataRecorder(self.open(), context)

    def _start_functions(self, context: Any, plain: Callable[..., Any]) -> None:
        with self._lock:
            if self._functions is None:
                from tfbisect.recorder.function import FunctionRecorder

                self._functions = FunctionRecorder(
                    self.open(), context, plain, self._before, self._request.xla == EXPAND
                )

    def _start_sessions(self) -> None:
        with self._lock:
            if self._sessions is None:
                from tfbisect.recorder.session import SessionRecorder

                self._sessions = SessionRecorder(self.open())

    def _tell_tensorflow(self, recording: "Recording") -> None:
        """What TensorFlow was set up with, as it stands at the end: nothing is asked that would start it."""
        from tfbisect.recorder import runinfo

        run = runinfo.of_process()
        if run:
            with recording.lock:
                recording.writer.journal({"kind": "info", "run": run})

    def _give_up(self, error: Exception) -> None:
        """Recording, or a part of it, could not begin: say so once; the program goes on."""
        if not self.failed:
            self.failed = True
            if self._recording is None:
                with contextlib.suppress(Exception):  # standard error can be closed
                    print(f"tfbisect: nothing is recorded, the program goes on: {error}"[:500], file=sys.stderr)
            else:
                self._recording.fail("a part of the recorder", error)
            # functions with random streams go on as their twins: other kernels would draw other numbers
            self._hooks.remove(keep_calls=self._functions is not None and self._functions.has_streams)


@contextlib.contextmanager
def record(
    path: str | os.PathLike[str], *, values: str = "auto", force: bool = False, xla: str = OPAQUE,
    data: bool = False, steps: str | None = None, ops: str = ALL,
) -> Iterator[None]:  # fmt: skip
    """Record everything that TensorFlow runs inside the `with` block into a trace at `path`.

    values: which tensors are kept beside their digests: "none", "auto" (up to 4 KiB each, 256 MiB in all), "all" or a
    regular expression searched in `function/node` and `OpType at file.py:line`. force: replace an existing file. xla:
    "opaque" leaves functions that XLA compiles as they are, one event for each result; "expand" runs and records them
    op by op without XLA, which is another program and may give other bits. steps: "FIRST:LAST" records only these steps
    of the program op by op, without LAST; what runs in others runs as it is. ops: "suspects" takes no digests of ops
    whose bits their inputs decide (elementwise and exact), which costs less and names an op or those above it.

    Raises OutputExists, Usage. Errors of the block pass through; the trace is kept. A TensorFlow that lacks what
    recording stands on is told in a warning and in the trace; the block runs all the same.
    """
    wish = PLAIN if steps is None else Wish(Window.parse(steps))
    session = _begin(_Request(path, values, force, xla, data, sys.argv, None, wish, ops=ops), _caller())
    try:
        yield
    finally:
        _finish(session, None)


@contextlib.contextmanager
def record_afresh(path: str | os.PathLike[str], *, values: str = "auto") -> Iterator[Callable[[], int]]:
    """`record`, but functions with random streams of their own begin those anew, and leave the program's untouched.

    The twin of such a function has kernels of its own; here it goes with the recording. So the same call draws the same
    numbers each time it is recorded. The program continues its streams where they stood before. The block gets a
    function that tells how many values were recorded so far.
    """
    session = _begin(_Request(path, values, False, OPAQUE, False, sys.argv, None, PLAIN, fresh_streams=True))
    try:
        yield lambda: session.events
    finally:
        _finish(session, None)


def step() -> None:
    """Mark the beginning of a training step; without a mark, steps are found from what the program does."""
    if _current is not None:
        _current.step()


def run_program(
    path: str | os.PathLike[str], program: str | os.PathLike[str], args: Sequence[str], *, values: str = "auto",
    force: bool = False, xla: str = OPAQUE, data: bool = False, wish: Wish = PLAIN, ops: str = ALL,
) -> int:  # fmt: skip
    """Run an unchanged Python program as `__main__` in this process, recorded; -> its exit status.

    It sees its own `sys.argv`, `sys.path[0]` and `__file__`. An uncaught exception is shown as Python shows it and
    gives status 1. The trace is closed when the interpreter ends, after the program's own threads and exit handlers.

    Raises ProgramNotFound, OutputExists, Usage.
    """
    file = Path(program)
    if not file.is_file():
        raise ProgramNotFound(file, found="nothing there" if not file.exists() else "a folder")
    session = _begin(_Request(path, values, force, xla, data, [str(program), *args], str(file), wish, ops=ops))
    treatment.install_from_environment()
    status: list[int | None] = [None]

    def close() -> None:
        _finish(session, status[0])
        if not session.unopened:
            print(f"tfbisect: {session.summary}", file=sys.stderr)

    atexit.register(close)
    _close_before_hard_exit(session)
    ended = run_main(file, [str(program), *args])
    if session.stopped is not None:
        ended = session.stopped
    status[0] = ended
    if session.unopened:
        return ended
    if endstate := os.environ.get("TFBISECT_END_STATE"):
        session.write_end_state(endstate)
    session.open()  # where nothing ran TensorFlow: while the interpreter ends, h5py cannot be imported any more
    return ended


def _begin(request: _Request, begun: _Begun | None = None, kind: type[_Session] = _Session) -> _Session:
    global _current
    if _current is not None:
        raise Usage("record", found=f"a recording into {_current.path} that is still open", expected="one at a time")
    session = kind(request, begun)
    session.start()
    _current = session
    return session


def _caller() -> _Begun | None:
    """The user's frame that entered `with record(...)`."""
    frame: types.FrameType | None = sys._getframe(1)
    is_user = UserCode()
    while frame is not None and not is_user(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None:
        return None
    code = frame.f_code
    return _Begun(id(frame), code.co_filename, getattr(code, "co_qualname", code.co_name), frame.f_lineno)


def _finish(session: _Session, exit_status: int | None) -> None:
    global _current
    _current = None
    session.stop(exit_status)


def run_main(file: Path, argv: list[str]) -> int:
    """Execute a file as Python would: -> the exit status; tracebacks go to standard error without our frames."""
    name = str(file.absolute())
    main = types.ModuleType("__main__")
    main.__dict__.update(
        __file__=name, __builtins__=builtins, __spec__=None, __cached__=None, __annotations__={},
        __loader__=importlib.machinery.SourceFileLoader("__main__", name),
    )  # fmt: skip
    sys.modules["__main__"] = main
    sys.argv, sys.path[0] = argv, str(file.absolute().parent)
    try:
        exec(compile(file.read_bytes(), name, "exec", dont_inherit=True), main.__dict__)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except BaseException as error:
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
            trace = trace.tb_next
        error = error.with_traceback(trace)
        try:
            sys.excepthook(type(error), error, trace)
        except Exception:
            traceback.print_exception(type(error), error, trace)
        if isinstance(error, KeyboardInterrupt):
            return 130
        return 1
    return 0


def _close_before_hard_exit(session: _Session) -> None:
    """`os._exit` runs no exit handlers: the trace is closed first."""
    plain = os._exit

    def hard_exit(status: int) -> None:
        with contextlib.suppress(BaseException):
            if os.getpid() == session._pid and _current is session:
                _finish(session, status)
                print(f"tfbisect: {session.summary}", file=sys.stderr)
        plain(status)

    os._exit = hard_exit  # type: ignore[assignment]


def _text(name: bytes | str) -> str:
    return name.decode() if isinstance(name, bytes) else name
