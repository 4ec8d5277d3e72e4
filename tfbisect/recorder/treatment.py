"""Settings applied to a program from outside: they act while it imports what they change.

Decides nothing: `cure` names the actions in an environment variable and reads the report that is left behind. Without
that variable nothing here runs. Imports neither numpy nor TensorFlow itself.

Private API used here, tried on TensorFlow 2.16.2, 2.18.1 and 2.21.0 and Keras 3.15, each waited for by module name:
`ops.Graph.__init__` (the seed of a v1 graph), `while_loop.while_loop` (all loops are built through it),
`gen_*_ops` (one function an op, by which pinned ops are made), `context.Context.call_function` and
`session.BaseSession._call_tf_sessionrun` (timed only), `keras.src.backend.tensorflow.trainer.TensorFlowTrainer.fit`.
"""

import atexit
import functools
import inspect
import json
import os
import statistics
import sys
import threading
import time
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tfbisect.recorder import ops
from tfbisect.recorder.hooks import CONTEXT, SESSION, when_imported

SPEC = "TFBISECT_TREATMENT"
"""Environment variable: JSON with `actions` (lists of words), `environment` (name: value) and `report` (a path)."""

GRAPH, WHILE = "tensorflow.python.framework.ops", "tensorflow.python.ops.while_loop"
TRAINER = "keras.src.backend.tensorflow.trainer"
GENERATED = "tensorflow.python.ops.gen_"
MARKERS = ("sklearn",)  # modules whose import the report tells of

Patch = Callable[[Any], None]


def install_from_environment() -> None:
    """Apply what the environment variable asks for; nothing without it."""
    text = os.environ.get(SPEC)
    if text:
        _Treatment(json.loads(text)).install()


class _Treatment:
    def __init__(self, spec: dict[str, Any]) -> None:
        self._spec = spec
        self._patches: dict[str, list[Patch]] = {}
        self._own: dict[str, None] = {}  # what the program sets itself, so that its value stands
        self._clock = _Clock()
        self._begin = time.perf_counter()

    def install(self) -> None:
        for action in self._spec["actions"]:
            name, *words = action
            getattr(self, "_do_" + name)(*words)
        if self._spec.get("report"):
            self._patches.setdefault(CONTEXT, []).append(self._clock.patch_context)
            self._patches.setdefault(SESSION, []).append(self._clock.patch_session)
            atexit.register(self._report)
        if self._patches:
            when_imported({name: functools.partial(_all, patches) for name, patches in self._patches.items()})

    def _on(self, module: str, patch: Patch) -> None:
        self._patches.setdefault(module, []).append(patch)

    def _report(self) -> None:
        """What the program set itself, and how long its calls took; written as the interpreter ends."""
        for name, value in self._spec["environment"].items():
            if os.environ.get(name) != value:
                self._own[f"{name}={os.environ.get(name, '')}"] = None
        report = {
            "own": list(self._own),
            "seconds": time.perf_counter() - self._begin,
            "calls": self._clock.summary(),
            "modules": [name for name in MARKERS if name in sys.modules],
        }
        Path(self._spec["report"]).write_text(json.dumps(report), encoding="utf-8")

    # --- actions: `_do_NAME(words)` ---------------------------------------------------------------------------------

    def _do_seed_python(self, seed: str) -> None:
        import random

        plain = random.seed
        plain(int(seed))
        self._note_seed(random, "random.seed")

        def again(_module: Any) -> None:
            """Importing these draws numbers, not always as many; the line that a user pastes stands behind it."""
            if "random.seed" not in self._own:
                plain(int(seed))

        self._on("tensorflow", again)
        self._on("keras", again)

    def _do_seed_numpy(self, seed: str) -> None:
        def patch(module: Any) -> None:
            module.seed(int(seed))
            self._note_seed(module, "numpy.random.seed")

        self._on("numpy.random", patch)

    def _do_seed_tensorflow(self, seed: str) -> None:
        self._on("tensorflow", lambda tf: tf.random.set_seed(int(seed)))

        def patch(module: Any) -> None:
            """Graphs of v1 programs have a seed each; a function's graph takes that of the context."""
            plain = module.Graph.__init__

            @functools.wraps(plain)
            def init(graph: Any, *args: Any, **kwargs: Any) -> None:
                plain(graph, *args, **kwargs)
                if type(graph) is module.Graph:
                    graph.seed = int(seed)

            module.Graph.__init__ = init

        self._on(GRAPH, patch)

    def _do_op_determinism(self) -> None:
        self._on("tensorflow", lambda tf: tf.config.experimental.enable_op_determinism())

    def _do_no_tf32(self) -> None:
        self._on("tensorflow", lambda tf: tf.config.experimental.enable_tensor_float_32_execution(False))

    def _do_data_ordered(self) -> None:
        self._on("tensorflow", lambda tf: _set_arguments(tf.data.Dataset, deterministic=True))

    def _do_data_serial(self) -> None:
        self._on("tensorflow", lambda tf: _set_arguments(tf.data.Dataset, num_parallel_calls=None, deterministic=None))

    def _do_loops_serial(self) -> None:
        def patch(module: Any) -> None:
            module.while_loop = _with_arguments(module.while_loop, parallel_iterations=1)

        self._on(WHILE, patch)

    def _do_fit_unshuffled(self) -> None:
        def patch(module: Any) -> None:
            module.TensorFlowTrainer.fit = _with_arguments(module.TensorFlowTrainer.fit, shuffle=False)

        self._on(TRAINER, patch)

    def _do_pin(self, op_type: str, device: str) -> None:
        """Every op of this type that Python makes, eagerly or in a graph, goes to that device."""

        def patch(tf: Any) -> None:
            for name, module in list(sys.modules.items()):
                if name.startswith(GENERATED):
                    for key in [key for key in vars(module) if key.replace("_", "").lower() == op_type.lower()]:
                        if isinstance(vars(module)[key], types.FunctionType):
                            setattr(module, key, _on_device(tf, vars(module)[key], device))

        self._on("tensorflow", patch)

    def _note_seed(self, module: Any, name: str) -> None:
        """The program's own later call stands; the report says so."""
        plain = module.seed

        @functools.wraps(plain)
        def seed(*args: Any, **kwargs: Any) -> Any:
            self._own[name] = None
            return plain(*args, **kwargs)

        module.seed = seed


class _Clock:
    """How long a program's own calls of functions and sessions take, from Python's side."""

    def __init__(self) -> None:
        self._seconds: dict[str, list[float]] = {}
        self._inside = threading.local()

    def patch_context(self, module: Any) -> None:
        plain = module.Context.call_function

        def call_function(context: Any, name: bytes, *args: Any, **kwargs: Any) -> Any:
            return self._timed(ops.user_name(name.decode()), plain, context, name, *args, **kwargs)

        module.Context.call_function = call_function

    def patch_session(self, module: Any) -> None:
        plain = module.BaseSession._call_tf_sessionrun

        def run(session: Any, *args: Any) -> Any:
            return self._timed("Session.run", plain, session, *args)

        module.BaseSession._call_tf_sessionrun = run

    def _timed(self, name: str, plain: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if getattr(self._inside, "call", False):
            return plain(*args, **kwargs)
        self._inside.call = True
        begin = time.perf_counter()
        try:
            return plain(*args, **kwargs)
        finally:
            self._inside.call = False
            self._seconds.setdefault(name, []).append(time.perf_counter() - begin)

    def summary(self) -> dict[str, list[float]]:
        """{function: [calls, median seconds of all but the first, seconds of all but the first]}"""
        return {
            name: [len(times), statistics.median(times[1:]), sum(times[1:])]
            for name, times in self._seconds.items()
            if len(times) > 1
        }


def _all(patches: Sequence[Patch], module: types.ModuleType) -> None:
    for patch in patches:
        patch(module)


def _set_arguments(cls: Any, **values: Any) -> None:
    """Every public method of a class that takes one of these arguments gets this value for it."""
    for name, method in list(vars(cls).items()):
        if isinstance(method, types.FunctionType) and not name.startswith("_"):
            if values.keys() & inspect.signature(method).parameters.keys():
                setattr(cls, name, _with_arguments(method, **values))


def _with_arguments(plain: Callable[..., Any], **values: Any) -> Callable[..., Any]:
    """The function with these arguments set, however it is called; those that it does not take are left out."""
    signature = inspect.signature(plain)
    mine = {name: value for name, value in values.items() if name in signature.parameters}

    @functools.wraps(plain)
    def call(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.arguments.update(mine)
        return plain(*bound.args, **bound.kwargs)

    return call


def _on_device(tf: Any, plain: Callable[..., Any], device: str) -> Callable[..., Any]:
    @functools.wraps(plain)
    def call(*args: Any, **kwargs: Any) -> Any:
        with tf.device(device):
            return plain(*args, **kwargs)

    return call
