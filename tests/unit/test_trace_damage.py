"""Files that are cut, flipped, hostile or something else: an error that says so, or the part that is sound."""

import json
import os
import random
import shutil
import zlib
from pathlib import Path

import h5py
import minilang
import numpy as np
import pytest
from test_trace import END, NO_END, TEXT, content, small

from tfbisect import schema
from tfbisect.errors import CannotRead, Damaged, NewerFormat, NotATrace, NotFound, TfbisectError
from tfbisect.model import NO_CALL, GraphKind, Node
from tfbisect.trace import TraceWriter, load


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.h5"


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    return minilang.record(TEXT, tmp_path_factory.mktemp("sound") / "a.h5", values=True, opaque={"d"})


def test_what_is_no_trace_is_named(tmp_path, path):
    with pytest.raises(NotFound, match="no such file"):
        load(path)
    with pytest.raises(NotATrace, match="a folder"):
        load(tmp_path)
    path.write_bytes(b"")
    with pytest.raises(NotATrace, match="an empty file"):
        load(path)
    path.write_text("loss: 0.1\n" * 100)
    with pytest.raises(NotATrace, match="no HDF5 signature"):
        load(path)
    with pytest.raises(CannotRead):
        load("a\0b")
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(NotATrace, match="a device or pipe"):
            load(tmp_path / "pipe")


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_hdf5_of_another_kind_is_named(path, libver):
    with h5py.File(path, "w", libver=libver) as file:
        file["weights"] = [1.0]
    with pytest.raises(NotATrace, match="HDF5 that something else wrote"):
        load(path)
    with h5py.File(path, "a") as file:
        file.attrs[schema.FORMAT_ATTRIBUTE] = "one"
    with pytest.raises(NotATrace, match="a format that is no number"):
        load(path)


def test_newer_format_is_named_with_both_numbers(sound, path):
    shutil.copy(sound, path)
    with h5py.File(path, "a") as file:
        file.attrs[schema.FORMAT_ATTRIBUTE] = 99
        del file["events"]
    with pytest.raises(NewerFormat, match=f"found format 99, expected at most {schema.FORMAT}") as caught:
        load(path)
    assert "pip install" in caught.value.hint


def test_a_file_that_was_cut_is_damaged(sound, path):
    data = sound.read_bytes()
    for size in [1, 8, 47, 48, 100, *range(1000, len(data), len(data) // 30), len(data) - 1]:
        path.write_bytes(data[:size])
        with pytest.raises((Damaged, NotATrace)):
            load(path)


def test_flipped_bytes_are_found_or_harmless(sound, path):
    data, wanted, draw = sound.read_bytes(), content(load(sound)), random.Random(1)
    used = [place for place, byte in enumerate(data) if byte]
    outcomes = []
    for turn in range(120):
        place = draw.choice(used) if turn % 3 else draw.randrange(len(data))
        flipped = bytearray(data)
        flipped[place] ^= draw.randrange(1, 256)
        path.write_bytes(flipped)
        try:
            outcomes.append(content(load(path)) == wanted)
        except TfbisectError:
            outcomes.append(None)
    assert False not in outcomes and None in outcomes


def tamper(path, name, change):
    """Rewrites a table of a file with `change(rows) -> rows or None`, with right checksums: the meaning is wrong."""
    number = [table.name for table in schema.TABLES].index(name)
    with h5py.File(path, "r+") as file:
        dataset, commits = file[name], file["commits"]
        rows = dataset[:]
        changed = change(rows)
        rows = rows if changed is None else changed
        dataset.resize((len(rows),))
        dataset[:] = rows
        commit = commits[-1]
        commit["rows"][number] = len(rows)
        commit["crc"][number] = zlib.crc32(rows.tobytes())
        commits[-1] = commit


def setter(column, row, value):
    def change(rows):
        if column is None:
            rows[row] = value
        else:
            rows[column][row] = value

    return change


@pytest.mark.parametrize(
    ("table", "column", "row", "value"),
    [
        ("string_ends", None, 0, 1),
        ("string_ends", None, 3, 0),
        ("string_ends", None, -1, 2**63),
        ("path_ends", None, -1, 2**64 - 1),
        ("shape_items", None, 0, -5),
        ("path_items", None, 0, -1),
        ("frames", "text", 0, 10**6),
        ("stacks", "parent", 1, 1),
        ("stacks", "parent", 1, 2**32 - 1),
        ("stacks", "frame", 1, 999),
        ("values", "start", 1, 2**64 - 1),
        ("values", "length", 1, 2**64 - 1),
        ("graphs", "name", 0, 10**6),
        ("graphs", "kind", 0, 77),
        ("nodes", "graph", 0, 3),
        ("nodes", "graph", -1, 10**6),
        ("nodes", "op", 0, 10**6),
        ("nodes", "stack", 0, 10**6),
        ("nodes", "forward", 0, 10**6),
        ("edges", "src", 0, 10**6),
        ("edges", "node", 0, 2**32 - 1),
        ("edges", "slot", 0, -2),
        ("edges", "graph", 0, 10**6),
        ("sites", "graph", 0, 10**6),
        ("sites", "node", 0, 10**6),
        ("sites", "kind", 0, 9),
    ],
)
def test_a_number_that_leads_nowhere_is_damaged(sound, path, table, column, row, value):
    shutil.copy(sound, path)
    tamper(path, table, setter(column, row, value))
    with pytest.raises(Damaged, match=f"table {table}"):
        load(path)


@pytest.mark.parametrize(
    ("table", "column", "value", "problem"),
    [
        ("calls", "graph", 10**6, "1 calls of what is not there: dropped"),
        ("calls", "stack", 10**6, "1 calls of what is not there: dropped"),
        ("calls", "state", 7, "1 calls of what is not there: dropped"),
        ("calls", "id", 2**63, "1 calls of what is not there: dropped"),
        ("calls", "parent", 2**40, "1 calls of what is not there: dropped"),
        ("calls", "id", 0, "1 calls with the number of another one: dropped"),
        ("links", "call", 99, "1 arguments of calls that did not end: dropped"),
        ("links", "src_call", 2**40, "1 arguments from calls that started later: dropped"),
        ("links", "src_call", -7, "1 arguments from calls that started later: dropped"),
        ("events", "site", 10**6, "1 events of what is not there: dropped"),
        ("events", "path", 10**6, "1 events of what is not there: dropped"),
        ("events", "shape", 10**6, "1 events of what is not there: dropped"),
        ("events", "value", 10**6, "1 events of what is not there: dropped"),
        ("events", "call", 99, "1 events of calls that did not end: dropped"),
        ("events", "call", 0, "1 events of another graph than the call's: dropped"),
        ("events", "call", NO_CALL, "1 events of another graph than the call's: dropped"),
    ],
)
def test_rows_of_what_is_not_there_are_dropped_and_counted(sound, path, table, column, value, problem):
    shutil.copy(sound, path)
    tamper(path, table, setter(column, -1, value))
    trace = load(path)
    assert problem in trace.problems
    assert len(getattr(trace, table)) == len(getattr(load(sound), table)) - 1
    assert all(event["call"] == NO_CALL or trace.call_row(event["call"]) is not None for event in trace.events)


def test_an_argument_of_a_call_that_did_not_end_keeps_its_link(sound, path):
    shutil.copy(sound, path)
    tamper(path, "calls", lambda rows: rows[rows["id"] != 0])
    trace = load(path)
    assert "4 arguments come from calls that did not end" in trace.problems
    assert np.count_nonzero(trace.links["src_call"] == 0) == 4
    assert trace.call_row(0) is None


def test_an_entry_may_be_met_after_the_call_that_takes_it(path):
    with TraceWriter(path) as writer:
        graph, _ = small(writer)
        entry = writer.graph("v", "v", GraphKind.ENTRY, 1, [Node("v", "VarHandleOp")])
        writer.link(0, 0, 1, 0)
        writer.call(1, entry, 0, 0, -1, -1, 0)
        writer.call(0, graph, 0, 0, -1, -1, 0)
        writer.journal(END)
    assert load(path).problems == ()


def test_names_that_are_no_utf8_are_escaped(sound, path):
    shutil.copy(sound, path)
    tamper(path, "string_bytes", setter(None, 0, 0xFF))
    trace = load(path)
    assert "some names are not UTF-8: shown with escapes" in trace.problems
    assert trace.string(1).startswith("\\xff")


def journal(*lines):
    return lambda rows: np.frombuffer(b"".join(lines), np.uint8)


@pytest.mark.parametrize(
    "line",
    [
        b"no json",
        b"[]",
        b"3",
        b"{}",
        b'{"kind": "info"}',
        b'{"kind": "info", "run": 3}',
        b'{"kind": "opaque"}',
        b'{"kind": "opaque", "name": "a", "op_type": "b", "reason": "c", "count": []}',
        b'{"kind": "dropped", "what": "x", "count": "many"}',
        b'{"kind": "dropped", "what": "x", "count": 1e999}',
        b"[" * 10**5,
        b'{"kind": ' + b"9" * 5000 + b"}",
        b"\xff",
    ],
)
def test_bad_lines_of_the_journal_are_counted(sound, path, line):
    shutil.copy(sound, path)
    end = json.dumps(END).encode() + b"\n"
    tamper(path, "journal", journal(line, b"\n", b'{"kind": "of a later version"}\n', end))
    trace = load(path)
    assert trace.problems == ("1 lines of the journal could not be read: dropped",) and trace.complete
    tamper(path, "journal", journal(b'{"kind": "info", "run": {"a": 1}}\n', end[:-1]))
    assert load(path).problems == ("1 lines of the journal could not be read: dropped", NO_END)


def test_an_early_end_is_a_problem(path):
    with TraceWriter(path) as writer:
        writer.journal({"kind": "end", "status": "incomplete", "exit": None, "reason": "the disk is full"})
    trace = load(path)
    assert not trace.complete and trace.problems == ("the recording ended early: the disk is full",)


def replaced(path, name, make):
    with h5py.File(path, "r+") as file:
        rows = file[name][:]
        del file[name]
        make(file, name, rows)


def elsewhere(file, name, rows):
    with h5py.File(Path(file.filename).with_name("other.h5"), "w") as other:
        other[name] = rows
    return "other.h5"


HOSTILE = {
    "missing": (lambda file, name, rows: None, "nothing"),
    "group": (lambda file, name, rows: file.create_group(name), "no dataset"),
    "soft link": (lambda file, name, rows: file.__setitem__(name, h5py.SoftLink("/calls")), "a link"),
    "external link": (
        lambda file, name, rows: file.__setitem__(name, h5py.ExternalLink(elsewhere(file, name, rows), name)),
        "a link",
    ),
    "contiguous": (lambda file, name, rows: file.create_dataset(name, data=rows), "another layout"),
    "external bytes": (
        lambda file, name, rows: file.create_dataset(
            name, rows.shape, rows.dtype, external=[("/etc/passwd", 0, rows.nbytes)]
        ),
        "another layout",
    ),
    "virtual": (
        lambda file, name, rows: (
            other := elsewhere(file, name, rows),
            layout := h5py.VirtualLayout(rows.shape, rows.dtype),
            layout.__setitem__(slice(None), h5py.VirtualSource(other, name, rows.shape)),
            file.create_virtual_dataset(name, layout),
        ),
        "another layout",
    ),
    "other type": (lambda file, name, rows: file.create_dataset(name, data=rows["digest"], chunks=True), "type"),
    "text": (lambda file, name, rows: file.create_dataset(name, data=["a"], chunks=True), "type"),
    "a matrix": (lambda file, name, rows: file.create_dataset(name, data=rows[None], chunks=True), "2 dimensions"),
    "compressed": (
        lambda file, name, rows: file.create_dataset(name, (2**33,), rows.dtype, chunks=(2**15,), compression="gzip"),
        "filters",
    ),
    "sparse": (
        lambda file, name, rows: file.create_dataset(name, (2**40,), rows.dtype, chunks=(2048,)),
        "[0-9]+ bytes declared",
    ),
    "large chunks": (
        lambda file, name, rows: file.create_dataset(name, (2**26,), rows.dtype, chunks=(2**26,)),
        "chunks of",
    ),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_tables_are_refused_unread(sound, path, kind):
    shutil.copy(sound, path)
    make, found = HOSTILE[kind]
    replaced(path, "events", make)
    with pytest.raises(Damaged, match=f"table events: found {found}"):
        load(path)


def test_a_commit_of_more_rows_than_there_are_is_damaged(sound, path):
    shutil.copy(sound, path)
    with h5py.File(path, "r+") as file:
        commit = file["commits"][-1]
        commit["rows"][:] = 2**60
        file["commits"][-1] = commit
    with pytest.raises(Damaged, match="rows of journal"):
        load(path)


def test_a_mark_is_read_as_closed_and_only_where_the_superblock_is_sound(sound, path):
    """The checksum that is put in for the cleared mark is HDF5's own."""
    writer = TraceWriter(path)
    marked = path.read_bytes()
    writer.close()
    assert marked[11] != 0 and path.read_bytes()[11] == 0
    copy = path.with_name("copy.h5")
    copy.write_bytes(marked)
    assert load(copy).problems == (NO_END,)
    for place in (11, 20, 45):
        flipped = bytearray(marked)
        flipped[place] ^= 0x10
        copy.write_bytes(flipped)
        with pytest.raises(Damaged):
            load(copy)
