"""The private names of TensorFlow that recording stands on: which there are, and what goes on without one.

Imports no TensorFlow and changes nothing. A newer TensorFlow may call things otherwise, or call them with other
arguments: `lacking` tells before anything is hooked, so that a program never fails of what the recorder expected.
Each name is used in one module, whose docstring says for what. The names of `session_memory` (C++, tried in a process
of its own), `runinfo` and `autograph` are not here: without them only that piece of information is left out.
"""

import importlib
import inspect
import sys
from collections.abc import Collection
from enum import Enum
from typing import Any, NamedTuple

# What the names were tried on; README.md has the table of versions.
TRIED = ("2.16.2", "2.18.1", "2.20.0", "2.21.0")
_CONTEXT, _EXECUTE = "tensorflow.python.eager.context", "tensorflow.python.eager.execute"
_OPS, _SESSION = "tensorflow.python.framework.ops", "tensorflow.python.client.session"
_C_SESSION, _DATA = "tensorflow.python.client.pywrap_tf_session", "tensorflow.python.data.ops.structured_function"


class Part(Enum):
    """A part of recording -> what is done where a name is missing that it needs."""

    ALL = "nothing is recorded"
    FUNCTIONS = "functions are recorded from outside only"
    READS = "what Python reads is not heard of, so its values are blamed for less"
    PYTHON = "py_function bodies that TensorFlow's own threads run are not recorded"
    SESSIONS = "recording ends at the first use of a v1 Session"
    DATA = "functions inside tf.data are not recorded"
    RESTORING = "a computation cannot be run again from the same state"


class Name(NamedTuple):
    """A name as `module:path`. arguments: those beside the object, where something else is put in a method's place."""

    where: str
    part: Part
    arguments: tuple[str, ...] | None = None

    @property
    def short(self) -> str:
        return self.where.partition(":")[2]


_RUN = ("options", "feed_dict", "fetch_list", "target_list", "run_metadata")
NAMES = (
    Name(f"{_CONTEXT}:Context.call_function", Part.ALL, ("name", "tensor_inputs", "num_outputs")),
    Name(f"{_CONTEXT}:Context.get_function_def", Part.ALL),
    Name(f"{_CONTEXT}:Context.get_graph_debug_info", Part.ALL),
    Name(f"{_CONTEXT}:Context.has_function", Part.ALL),
    Name(f"{_CONTEXT}:Context.function_call_options", Part.ALL),
    Name(f"{_CONTEXT}:Context.list_function_names", Part.ALL),
    Name(f"{_CONTEXT}:_context", Part.ALL),
    Name(f"{_EXECUTE}:execute", Part.ALL),
    Name(f"{_EXECUTE}:execute_with_callbacks", Part.ALL),
    Name(f"{_EXECUTE}:quick_execute", Part.ALL),
    Name("tensorflow.python.framework.op_def_registry:get", Part.ALL),
    Name(f"{_OPS}:EagerTensor._numpy_internal", Part.ALL),
    Name(f"{_OPS}:EagerTensor._handle_data", Part.ALL),
    Name(f"{_CONTEXT}:Context.remove_function", Part.FUNCTIONS, ("name",)),
    Name(f"{_CONTEXT}:Context.add_function_def", Part.FUNCTIONS),
    Name(f"{_CONTEXT}:Context.enable_graph_collection", Part.FUNCTIONS),
    Name(f"{_CONTEXT}:Context.disable_graph_collection", Part.FUNCTIONS),
    Name(f"{_CONTEXT}:Context.export_run_metadata", Part.FUNCTIONS),
    Name(f"{_EXECUTE}:execute_with_cancellation", Part.FUNCTIONS),
    Name("tensorflow.python.eager.cancellation:CancellationManager", Part.FUNCTIONS),
    Name("tensorflow.python.eager.cancellation:context", Part.FUNCTIONS),
    Name(f"{_OPS}:_EagerTensorBase._numpy", Part.READS, ()),
    Name("tensorflow.python.ops.script_ops:EagerFunc.__call__", Part.PYTHON),
    Name(f"{_SESSION}:BaseSession._call_tf_sessionrun", Part.SESSIONS, _RUN),
    Name(f"{_SESSION}:BaseSession._call_tf_sessionprun", Part.SESSIONS, ("handle", "feed_dict", "fetch_list")),
    Name(f"{_C_SESSION}:TF_SessionMakeCallable", Part.SESSIONS),
    Name(f"{_C_SESSION}:TF_SessionRunCallable", Part.SESSIONS),
    Name(f"{_C_SESSION}:TF_SessionReleaseCallable", Part.SESSIONS),
    Name(f"{_C_SESSION}:TF_OperationName", Part.SESSIONS),
    Name(f"{_DATA}:StructuredFunctionWrapper.function", Part.DATA),
    Name("tensorflow.python.ops.script_ops:_py_funcs", Part.DATA),
    Name("tensorflow.python.ops.resource_variable_ops:BaseResourceVariable", Part.RESTORING),
    Name("tensorflow.python.data.ops.iterator_ops:OwnedIterator", Part.RESTORING),
    Name(f"{_CONTEXT}:Context.clear_kernel_cache", Part.RESTORING),
)


def lacking(*parts: Part, module: str = "") -> list[Name]:
    """The names that this TensorFlow lacks, of these parts (of all, if none is given), of one module or of all.

    [] where TensorFlow is not imported: nothing is known then.
    """
    if "tensorflow" not in sys.modules:
        return []
    wanted = [name for name in NAMES if not parts or name.part in parts]
    return [name for name in wanted if name.where.startswith(f"{module}:" if module else "") and not _fits(name)]


def sentence(names: Collection[Name]) -> str:
    """What is missing, with the version: "TensorFlow 2.30.0 has no Context.call_function"."""
    return f"{version()} has no {', '.join(map(_described, names))}"


def version() -> str:
    """TensorFlow with its version."""
    return f"TensorFlow {getattr(sys.modules.get('tensorflow'), '__version__', 'of an unknown version')}"


def _described(name: Name) -> str:
    return name.short if name.arguments is None else f"{name.short}({', '.join(name.arguments)})"


def _fits(name: Name) -> bool:
    """Whether a name is there as such, without what a `__getattr__` would make up, and takes the arguments."""
    module, _, path = name.where.partition(":")
    try:
        owner: Any = importlib.import_module(module)
        *outer, last = path.split(".")
        for part in outer:
            owner = _plain(owner, part)
        found = _plain(owner, last)
        if name.arguments is None:
            return True
        _, *taken = inspect.signature(found).parameters.values()
        takes_any = any(each.kind == each.VAR_POSITIONAL for each in taken)  # it was replaced, by us too
        return takes_any or tuple(each.name for each in taken) == name.arguments
    except (ImportError, AttributeError, TypeError, ValueError):
        return False


def _plain(owner: Any, name: str) -> Any:
    """What a module or class holds by a name itself: without `__getattr__`, metaclasses and descriptors."""
    for each in getattr(owner, "__mro__", (owner,)):
        if name in vars(each):
            return vars(each)[name]
    raise AttributeError(name)
