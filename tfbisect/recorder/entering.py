"""What enters the recorded steps from before: variables as they stand then, and tensors that were computed earlier.

A variable that was written before has no recorded write. Its bytes at the start of the window are recorded as the event
of an op of its own (`EnteringState`), so that a state that differs already is told from an op that makes it differ.

Private TensorFlow API used here, tried on 2.21.0: `record.stop_recording`.
"""

import itertools
import weakref
from typing import Any

from tensorflow.python.eager import record
from tensorflow.python.framework import errors
from tensorflow.python.ops import gen_resource_variable_ops

from tfbisect.model import ENTERING_STATE, CallState, Edge, GraphKind, Node, NodeFlag, SiteKind
from tfbisect.recorder import digest
from tfbisect.recorder.handles import dtype_of
from tfbisect.recorder.recording import Recording, Thread, array_of

_NUMBER = "_tfbisect_number"  # key in a handle's __dict__: (token of the recording, number of the resource)
_UNINITIALIZED = (errors.FailedPreconditionError, errors.NotFoundError, errors.InvalidArgumentError)


class Variable:
    """A variable's handle while the program keeps it, its number in the order of making, its name and maker's line."""

    __slots__ = ("handle", "name", "number", "stack")

    def __init__(self, handle: Any, number: int, name: str, stack: int) -> None:
        self.handle: weakref.ReferenceType[Any] = weakref.ref(handle)
        self.number, self.name, self.stack = number, name, stack


class Entering:
    """Knows all resources that were made while recording, and reads variables. The caller holds no user lock."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._variables: list[Variable] = []
        self._numbers = itertools.count()
        self._token = object()
        self._values: dict[Any, tuple[int, int]] = {}

    def register(self, handle: Any, name: str = "", stack: int = 0) -> Variable | None:
        """Remember a resource's handle; -> it, if it is one of a variable. name: what its maker calls it."""
        known: tuple[Any, Variable] | None = handle.__dict__.get(_NUMBER)
        if known is None or known[0] is not self._token:
            variable = Variable(handle, next(self._numbers), name, stack)
            known = handle.__dict__[_NUMBER] = self._token, variable
            self._variables.append(variable)
        return known[1] if dtype_of(handle) else None

    def read(self, variable: Variable) -> Any:
        """A variable's value as an array; None if it is gone or was not written yet. Runs one read op, unrecorded."""
        handle = variable.handle()
        dtype = dtype_of(handle) if handle is not None else 0
        if not dtype:
            return None
        try:
            with record.stop_recording():  # a gradient tape would keep what was read
                return array_of(gen_resource_variable_ops.read_variable_op(handle, dtype))
        except _UNINITIALIZED:
            return None

    def opened(self, skipped: Any = None) -> None:
        """Record what every living variable holds now, but for the one with the handle `skipped`."""
        recording = self._recording
        self._variables = [variable for variable in self._variables if variable.handle() is not None]
        with recording.muted() as thread, recording.lock:
            for variable in list(self._variables):
                if variable.handle() is not skipped:
                    array = self.read(variable)
                    if array is not None:
                        self._record(thread, variable, array)

    def _record(self, thread: Thread, variable: Variable, array: Any) -> None:
        recording, writer = self._recording, self._recording.writer
        handle = variable.handle()
        dtype = dtype_of(handle)
        source = recording.producer(handle, thread, ENTERING_STATE, variable.stack)
        name = variable.name or f"variable {variable.number}"
        nodes = [
            Node(name="variable", op="_Arg", index=0),
            Node(
                name=name, op=ENTERING_STATE, stack=variable.stack, inputs=(Edge(0, 0),),
                flags=NodeFlag.STATEFUL | NodeFlag.WRITER | NodeFlag.ENTERING,
            ),
        ]  # fmt: skip
        label = f"{ENTERING_STATE} #{variable.number}"  # what pairs it with the other run's
        structure = digest.of_text(label, name, dtype, array.shape)
        graph = writer.graph(label, label, GraphKind.EAGER, structure, nodes)
        site = writer.sites(graph, [(1, 0, SiteKind.WRITE, dtype)])
        call = recording.new_call()
        writer.link(call, 0, *source)
        recording.array_event(call, site, array, f"{ENTERING_STATE}/{name}")
        writer.call(
            call, graph, thread.number, CallState.OK, recording.parent(thread), recording.step, variable.stack
        )  # fmt: skip

    def value(self, tensor: Any, thread: Thread, taker: str, stack: int, maker: str) -> int:
        """Record a tensor that `maker`, an op or function, computed before the window; -> the call that stands for it.

        stack: the line of the op `taker`, which is the first to take it.
        """
        recording, writer = self._recording, self._recording.writer
        dtype = tensor.dtype.as_datatype_enum
        key = maker, taker, stack, dtype
        known = self._values.get(key)
        if known is None:
            node = Node(name=f"{maker} before the recorded steps", op=ENTERING_STATE, stack=stack,
                        attrs=digest.of_text(dtype), flags=NodeFlag.STATEFUL | NodeFlag.ENTERING)  # fmt: skip
            label = f"{ENTERING_STATE} {maker}"
            graph = writer.graph(label, label, GraphKind.EAGER, digest.of_text(label, dtype), [node])
            known = self._values[key] = graph, writer.sites(graph, [(0, 0, SiteKind.OUTPUT, dtype)])
        call = recording.new_call()
        recording.array_event(call, known[1], array_of(tensor), f"{ENTERING_STATE}/{maker}")
        writer.call(call, known[0], thread.number, CallState.OK, recording.parent(thread), recording.step, stack)
        return call
