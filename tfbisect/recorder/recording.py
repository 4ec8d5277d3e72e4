"""One recording: the trace being written, ids, where tensors came from, and what could not be seen.

Hooks nothing and asks TensorFlow for nothing: `function` and `eager` do, and report here.
"""

import contextlib
import itertools
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tfbisect.model import CallState, GraphKind, Node, NodeFlag, SiteKind
from tfbisect.recorder import digest, stacks
from tfbisect.recorder.hooks import THREAD_NUMBER
from tfbisect.recorder.policy import ValuePolicy
from tfbisect.trace import TraceWriter

if TYPE_CHECKING:
    from tfbisect.recorder.entering import Entering
    from tfbisect.recorder.watch import Watch

FLUSH_SHARE = 0.05  # of the run's time may go into flushing, beyond the flush that the end of a step asks for
EARLIER_THREADS = 60000  # numbers of threads started before recording, in the order in which they do something
PRODUCER = "_tfbisect_producer"  # key in an eager tensor's __dict__: (recording, call, result) that made it
READ = "_tfbisect_read"  # key in an eager tensor's __dict__: the recording that knows that Python looked at it
EARLIER = -1  # in place of a call: an op or function, named instead of the result, made it outside the recorded steps
_tokens = itertools.count()  # tells recordings of one process apart
CALLBACK_THREAD = 65535  # TensorFlow's own threads, which run py_functions in any order


DATASET = "_tfbisect_dataset"  # key in the __dict__ of a dataset's variant tensor: its Dataset


@dataclass(frozen=True, slots=True)
class Dataset:
    """The op that made a dataset, its line and call (-1: not recorded), and the calls of all ops with a part in it."""

    op: str
    stack: int
    call: int
    ancestors: frozenset[int]


@dataclass(slots=True)
class Thread:
    """What is known of a Python thread. `muted`: what runs now is tfbisect's own."""

    number: int
    calls: list[int] = field(default_factory=list)  # open calls, outermost first
    muted: bool = False
    begun: int = -1  # the call of the eager py_function whose body ended last, which the op's callback is to tell of


class Recording:
    """State shared by the parts of the recorder. `lock` guards the trace; it is never held while user code runs."""

    def __init__(
        self, writer: TraceWriter, policy: ValuePolicy, program: str | None = None, outermost: int = 0
    ) -> None:  # fmt: skip
        self.writer, self.policy = writer, policy
        self.lock = threading.RLock()
        self.stacks = stacks.Stacks(stacks.UserCode(program), writer.stack, outermost)
        self.active = True  # False once recording has ended: rows are thrown away
        self.broken = False
        self.cheap = False  # no digests of ops whose bits their inputs decide
        self.live = True  # False outside the steps that are to be recorded: what runs is only followed
        self.ever_live = True  # False if nothing at all is recorded op by op
        self.watch: Watch | None = None  # hears of steps
        self.entering: Entering | None = None  # knows the variables, where somebody follows the steps
        self.step = -1  # the step the program is in; -1 for none
        self._steps = itertools.count()
        self._ids = itertools.count()
        self._token = next(_tokens)
        self._threads = threading.local()
        self._earlier_threads = itertools.count(EARLIER_THREADS)
        self._open: set[int] = set()
        self._opaque: dict[tuple[str, str, str, int], int] = {}
        self._host_graphs: dict[Any, tuple[int, int]] = {}
        self._entries: dict[str, int] = {}
        self._reads: list[tuple[int, int, int]] = []  # (moment, call, result), not yet in the journal
        self._flushed, self._flush_cost = time.monotonic(), 0.0
        self.events = 0
        self.function_users: dict[str, int] = {}  # function inside tf.data -> call of the op that made its dataset

    def mark_step(self, begins: bool) -> None:
        """The program says that a step begins, or that none is under way any more."""
        self.step = next(self._steps) if begins else -1
        if self.watch is not None:
            self.watch.marked(self.step)

    # --- threads and ids ------------------------------------------------------------------------------------------

    def thread(self) -> Thread:
        """The calling thread's record: 0 is the main thread, others count as they were started."""
        try:
            return self._threads.record  # type: ignore[no-any-return]
        except AttributeError:
            current = threading.current_thread()
            if current is threading.main_thread():
                number = 0
            elif type(current).__name__ == "_DummyThread":  # not started by Python
                number = CALLBACK_THREAD
            else:
                number = getattr(current, THREAD_NUMBER, None) or next(self._earlier_threads)
            record = Thread(number)
            self._threads.record = record
            return record

    @contextlib.contextmanager
    def muted(self) -> Iterator[Thread]:
        """While this runs, nothing that the calling thread does is recorded."""
        thread = self.thread()
        before, thread.muted = thread.muted, True
        try:
            yield thread
        finally:
            thread.muted = before

    def new_call(self) -> int:
        """An id for a call that starts now: ids order calls by their start."""
        return next(self._ids)

    def parent(self, thread: Thread) -> int:
        """The call in which this thread runs; in a thread of TensorFlow's the only open one, else -1 (unknown)."""
        if thread.calls:
            return thread.calls[-1]
        if thread.number == CALLBACK_THREAD and len(self._open) == 1:
            return next(iter(self._open))
        return -1

    @contextlib.contextmanager
    def open_call(self, call: int) -> Iterator[None]:
        """While the call runs, calls started by this thread are its children."""
        thread = self.thread()
        thread.calls.append(call)
        self._open.add(call)
        try:
            yield
        finally:
            self._open.discard(call)
            thread.calls.pop()

    @contextlib.contextmanager
    def python_op(self) -> Iterator[None]:
        """While the body of an eager py_function runs: its ops are recorded before it, as calls inside it."""
        thread = self.thread()
        if not self.active or thread.muted:
            yield
            return
        call = self.new_call()
        with self.open_call(call):
            yield
        thread.begun = call

    def begun(self, thread: Thread) -> int:
        """The call of an eager py_function that has just run; a new one if its body was not seen."""
        call, thread.begun = thread.begun, -1
        return call if call >= 0 else self.new_call()

    # --- where values come from -------------------------------------------------------------------------------------

    def produced(self, tensor: Any, call: int, result: int) -> None:
        """Remember that an eager tensor is a result of a call. The tensor itself does: what is known goes with it."""
        tensor.__dict__[PRODUCER] = (self._token, call, result)

    def made_earlier(self, tensor: Any, maker: str) -> None:
        """Remember that an op or function made an eager tensor outside the steps that are recorded."""
        tensor.__dict__[PRODUCER] = (self._token, EARLIER, maker)

    def is_known(self, tensor: Any) -> bool:
        """Whether it is known which call made an eager tensor."""
        known = tensor.__dict__.get(PRODUCER)
        return known is not None and known[0] == self._token

    def producer(self, tensor: Any, thread: Thread, taker: str, stack: int) -> tuple[int, int]:
        """(call, result) that made an eager tensor.

        One that no recorded call made is a value that Python handed in (`tf.constant`, a NumPy array), or a resource
        that was there before: it gets a call of its own, which carries the op type and line of the first op to take it.
        """
        known = tensor.__dict__.get(PRODUCER)
        if known is None or known[0] != self._token:
            maker = self._entry if tensor.dtype.as_datatype_enum == digest.DT_RESOURCE else self._host_value
            known = tensor.__dict__[PRODUCER] = (self._token, maker(tensor, thread, taker, stack), 0)
        elif known[1] == EARLIER and self.entering is not None:
            call = self.entering.value(tensor, thread, taker, stack, known[2])
            if tensor.__dict__.get(READ) == self._token:  # before the recorded steps, so before this call
                self._reads.append((call, call, 0))
            known = tensor.__dict__[PRODUCER] = (self._token, call, 0)
        return known[1], known[2]

    def read(self, tensor: Any) -> None:
        """Python looks at an eager tensor's value; the first time is kept. Nothing escapes from it."""
        try:
            known = tensor.__dict__.get(PRODUCER)
            if not self.active or known is None or known[0] != self._token or self.thread().muted:
                return
            if tensor.__dict__.get(READ) != self._token:
                tensor.__dict__[READ] = self._token
                if known[1] != EARLIER:
                    self._reads.append((self.new_call(), known[1], known[2]))
        except Exception as error:
            self.fail("a tensor that Python looked at", error)

    def _write_reads(self) -> None:
        reads, self._reads = self._reads, []
        if reads:
            self.writer.journal({"kind": "reads", "rows": reads})

    def _entry(self, tensor: Any, thread: Thread, taker: str, stack: int) -> int:
        """A resource that was made before recording, or by something unseen: named by what it holds and its order."""
        data = getattr(tensor, "_handle_data", None)
        held = ""
        if data is not None and data.is_set:
            shape_and_type = data.shape_and_type[0]
            dims = [dim.size for dim in shape_and_type.shape.dim]
            held = f" dtype {shape_and_type.dtype} shape {dims}"
        count = self._entries[held] = self._entries.get(held, -1) + 1
        node = Node(name=f"resource{held} #{count}", op="VarHandleOp" if held else "Resource", stack=0)
        structure = digest.of_text("entry", node.name)
        graph = self.writer.graph(node.name, node.name, GraphKind.ENTRY, structure, [node])
        call = self.new_call()
        self.writer.call(call, graph, thread.number, CallState.OK, self.parent(thread), self.step, 0)
        return call

    def element(self, dataset: Dataset, array: np.ndarray, dtype: int, value: int) -> int:
        """The call of a dataset's element that no recorded op made; `value` is its digest."""
        graph, site = self._host_graph(dataset.op, dataset.stack, dtype)
        call = self.new_call()
        if dataset.call >= 0:
            self.writer.link(call, 0, dataset.call, 0)
        self.array_event(call, site, array, f"{dataset.op} element", value)
        self.writer.call(call, graph, CALLBACK_THREAD, CallState.OK, -1, -1, dataset.stack)
        return call

    def _host_value(self, tensor: Any, thread: Thread, taker: str, stack: int) -> int:
        graph, site = self._host_graph(taker, stack, tensor.dtype.as_datatype_enum)
        call = self.new_call()
        self.array_event(call, site, array_of(tensor), f"{taker} host value")
        self.writer.call(call, graph, thread.number, CallState.OK, self.parent(thread), self.step, stack)
        return call

    def _host_graph(self, taker: str, stack: int, dtype: int) -> tuple[int, int]:
        """(graph, site) of values that Python, or a dataset, hands to an op at a line."""
        key = taker, stack, dtype
        known = self._host_graphs.get(key)
        if known is None:
            flags = NodeFlag.HOSTVALUE
            node = Node(name=taker, op=taker, stack=stack, flags=flags, attrs=digest.of_text(key[2]))
            structure = digest.of_text("host value", taker, key[2])
            graph = self.writer.graph(taker, taker, GraphKind.EAGER, structure, [node])
            site = self.writer.sites(graph, [(0, 0, SiteKind.OUTPUT, key[2])])
            known = self._host_graphs[key] = graph, site
        return known

    # --- events -----------------------------------------------------------------------------------------------------

    def array_event(self, call: int, site: int, array: np.ndarray | None, label: str, known: int | None = None) -> int:
        """Append the event of a value that lies on the host; -> its digest (0 when it cannot be had)."""
        if array is None:
            return 0
        value = digest.of_array(array) if known is None else known
        kept = 0
        if not array.dtype.hasobject and self.policy.wants(label) and self.policy.admits(array.nbytes):
            kept = self.writer.offered(digest.bytes_of(array))
        self.writer.event(call, site, 0, self.writer.shape(array.shape), value, kept)
        self.events += 1
        return value

    def unseen(self, name: str, op_type: str, reason: str, stack: int = 0, count: int = 1) -> None:
        """Count something that ran and could not be recorded."""
        key = name, op_type, reason, stack
        self._opaque[key] = self._opaque.get(key, 0) + count

    # --- the file ---------------------------------------------------------------------------------------------------

    def flush(self, force: bool = False) -> None:
        """Make what was recorded safe from a crash, unless flushing would take more than its share of the time."""
        now = time.monotonic()
        if force or now - self._flushed >= self._flush_cost / FLUSH_SHARE:
            self._write_reads()
            self.writer.flush()
            self._flushed = time.monotonic()
            self._flush_cost = self._flushed - now

    def fail(self, where: str, error: BaseException) -> None:
        """An error of tfbisect's own: the trace ends here, the program goes on."""
        self.give_up(f"{where}: {type(error).__name__}: {error}", "recording stopped")

    def give_up(self, reason: str, said: str) -> None:
        """The rest cannot be recorded: the trace ends here and says why, the program goes on."""
        with self.lock:
            if self.broken or not self.active:
                return
            self.broken, self.active = True, False
            say(f"{said}, the program goes on: {reason}")
            with contextlib.suppress(Exception):
                self._end("incomplete", None, reason)

    def close(self, exit_status: int | None, reason: str | None = None, status: str = "complete") -> None:
        """End the trace. Nothing escapes from it: what could not be written is said once."""
        with self.lock:
            if self.active:
                self.active = False
                try:
                    self._end(status, exit_status, reason)
                except Exception as error:
                    self.broken = True
                    say(f"the end of the trace could not be written: {error}")

    def _end(self, status: str, exit_status: int | None, reason: str | None) -> None:
        for (name, op_type, why, _stack), count in self._opaque.items():
            entry = {"kind": "opaque", "name": name, "op_type": op_type, "reason": why, "count": count, "source": None}
            self.writer.journal(entry)
        for what, count in self.policy.dropped.items():
            self.writer.journal({"kind": "dropped", "what": what, "count": count})
        self._write_reads()
        self.writer.journal({"kind": "end", "status": status, "exit": exit_status, "reason": reason})
        self.writer.close()


def say(what: str) -> None:
    """Print a warning of tfbisect's own."""
    with contextlib.suppress(Exception):  # standard error can be closed, or full
        print(f"tfbisect: {what}"[:500], file=sys.stderr)


def array_of(tensor: Any) -> np.ndarray | None:
    """An eager tensor's value on the host, without a copy where it already lies there; None when it has none."""
    try:
        array = tensor._numpy_internal()
    except Exception:  # a variant, a resource, a packed tensor
        return None
    return array if isinstance(array, np.ndarray) else np.asarray(array)
