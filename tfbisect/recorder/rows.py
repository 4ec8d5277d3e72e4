"""What a twin's row says: the shapes, digests and kept bytes of the taps of one group.

Only unpacks; where the events go is `Recording`'s.
"""

import math
from typing import TYPE_CHECKING

import numpy as np

from tfbisect.recorder.digest import ITEMSIZE
from tfbisect.recorder.policy import AUTO_TENSOR_BYTES, LARGEST
from tfbisect.recorder.twin import Group

if TYPE_CHECKING:
    from tfbisect.recorder.recording import Recording

DIGEST_BYTES = 8


def content(blob: bytes) -> memoryview:
    """The bytes of a uint8 tensor that `SerializeTensor` wrote: a TensorProto with its bytes in `tensor_content`.

    Raises ValueError when it is none.
    """
    place = 0
    view = memoryview(blob)
    while place < len(blob):
        tag = blob[place]
        length, place = varint(blob, place + 1)
        if tag == 0x22:  # field 4, tensor_content
            return view[place : place + length]
        if tag == 0x12:  # field 2, tensor_shape
            place += length
    raise ValueError("a row without content")


def varint(data: bytes | memoryview, place: int) -> tuple[int, int]:
    """A number of a protocol buffer that begins at a place; -> (it, the place behind it)."""
    value = shift = 0
    while True:
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
        shift += 7


class GroupReader:
    """Turns rows of one group into events.

    first_site: the site of the group's first tap; the others follow.
    """

    def __init__(self, first_site: int, group: Group) -> None:
        count = len(group.taps)
        self._sites = np.arange(first_site, first_site + count, dtype=np.uint32)
        self._count = count
        self._taps = group.taps
        self._uncertain = [index for index, tap in enumerate(group.taps) if tap.shape is None]
        self._limited = np.array([tap.carried == "limit" for tap in group.taps])
        self._carried = np.array([bool(tap.carried) for tap in group.taps])
        self._known: bytes | None = None  # the last row's uncertain shapes, as bytes
        self._shape_ids = np.zeros(count, np.uint32)
        self._too_large = 0  # how many values are too large for the policy
        self._nbytes = np.zeros(count, np.int64)  # bytes of the values of which any travel

    def record(self, recording: "Recording", call: int, path: np.ndarray, blob: bytes) -> None:
        """Append the row's events to the trace."""
        data = content(blob)
        if self._known is None or data[: len(self._known)] != self._known:
            self._read_shapes(recording, data)
        assert self._known is not None
        start = len(self._known)
        kept = self._kept(len(data) - start)
        starts = start + np.concatenate(([0], np.cumsum(DIGEST_BYTES + kept)[:-1]))
        array = np.frombuffer(data, np.uint8)
        digests = array[starts[:, None] + np.arange(DIGEST_BYTES)].copy().view("<u8")[:, 0]
        values = np.zeros(self._count, np.uint64)
        if kept.any():
            for index in np.nonzero((kept == self._nbytes) & self._carried)[0].tolist():
                if recording.policy.admits(int(kept[index])):
                    first = int(starts[index]) + DIGEST_BYTES
                    values[index] = recording.writer.offered(bytes(data[first : first + int(kept[index])]))
        recording.policy.left_out(self._too_large)
        iteration = recording.writer.iteration([int(i) for i in path[1:] if i >= 0])
        recording.writer.events(
            np.full(self._count, call, np.uint64), self._sites, np.full(self._count, iteration, np.uint32),
            self._shape_ids, digests, values,
        )  # fmt: skip
        recording.events += self._count

    def _kept(self, total: int) -> np.ndarray:
        """How many bytes of each value this row carries: the one limit under which the sizes add up."""
        space = total - DIGEST_BYTES * self._count
        for limit in (0, AUTO_TENSOR_BYTES, LARGEST):
            kept = np.where(self._limited, np.minimum(self._nbytes, limit), self._nbytes)
            if int(kept.sum()) == space:
                return kept
        raise ValueError(f"a row of {total} bytes for {self._count} taps")

    def _read_shapes(self, recording: "Recording", data: memoryview) -> None:
        ints = np.frombuffer(data[: len(data) // 8 * 8], "<i8")
        ends = np.nonzero(ints == -1)[0][: len(self._uncertain)] if self._uncertain else np.zeros(0, np.int64)
        if len(ends) < len(self._uncertain):
            raise ValueError(f"a row with {len(ends)} shapes for {len(self._uncertain)} taps")
        self._too_large = 0
        first, shapes = 0, [list(tap.shape or ()) for tap in self._taps]
        for index, end in zip(self._uncertain, ends.tolist(), strict=True):
            shapes[index] = ints[first:end].tolist()
            first = end + 1
        for index, (tap, dims) in enumerate(zip(self._taps, shapes, strict=True)):
            self._shape_ids[index] = recording.writer.shape(dims)
            nbytes = ITEMSIZE.get(tap.dtype, 0) * math.prod(dims)
            self._nbytes[index] = nbytes if tap.carried else 0
            self._too_large += recording.policy.too_large(nbytes, tap.carried)
        self._known = bytes(data[: 8 * first])
