"""The bytes of an HDF5 file as if its writer had closed it.

Reads them, and knows of their meaning only what the superblock says; the file itself is never changed.
"""

import os
import struct
from typing import Any

from tfbisect import storage

SUPERBLOCK = 3  # the version of those that are written in SWMR mode
_SIGNATURE = b"\x89HDF\r\n\x1a\n"


class FileImage:
    """What h5py needs of a file object, of a local file or of one behind a URL.

    A file whose writer was killed, or still runs, is marked in its superblock, and HDF5 opens it in SWMR mode only. In
    that mode HDF5 1.14 hangs at a wrong checksum: it tries again 100 times and doubles the pause from time to time. So
    the mark is taken away here, from what is read, not from the file; a trace is consistent at any moment anyway. The
    size it notes is made the real one: on a full disk the file is shorter, which hurts nothing that was committed.
    """

    def __init__(self, name: str) -> None:
        self._file = storage.opened(name)
        self._at = 0
        self.superblock = self._file.read(48)
        self.is_hdf5 = self.superblock[:8] == _SIGNATURE
        # Version 3: the mark is byte 11, the size of the file follows at byte 28, and then a checksum of it all.
        self.marked = self.superblock[:9] == _SIGNATURE + b"\3" and self.superblock[11] != 0
        if self.marked and self.superblock[44:] == _lookup3(self.superblock[:44]):
            size = struct.pack("<Q", self.size)
            cleared = self.superblock[:11] + b"\0" + self.superblock[12:28] + size + self.superblock[36:44]
            self.superblock = cleared + _lookup3(cleared)

    @property
    def size(self) -> int:
        """Of the file, now: it may grow."""
        return storage.size(self._file)

    def close(self) -> None:
        self._file.close()

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = int(self._file.seek(offset, whence))
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int) -> bytes:
        data = bytearray(size)
        return bytes(data[: self.readinto(data)])

    def readinto(self, buffer: Any) -> int:
        into, start, done = memoryview(buffer), self._at, 0
        while done < len(into):
            count = self._file.readinto(into[done:])
            if not count:
                break
            done += count
        if start < len(self.superblock):
            piece = self.superblock[start : start + done]
            into[: len(piece)] = piece
        self._at = start + done
        return done


def check_names_index(image: FileImage) -> None:
    """Refuse an index of table names that no writer of traces makes: HDF5 divides by the sizes that it declares.

    Follows the root group's header (HDF5 file format, version 3, IV.A.1.b) to its "link info" message and that to the
    header of a version 2 B-tree (III.A.2). Raises ValueError.
    """
    if image.superblock[8] < 2:
        return  # of an older kind, which has no such index and is no trace
    header = _at(image, struct.unpack("<Q", image.superblock[36:44])[0], 512)
    if header[:5] != b"OHDR\2":
        raise ValueError("the root group is of another version")
    flags = header[5]
    width = 1 << (flags & 3)
    start = 6 + (16 if flags & 0x20 else 0) + (4 if flags & 0x10 else 0)
    at = start + width
    end = at + int.from_bytes(header[start:at], "little")
    while at + 4 <= min(end, len(header)):
        kind, size = header[at], int.from_bytes(header[at + 1 : at + 3], "little")
        data = at + (6 if flags & 4 else 4)
        if kind == _LINK_INFO:
            tracked = header[data + 1]
            if tracked & ~1:
                raise ValueError("the table names are indexed in another way")
            tree = struct.unpack("<Q", header[data + 10 + 8 * tracked : data + 18 + 8 * tracked])[0]
            if tree == _NOWHERE:
                return
            if _at(image, tree, 16) != _NAMES:
                raise ValueError("the index of table names is another")
            return
        at = data + size
    raise ValueError("the root group has no index")


_LINK_INFO = 2
_NOWHERE = 2**64 - 1
# A B-tree of names: version, type, bytes a node and a record, depth, the percentages at which nodes split and merge.
_NAMES = b"BTHD" + struct.pack("<BBIHHBB", 0, 5, 512, 11, 0, 100, 40)


def _at(image: FileImage, offset: int, size: int) -> bytes:
    if offset > image.size:
        raise ValueError("an address behind the end of the file")
    image.seek(offset)
    return image.read(size)


def _lookup3(data: bytes) -> bytes:
    """Bob Jenkins' lookup3, HDF5's checksum of metadata, of 44 bytes."""

    def turn(value: int, bits: int) -> int:
        return (value << bits | value >> 32 - bits) & 0xFFFFFFFF

    words = struct.unpack("<11I", data)
    a = b = c = (0xDEADBEEF + len(data)) & 0xFFFFFFFF
    for i in (0, 3, 6):
        a, b, c = a + words[i], b + words[i + 1], c + words[i + 2]
        a = (a - c ^ turn(c & 0xFFFFFFFF, 4)) & 0xFFFFFFFF
        c += b
        b = (b - a ^ turn(a, 6)) & 0xFFFFFFFF
        a += c
        c = (c - b ^ turn(b, 8)) & 0xFFFFFFFF
        b += a
        a = (a - c ^ turn(c, 16)) & 0xFFFFFFFF
        c += b
        b = (b - a ^ turn(a, 19)) & 0xFFFFFFFF
        a += c
        c = (c - b ^ turn(b, 4)) & 0xFFFFFFFF
        b += a
    a, b, c = (a + words[9]) & 0xFFFFFFFF, (b + words[10]) & 0xFFFFFFFF, c & 0xFFFFFFFF
    c = ((c ^ b) - turn(b, 14)) & 0xFFFFFFFF
    a = ((a ^ c) - turn(c, 11)) & 0xFFFFFFFF
    b = ((b ^ a) - turn(a, 25)) & 0xFFFFFFFF
    c = ((c ^ b) - turn(b, 16)) & 0xFFFFFFFF
    a = ((a ^ c) - turn(c, 4)) & 0xFFFFFFFF
    b = ((b ^ a) - turn(a, 14)) & 0xFFFFFFFF
    c = ((c ^ b) - turn(b, 24)) & 0xFFFFFFFF
    return struct.pack("<I", c)
