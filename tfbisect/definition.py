"""A NodeDef of TensorFlow's, as the trace keeps it, read without TensorFlow: op type, device and attributes.

Reads the wire format of protocol buffers as far as NodeDef and AttrValue need it
(tensorflow/core/framework/node_def.proto, attr_value.proto). Writes nothing.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tfbisect.schema import DTYPES

VARINT, EIGHT, BYTES, FOUR = 0, 1, 2, 5
_LIST, _S, _I, _F, _B, _TYPE = 1, 2, 3, 4, 5, 6


@dataclass(frozen=True, slots=True)
class Definition:
    """An op type, a device and the attributes that are numbers, texts, booleans or types ("float32"), or lists."""

    op: str = ""
    device: str = ""
    attrs: dict[str, object] = field(default_factory=dict)


def parse(data: bytes | None) -> Definition:
    """The definition; what is not there or cannot be read is left out."""
    op, device, attrs = "", "", dict[str, object]()
    try:
        for number, value in _fields(data or b""):
            if number == 2:
                op = _text(value)
            elif number == 4:
                device = _text(value)
            elif number == 5:
                entry = dict(_fields(value))
                found = _attribute(entry.get(2, b""))
                if found is not None:
                    attrs[_text(entry.get(1, b""))] = found
    except (ValueError, TypeError, IndexError, struct.error):
        pass
    return Definition(op, device, attrs)


def _attribute(data: bytes) -> object:
    for number, value in _fields(data):
        if number == _LIST:
            return [item for place, each in _fields(value) for item in _items(place, each)]
        return next(iter(_items(number, value)), None)
    return None


def _items(number: int, value: Any) -> Iterator[object]:
    """The values of a field; numbers of a list come packed."""
    if number == _S:
        yield _text(value)
    elif number in (_I, _B, _TYPE):
        numbers = _varints(value) if isinstance(value, bytes) else [value]
        for each in numbers:
            if number == _B:
                yield bool(each)
            else:
                yield each - 2**64 * (each >= 2**63) if number == _I else DTYPES.get(each, f"dtype {each}")
    elif number == _F:
        yield from struct.unpack(f"<{len(value) // 4}f", value)


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """(number, value) of each field: bytes, or an int for a varint. Raises ValueError when it is no message."""
    place = 0
    while place < len(data):
        tag, place = _varint(data, place)
        number, kind = tag >> 3, tag & 7
        if kind == VARINT:
            value, place = _varint(data, place)
            yield number, value
            continue
        size = {EIGHT: 8, FOUR: 4}.get(kind)
        if kind == BYTES:
            size, place = _varint(data, place)
        if size is None or place + size > len(data):
            raise ValueError("no protocol buffer")
        yield number, data[place : place + size]
        place += size


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
    raise ValueError("no protocol buffer")


def _varints(data: bytes) -> list[int]:
    found, place = [], 0
    while place < len(data):
        value, place = _varint(data, place)
        found.append(value)
    return found


def _text(data: Any) -> str:
    if not isinstance(data, bytes):
        raise ValueError("no text")
    return data.decode("utf-8", "backslashreplace")
