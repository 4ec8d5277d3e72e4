"""How ops were made, as the trace keeps it: a NodeDef without name, inputs and what only its own graph knows.

With it one op can be run again by itself. Writes nothing: `function`, `session_plan` and `eager` do.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

from tensorflow.core.framework import attr_value_pb2, node_def_pb2
from tensorflow.python.framework import dtypes, op_def_registry, tensor_shape

from tfbisect.recorder import ops

MOST_BYTES = 2**20
_KERNEL = "_kernel"  # no attribute of the op: it chooses among kernels (oneDNN's have "MklNameChangeOp")
_NONE = (ops.SILENT | ops.LOOP_OPS) - {"NoOp"}
AttrValue = attr_value_pb2.AttrValue


def of_node(node: Any) -> bytes | None:
    """The definition of an executed NodeDef; None for constants, arguments and ops that call functions."""
    if node.op in _NONE:
        return None
    types = _types(node.op)
    if types is None:
        return None
    result = node_def_pb2.NodeDef()
    result.CopyFrom(node)
    for field in ("name", "input", "experimental_debug_info", "experimental_type"):
        result.ClearField(field)
    for name in [name for name in result.attr if name not in types and name != _KERNEL]:
        del result.attr[name]
    return _bytes(result)


def of_eager(op: str, attrs: Sequence[Any], device: str) -> bytes | None:
    """The definition of an eager op, from the names and values that an op callback is given."""
    types = _types(op)
    if types is None or op in _NONE:
        return None
    result = node_def_pb2.NodeDef(op=op, device=device)
    try:
        for key, value in zip(map(str, attrs[::2]), attrs[1::2], strict=True):
            if key in types:
                result.attr[key].CopyFrom(_attr(types[key], value))
    except (TypeError, ValueError):  # a function, or what an op made in Python is given and takes no part in its kernel
        return None
    return _bytes(result)


@cache
def _types(op: str) -> dict[str, str] | None:
    """{attribute: its type} of an op; None for an op that Python does not know."""
    known = op_def_registry.get(op)
    return None if known is None else {attr.name: attr.type for attr in known.attr}


def _bytes(node: Any) -> bytes | None:
    if any(value.HasField("func") or value.list.func for value in node.attr.values()):
        return None
    data: bytes = node.SerializeToString(deterministic=True)
    return data if len(data) <= MOST_BYTES else None


def _attr(kind: str, value: Any) -> Any:
    """An attribute's value as a protocol buffer. Raises TypeError and ValueError."""
    if kind.startswith("list("):
        fields: dict[str, list[Any]] = {}
        for item in value:
            name, plain = _field(kind[5:-1], item)
            fields.setdefault(name, []).append(plain)
        return AttrValue(list=AttrValue.ListValue(**fields))
    name, plain = _field(kind, value)
    return AttrValue(**{name: plain})


def _field(kind: str, value: Any) -> tuple[str, Any]:
    if kind == "type":
        return "type", dtypes.as_dtype(value).as_datatype_enum
    if kind == "shape":
        return "shape", tensor_shape.as_shape(value).as_proto()
    if kind == "string":
        return "s", value if isinstance(value, bytes) else str(value).encode()
    if kind in ("int", "float", "bool"):
        convert = {"int": int, "float": float, "bool": bool}[kind]
        return kind[0], convert(value)
    if kind == "tensor":
        return "tensor", value
    raise TypeError(f"an attribute of type {kind}")
