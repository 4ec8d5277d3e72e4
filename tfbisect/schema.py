"""The layout of a trace file: its tables, their columns and its format number with a history.

Reads and writes nothing: `trace` does. The table of the documentation is made from `TABLES` by `markdown()`.
"""

from typing import Any, NamedTuple

import numpy as np

FORMAT = 2

HISTORY = {
    1: "the first; graphs of v1 Sessions are of kind 1, and in such a trace both digest schemes are the host's",
    2: "graphs of v1 Sessions have a kind of their own; `definitions`: how ops were made, to run one again by itself",
}
"""What each format changed. A reader reads its own format and all before it, and refuses later ones by number."""

FORMAT_ATTRIBUTE = "tfbisect_format"

Dtype = np.dtype[Any]


class Column(NamedTuple):
    """A column of a table, or the table itself if `name` is empty. `type` is a NumPy type code."""

    name: str
    type: str
    doc: str


class Table(NamedTuple):
    """One chunked, one-dimensional, append-only dataset with fletcher32 checksums and no other filter."""

    name: str
    doc: str
    columns: tuple[Column, ...]
    chunk: int  # rows a chunk; the last chunk of a table is written whole at each flush
    since: int = 1  # the format that brought it

    @property
    def dtype(self) -> Dtype:
        if not self.columns[0].name:
            return np.dtype(self.columns[0].type)
        return np.dtype([(column.name, column.type) for column in self.columns])


# Rows are numbered from 0 in the order they were appended, and a row's number is the id of what it describes: "string"
# in a column means a string's id. The order of the tables is the order of dependence: a row refers to earlier tables
# or to earlier rows of its own.
TABLES = (
    Table(
        "journal",
        "JSON lines: `info`, `opaque`, `dropped`, `reads`, `executed`, `seeds`, `state`, `variable`, `state_cost`, "
        "`end`",
        (Column("", "<u1", "UTF-8 bytes; a line without its newline was cut off"),),
        4096,
    ),
    Table("string_bytes", "all strings, one after the other", (Column("", "<u1", "UTF-8 bytes"),), 8192),
    Table("string_ends", "string 0 is empty", (Column("", "<u8", "where the string ends in string_bytes"),), 1024),
    Table(
        "frames",
        "lines of Python",
        (
            Column("file", "<u4", "string"),
            Column("line", "<u4", "from 1"),
            Column("function", "<u4", "string"),
            Column("text", "<u4", "string: the source line"),
        ),
        512,
    ),
    Table(
        "stacks",
        "Python stacks as a trie; stack 0 is no stack; the leaf is the user's innermost line",
        (Column("parent", "<u4", "stack of the caller"), Column("frame", "<u4", "frame")),
        1024,
    ),
    Table("path_items", "loop iterations", (Column("", "<i4", "iteration, from 0, outermost loop first"),), 1024),
    Table(
        "path_ends",
        "iteration path 0 is outside all loops",
        (Column("", "<u8", "where the path ends in path_items"),),
        1024,
    ),
    Table("shape_items", "dimensions", (Column("", "<i8", "size of a dimension"),), 1024),
    Table(
        "shape_ends",
        "shape 0 is unknown, shape 1 is a scalar's",
        (Column("", "<u8", "where the shape ends in shape_items"),),
        1024,
    ),
    Table("value_bytes", "kept tensors, row-major, little endian", (Column("", "<u1", "bytes"),), 65536),
    Table(
        "values",
        "value 0 is not kept; equal bytes are stored once",
        (Column("start", "<u8", "first byte in value_bytes"), Column("length", "<u8", "bytes")),
        512,
    ),
    Table(
        "graphs",
        "what can run: executed functions and single eager ops",
        (
            Column("name", "<u4", "string: the user's function, or the op type"),
            Column("raw_name", "<u4", "string: TensorFlow's name"),
            Column("kind", "<u1", "0 eager, 1 twin, 2 source, 3 opaque, 4 entry, 5 session, 6 written"),
            Column("structure", "<u8", "xxh3 over node names, ops, attributes and edges"),
        ),
        512,
    ),
    Table(
        "nodes",
        "ops; those of a graph stand together, in the order of the graphs",
        (
            Column("graph", "<u4", "graph"),
            Column("name", "<u4", "string"),
            Column("op", "<u4", "string: the op type"),
            Column("device", "<u4", "string"),
            Column("function", "<u4", "string: the user's function the op was written in"),
            Column("stack", "<u4", "stack"),
            Column("attrs", "<u8", "digest of the normalized attributes"),
            Column("index", "<i4", "number of an argument or result, else -1"),
            Column("forward", "<i4", "node of this graph whose gradient or update this op is part of, or -1"),
            Column("forward_name", "<u4", "string"),
            Column(
                "flags",
                "<u2",
                "1 stateful, 2 random, 4 forwarder, 8 opaque, 16 host, 32 writer, 64 host value, 128 last write, "
                "256 entering, 512 passed by",
            ),
            Column("frame", "<u4", "string: names of the loop frames, outermost first, one a line"),
        ),
        256,
    ),
    Table(
        "edges",
        "inputs; those of a graph stand together, data inputs in order and then control inputs",
        (
            Column("graph", "<u4", "graph"),
            Column("node", "<u4", "consumer, counted from 0 within the graph"),
            Column("src", "<u4", "producer, likewise"),
            Column("slot", "<i2", "output of the producer, -1 for a control edge"),
        ),
        1024,
    ),
    Table(
        "sites",
        "places of graphs that have events",
        (
            Column("graph", "<u4", "graph"),
            Column("node", "<u4", "node, counted from 0 within the graph"),
            Column("slot", "<i2", "output slot; for a write the input position of the variable's handle"),
            Column("kind", "<u1", "0 output, 1 argument, 2 constant, 3 variable after a write"),
            Column("dtype", "<u2", "TensorFlow's DataType number"),
        ),
        1024,
    ),
    Table(
        "calls",
        "runs of graphs, written when they end",
        (
            Column("id", "<u8", "given at the start"),
            Column("graph", "<u4", "graph"),
            Column("thread", "<u2", "by order of first appearance"),
            Column("state", "<u1", "0 ended, 1 failed"),
            Column("parent", "<i8", "call id of the call it ran in, or -1"),
            Column("step", "<i4", "step that the program named, or -1"),
            Column("stack", "<u4", "stack of the caller"),
        ),
        1024,
    ),
    Table(
        "links",
        "where the arguments of calls came from",
        (
            Column("call", "<u8", "call id"),
            Column("arg", "<u4", "argument number"),
            Column("src_call", "<i8", "call id of the producer, or -1 for a host value"),
            Column("src_ret", "<u4", "result number there"),
        ),
        1024,
    ),
    Table(
        "events",
        "digests of what was computed; those of a call stand together",
        (
            Column("call", "<u8", "call id, or 2^64-1 for a constant of the graph"),
            Column("site", "<u4", "site"),
            Column("path", "<u4", "iteration path"),
            Column("shape", "<u4", "shape"),
            Column("digest", "<u8", "in the scheme that the run's `digest` names"),
            Column("value", "<u4", "value"),
        ),
        2048,
    ),
    Table(
        "definitions",
        "how ops were made: op type, attributes and device of the kernel that ran; constants and arguments have none",
        (
            Column("graph", "<u4", "graph"),
            Column("node", "<u4", "node, counted from 0 within the graph"),
            Column("value", "<u4", "value: a NodeDef of TensorFlow's without name and inputs, as a protocol buffer"),
        ),
        512,
        since=2,
    ),
)

BY_NAME = {table.name: table for table in TABLES}


# A flush appends its rows, flushes the file, and then appends one row here: what a reader may believe. A process that
# is killed while it writes leaves rows that no commit covers, perhaps half written, and they are not read. A chunk a
# row, because a chunk that is written again can be torn.
def commits(format: int) -> Table:
    """The table of commits of a file of that format."""
    count = len(tables(format))
    return Table(
        "commits",
        "one row a flush: how many rows of each table are complete, and their CRC-32",
        (
            Column("rows", f"({count},)<u8", "rows of each table, in the order of this page"),
            Column("crc", f"({count},)<u4", "CRC-32 of all these rows"),
        ),
        1,
    )


def tables(format: int) -> tuple[Table, ...]:
    """The tables of a file of that format: later formats add theirs at the end."""
    return tuple(table for table in TABLES if table.since <= format)


COMMITS = commits(FORMAT)

# The rows that every file begins with.
FIRST_ROWS: dict[str, list[Any]] = {
    "string_ends": [0],
    "stacks": [(0, 0)],
    "path_ends": [0],
    "shape_ends": [0, 0],
    "values": [(0, 0)],
}

MAX_STRING_BYTES = 2**16
"""The longest string: a writer cuts longer ones and says so in them, a reader refuses them."""

MAX_CHUNK_BYTES = 16 * 2**20
MAX_TABLE_BYTES = 8 * 2**30
"""A reader refuses larger chunks and tables (but for value_bytes, which is read piece by piece)."""

# TensorFlow's DataType numbers (tensorflow/core/framework/types.proto). Quantized types are their integers. None: no
# fixed number of bytes an element, or no bytes to compare.
DTYPES: dict[int, str] = {
    1: "float32",
    2: "float64",
    3: "int32",
    4: "uint8",
    5: "int16",
    6: "int8",
    7: "string",
    8: "complex64",
    9: "int64",
    10: "bool",
    11: "qint8",
    12: "quint8",
    13: "qint32",
    14: "bfloat16",
    15: "qint16",
    16: "quint16",
    17: "uint16",
    18: "complex128",
    19: "float16",
    20: "resource",
    21: "variant",
    22: "uint32",
    23: "uint64",
    24: "float8_e5m2",
    25: "float8_e4m3fn",
    26: "float8_e4m3fnuz",
    27: "float8_e4m3b11fnuz",
    28: "float8_e5m2fnuz",
    29: "int4",
    30: "uint4",
    31: "int2",
    32: "uint2",
    33: "float4_e2m1fn",
}


def markdown() -> str:
    """The tables as a page for people: one section a table."""
    lines = [f"Format {FORMAT}.", ""]
    for table in (*TABLES, COMMITS):
        lines += [f"### `{table.name}`", "", f"{table.doc[:1].upper()}{table.doc[1:]}.", ""]
        lines += ["| column | type | meaning |", "|---|---|---|"]
        lines += [f"| {column.name or '(the row)'} | `{column.type}` | {column.doc} |" for column in table.columns]
        lines.append("")
    return "\n".join(lines)
