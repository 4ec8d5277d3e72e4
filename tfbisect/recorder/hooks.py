"""The places where TensorFlow is hooked, and how the hooks come off again.

Imports no TensorFlow: where the program has not done so yet, hooks wait for its import. Records nothing itself. A name
that is not as `private` knows it is left alone; whoever listens asks there what is missing, and says so.

Private TensorFlow API used here, tried on 2.16.2, 2.18.1 and 2.21.0:
- `context.Context.call_function`: the one door through which Python runs any tf.function;
- `context.Context.remove_function`: a function that is garbage-collected takes its twin along;
- `context.Context.__init__`, `context._context` and `Context._thread_local_data.op_callbacks`: op callbacks are a list
  of each thread's;
- `execute.execute`, `execute.quick_execute`, `execute.execute_with_callbacks`: ops that do not take the fast path;
- `ops._EagerTensorBase._numpy`: what `numpy()`, `float()`, `bool()`, `print` and the like get a tensor's value by;
- `script_ops.EagerFunc.__call__`: the body of a py_function runs in threads that TensorFlow started;
- `session.BaseSession._call_tf_sessionrun`: the one door of `Session.run` and all that is built on it, but for
  `partial_run` (`_call_tf_sessionprun`), which is only counted;
- `structured_function.StructuredFunctionWrapper` (only where functions inside tf.data are recorded): its `function` is
  what a dataset runs;
- Keras (tried on 3.15): `CallbackList.on_train_batch_begin` and `on_train_end`, which say where a training step begins.
"""

import contextlib
import importlib
import importlib.abc
import importlib.machinery
import itertools
import sys
import threading
import types
from collections.abc import Callable, Sequence
from typing import Any

from tfbisect.recorder import private
from tfbisect.recorder.private import Part

TENSORFLOW = "tensorflow"
CONTEXT, EXECUTE = "tensorflow.python.eager.context", "tensorflow.python.eager.execute"
SCRIPT_OPS = "tensorflow.python.ops.script_ops"
OPS = "tensorflow.python.framework.ops"
SESSION = "tensorflow.python.client.session"
DATA = "tensorflow.python.data.ops.structured_function"
THREAD_NUMBER = "_tfbisect_number"  # an attribute of threads started while recording: the how manieth it is
KERAS_CALLBACKS = "keras.src.callbacks.callback_list"
PlainCall = Callable[[Any, bytes, Sequence[Any], int], Any]


class Listener:
    """What the hooks call. As it stands it lets everything go on as it would."""

    wants_data = False  # whether functions inside tf.data are to be recorded

    def imported(self) -> None:
        """Hears that the program has imported TensorFlow, whose hooks waited for that. Nothing has run yet."""

    def not_attached(self, error: Exception) -> None:
        """Hears that a thread's eager ops cannot be heard of."""

    def call_function(self, context: Any, plain: PlainCall, name: bytes, inputs: Sequence[Any], outputs: int) -> Any:
        """Runs a tf.function in TensorFlow's place."""
        return plain(context, name, inputs, outputs)

    def function_removed(self, context: Any, name: str) -> None:
        """Hears that a function is gone."""

    def data_function(self, function: Any, dataset: Any) -> Any:
        """Names the function that tf.data is to run in place of this one."""
        return function

    def tensor_read(self, tensor: Any) -> None:
        """Hears that Python looks at the value of an eager tensor."""

    def session_run(self, session: Any, plain: Callable[..., Any], *args: Any) -> Any:
        """Runs a call of a v1 Session in TensorFlow's place."""
        return plain(session, *args)

    def session_partial_run(self) -> None:
        """Hears of a `Session.partial_run`, which is not recorded."""

    def session_unknown(self) -> None:
        """Hears that a v1 Session is used, where TensorFlow's door to it is not known."""

    def step(self, begins: bool = True) -> None:
        """Hears that a training step begins, or that none is under way any more."""

    def op_callback(self, *args: Any, **kwargs: Any) -> None:
        """Hears of an eager op that has run."""

    def python_op(self) -> contextlib.AbstractContextManager[None]:
        """Hears that the body of an eager py_function runs, in the thread that ran the op."""
        return contextlib.nullcontext()


class Hooks:
    """Puts hooks into TensorFlow, at once or when it is imported; `remove` takes every one out again."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._undo: list[Callable[[], None]] = []
        self._undo_calls: Callable[[], None] | None = None
        self._lists: list[list[Any]] = []  # each thread's op callbacks
        self._finder: _Finder | None = None
        self._callback = listener.op_callback  # one object, so that it can be found again
        self._lock = threading.Lock()

    def install(self) -> None:
        """Hook what is imported already; the rest when it is imported."""
        waiting: dict[str, Callable[[types.ModuleType], None]] = {}
        module: Any
        patches = {
            CONTEXT: self._patch_context, SCRIPT_OPS: self._patch_script_ops, KERAS_CALLBACKS: self._patch_keras,
            SESSION: self._patch_session, OPS: self._patch_ops,
        }  # fmt: skip
        if TENSORFLOW not in sys.modules:
            waiting[TENSORFLOW] = lambda _: self._listener.imported()
        if self._listener.wants_data:
            patches[DATA] = self._patch_data
        for name, patch in patches.items():
            module = sys.modules.get(name)
            if module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False):
                patch(module)
            else:
                waiting[name] = patch
        if waiting:
            self._finder = _Finder(waiting)
            sys.meta_path.insert(0, self._finder)
        self._patch_threads()

    def remove(self, keep_calls: bool = False) -> None:
        """Take the hooks out. keep_calls: functions with random streams go on as their twins, so calls stay hooked."""
        if self._finder is not None:
            with contextlib.suppress(ValueError):
                sys.meta_path.remove(self._finder)
        attached = bool(self._lists)
        for callbacks in self._lists:
            with contextlib.suppress(ValueError):
                callbacks.remove(self._callback)
        self._lists.clear()
        execute: Any = sys.modules.get(EXECUTE)
        context: Any = sys.modules.get(CONTEXT)
        if attached:
            current = context._context
            if current is None or not current._thread_local_data.op_callbacks:
                execute.execute = execute.quick_execute
        for undo in reversed(self._undo):
            if not (keep_calls and undo is self._undo_calls):
                undo()
        self._undo = [self._undo_calls] if keep_calls and self._undo_calls else []

    # --- TensorFlow ---------------------------------------------------------------------------------------------

    def _patch_context(self, module: Any) -> None:
        if private.lacking(Part.ALL, module=CONTEXT):
            return
        cls: Any = module.Context
        plain_call, plain_init = cls.call_function, cls.__init__
        has_twins = not private.lacking(Part.FUNCTIONS, module=CONTEXT)  # else there is nothing to be removed
        plain_remove: Any = cls.remove_function if has_twins else None
        listener = self._listener

        def call_function(context: Any, name: bytes, tensor_inputs: Sequence[Any], num_outputs: int) -> Any:
            return listener.call_function(context, plain_call, name, tensor_inputs, num_outputs)

        def remove_function(context: Any, name: Any) -> None:
            plain_remove(context, name)
            listener.function_removed(context, name.decode() if isinstance(name, bytes) else name)

        def init(context: Any, *args: Any, **kwargs: Any) -> None:
            plain_init(context, *args, **kwargs)
            self._attach_or_tell(context)

        def undo_calls() -> None:
            cls.call_function = plain_call
            if has_twins:
                cls.remove_function = plain_remove

        def undo_init() -> None:
            cls.__init__ = plain_init

        cls.call_function, cls.__init__ = call_function, init
        if has_twins:
            cls.remove_function = remove_function
        self._undo_calls = undo_calls
        self._undo += [undo_calls, undo_init]
        if module._context is not None:
            self._attach_or_tell(module._context)

    def _patch_script_ops(self, module: Any) -> None:
        if private.lacking(Part.PYTHON, module=SCRIPT_OPS):
            return
        cls: Any = module.EagerFunc
        plain, listener = cls.__call__, self._listener

        def call(function: Any, *args: Any, **kwargs: Any) -> Any:
            self.attach()
            if not _in_eager_op(sys._getframe(1)):
                return plain(function, *args, **kwargs)
            with listener.python_op():
                return plain(function, *args, **kwargs)

        def undo() -> None:
            cls.__call__ = plain

        cls.__call__ = call
        self._undo.append(undo)

    def _patch_data(self, module: Any) -> None:
        if private.lacking(Part.DATA, module=DATA):
            return
        cls: Any = module.StructuredFunctionWrapper
        plain: Any = cls.function
        plain_init, plain_get, listener = cls.__init__, plain.fget, self._listener

        def init(wrapper: Any, func: Any, name: Any, dataset: Any = None, *args: Any, **kwargs: Any) -> None:
            wrapper._tfbisect_dataset = dataset
            plain_init(wrapper, func, name, dataset, *args, **kwargs)

        def function(wrapper: Any) -> Any:
            return listener.data_function(plain_get(wrapper), getattr(wrapper, "_tfbisect_dataset", None))

        def undo() -> None:
            cls.__init__, cls.function = plain_init, plain

        cls.__init__, cls.function = init, property(function)
        self._undo.append(undo)

    def _patch_ops(self, module: Any) -> None:
        if private.lacking(Part.READS, module=OPS):
            return
        cls: Any = module._EagerTensorBase
        plain, listener = cls._numpy, self._listener

        def read(tensor: Any) -> Any:
            listener.tensor_read(tensor)
            return plain(tensor)

        def undo() -> None:
            cls._numpy = plain

        cls._numpy = read
        self._undo.append(undo)

    def _patch_session(self, module: Any) -> None:
        cls: Any = module.BaseSession
        if private.lacking(Part.SESSIONS):
            self._patch_public_session(cls)
            return
        plain, plain_partial = cls._call_tf_sessionrun, cls._call_tf_sessionprun
        listener = self._listener

        def run(session: Any, *args: Any) -> Any:
            return listener.session_run(session, plain, *args)

        def partial_run(session: Any, *args: Any) -> Any:
            listener.session_partial_run()
            return plain_partial(session, *args)

        def undo() -> None:
            cls._call_tf_sessionrun, cls._call_tf_sessionprun = plain, plain_partial

        cls._call_tf_sessionrun, cls._call_tf_sessionprun = run, partial_run
        self._undo.append(undo)

    def _patch_public_session(self, cls: Any) -> None:
        """Hear that a Session is used. What it computes is not seen, so nothing after it may be blamed."""
        plains = {name: getattr(cls, name) for name in ("run", "partial_run", "make_callable")}

        def heard(plain: Callable[..., Any]) -> Callable[..., Any]:
            def call(session: Any, *args: Any, **kwargs: Any) -> Any:
                self._listener.session_unknown()
                return plain(session, *args, **kwargs)

            return call

        def undo() -> None:
            for name, plain in plains.items():
                setattr(cls, name, plain)

        for name, plain in plains.items():
            setattr(cls, name, heard(plain))
        self._undo.append(undo)

    def _patch_keras(self, module: Any) -> None:
        cls: Any = getattr(module, "CallbackList", None)
        listener = self._listener
        if not hasattr(cls, "on_train_batch_begin") or not hasattr(cls, "on_train_end"):
            return  # another Keras: steps are then found from what the program does
        plain_batch, plain_end = cls.on_train_batch_begin, cls.on_train_end

        def on_train_batch_begin(callbacks: Any, *args: Any, **kwargs: Any) -> Any:
            listener.step()
            return plain_batch(callbacks, *args, **kwargs)

        def on_train_end(callbacks: Any, *args: Any, **kwargs: Any) -> Any:
            listener.step(begins=False)
            return plain_end(callbacks, *args, **kwargs)

        def undo() -> None:
            cls.on_train_batch_begin, cls.on_train_end = plain_batch, plain_end

        cls.on_train_batch_begin, cls.on_train_end = on_train_batch_begin, on_train_end
        self._undo.append(undo)

    def attach(self) -> None:
        """Hear of the calling thread's eager ops, once there is a context."""
        context = getattr(sys.modules.get(CONTEXT), "_context", None)
        if context is not None:
            self._attach(context)

    def _attach_or_tell(self, context: Any) -> None:
        """In a line of TensorFlow's own, out of which nothing may escape."""
        try:
            self._attach(context)
        except Exception as error:
            self._listener.not_attached(error)

    def _attach(self, context: Any) -> None:
        callbacks = context._thread_local_data.op_callbacks
        if not any(known is self._callback for known in callbacks):
            callbacks.append(self._callback)
            with self._lock:
                self._lists.append(callbacks)
        execute: Any = importlib.import_module(EXECUTE)
        execute.execute = execute.execute_with_callbacks

    # --- threads --------------------------------------------------------------------------------------------------

    def _patch_threads(self) -> None:
        """New Python threads hear of their ops from their first line on, and are numbered as they are started.

        `Thread._bootstrap_inner` is what every thread runs first, whatever its class overrides (CPython 3.10 to 3.13).
        """
        cls: Any = threading.Thread
        plain, plain_start, numbers = cls._bootstrap_inner, cls.start, itertools.count(1)

        def start(thread: Any) -> None:
            setattr(thread, THREAD_NUMBER, next(numbers))
            plain_start(thread)

        def bootstrap(thread: Any) -> None:
            with contextlib.suppress(Exception):
                self.attach()
            plain(thread)

        def undo() -> None:
            cls._bootstrap_inner, cls.start = plain, plain_start

        cls._bootstrap_inner, cls.start = bootstrap, start
        self._undo.append(undo)


def when_imported(patches: dict[str, Callable[[types.ModuleType], None]]) -> None:
    """Hand each named module to its patch right after it was imported, until the process ends.

    Call it before any of them is imported. Where modules wait here and in `Hooks`, the later call patches last.
    """
    sys.meta_path.insert(0, _Finder(patches))


def _in_eager_op(frame: types.FrameType | None) -> bool:
    """Whether TensorFlow calls back from an eager op and not from a function: the op's Python is then below."""
    while frame is not None and frame.f_globals.get("__name__") == SCRIPT_OPS:
        frame = frame.f_back
    if frame is None:
        return False
    if frame.f_globals.get("__name__") == EXECUTE:
        return frame.f_locals.get("op_name") in ("EagerPyFunc", b"EagerPyFunc")
    return frame.f_code.co_name == "eager_py_func"


class _Finder(importlib.abc.MetaPathFinder):
    """Lets the other finders find a module, then patches it right after it was executed."""

    def __init__(self, patches: dict[str, Callable[[types.ModuleType], None]]) -> None:
        self._patches = patches

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        patch = self._patches.get(fullname)
        if patch is None:
            return None
        # Only those behind this one: two such finders that asked each other would never end.
        for finder in sys.meta_path[sys.meta_path.index(self) + 1 :]:
            if not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None and spec.loader is not None:
                spec.loader = _Loader(spec.loader, patch)
                return spec
        return None


class _Loader(importlib.abc.Loader):
    def __init__(self, plain: Any, patch: Callable[[types.ModuleType], None]) -> None:
        self._plain, self._patch = plain, patch

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
        return self._plain.create_module(spec)  # type: ignore[no-any-return]

    def exec_module(self, module: types.ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._plain  # what the program sees of the module is as it would be
        module.__loader__ = self._plain
        self._plain.exec_module(module)
        self._patch(module)
