"""The bytes of a trace file, changed so that every checksum is right again: what a hostile writer would hand out.

Finds the chunks of the tables with h5py once; after that a change costs no call of HDF5.
"""

import io
import struct
import zlib
from typing import Any, NamedTuple

import h5py
import numpy as np

from tfbisect import schema

SIGNATURES = (b"OHDR", b"OCHK", b"BTHD", b"BTIN", b"BTLF", b"FADB", b"FAHD", b"EAHD", b"EAIB", b"EASB", b"EADB")
LONGEST = 400  # bytes of a block of metadata that is looked for
CRCS = len(schema.TABLES) * 8  # where the CRCs of a commit begin


def fletcher32(data: bytes) -> bytes:
    """HDF5's checksum of a chunk."""
    words = np.frombuffer(data, ">u2").astype(np.int64)

    def folded(total: int) -> int:
        return (total - 1) % 65535 + 1 if total else 0

    one, two = int(words.sum()), int((words * np.arange(len(words), 0, -1)).sum())
    return struct.pack("<I", folded(two) << 16 | folded(one))


def _turn(value: Any, bits: int) -> Any:
    return (value << np.uint32(bits)) | (value >> np.uint32(32 - bits))


def lookup3(data: bytes, lengths: Any) -> Any:
    """Bob Jenkins' lookup3, HDF5's checksum of metadata, of the first `length` bytes, for each length at once."""
    lengths = np.asarray(lengths)
    padded = np.frombuffer(data[: int(lengths.max())] + bytes(24), np.uint8)
    a = (0xDEADBEEF + lengths).astype(np.uint32)
    b, c = a.copy(), a.copy()
    last = (lengths - 1) // 12
    for block in range(int(last.max()) + 1):
        raw = padded[block * 12 : block * 12 + 12]
        rest = (lengths - block * 12)[:, None]
        words = np.where(np.arange(12) < rest, raw, 0).astype(np.uint8).view("<u4")
        live = last >= block
        a, b, c = (np.where(live, x + words[:, i], x) for i, x in enumerate((a, b, c)))
        x, y, z = a, b, c
        for bits in ((4, 6, 8), (16, 19, 4)):
            x = (x - z) ^ _turn(z, bits[0])
            z = z + y
            y = (y - x) ^ _turn(x, bits[1])
            x = x + z
            z = (z - y) ^ _turn(y, bits[2])
            y = y + x
        more = last > block
        a, b, c = np.where(more, x, a), np.where(more, y, b), np.where(more, z, c)
    c = (c ^ b) - _turn(b, 14)
    a = (a ^ c) - _turn(c, 11)
    b = (b ^ a) - _turn(a, 25)
    c = (c ^ b) - _turn(b, 16)
    a = (a ^ c) - _turn(c, 4)
    b = (b ^ a) - _turn(a, 14)
    return (c ^ b) - _turn(b, 24)


class Chunk(NamedTuple):
    """Where a chunk of a table lies: its rows' bytes, and then their checksum."""

    offset: int
    size: int


class Original:
    """A sound, closed trace file that is to be changed."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        with h5py.File(io.BytesIO(data), "r") as file:
            self.tables = {table.name: file[table.name][:] for table in schema.TABLES}
            self._chunks = {name: self._found(file[name].id) for name in (*self.tables, "commits")}
            self.last_commit = file["commits"].shape[0] - 1
        self.blocks = list(self._metadata())

    def _found(self, dataset: Any) -> list[Chunk]:
        chunks = [dataset.get_chunk_info(i) for i in range(dataset.get_num_chunks())]
        chunks.sort(key=lambda chunk: chunk.chunk_offset)
        return [Chunk(chunk.byte_offset, chunk.size - 4) for chunk in chunks]

    def _metadata(self) -> Any:
        """(offset, length) of each block of metadata; its checksum follows it."""
        yield 0, 44
        for signature in SIGNATURES:
            at = self.data.find(signature)
            while at >= 0:
                lengths = np.arange(8, min(LONGEST, len(self.data) - at - 4))
                sums = lookup3(self.data[at : at + LONGEST], lengths)
                words = np.frombuffer(self.data[at : at + LONGEST + 4], np.uint8).astype(np.uint32)
                there = sum(words[8 + i : 8 + i + len(lengths)] << np.uint32(8 * i) for i in range(4))
                for length in lengths[sums == there].tolist():
                    yield at, length
                at = self.data.find(signature, at + 4)

    def with_table(self, name: str, rows: Any, into: bytearray | None = None) -> bytearray:
        """The file with other contents of a table, as many rows as it has, or fewer."""
        into = bytearray(self.data) if into is None else into
        table = schema.BY_NAME[name]
        data, size = rows.tobytes(), table.chunk * table.dtype.itemsize
        for i, chunk in enumerate(self._chunks[name]):
            piece = data[i * size : (i + 1) * size]
            self._put(into, chunk, 0, piece)
        if name != "value_bytes":
            number = list(self.tables).index(name)
            commit = self._chunks["commits"][self.last_commit]
            self._put(into, commit, number * 8, struct.pack("<Q", len(rows)))
            self._put(into, commit, CRCS + number * 4, struct.pack("<I", zlib.crc32(data)))
        return into

    def with_commit(self, into: bytearray, number: int, rows: int) -> bytearray:
        """The file with another number of committed rows of a table."""
        self._put(into, self._chunks["commits"][self.last_commit], number * 8, struct.pack("<Q", rows))
        return into

    def with_block(self, number: int, changed: bytes) -> bytearray:
        """The file with other bytes of a block of metadata."""
        at, length = self.blocks[number]
        into = bytearray(self.data)
        into[at : at + length] = changed
        into[at + length : at + length + 4] = struct.pack("<I", int(lookup3(changed, [length])[0]))
        return into

    @staticmethod
    def _put(into: bytearray, chunk: Chunk, start: int, data: bytes) -> None:
        at = chunk.offset + start
        into[at : at + len(data)] = data
        end = chunk.offset + chunk.size
        into[end : end + 4] = fletcher32(bytes(into[chunk.offset : end]))
