"""Debug dumps that never leave the process: TensorFlow's `memcbk://` urls, whose callbacks are reached with ctypes.

Decides neither what is watched nor what a dump means, nor whether this may be used: `session_probe` tries it in a
process of its own first, because a wrong guess about C++ ends in a crash. Private TensorFlow API used here, tried on
2.21.0 (Linux, x86_64): `DebugCallbackRegistry::singleton / RegisterCallback / GetCallback`
(core/debug/debug_callback_registry.h), `Tensor::tensor_data`, `TensorShapeBase::dim_size`, and how `Tensor`,
`TensorShapeRep`, `DebugNodeKey` and libstdc++'s `std::string`, `std::string_view` and `std::function` lie in memory.
"""

import atexit
import ctypes
import os
import struct
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from tfbisect.recorder import digest
from tfbisect.recorder.session_dumps import Dump, Output

# DataTypes that lie in memory as their bytes, and of which the self-test has seen a tensor.
DTYPES = frozenset({1, 2, 3, 4, 5, 6, 8, 9, 10, 14, 17, 18, 19, 22, 23})
LIBRARIES = ("libtensorflow_cc.so.2", "libtensorflow_framework.so.2")
SETTLE = 0.05  # seconds that callbacks under way get to end before the interpreter does
_STRING = "RKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
_REGISTRY = "_ZN10tensorflow21DebugCallbackRegistry"
_SINGLETON = f"{_REGISTRY}9singletonEv"
_REGISTER = f"{_REGISTRY}16RegisterCallbackE{_STRING}St8functionIFvRKNS_12DebugNodeKeyERKNS_6TensorEEE"
_GET = f"{_REGISTRY}11GetCallbackE{_STRING}"
_BYTES = "_ZNK10tensorflow6Tensor11tensor_dataEv"
_DIM = "_ZNK10tensorflow15TensorShapeBaseINS_11TensorShapeEE8dim_sizeEi"
_PTR = ctypes.c_void_p
_NAME, _SLOT = 32, 64  # of DebugNodeKey: after std::string device_name, after std::string node_name
_DTYPE, _RANK, _TAG = 13, 14, 15  # of TensorShapeRep, which a Tensor begins with
_READ = 0x100  # PyBUF_READ


class Unavailable(Exception):
    """This installation lacks a symbol."""


class _String(ctypes.Structure):
    _fields_ = (("data", _PTR), ("size", ctypes.c_uint64), ("local", ctypes.c_char * 16))


class _View(ctypes.Structure):
    _fields_ = (("size", ctypes.c_uint64), ("data", _PTR))


class _Function(ctypes.Structure):
    _fields_ = (("state", ctypes.c_uint64 * 2), ("manager", _PTR), ("invoker", _PTR))


class Inbox:
    """Where the tensors of one callable go. `keep`: {output: how many bytes of it at most are kept}."""

    def __init__(self, key: bytes, keep: Mapping[Output, int]) -> None:
        self._key = ctypes.create_string_buffer(key)
        self.text = _String(ctypes.addressof(self._key), len(key))  # the key, as C++ takes it
        self.url = f"memcbk://{key.decode()}"
        self.keep = keep
        self.dumps: list[Dump] = []
        self.error: BaseException | None = None
        self.open = True

    def collect(self) -> list[Dump]:
        """What has come in since the last time, in that order. Raises what went wrong with one of the tensors."""
        dumps, self.dumps = self.dumps, []
        error, self.error = self.error, None
        if error is not None:
            raise error
        return dumps


class Memory:
    """The callbacks. A key that was registered once stays so: TensorFlow aborts the process if one is missing."""

    @staticmethod
    def check() -> None:
        """Raises Unavailable where a symbol is missing; calls nothing."""
        for name in (_SINGLETON, _REGISTER, _GET, _BYTES, _DIM):
            _symbol(name, None)

    def __init__(self) -> None:
        """Raises Unavailable."""
        singleton = _symbol(_SINGLETON, _PTR)
        self._register = _symbol(_REGISTER, None, _PTR, _PTR, _PTR)
        self._get = _symbol(_GET, _PTR, _PTR, _PTR)
        self._bytes = _symbol(_BYTES, _View, _PTR)
        self._dim = _symbol(_DIM, ctypes.c_int64, _PTR, ctypes.c_int)
        self._view = ctypes.pythonapi.PyMemoryView_FromMemory
        self._view.restype, self._view.argtypes = ctypes.py_object, (_PTR, ctypes.c_ssize_t, ctypes.c_int)
        self._registry = singleton()
        self._inboxes: list[Inbox] = []
        self._lock = threading.Lock()
        # These two live as long as the process: C++ calls them.
        self._invoker = ctypes.CFUNCTYPE(None, _PTR, _PTR, _PTR)(self._on_tensor)
        self._manager = ctypes.CFUNCTYPE(ctypes.c_bool, _PTR, _PTR, ctypes.c_int)(_nothing)
        atexit.register(self.disarm)

    def inbox(self, keep: Mapping[Output, int]) -> Inbox:
        """A new place for dumps, with a url of its own."""
        with self._lock:
            number = len(self._inboxes)
            inbox = Inbox(f"tfbisect-{os.getpid()}-{id(self):x}-{number}".encode(), keep)
            self._inboxes.append(inbox)
        manager, invoker = ctypes.cast(self._manager, _PTR).value, ctypes.cast(self._invoker, _PTR).value
        function = _Function((ctypes.c_uint64 * 2)(number, 0), manager, invoker)
        self._register(self._registry, ctypes.addressof(inbox.text), ctypes.addressof(function))
        return inbox

    def disarm(self) -> None:
        """Callbacks that come from now on do nothing, and need no Python for it: the interpreter is about to end."""
        nothing = ctypes.cast(ctypes.CDLL(None).getpid, _PTR).value
        with self._lock:
            for inbox in self._inboxes:
                inbox.open = False
                at = self._get(self._registry, ctypes.addressof(inbox.text))
                _Function.from_address(at).invoker = nothing
        time.sleep(SETTLE)  # those that wait for the interpreter now get it

    def _on_tensor(self, function: int, key: int, tensor: int) -> None:
        """Runs in a thread of TensorFlow's, which holds the tensor until this returns."""
        inbox = self._inboxes[ctypes.c_uint64.from_address(function).value]
        if not inbox.open:
            return
        try:
            inbox.dumps.append(self._dump(inbox, key, tensor))
        except BaseException as error:  # nothing may go up into C++
            inbox.error = error

    def _dump(self, inbox: Inbox, key: int, tensor: int) -> Dump:
        data, size = struct.unpack("=QQ", ctypes.string_at(key + _NAME, 16))
        node = ctypes.string_at(data, size).decode()
        slot = ctypes.c_int32.from_address(key + _SLOT).value
        head = ctypes.string_at(tensor, 16)
        dtype, rank = head[_DTYPE], head[_RANK]
        if dtype not in DTYPES:
            raise ValueError(f"a tensor of DataType {dtype} from {node}:{slot}")
        if head[_TAG] == 0:
            shape = struct.unpack_from(f"={rank}H", head)
        elif head[_TAG] == 1:
            shape = struct.unpack_from(f"={rank}I", head)
        else:
            shape = tuple(self._dim(tensor, axis) for axis in range(rank))
        view = self._bytes(tensor)
        if not view.size:
            return Dump(node, slot, dtype, shape, 0, digest.of_bytes(b""), b"")
        content = self._view(view.data, view.size, _READ)
        kept = bytes(content) if view.size <= inbox.keep.get((node, slot), 0) else None
        return Dump(node, slot, dtype, shape, view.size, digest.of_bytes(content), kept)


def _nothing(*_: Any) -> bool:
    return False


def libraries() -> list[str]:
    """Paths of TensorFlow's libraries."""
    folder = os.path.dirname(tf.__file__)
    return [path for path in (os.path.join(folder, name) for name in LIBRARIES) if os.path.exists(path)]


def _symbol(name: str, result: Any, *arguments: Any) -> Any:
    if sys.platform != "linux" or sys.byteorder != "little":
        raise Unavailable(f"not tried on {sys.platform}")
    for library in libraries():
        try:
            function = getattr(ctypes.CDLL(library), name)
        except (OSError, AttributeError):
            continue
        function.restype, function.argtypes = result, arguments
        return function
    raise Unavailable(f"TensorFlow {tf.__version__} has no symbol {name}")
