"""What TensorFlow's debugger writes into a folder, read back and deleted at once: partition graphs and tensors.

Decides neither what is watched nor what a dump means. Private TensorFlow behaviour used here, tried on 2.21.0: debug
urls of the kind `file://`, the names of the files under them, and `TFDBG_DISK_BYTES_LIMIT`, which TensorFlow reads when
it writes the first tensor and counts over the life of the process (core/debug/debug_io_utils.cc).
"""

import operator
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tensorflow.core.framework import graph_pb2
from tensorflow.core.protobuf import config_pb2
from tensorflow.core.util import event_pb2
from tensorflow.python.client import session as session_lib
from tensorflow.python.framework import dtypes, ops, tensor_util
from tensorflow.python.ops import array_ops, math_ops

from tfbisect.recorder import digest
from tfbisect.recorder.rows import varint

_LIMIT = "TFDBG_DISK_BYTES_LIMIT"
_GRAPH = "_tfdbg_graph_hash"
_OTHERS = "_tfdbg_"  # what is written beside tensors begins so
DEBUG_OP = "DebugIdentity"


Output = tuple[str, int]  # a node and its output slot


class Dump(NamedTuple):
    """A tensor that a watched output had. `data`: its bytes; None for strings, and where they were not kept."""

    node: str
    slot: int
    dtype: int
    shape: tuple[int, ...]
    nbytes: int
    digest: int
    data: bytes | memoryview | None

    def scalar(self) -> int:
        """The value of a scalar bool or int32, which is always kept."""
        assert self.data is not None
        return int.from_bytes(self.data, "little", signed=True)


class Folders:
    """A private folder with one folder for each user at a time; `close` deletes everything."""

    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="tfbisect-"))
        self._count = 0

    def new(self) -> Path:
        self._count += 1
        folder = self.root / str(self._count)
        folder.mkdir()
        return folder

    def room_for(self, nbytes: int) -> bool:
        """Whether that many bytes fit: a dump that does not fit would fail the program's own call."""
        return shutil.disk_usage(self.root).free > nbytes

    def close(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)


def lift_disk_limit(folder: Path) -> bool:
    """Have TensorFlow read its limit for dumps now, while it is set to one that is never reached; -> whether it dumps.

    The environment is the program's: it holds the limit only while a graph of our own runs.
    """
    before = os.environ.get(_LIMIT)
    os.environ[_LIMIT] = str(2**62)
    try:
        graph = ops.Graph()
        with graph.as_default():
            given = array_ops.placeholder(dtypes.float32, [])
            result = math_ops.sin(given)
        options = config_pb2.RunOptions()
        options.debug_options.debug_tensor_watch_opts.add(
            node_name=result.op.name, output_slot=0, debug_ops=[DEBUG_OP], debug_urls=[f"file://{folder}"]
        )
        rewrite = config_pb2.GraphOptions()
        rewrite.rewrite_options.disable_meta_optimizer = True
        config = config_pb2.ConfigProto(device_count={"GPU": 0}, graph_options=rewrite)
        with session_lib.Session(graph=graph, config=config) as session:
            session.run(result, {given: 1.0}, options=options)
    finally:
        if before is None:
            del os.environ[_LIMIT]
        else:
            os.environ[_LIMIT] = before
    return len(take(folder)) == 1


def take_graphs(folder: Path) -> list[Any]:
    """The partition graphs that were written into a folder, as GraphDefs; the folder is deleted."""
    found = []
    for path in _files(folder):
        if os.path.basename(path).startswith(_GRAPH):
            graph = graph_pb2.GraphDef()
            graph.MergeFromString(event_pb2.Event.FromString(Path(path).read_bytes()).graph_def)
            found.append(graph)
    shutil.rmtree(folder, ignore_errors=True)
    return found


def take(folder: Path) -> list[Dump]:
    """The tensors that were dumped into a folder, each output's in the order in which they were; no file is left in it.

    Its folders stay: TensorFlow would make them again for the next call, which takes longer than the dumps.
    """
    found: list[tuple[tuple[int, int], Dump]] = []
    for path in _files(folder):
        name = os.path.basename(path)
        if not name.startswith(_OTHERS):
            with open(path, "rb", buffering=0) as file:
                found.append((_time(name), read(file.readall())))
        os.unlink(path)
    found.sort(key=operator.itemgetter(0))
    return [dump for _, dump in found]


def clear(folder: Path) -> None:
    """Delete the files in a folder."""
    for path in _files(folder):
        os.unlink(path)


def _files(folder: Path | str) -> Iterator[str]:
    folders = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.path)
            else:
                yield entry.path
    for inner in folders:
        yield from _files(inner)


def _time(name: str) -> tuple[int, int]:
    """When a file was written: microseconds, and a number that tells dumps of one output in one microsecond apart.

    Raises ValueError when the name is none of TensorFlow's.
    """
    time, _, number = name.rpartition("_")[2].partition("-")
    return int(time), int(number or 0)


def read(data: bytes) -> Dump:
    """A dumped tensor: an Event as TensorFlow serializes it, walked by hand, since parsing would copy the tensor.

    Raises ValueError when it is none.
    """
    view = memoryview(data)
    value = _field(_field(view, 5), 1)  # Event.summary, Summary.value
    node, slot, _op = bytes(_field(value, 7)).decode().rsplit(":", 2)  # Value.node_name
    tensor = _field(value, 8)
    dtype, shape, content = 0, [], memoryview(b"")
    for key, part in _fields(tensor):
        if key == 1 and isinstance(part, int):
            dtype = part
        elif key == 2 and not isinstance(part, int):
            shape = [_size(dim) for field, dim in _fields(part) if field == 2 and not isinstance(dim, int)]
        elif key == 4 and not isinstance(part, int):
            content = part
    if dtype == digest.DT_STRING:
        event = event_pb2.Event.FromString(data)
        texts = np.asarray(tensor_util.MakeNdarray(event.summary.value[0].tensor), object)
        return Dump(node, int(slot), dtype, tuple(shape), len(data), digest.of_array(texts), None)
    return Dump(node, int(slot), dtype, tuple(shape), content.nbytes, digest.of_bytes(content), content)


def _size(dim: memoryview) -> int:
    return next((value for key, value in _fields(dim) if key == 1 and isinstance(value, int)), 0)


def _field(view: memoryview, number: int) -> memoryview:
    for key, value in _fields(view):
        if key == number and not isinstance(value, int):
            return value
    raise ValueError(f"a dump without field {number}")


def _fields(view: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """(number, value) of each field of a protocol buffer; fixed-width ones are left out."""
    place = 0
    while place < len(view):
        tag, place = varint(view, place)
        kind = tag & 7
        if kind == 2:
            size, place = varint(view, place)
            yield tag >> 3, view[place : place + size]
            place += size
        elif kind == 0:
            value, place = varint(view, place)
            yield tag >> 3, value
        elif kind in (1, 5):
            place += 8 if kind == 1 else 4
        else:
            raise ValueError("a dump that is no protocol buffer")
