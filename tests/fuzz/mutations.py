"""Ways to change a trace: each takes a sound file and a source of chance, and gives the bytes of another file.

A kind of mutation is a function `NAME_(original, draw) -> bytes`, found by its place in `KINDS` with its share.
"""

import io
import json
import random
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import h5py
import numpy as np
from fuzz.hdf5 import Original

from tfbisect import schema
from tfbisect.tables import Trace

Draw = random.Random
CANARY = "/tmp/tfbisect-fuzz-canary.h5"  # another file, which no trace may lead to
TEXTS = (
    "", "\0", "\x1b[2J", "a" * 70_000, "</script><script>alert(1)</script>", "\u202egpj", "%s%n", "../../etc/passwd",
    "{0.__class__}", "[bold]x", "\ud800", "loss", "MatMul", "\n\n",
)  # fmt: skip
JSONS = (None, True, -1, 0, 2**63, 10**400, 1e308, float("nan"), float("inf"), "", [], {}, [[]], {"a": {"a": {}}})


def wild(draw: Draw, dtype: Any, column: Any, count: int) -> int:
    """A number for a column: at the edges of its type, near what is there, or that of another row."""
    low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    near = int(column[draw.randrange(len(column))])
    choices = [low, high, high - 1, 0, 1, 2, near, near + 1, near - 1, count, count - 1, near ^ 1 << draw.randrange(64)]
    choices += [draw.randrange(low, high + 1), draw.randrange(0, 200), -1, -2]
    return min(max(draw.choice(choices), low), high)


def bytes_(original: Original, draw: Draw) -> bytes:
    """Bytes anywhere, checksums as they were: mostly found out."""
    data = bytearray(original.data)
    used = draw.random() < 0.7
    for _ in range(draw.choice((1, 1, 1, 2, 8, 64))):
        place = draw.randrange(9000 if used else len(data))
        data[place] = draw.randrange(256)
    if draw.random() < 0.2:
        del data[draw.randrange(len(data)) :]
    elif draw.random() < 0.1:
        at, size = draw.randrange(len(data)), draw.randrange(1, 5000)
        data[at:at] = bytes(size) if draw.random() < 0.5 else data[:size]
    return bytes(data)


def metadata_(original: Original, draw: Draw) -> bytes:
    """A block of HDF5's own metadata, with a right checksum."""
    data = original.data
    for _ in range(draw.choice((1, 1, 2))):
        number = draw.randrange(len(original.blocks)) if draw.random() < 0.8 else 0
        at, length = original.blocks[number]
        block = bytearray(data[at : at + length])
        for _ in range(draw.choice((1, 1, 1, 2, 4))):
            place = draw.randrange(length)
            size = draw.choice((1, 1, 1, 2, 4, 8))
            size = min(size, length - place)
            value = draw.choice((0, 1, 255, 254, 128, 127, draw.randrange(256), block[place] ^ 1 << draw.randrange(8)))
            block[place : place + size] = bytes([value]) * size
        data = bytes(original.with_block(number, bytes(block)))
    return data


def rows_(original: Original, draw: Draw) -> bytes:
    """Wild numbers in rows, with right checksums: the meaning is wrong, or only other."""
    tables = [name for name, rows in original.tables.items() if len(rows) and name != "journal"]
    into = None
    for _ in range(draw.choice((1, 1, 2, 3))):
        name = draw.choice(tables)
        rows = original.tables[name].copy()
        for _ in range(draw.choice((1, 1, 2, 10))):
            at = draw.randrange(len(rows))
            if rows.dtype.names:
                column = draw.choice(rows.dtype.names)
                rows[column][at] = wild(draw, rows.dtype[column], rows[column], len(rows))
            else:
                rows[at] = wild(draw, rows.dtype, rows, len(rows))
        if draw.random() < 0.1:
            rows = rows[: draw.randrange(len(rows))]
        elif draw.random() < 0.1:
            rows = rows[np.array(draw.sample(range(len(rows)), len(rows)))]
        into = original.with_table(name, rows, into)
    assert into is not None
    return bytes(into)


def graphs_(original: Original, draw: Draw) -> bytes:
    """Edges drawn by lot, so that graphs have circles, and links between calls likewise."""
    tables = original.tables
    edges = tables["edges"].copy()
    counts = np.bincount(tables["nodes"]["graph"], minlength=len(tables["graphs"]))
    for at in draw.sample(range(len(edges)), min(len(edges), draw.choice((1, 2, 5, 50)))):
        count = int(counts[edges["graph"][at]])
        edges["src"][at] = draw.choice((int(edges["node"][at]), draw.randrange(count)))
        edges["node"][at] = draw.choice((int(edges["node"][at]), draw.randrange(count)))
        edges["slot"][at] = draw.choice((-1, 0, 0, 1, 32767))
    into = original.with_table("edges", edges)
    if draw.random() < 0.5 and len(tables["links"]):
        links = tables["links"].copy()
        for at in draw.sample(range(len(links)), min(len(links), 3)):
            links["src_call"][at] = draw.randrange(-1, len(tables["calls"]))
            links["arg"][at] = draw.choice((0, 1, 2**32 - 1))
        into = original.with_table("links", links, into)
    if draw.random() < 0.5:
        nodes = tables["nodes"].copy()
        at = draw.randrange(len(nodes))
        nodes["forward"][at] = draw.randrange(-1, int(counts[nodes["graph"][at]]))
        nodes["flags"][at] = draw.randrange(65536)
        nodes["index"][at] = draw.choice((-1, 0, 1, 2**31 - 1))
        into = original.with_table("nodes", nodes, into)
    return bytes(into)


def digests_(original: Original, draw: Draw) -> bytes:
    """Other digests, shapes or values: a run that really differs."""
    rows = original.tables["events"].copy()
    for _ in range(draw.choice((1, 2, 20))):
        at = draw.randrange(len(rows))
        rows["digest"][at] ^= 1 << draw.randrange(64)
        if draw.random() < 0.3:
            rows["shape"][at] = draw.randrange(len(original.tables["shape_ends"]))
            rows["path"][at] = draw.randrange(len(original.tables["path_ends"]))
            rows["value"][at] = draw.randrange(len(original.tables["values"]))
    into = original.with_table("events", rows)
    if draw.random() < 0.3 and len(original.tables["value_bytes"]):
        values = original.tables["value_bytes"].copy()
        values[draw.randrange(len(values))] ^= 1 << draw.randrange(8)
        into = original.with_table("value_bytes", values, into)
    if draw.random() < 0.3:
        sites = original.tables["sites"].copy()
        sites["dtype"][draw.randrange(len(sites))] = draw.choice((*schema.DTYPES, 0, 77, 101, 120, 65535))
        into = original.with_table("sites", sites, into)
    return bytes(into)


def commits_(original: Original, draw: Draw) -> bytes:
    """Other numbers of committed rows: declared, but not there."""
    into = bytearray(original.data)
    for _ in range(draw.choice((1, 2))):
        number = draw.randrange(len(original.tables))
        rows = draw.choice((0, 1, 2**31, 2**60, 2**64 - 1, draw.randrange(10_000)))
        into = original.with_commit(into, number, rows)
    return bytes(into)


def _other_json(value: Any, draw: Draw) -> Any:
    """The same thing with one part of it replaced."""
    if draw.random() < 0.3 or not isinstance(value, dict | list) or not value:
        return draw.choice((*JSONS, *TEXTS, draw.randrange(-5, 100)))
    if isinstance(value, dict):
        key = draw.choice(list(value))
        return {**value, key: _other_json(value[key], draw)}
    at = draw.randrange(len(value))
    return [*value[:at], _other_json(value[at], draw), *value[at + 1 :]]


def journal_(original: Original, draw: Draw) -> bytes:
    """Lines of the journal with other types, sizes and depths."""
    lines = [json.loads(line) for line in original.tables["journal"].tobytes().splitlines()]
    for _ in range(draw.choice((1, 1, 3))):
        at = draw.randrange(len(lines))
        lines[at] = _other_json(lines[at], draw)
    texts = [json.dumps(line).encode() for line in lines]
    if draw.random() < 0.1:
        texts.insert(
            draw.randrange(len(texts)), draw.choice((b"[" * 50_000, b"\xff\xfe", b'{"a":' * 9000, b"9" * 9000))
        )
    return rebuilt({**original.tables, "journal": np.frombuffer(b"\n".join(texts) + b"\n", np.uint8)})


def strings_(original: Original, draw: Draw) -> bytes:
    """Names that are huge, or not text, or meant for a terminal or a browser."""
    data, ends = original.tables["string_bytes"].tobytes(), original.tables["string_ends"].tolist()
    strings = [data[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    for _ in range(draw.choice((1, 1, 5, 50))):
        at = draw.randrange(1, len(strings))
        text = draw.choice(TEXTS).encode("utf-8", "surrogatepass")
        strings[at] = draw.choice((text, strings[at] + text, bytes(draw.randrange(256) for _ in range(9))))
    if draw.random() < 0.03:
        strings[draw.randrange(1, len(strings))] = b"x" * 20_000_000
    ends = np.cumsum([len(text) for text in strings]).astype(np.uint64)
    data = np.frombuffer(b"".join(strings), np.uint8)
    return rebuilt({**original.tables, "string_bytes": data, "string_ends": ends})


def sizes_(original: Original, draw: Draw) -> bytes:
    """Tables with more rows, rows again and in another order; shapes of huge tensors; deep stacks."""
    tables = dict(original.tables)
    for _ in range(draw.choice((1, 2))):
        name = draw.choice([name for name, rows in tables.items() if len(rows)])
        rows = tables[name]
        times = draw.choice((2, 2, 50))
        pick = np.array([draw.randrange(len(rows)) for _ in range(min(len(rows) * times, 30_000))])
        tables[name] = draw.choice((np.concatenate([rows, rows[pick]]), rows[np.sort(pick)], rows[::-1].copy()))
    if draw.random() < 0.3:
        items = tables["shape_items"].copy()
        if len(items):
            items[draw.randrange(len(items))] = draw.choice((2**62, 2**63 - 1, 0, 10**9))
            tables["shape_items"] = items
    if draw.random() < 0.3:
        stacks = np.zeros(20_000, schema.BY_NAME["stacks"].dtype)
        stacks["parent"][1:] = np.arange(19_999)
        tables["stacks"] = stacks
    return rebuilt(tables)


def elsewhere_(original: Original, draw: Draw) -> bytes:
    """Tables that are links, other files' bytes, compressed bombs, or of another type."""
    name = draw.choice(list(schema.BY_NAME))
    rows = original.tables[name]

    def external(file: Any) -> None:
        file[name] = h5py.ExternalLink(CANARY, name)

    def outside(file: Any) -> None:
        file.create_dataset(name, (64,), rows.dtype, external=[(CANARY, 0, 64 * rows.dtype.itemsize)])

    def virtual(file: Any) -> None:
        layout = h5py.VirtualLayout((64,), rows.dtype)
        layout[:] = h5py.VirtualSource(CANARY, name, (64,))
        file.create_virtual_dataset(name, layout)

    def soft(file: Any) -> None:
        file[name] = h5py.SoftLink(draw.choice(("/" + name, "/commits", "/events", "/")))

    def bomb(file: Any) -> None:
        data = np.zeros(300_000, rows.dtype)
        file.create_dataset(name, data=data, chunks=(100_000,), maxshape=(None,), compression="gzip", shuffle=True)

    def sparse(file: Any) -> None:
        chunk = draw.choice((1, 2048, 2**18))
        file.create_dataset(name, (draw.choice((2**20, 2**33, 2**48)),), rows.dtype, chunks=(chunk,), maxshape=(None,))

    def typed(file: Any) -> None:
        dtype = draw.choice((h5py.string_dtype(), h5py.vlen_dtype(np.uint8), h5py.ref_dtype, "f8", "S1000000", "V9"))
        file.create_dataset(name, (4,), dtype, chunks=(4,), maxshape=(None,))

    def group(file: Any) -> None:
        file.create_group(name)[name] = rows

    return rebuilt(original.tables, {name: draw.choice((external, outside, virtual, soft, bomb, sparse, typed, group))})


def rebuilt(tables: dict[str, Any], instead: dict[str, Callable[[Any], None]] | None = None) -> bytes:
    """A file of these tables, with one commit that is right."""
    buffer, instead = io.BytesIO(), instead or {}
    commit = np.zeros(1, schema.COMMITS.dtype)
    commit["rows"] = [len(rows) for rows in tables.values()]
    commit["crc"] = [zlib.crc32(rows.tobytes()) for rows in tables.values()]
    with h5py.File(buffer, "w", libver="latest") as file:
        file.attrs[schema.FORMAT_ATTRIBUTE] = schema.FORMAT
        for table in (*schema.TABLES, schema.COMMITS):
            if table.name in instead:
                instead[table.name](file)
                continue
            rows = commit if table is schema.COMMITS else tables[table.name]
            file.create_dataset(table.name, data=rows, chunks=(table.chunk,), maxshape=(None,), fletcher32=True)
    return buffer.getvalue()


KINDS: dict[str, tuple[Callable[[Original, Draw], bytes], int]] = {
    "bytes": (bytes_, 15), "metadata": (metadata_, 20), "rows": (rows_, 30), "graphs": (graphs_, 10),
    "digests": (digests_, 10), "commits": (commits_, 3), "journal": (journal_, 4), "strings": (strings_, 3),
    "sizes": (sizes_, 3), "elsewhere": (elsewhere_, 2),
}  # fmt: skip
"""Name -> (mutation, share of the inputs in percent)."""


def input_of(
    originals: list[tuple[Original, Trace]], seed: int, number: int, kinds: Sequence[str] = ()
) -> tuple[str, bytes, Trace]:  # fmt: skip
    """Input `number` of a seed: (its kind, the file's bytes, the trace to compare it with)."""
    draw = Draw(f"{seed}/{number}")
    kinds = kinds or list(KINDS)
    [kind] = draw.choices(kinds, [KINDS[kind][1] for kind in kinds])
    original, other = draw.choice(originals)
    return kind, KINDS[kind][0](original, draw), other
