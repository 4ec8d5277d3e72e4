"""The state that a computation starts from, saved and put back bit for bit, so that it can run again in one process.

Covered: every live variable (Keras weights, optimizer slots, metrics, seed generators and `tf.random.Generator`s are
variables), mutable tables, dataset iterators that TensorFlow can save, TensorFlow's own seed stream, and the random
generators of Python and NumPy. Variables that come to be in the first run get back what they were made with. What
cannot be put back is told in `remarks`. Other Python objects are left alone.

Private TensorFlow API used here, tried on 2.16.2, 2.18.1 and 2.21.0: `resource_variable_ops.BaseResourceVariable`,
`iterator_ops.OwnedIterator._iterator_resource`, `context._context`, `Context._seed / _rng / clear_kernel_cache`,
`EagerTensor._numpy_internal`, and the raw ops of variables, tables and iterators.
"""

import contextlib
import gc
import random
import threading
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tensorflow.python.data.ops import iterator_ops
from tensorflow.python.eager import context as tf_context
from tensorflow.python.framework import dtypes, ops
from tensorflow.python.ops import (
    gen_dataset_ops,
    gen_lookup_ops,
    gen_resource_variable_ops,
    lookup_ops,
    resource_variable_ops,
)

from tfbisect.errors import UnsupportedTensorFlow, first_line
from tfbisect.recorder import ops as optypes
from tfbisect.recorder import private
from tfbisect.recorder.handles import dtype_of
from tfbisect.recorder.hooks import Hooks, Listener
from tfbisect.recorder.reachable import reachable

_IGNORE_EXTERNAL_STATE = 1  # of an iterator: `tf.data.experimental.ExternalStatePolicy.IGNORE`
_SKIPPED_GENERATORS = (random.SystemRandom,)  # the system's: it has no state
_PYTHON_ITERATORS: tuple[type, ...] = (
    types.GeneratorType,
    enumerate,
    zip,
    map,
    filter,
    type(iter([])),
    type(iter(())),
    type(iter({})),
)


@dataclass(frozen=True, slots=True)
class _Saved:
    """A variable's bytes. `handle` keeps the variable alive; `array` is a copy of ours."""

    handle: Any
    dtype: Any
    array: np.ndarray

    def put_back(self) -> None:
        # A tensor made of an array may share its memory, and a variable may be written in place: so a copy each time.
        value = ops.EagerTensor(self.array.copy(), _host(), self.dtype.as_datatype_enum)
        gen_resource_variable_ops.assign_variable_op(self.handle, value)


class State:
    """What was saved. `remarks`: what cannot be put back, in words."""

    def __init__(self, roots: Iterable[Any]) -> None:
        """Save the state of the process, and of what `roots` (a callable, its arguments) lead to.

        Raises UnsupportedTensorFlow where TensorFlow lacks what recording or restoring needs.
        """
        if missing := private.lacking(private.Part.ALL, private.Part.RESTORING):
            raise UnsupportedTensorFlow("check", found=private.sentence(missing), expected=f"one of {private.TRIED}")
        self.remarks: list[str] = []
        self._variables: dict[int, _Saved] = {}  # by id of the handle
        self._others: list[Callable[[], None]] = []
        self.draws_eagerly = False  # eager ops with random streams ran: their kernels begin anew when put back
        found = list(reachable(roots))
        for variable in _live(resource_variable_ops.BaseResourceVariable, found):
            self._save_variable(getattr(variable, "_handle", None))
        for table in _live(lookup_ops.LookupInterface, found):
            self._save_table(table)
        for item in found:
            self._save_found(item)
        self._others.append(_seed_stream())
        self._others.append(_python_random(random._inst))
        self._others.append(_numpy_state(np.random.mtrand._rand))

    def put_back(self) -> None:
        """Everything is again as it was saved."""
        for saved in self._variables.values():
            saved.put_back()
        if self.draws_eagerly and tf_context._context is not None:
            tf_context._context.clear_kernel_cache()
        for action in self._others:
            action()

    @contextlib.contextmanager
    def adopting(self) -> Iterator[None]:
        """While this runs, variables that come to be are saved as they are first seen."""
        watch = _Watch(self)
        hooks = Hooks(watch)
        hooks.install()
        try:
            yield
        finally:
            hooks.remove()

    def knows(self, handle: Any) -> bool:
        return id(handle) in self._variables

    def adopt(self, handle: Any, array: np.ndarray | None = None) -> None:
        """Save a variable that is new, unless it holds nothing yet. array: its value, if it is known."""
        if not self.knows(handle):
            self._save_variable(handle, array)

    def _save_variable(self, handle: Any, array: np.ndarray | None = None) -> None:
        if not isinstance(handle, ops.EagerTensor):
            return  # of a graph that is being built, or of several devices: the parts have handles of their own
        held = dtype_of(handle)
        if not held:
            return
        dtype = dtypes.as_dtype(held)
        try:
            if array is None:
                if not bool(gen_resource_variable_ops.var_is_initialized_op(handle)._numpy_internal()):
                    return
                array = gen_resource_variable_ops.read_variable_op(handle, dtype)._numpy_internal()
            self._variables[id(handle)] = _Saved(handle, dtype, _copy(array))
        except Exception as error:
            why = first_line(error)
            self.remarks.append(f"a variable of {dtype.name} cannot be saved, so it is not put back: {why}")

    def _save_table(self, table: Any) -> None:
        if not isinstance(table, lookup_ops.MutableHashTable | lookup_ops.DenseHashTable):
            return  # the others are filled once
        handle = table.resource_handle
        if not isinstance(handle, ops.EagerTensor):
            return
        keys, values = gen_lookup_ops.lookup_table_export_v2(handle, table.key_dtype, table.value_dtype)
        self._others.append(lambda: gen_lookup_ops.lookup_table_import_v2(handle, keys, values))

    def _save_found(self, item: Any) -> None:
        if isinstance(item, iterator_ops.OwnedIterator):
            self._save_iterator(item)
        elif isinstance(item, random.Random) and not isinstance(item, _SKIPPED_GENERATORS):
            self._others.append(_python_random(item))
        elif isinstance(item, np.random.RandomState | np.random.Generator):
            self._others.append(_numpy_state(item))
        elif isinstance(item, _PYTHON_ITERATORS):
            self.remarks.append(
                f"a Python {type(item).__name__} cannot be put back: each run takes the next of its elements"
            )

    def _save_iterator(self, iterator: Any) -> None:
        handle = iterator._iterator_resource
        try:
            saved = gen_dataset_ops.serialize_iterator(handle, external_state_policy=_IGNORE_EXTERNAL_STATE)
        except Exception as error:
            self.remarks.append(
                f"a dataset iterator cannot be put back, each run takes its next elements: {first_line(error)}"
            )
            return
        self._others.append(lambda: gen_dataset_ops.deserialize_iterator(handle, saved))


class _Watch(Listener):
    """A listener of the hooks that shows the state each variable that it does not know yet, before it is changed."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._busy = threading.local()

    def call_function(
        self, context: Any, plain: Callable[..., Any], name: bytes, inputs: Sequence[Any], outputs: int
    ) -> Any:  # fmt: skip
        handles = [each for each in inputs if each.dtype == dtypes.resource and not self._state.knows(each)]
        self._adopt(handles)
        result = plain(context, name, inputs, outputs)
        self._adopt(handles)  # those that this function gave their first value
        return result

    def op_callback(self, op_type: Any, inputs: Sequence[Any], *args: Any, graph: Any = None, **kwargs: Any) -> None:
        if graph is not None or getattr(self._busy, "here", False):
            return
        op = op_type if isinstance(op_type, str) else op_type.decode()
        if op in optypes.RANDOM:
            self._state.draws_eagerly = True
        if op.startswith("__"):
            return  # a function, which `call_function` has seen
        array = inputs[1]._numpy_internal() if op == "AssignVariableOp" else None
        self._adopt([each for each in inputs if each.dtype == dtypes.resource], array)

    def _adopt(self, handles: Sequence[Any], array: np.ndarray | None = None) -> None:
        if not handles or getattr(self._busy, "here", False):
            return
        self._busy.here = True
        try:
            for handle in handles:
                self._state.adopt(handle, array)
        finally:
            self._busy.here = False

    def session_run(self, session: Any, plain: Callable[..., Any], *args: Any) -> Any:
        text = "variables of a v1 Session are not put back"
        if text not in self._state.remarks:
            self._state.remarks.append(text)
        return plain(session, *args)


def _live(kind: type, found: Sequence[Any]) -> list[Any]:
    """All live objects of a type; those that `gc.freeze` hides must be among what was found."""
    known = {id(item): item for item in found if issubclass(type(item), kind)}
    known.update((id(item), item) for item in gc.get_objects() if issubclass(type(item), kind))
    return list(known.values())


def _copy(value: Any) -> np.ndarray:
    """A copy of a tensor's value; a single string comes as bytes, which NumPy would cut at its last zeros."""
    return np.array(value, dtype=object) if isinstance(value, bytes) else np.array(value)


def _host() -> str:
    context = tf_context.context()
    context.ensure_initialized()
    return str(next(device for device in context.devices() if device.endswith("/device:CPU:0")))


def _seed_stream() -> Callable[[], None]:
    """What `tf.random.set_seed` set, and how far eager ops have drawn from it."""
    context = tf_context.context()
    seed, stream = context._seed, getattr(context, "_rng", None)
    state = stream.getstate() if stream is not None else None

    def put_back() -> None:
        context._seed = seed
        if stream is not None:
            stream.setstate(state)
            context._rng = stream

    return put_back


def _python_random(generator: random.Random) -> Callable[[], None]:
    state = generator.getstate()
    return lambda: generator.setstate(state)


def _numpy_state(generator: Any) -> Callable[[], None]:
    if isinstance(generator, np.random.RandomState):
        legacy = generator.get_state(legacy=False)
        return lambda: generator.set_state(legacy)
    bits, state = generator.bit_generator, generator.bit_generator.state

    def put_back() -> None:
        bits.state = state

    return put_back
