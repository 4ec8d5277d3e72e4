"""What every program of the zoo prints at its end: exact losses, and digests of all that it is left with.

A loss is a poor witness: it often stays equal while weights differ. So every byte of the state is hashed.
"""

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf


def show(losses: Iterable[Any], **states: Any) -> None:
    """Print losses as exact hexadecimal numbers, then a SHA-256 of each named state.

    A state: tensors, arrays, variables (TensorFlow's or Keras's), ragged, sparse and string tensors, Python numbers and
    texts, in lists and dicts.
    """
    for step, loss in enumerate(losses):
        print(f"loss {step} {float(loss).hex()}")
    for name, state in states.items():
        digest, tensors, size = hashlib.sha256(), 0, 0
        for array in _arrays(state):
            data = _bytes(array)
            digest.update(f"{array.dtype} {array.shape} {len(data)}\n".encode())
            digest.update(data)
            tensors, size = tensors + 1, size + len(data)
        print(f"{name} {digest.hexdigest()[:32]} tensors={tensors} bytes={size}")


def _arrays(state: Any) -> Iterator[np.ndarray]:
    if isinstance(state, dict):
        for key in state:
            yield from _arrays(state[key])
    elif isinstance(state, list | tuple):
        for part in state:
            yield from _arrays(part)
    elif isinstance(state, tf.RaggedTensor):
        yield from _arrays([state.flat_values, *state.nested_row_splits])
    elif isinstance(state, tf.SparseTensor):
        yield from _arrays([state.indices, state.values, state.dense_shape])
    elif isinstance(state, tf.IndexedSlices):
        yield from _arrays([state.indices, state.values])
    elif state is not None:
        yield np.asarray(state.numpy() if hasattr(state, "numpy") else state)


def _bytes(array: np.ndarray) -> bytes:
    if not array.dtype.hasobject:
        return array.tobytes()
    items = [item if isinstance(item, bytes) else str(item).encode() for item in array.reshape(-1)]
    return b"".join(len(item).to_bytes(8, "little") + item for item in items)
