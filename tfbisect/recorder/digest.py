"""Bytes to digest, on the host; and what TensorFlow's dtypes mean to the taps of a twin.

Does not decide what is digested, and builds no graph. Two schemes exist side by side in a trace: `xxh3_64/1` for what
is hashed here and `farmhash64/1` for what TensorFlow's `Fingerprint` kernel hashes inside a twin. Digests of different
schemes are never compared; an event has the same scheme in every run, because it is recorded by the same part.
"""

from typing import Any

import numpy as np
import xxhash

SCHEMES = {"host": "xxh3_64/1", "graph": "farmhash64/1"}

# DataType numbers of tensorflow/core/framework/types.proto; they are part of every SavedModel and never change.
DT_BOOL, DT_STRING, DT_RESOURCE, DT_VARIANT, DT_UINT8 = 10, 7, 20, 21, 4
REF = 100  # a reference type (VariableV2) is its base type plus this
# dtypes that `Bitcast` turns into bytes -> bytes an element (tensorflow/core/ops/array_ops.cc, op Bitcast)
BITCAST = {
    1: 4, 2: 8, 3: 4, 5: 2, 6: 1, 8: 8, 9: 8, 11: 1, 12: 1, 13: 4, 14: 2, 15: 2, 16: 2, 17: 2, 18: 16, 19: 2,
    22: 4, 23: 8,
}  # fmt: skip
ITEMSIZE = {**BITCAST, DT_BOOL: 1, DT_UINT8: 1}  # dtypes whose bytes a twin can hand over
SUB_BYTE_AND_FLOAT8 = range(24, 34)  # float8 types, int4, uint4, int2, uint2, float4: one byte an element in memory


def digestible(dtype: int) -> bool:
    """Whether a twin can digest an output of this DataType.

    `Fingerprint` takes strings and every type that can be copied as bytes (tensorflow/core/kernels/fingerprint_op.cc).
    """
    return dtype in ITEMSIZE or dtype == DT_STRING or dtype in SUB_BYTE_AND_FLOAT8


def of_bytes(data: Any) -> int:
    """The host digest of a bytes-like object: 64 bits of XXH3."""
    return xxhash.xxh3_64_intdigest(data)


def of_array(array: np.ndarray) -> int:
    """The host digest of an array's bytes in C order; strings are hashed with their lengths.

    The shape takes no part: an event carries it beside the digest.
    """
    if array.dtype.hasobject:
        state = xxhash.xxh3_64()
        for item in array.reshape(-1):
            data = item if isinstance(item, bytes) else str(item).encode()
            state.update(len(data).to_bytes(8, "little"))
            state.update(data)
        return state.intdigest()
    if not array.flags.c_contiguous:
        array = np.ascontiguousarray(array)
    try:
        return xxhash.xxh3_64_intdigest(array.data)
    except (TypeError, ValueError, BufferError):  # bfloat16, float8: numpy exports no buffer for them
        return xxhash.xxh3_64_intdigest(bytes_of(array))


def bytes_of(array: np.ndarray) -> bytes:
    """An array's bytes in C order."""
    return array.tobytes()


def of_text(*parts: object) -> int:
    """The host digest of texts and numbers, kept apart from each other."""
    return xxhash.xxh3_64_intdigest(repr(parts).encode("utf-8", "backslashreplace"))
