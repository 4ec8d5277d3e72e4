"""The trace file, read: opened and checked, table by table, before a byte of it is believed.

Knows HDF5; besides, only `trace` does, which writes it. The file is not trusted: links, types, filters and sizes are
checked before a table is read. Judges nothing of what was recorded.
"""

import contextlib
import os
import re
import time
import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import h5py
import numpy as np
import numpy.typing as npt

from tfbisect import schema, storage
from tfbisect.errors import CannotRead, Damaged, NewerFormat, NotATrace, TfbisectError
from tfbisect.events import Events
from tfbisect.image import SUPERBLOCK, FileImage, check_names_index
from tfbisect.schema import BY_NAME, TABLES, Table
from tfbisect.tables import Spans, Trace

Array = npt.NDArray[Any]
Path = str | os.PathLike[str]

BLOCK_BYTES = 8 * 2**20  # of a table that are read at once
_ATTEMPTS = 3
_FLETCHER32_BYTES = 4


def load(path: Path) -> Trace:
    """Reads a trace, complete or not, even while it is written; from a URL (`s3://`, `https://`, ...) with fsspec.

    Raises NotFound, CannotRead, NotATrace (not HDF5, or of another kind), NewerFormat and Damaged.
    """
    name = os.fspath(path)
    state = storage.state(name)
    tables, events = _opened(name, _read_tables)

    def values(spans: Spans) -> list[bytes]:
        now = storage.state(name)
        if now.identity != state.identity or now.size < state.size:
            raise Damaged(f"trace {name}", found="another file than the one that was loaded", hint="compare again")
        found: list[bytes] = _opened(name, _read_values, spans)
        return found

    return Trace(storage.shown(name), tables, values, events)


class SoFar(NamedTuple):
    """How far a recording is: events and calls that were flushed, the step that the program said it is in (-1: none),
    and bytes of the file."""

    events: int
    calls: int
    step: int
    bytes: int


def so_far(path: Path) -> SoFar:
    """How far a recording has come; reads the last call and the last commits alone. Raises what `load` raises."""
    name = os.fspath(path)
    events, calls, step = _opened(name, _read_counts)
    return SoFar(events, calls, step, storage.state(name).size)


def _opened(name: str, read: Callable[..., Any], *args: Any) -> Any:
    for attempt in range(_ATTEMPTS):
        try:
            image = FileImage(name)
        except OSError as error:
            raise CannotRead(f"trace {name}", found=reason(error)) from error
        with contextlib.closing(image):
            if not image.is_hdf5:
                found = "no HDF5 signature" if image.superblock else "an empty file"
                raise NotATrace(f"trace {name}", found=found, expected="an HDF5 file")
            try:
                check_names_index(image)
                with h5py.File(image, "r") as file:
                    return read(file, name, image, *args)
            except Exception as error:  # of a damaged file h5py raises whatever its C library or NumPy stumbled over
                if isinstance(error, TfbisectError) and not isinstance(error, Damaged):
                    raise
                if not image.marked or attempt == _ATTEMPTS - 1:
                    raise _damaged(name, error) from error
        time.sleep(0.02)  # the process that writes it may have been in the middle of a write


def _damaged(name: str, error: BaseException) -> Damaged:
    return error if isinstance(error, Damaged) else Damaged(f"trace {name}", found=reason(error))


def _read_tables(file: Any, name: str, image: FileImage) -> tuple[dict[str, Array], Events]:
    there, rows, crcs = _committed(file, name, image)
    tables: dict[str, Array] = {table.name: np.zeros(0, table.dtype) for table in TABLES}
    events = Events.of([], 0)
    for table, count, crc in zip(there, rows, crcs, strict=True):
        dataset = _dataset(file, name, table, image)
        if dataset.shape[0] < count:
            raise Damaged(f"trace {name}", found=f"{dataset.shape[0]} rows of {table.name}", expected=count)
        if table.name == "value_bytes":  # large: read when asked for
            tables[table.name] = np.broadcast_to(np.uint8(0), (count,))
            continue
        if count * table.dtype.itemsize > schema.MAX_TABLE_BYTES:
            raise Damaged(f"trace {name}", found=f"{count} rows of {table.name}", expected="a table of at most 8 GiB")
        blocks = _Blocks(dataset, table, count)
        if table.name == "events":  # by far the most rows
            events = Events.of(blocks, count)
        else:
            tables[table.name] = np.concatenate([tables[table.name], *blocks])
        if blocks.crc != crc:
            raise Damaged(f"trace {name}", found=f"bytes of {table.name} that are not those that were written")
    if not any(rows):  # killed before the first flush
        tables.update({table: np.array(first, BY_NAME[table].dtype) for table, first in schema.FIRST_ROWS.items()})
    return tables, events


def _read_counts(file: Any, name: str, image: FileImage) -> tuple[int, int, int]:
    there, rows, _ = _committed(file, name, image)
    counts = dict(zip((table.name for table in there), rows, strict=True))
    table = BY_NAME["calls"]
    last = np.zeros(min(1, counts["calls"]), table.dtype)
    _select(_dataset(file, name, table, image), last, counts["calls"] - 1)
    return counts["events"], counts["calls"], int(last["step"][0]) if len(last) else -1


def _committed(file: Any, name: str, image: FileImage) -> tuple[tuple[Table, ...], list[int], list[int]]:
    """The tables that the file has, and of each how many rows are complete and their CRC."""
    number = _check_format(file, name)
    if image.superblock[8] != SUPERBLOCK:
        raise Damaged(f"trace {name}", found=f"a superblock of version {image.superblock[8]}", expected=SUPERBLOCK)
    there = schema.tables(number)
    return there, *_last_commit(_dataset(file, name, schema.commits(number), image), len(there), name, image.marked)


def _check_format(file: Any, name: str) -> int:
    if schema.FORMAT_ATTRIBUTE not in file.attrs:
        raise NotATrace(f"trace {name}", found="HDF5 that something else wrote", expected="a trace of tfbisect")
    attribute = file.attrs.get_id(schema.FORMAT_ATTRIBUTE)
    if attribute.shape != () or attribute.dtype.kind not in "iu":
        raise NotATrace(f"trace {name}", found="a format that is no number", expected=f"at most {schema.FORMAT}")
    number = int(file.attrs[schema.FORMAT_ATTRIBUTE])
    if number > schema.FORMAT:
        raise NewerFormat(f"trace {name}", found=f"format {number}", expected=f"at most {schema.FORMAT}")
    if number < 1:
        raise Damaged(f"trace {name}", found=f"format {number}", expected=f"1 to {schema.FORMAT}")
    return number


def _dataset(file: Any, name: str, table: Table, image: FileImage) -> Any:
    """The dataset of a table, if it is as the writer makes them and the file is large enough to hold its rows."""

    def check(fine: bool, found: object, expected: object) -> None:
        if not fine:
            raise Damaged(f"trace {name}: table {table.name}", found=found, expected=expected)

    key = table.name.encode()
    check(key in file.id, "nothing", "a dataset")
    # A soft or external link could lead to any file on this machine.
    check(file.id.links.get_info(key).type == h5py.h5l.TYPE_HARD, "a link", "a dataset")
    dataset = h5py.h5o.open(file.id, key)
    check(isinstance(dataset, h5py.h5d.DatasetID), "no dataset", "a dataset")
    check(dataset.dtype == table.dtype, f"type {dataset.dtype}", table.dtype)
    check(dataset.rank == 1, f"{dataset.rank} dimensions", 1)
    plist = dataset.get_create_plist()
    check(plist.get_layout() == h5py.h5d.CHUNKED, "another layout", "chunks")  # not virtual: those read other files
    check(plist.get_external_count() == 0, "bytes in another file", "none")
    filters = [plist.get_filter(i)[0] for i in range(plist.get_nfilters())]
    check(set(filters) <= {h5py.h5z.FILTER_FLETCHER32}, f"filters {filters}", "checksums only")
    chunk = plist.get_chunk()[0] * table.dtype.itemsize
    check(chunk <= schema.MAX_CHUNK_BYTES, f"chunks of {chunk} bytes", f"at most {schema.MAX_CHUNK_BYTES}")
    # Nothing is compressed, so what the file declares it must be large enough to hold, but for one chunk of rows that a
    # killed process did not come to write. HDF5 is not asked what is stored: it would count the chunks of an index one
    # by one, for hours if the index declares enough of them.
    needed = dataset.shape[0] * table.dtype.itemsize
    limit = f"at most the {image.size} bytes of the file and one chunk"
    check(needed <= image.size + chunk, f"{needed} bytes declared", limit)
    return dataset


def _last_commit(dataset: Any, tables: int, name: str, marked: bool) -> tuple[list[int], list[int]]:
    count = dataset.shape[0]
    if count == 0:
        return [0] * tables, [0] * tables
    row = np.zeros(1, dataset.dtype)
    for i in range(count - 1, max(count - 3, -1) if marked else count - 2, -1):  # the last one can be torn
        with contextlib.suppress(OSError):
            _select(dataset, row, i)
            if row["rows"].any():
                return row["rows"][0].tolist(), row["crc"][0].tolist()
    raise Damaged(f"trace {name}", found="no readable commit", expected="one")


def _select(dataset: Any, into: Array, start: int) -> None:
    """Reads rows from `start` on. HDF5 crashes at a chunk that is said to be smaller than its checksum is."""
    if len(into):
        plist = dataset.get_create_plist()
        rows = plist.get_chunk()[0]
        size = rows * dataset.dtype.itemsize + _FLETCHER32_BYTES * plist.get_nfilters()
        for at in range(start // rows * rows, start + len(into), rows):
            chunk = dataset.get_chunk_info_by_coord((at,))
            if chunk.size != size or chunk.filter_mask:
                raise OSError(f"a chunk of {chunk.size} bytes in place of {size}")
        space = dataset.get_space()
        space.select_hyperslab((start,), (len(into),))
        dataset.read(h5py.h5s.create_simple((len(into),)), space, into)


class _Blocks:
    """The first rows of a table, part by part; `crc` is that of all that was read.

    torn: whether the last chunk may have a wrong checksum. The caller then knows that it is good all the same.
    """

    def __init__(self, dataset: Any, table: Table, count: int, *, torn: bool = True) -> None:
        self._dataset, self._table, self._count, self._torn = dataset, table, count, torn
        self._chunk = dataset.get_create_plist().get_chunk()[0]
        self.crc = 0

    def __iter__(self) -> Iterator[Array]:
        step = self._chunk * max(1, BLOCK_BYTES // (self._chunk * self._table.dtype.itemsize))
        for low in range(0, self._count, step):
            rows = self.rows(low, min(low + step, self._count))
            self.crc = zlib.crc32(rows.view(np.uint8).data, self.crc)
            yield rows

    def rows(self, low: int, high: int) -> Array:
        """Some of the rows."""
        data = np.zeros(high - low, self._table.dtype)
        try:
            _select(self._dataset, data, low)
        except OSError:
            # The last chunk is written again at each flush. A process killed while it did that can leave it torn, with
            # a wrong checksum: the committed rows in it are good nevertheless, since they were written as they were.
            # Of a table that is read as a whole their CRC tells.
            whole = self._count // self._chunk * self._chunk
            if high <= whole or not self._torn:
                raise
            first = max(low, whole)
            _select(self._dataset, data[: first - low], low)
            raw = self._dataset.read_direct_chunk((whole,))[1]
            data[first - low :] = np.frombuffer(raw, self._table.dtype, high - whole)[first - whole :]
        return data


def _read_values(file: Any, name: str, image: FileImage, spans: Spans) -> list[bytes]:
    there, counts, _ = _committed(file, name, image)
    table = BY_NAME["value_bytes"]
    blocks = _Blocks(_dataset(file, name, table, image), table, counts[there.index(table)], torn=image.marked)
    return [blocks.rows(start, start + length).tobytes() for start, length in spans]


def reason(error: BaseException) -> str:
    """Why the system refused, out of what HDF5 says about it in many lines."""
    said = re.search(r"error message = '([^']*)'", str(error))
    if said:
        return said[1]
    return os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
