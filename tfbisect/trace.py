"""The trace file: written while a program runs; `load` is `reading`'s.

Knows HDF5 (besides, only `reading` does) and the layout in `schema`; does not judge what was recorded.
"""

import contextlib
import json
import os
import stat
import struct
import weakref
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt
import xxhash

from tfbisect import schema
from tfbisect.errors import (
    CannotWrite,
    OutputExists,
)
from tfbisect.model import Node
from tfbisect.reading import SoFar, load, reason, so_far
from tfbisect.schema import BY_NAME, COMMITS, TABLES, Table
from tfbisect.tables import Trace

__all__ = ["SoFar", "Trace", "TraceWriter", "load", "so_far"]

Array = npt.NDArray[Any]
Path = str | os.PathLike[str]

_STRUCT_CODES = {"u1": "B", "u2": "H", "u4": "I", "u8": "Q", "i2": "h", "i4": "i", "i8": "q"}
_SPILL_BYTES = 8 * 2**20
_HDF5_ERRORS = (OSError, RuntimeError, KeyError, ValueError, TypeError, MemoryError)


def _packer(table: Table) -> Callable[..., bytes]:
    return struct.Struct("<" + "".join(_STRUCT_CODES[column.type[1:]] for column in table.columns)).pack


_PACK = {table.name: _packer(table) for table in TABLES}
_PACK_EVENT, _PACK_LINK, _PACK_CALL = _PACK["events"], _PACK["links"], _PACK["calls"]
_PACK_NODE, _PACK_EDGE, _PACK_SITE = _PACK["nodes"], _PACK["edges"], _PACK["sites"]
_EVENT = BY_NAME["events"].dtype


class TraceWriter:
    """Appends to a new trace file. Rows are buffered until `flush`; what is flushed survives SIGKILL.

    Not thread-safe: the recorder calls it under its lock. A forked child's copy writes nothing. Raises OutputExists
    unless `force`, and CannotWrite; after CannotWrite the writer is dead: it takes rows and forgets them.
    """

    def __init__(self, path: Path, *, force: bool = False) -> None:
        self.path = os.fspath(path)
        self.bytes_values = 0
        self._buffers = {table.name: bytearray() for table in TABLES}
        self._events, self._links, self._calls = (self._buffers[name] for name in ("events", "links", "calls"))
        self._rows = dict.fromkeys(self._buffers, 0)
        self._crc = dict.fromkeys(self._buffers, 0)
        self._strings: dict[str, int] = {"": 0}
        self._frames: dict[tuple[str, int, str, str], int] = {}
        self._trie: dict[tuple[int, int], int] = {}
        self._stacks: dict[tuple[tuple[str, int, str, str], ...], int] = {(): 0}
        self._paths: dict[tuple[int, ...], int] = {(): 0}
        self._shapes: dict[tuple[int, ...], int] = {(): 1}
        self._values: dict[tuple[bytes, int], int] = {}
        self._ends = {"string_ends": 0, "path_ends": 0, "shape_ends": 0}
        self._node_counts: list[int] = []
        self._site_count = 0
        self._file, self._datasets = _create(self.path, force)
        self._types = {name: h5py.h5t.py_create(dataset.dtype) for name, dataset in self._datasets.items()}
        self._descriptor = self._file.id.get_vfd_handle()
        self._alive = True
        _open_writers.add(self)
        for name, rows in schema.FIRST_ROWS.items():
            for row in rows:
                self._buffers[name] += _PACK[name](*(row if isinstance(row, tuple) else (row,)))
        self.flush()

    def __enter__(self) -> "TraceWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- things that are numbered ------------------------------------------------------------------------------------

    def string(self, text: str) -> int:
        """The id of a text; equal texts have one id. What UTF-8 cannot hold (lone surrogates) is escaped.

        A text of more than `schema.MAX_STRING_BYTES` is cut, and ends in its digest.
        """
        number = self._strings.get(text)
        if number is None:
            data = text.encode("utf-8", "backslashreplace")
            if len(data) > schema.MAX_STRING_BYTES:
                rest = f"... ({len(data)} bytes, {xxhash.xxh3_64_hexdigest(data)})".encode()
                begin = data[: schema.MAX_STRING_BYTES - len(rest)].decode("utf-8", "ignore").encode()
                data = begin + rest
            number = self._strings[text] = len(self._strings)
            self._span("string_bytes", "string_ends", data)
        return number

    def stack(self, frames: Sequence[tuple[str, int, str, str]]) -> int:
        """The id of a Python stack: (file, line, function, source text) of each frame, outermost first; 0 if empty."""
        key = tuple(frames)
        number = self._stacks.get(key)
        if number is None:
            number = 0
            for frame in key:
                step = (number, self._frame(frame))
                found = self._trie.get(step)
                if found is None:
                    found = self._trie[step] = len(self._trie) + 1
                    self._buffers["stacks"] += _PACK["stacks"](*step)
                number = found
            self._stacks[key] = number
        return number

    def shape(self, dims: Sequence[int]) -> int:
        """The id of a tensor shape. 1 is a scalar's; 0 stands for a shape that is not known and is never returned."""
        key = tuple(dims)
        number = self._shapes.get(key)
        if number is None:
            data = struct.pack(f"<{len(key)}q", *key)
            number = self._shapes[key] = len(self._shapes) + 1
            self._span("shape_items", "shape_ends", data)
        return number

    def iteration(self, path: Sequence[int]) -> int:
        """The id of a loop iteration, outermost loop first; 0 is outside loops."""
        key = tuple(path)
        number = self._paths.get(key)
        if number is None:
            data = struct.pack(f"<{len(key)}i", *key)
            number = self._paths[key] = len(self._paths)
            self._span("path_items", "path_ends", data)
        return number

    def value(self, data: bytes | bytearray | memoryview) -> int:
        """The id of a tensor's bytes (row-major, little endian); equal bytes are stored once. Never 0."""
        size = data.nbytes if isinstance(data, memoryview) else len(data)
        key = (xxhash.xxh3_128_digest(data), size)
        number = self._values.get(key)
        if number is None:
            number = self._values[key] = len(self._values) + 1
            self._buffers["values"] += _PACK["values"](self.bytes_values, size)
            buffer = self._buffers["value_bytes"]
            buffer += data
            self.bytes_values += size
            if len(buffer) >= _SPILL_BYTES:
                self._guarded(self._append, "value_bytes")
        return number

    def offered(self, data: bytes | bytearray | memoryview) -> int:
        """The id of the bytes of an event that is appended next; 0 if they are not kept."""
        return self.value(data)

    def graph(self, name: str, raw_name: str, kind: int, structure: int, nodes: Sequence[Node]) -> int:
        """Adds a graph and returns its id. `Node.stack` holds stack ids. ValueError if an edge leads out of it."""
        number, count = len(self._node_counts), len(nodes)
        if any(edge.src >= count or edge.src < 0 for node in nodes for edge in node.inputs):
            raise ValueError(f"graph {name}: an edge leads to a node that the graph does not have")
        string = self.string
        node_rows, edge_rows = bytearray(), bytearray()
        for i, node in enumerate(nodes):
            node_rows += _PACK_NODE(
                number,
                string(node.name),
                string(node.op),
                string(node.device),
                string(node.function),
                node.stack,
                node.attrs,
                node.index,
                node.forward,
                string(node.forward_name),
                node.flags,
                string("\n".join(node.frame)),
            )
            for src, slot in node.inputs:
                edge_rows += _PACK_EDGE(number, i, src, slot)
        self._buffers["graphs"] += _PACK["graphs"](string(name), string(raw_name), kind, structure)
        self._buffers["nodes"] += node_rows
        self._buffers["edges"] += edge_rows
        self._node_counts.append(count)
        return number

    def sites(self, graph: int, rows: Sequence[tuple[int, int, int, int]]) -> int:
        """Adds sites (node, slot, kind, dtype) of a graph; returns the id of the first, the others follow it."""
        count = self._node_counts[graph]
        if any(not 0 <= row[0] < count for row in rows):
            raise ValueError(f"graph {graph}: a site at a node that the graph does not have")
        first = self._site_count
        self._buffers["sites"] += b"".join([_PACK_SITE(graph, *row) for row in rows])
        self._site_count += len(rows)
        return first

    def definition(self, graph: int, node: int, data: bytes) -> None:
        """How an op of a graph was made: a NodeDef without name and inputs, serialized."""
        if not 0 <= node < self._node_counts[graph]:
            raise ValueError(f"graph {graph}: the definition of a node that the graph does not have")
        self._buffers["definitions"] += _PACK["definitions"](graph, node, self.value(data))

    # -- things that happen ------------------------------------------------------------------------------------------

    def call(self, id: int, graph: int, thread: int, state: int, parent: int, step: int, stack: int) -> None:
        """A call that has ended. Calls are numbered when they start."""
        self._calls += _PACK_CALL(id, graph, thread, state, parent, step, stack)

    def link(self, call: int, arg: int, src_call: int, src_ret: int) -> None:
        """Argument `arg` of a call is result `src_ret` of the call `src_call` (-1: a host value)."""
        self._links += _PACK_LINK(call, arg, src_call, src_ret)

    def event(self, call: int, site: int, path: int, shape: int, digest: int, value: int = 0) -> None:
        """What was computed at a site in a call (NO_CALL for a constant): all numbers are unsigned."""
        self._events += _PACK_EVENT(call, site, path, shape, digest, value)

    def events(
        self,
        call: npt.ArrayLike,
        site: npt.ArrayLike,
        path: npt.ArrayLike,
        shape: npt.ArrayLike,
        digest: npt.ArrayLike,
        value: npt.ArrayLike = 0,
    ) -> None:
        """Many events at once: a column each, of one length (`digest` has it); a number stands for a column of it."""
        rows = np.empty(np.shape(digest), _EVENT)
        rows["call"], rows["site"], rows["path"] = call, site, path
        rows["shape"], rows["digest"], rows["value"] = shape, digest, value
        self._events += rows.tobytes()

    def journal(self, entry: Mapping[str, Any]) -> None:
        """Adds a JSON line."""
        self._buffers["journal"] += json.dumps(entry, separators=(",", ":"), default=str).encode() + b"\n"

    @property
    def rows_buffered(self) -> int:
        """Calls, links and events that `flush` would write."""
        return len(self._events) // 32 + len(self._links) // 24 + len(self._calls) // 31

    def flush(self) -> None:
        """Writes each table that has new rows, once, and commits them. Raises CannotWrite."""
        if any(self._buffers.values()):
            self._guarded(self._flush)

    def close(self) -> None:
        """Flushes and closes; more than once is fine. The file is closed even if CannotWrite is raised."""
        try:
            self.flush()
        finally:
            _open_writers.discard(self)
            self._alive = False
            with contextlib.suppress(*_HDF5_ERRORS):
                self._file.close()

    # -- the file ----------------------------------------------------------------------------------------------------

    def _frame(self, frame: tuple[str, int, str, str]) -> int:
        number = self._frames.get(frame)
        if number is None:
            file, line, function, text = frame
            row = _PACK["frames"](self.string(file), line, self.string(function), self.string(text))
            number = self._frames[frame] = len(self._frames)
            self._buffers["frames"] += row
        return number

    def _span(self, items: str, ends: str, data: bytes) -> None:
        self._buffers[items] += data
        self._ends[ends] += len(data) // BY_NAME[items].dtype.itemsize
        self._buffers[ends] += _PACK[ends](self._ends[ends])

    def _guarded(self, action: Callable[..., None], *args: Any) -> None:
        try:
            if self._alive:
                action(*args)
        except _HDF5_ERRORS as error:
            self._abandon()
            raise CannotWrite(f"trace {self.path}", found=reason(error), hint="make room, record again") from error
        except BaseException:  # Ctrl-C, or an exception of a signal handler, in the middle of a write
            self._abandon()
            raise
        finally:
            if not self._alive:
                for buffer in self._buffers.values():
                    buffer.clear()

    def _flush(self) -> None:
        self._check_numbers()
        for table in TABLES:
            if self._buffers[table.name]:
                self._append(table.name)
        h5py.h5f.flush(self._file.id)
        self._commit()

    def _check_numbers(self) -> None:
        """That each number which was given out has its row. Raises ValueError.

        An exception of a signal handler can come between the two, and then all later numbers would stand for the row
        after theirs: other names, other lines. What was committed before is good.
        """
        given = {
            "string_ends": len(self._strings), "string_bytes": self._ends["string_ends"],
            "path_ends": len(self._paths), "path_items": self._ends["path_ends"],
            "shape_ends": len(self._shapes) + 1, "shape_items": self._ends["shape_ends"],
            "frames": len(self._frames), "stacks": len(self._trie) + 1,
            "values": len(self._values) + 1, "value_bytes": self.bytes_values,
            "graphs": len(self._node_counts), "nodes": sum(self._node_counts), "sites": self._site_count,
        }  # fmt: skip
        for name, count in given.items():
            rows = self._rows[name] + len(self._buffers[name]) // BY_NAME[name].dtype.itemsize
            if rows != count:
                raise ValueError(f"recording was interrupted while it wrote {name}")

    def _commit(self) -> None:
        row = np.zeros(1, COMMITS.dtype)
        row["rows"] = list(self._rows.values())
        row["crc"] = list(self._crc.values())
        commits = self._datasets[COMMITS.name]
        self._extend(COMMITS.name, commits.shape[0], row)
        commits.flush()

    def _append(self, name: str) -> None:
        data = bytes(self._buffers[name])
        self._buffers[name].clear()
        rows = np.frombuffer(data, BY_NAME[name].dtype)
        self._extend(name, self._rows[name], rows)
        self._rows[name] += len(rows)
        self._crc[name] = zlib.crc32(data, self._crc[name])

    def _extend(self, name: str, start: int, rows: Array) -> None:
        dataset, count = self._datasets[name], (len(rows),)
        dataset.set_extent((start + len(rows),))
        space = dataset.get_space()
        space.select_hyperslab((start,), count)
        dataset.write(h5py.h5s.create_simple(count), space, rows, self._types[name])

    def _abandon(self) -> None:
        """Leaves the file as it is on the disk, for good.

        In a forked child it is the parent's, and HDF5 would write to it when the child ends. On a full disk HDF5 tries
        again to write what it could not when it closes the file and when the process ends, and then it crashes.
        """
        self._alive = False
        _detach(self._descriptor)


def _detach(descriptor: int) -> None:
    """Whatever else is written to an open file goes nowhere."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


_open_writers: "weakref.WeakSet[TraceWriter]" = weakref.WeakSet()


def _after_fork() -> None:
    for writer in list(_open_writers):
        writer._abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _create(path: str, force: bool) -> tuple[Any, dict[str, Any]]:
    """A new file with all tables, empty, in SWMR mode: from here on a reader finds it consistent at any moment."""
    if os.path.lexists(path):
        if not stat.S_ISREG(os.lstat(path).st_mode) and not os.path.islink(path):
            raise CannotWrite(f"trace {path}", found="something that is no file")
        if not force:
            raise OutputExists(f"trace {path}", found="a file of that name", expected="none")
        with contextlib.suppress(FileNotFoundError):
            _writing(path, os.unlink, path)
    file = _writing(path, h5py.File, path, "x", libver="latest", locking=False)
    try:
        file.attrs[schema.FORMAT_ATTRIBUTE] = schema.FORMAT
        datasets = {
            table.name: file.create_dataset(
                table.name, (0,), table.dtype, chunks=(table.chunk,), maxshape=(None,), fletcher32=True
            ).id
            for table in (*TABLES, COMMITS)
        }
        file.swmr_mode = True
    except _HDF5_ERRORS as error:
        _detach(file.id.get_vfd_handle())
        with contextlib.suppress(*_HDF5_ERRORS):
            file.close()
        with contextlib.suppress(OSError):
            os.unlink(path)
        raise CannotWrite(f"trace {path}", found=reason(error)) from error
    return file, datasets


def _writing(path: str, action: Callable[..., Any], *args: Any, **options: Any) -> Any:
    try:
        return action(*args, **options)
    except FileExistsError as error:
        raise OutputExists(f"trace {path}", found="a file of that name", expected="none") from error
    except _HDF5_ERRORS as error:
        raise CannotWrite(f"trace {path}", found=reason(error)) from error
