"""The trace file: what is written is read, whatever happens to the process or to the file."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import h5py
import minilang
import numpy as np
import pytest
from helpers import ROOT
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tfbisect import schema
from tfbisect import trace as trace_module
from tfbisect.errors import (
    CannotWrite,
    Damaged,
    NotFound,
    OutputExists,
)
from tfbisect.model import NO_CALL, Edge, Graph, GraphKind, Node, NodeFlag, Opaque, SiteKind, Source
from tfbisect.trace import Trace, TraceWriter, load

END = {"kind": "end", "status": "complete", "exit": 0, "reason": None}
NO_END = "the recording has no end: the process died or still runs"
TEXT = "v := Variable x0; r = read v; d = MatMul x r; s = loop 2 a=d; e = Mul a d; next a e; end; assign v s"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.h5"


def content(trace: Trace) -> object:
    """All that a trace says, comparable."""
    values = [trace.value(row) for row in range(len(trace.events))]
    return (
        trace.complete,
        trace.info,
        trace.opaque,
        trace.dropped,
        trace.problems,
        list(trace.graphs),
        [table.tolist() for table in (trace.calls, trace.links, trace.events, trace.sites)],
        [trace.stack(number) for number in range(len(trace._tables["stacks"]))],
        [trace.shape(number) for number in range(len(trace._tables["shape_ends"]))],
        [trace.iteration(number) for number in range(len(trace._tables["path_ends"]))],
        [None if value is None else value.tobytes() for value in values],
    )


def small(writer: TraceWriter) -> tuple[int, int]:
    """A graph of one op with an argument; returns its id and its first site."""
    nodes = [Node("x", "_Arg", index=0), Node("y", "Relu", inputs=(Edge(0, 0),))]
    graph = writer.graph("f", "__inference_f_1", GraphKind.TWIN, 7, nodes)
    return graph, writer.sites(graph, [(0, 0, SiteKind.ARG, 1), (1, 0, SiteKind.OUTPUT, 1)])


def called(writer: TraceWriter, call: int, graph: int, site: int) -> None:
    writer.link(call, 0, -1, 0)
    writer.events([call, call], [site, site + 1], 0, 1, [call, call + 1])
    writer.call(call, graph, 0, 0, -1, -1, 0)


# -- writing and reading ----------------------------------------------------------------------------------------------


def test_every_table_is_read_back(path):
    frames = [("a.py", 1, "<module>", "main()"), ("a.py", 7, "f", "y = tf.nn.relu(x)")]
    with TraceWriter(path) as writer:
        stack = writer.stack(frames)
        nodes = (
            Node("x", "_Arg", "CPU:0", index=0),
            Node(
                "while/Relu",
                "Relu",
                device="/device:CPU:0",
                function="f",
                stack=stack,
                attrs=2**64 - 1,
                forward=0,
                forward_name="x",
                flags=NodeFlag.STATEFUL | NodeFlag.RANDOM,
                frame=("outer", "inner"),
                inputs=(Edge(0, 0), Edge(0, -1)),
            ),
            Node("r", "_Retval", index=0, inputs=(Edge(1, 2),)),
        )
        graph = writer.graph("f", "__inference_f_12", GraphKind.SOURCE, 2**64 - 2, nodes)
        site = writer.sites(graph, [(0, 0, SiteKind.ARG, 1), (1, 2, SiteKind.OUTPUT, 9)])
        writer.link(5, 0, -1, 0)
        writer.event(5, site, 0, writer.shape([2, 3]), 11, writer.value(np.arange(6, dtype="<f4").tobytes()))
        writer.event(5, site + 1, writer.iteration([3, 4]), 0, 2**64 - 1)
        writer.call(5, graph, 2, 1, 4, 8, stack)
        source = {"file": "a.py", "line": 3, "function": "g", "text": "h()"}
        cluster = {"kind": "opaque", "name": "c", "op_type": "XlaRun", "reason": "compiled", "count": 2}
        for entry in (
            {"kind": "info", "run": {"argv": ["a.py"], "seeds": {"tf": 1}}},
            {"kind": "info", "run": {"seeds": {"numpy": 2}, "argv": ["a.py", "-v"]}},
            cluster,
            {**cluster, "count": 3, "source": source},
            {"kind": "dropped", "what": "values", "count": 2},
            {"kind": "dropped", "what": "values", "count": 1},
            {"kind": "step", "number": 0},
            END,
        ):
            writer.journal(entry)
    trace = load(path)
    assert (trace.path, trace.complete, trace.problems) == (str(path), True, ())
    assert trace.end == {"status": "complete", "exit": 0, "reason": None}
    assert trace.info == {"argv": ["a.py", "-v"], "seeds": {"tf": 1, "numpy": 2}}
    assert trace.opaque == (Opaque("c", "XlaRun", "compiled", 5, Source("a.py", 3, "g", "h()")),)
    assert trace.dropped == {"values": 3}
    assert list(trace.graphs) == [Graph(0, "f", "__inference_f_12", GraphKind.SOURCE, 2**64 - 2, nodes)]
    assert trace.graphs[-1] is trace.graphs[0]
    assert trace.sites.tolist() == [(0, 0, 0, 1, 1), (0, 1, 2, 0, 9)]
    assert trace.calls.tolist() == [(5, 0, 2, 1, 4, 8, stack)]
    assert trace.links.tolist() == [(5, 0, -1, 0)]
    assert trace.events.tolist() == [(5, 0, 0, 2, 11, 1), (5, 1, 1, 0, 2**64 - 1, 0)]
    assert trace.stack(stack) == tuple(Source(*frame) for frame in frames)
    assert (trace.source(stack), trace.source(0), trace.stack(0)) == (Source(*frames[1]), None, ())
    assert [trace.shape(number) for number in range(3)] == [None, (), (2, 3)]
    assert [trace.iteration(number) for number in range(2)] == [(), (3, 4)]
    assert (trace.dtype(0), trace.dtype(1)) == ("float32", "int64")
    value = trace.value(0)
    assert value is not None and value.tolist() == [[0, 1, 2], [3, 4, 5]] and value.dtype == np.float32
    assert trace.value(1) is None
    assert (trace.events_of(5), trace.links_of(5), trace.events_of(6)) == (slice(0, 2), slice(0, 1), slice(0, 0))
    assert (trace.call_row(5), trace.call_row(6), trace.sites_of(0).tolist()) == (0, None, [0, 1])
    with pytest.raises(ValueError, match="read-only"):
        trace.events["digest"][0] = 0


def test_equal_things_have_one_number(path):
    with TraceWriter(path) as writer:
        assert (writer.string(""), writer.string("a"), writer.string("b"), writer.string("a")) == (0, 1, 2, 1)
        assert (writer.shape(()), writer.shape([2]), writer.shape((2,)), writer.shape((2, 0))) == (1, 2, 2, 3)
        assert (writer.iteration(()), writer.iteration([0]), writer.iteration((0,))) == (0, 1, 1)
        outer, inner = ("a.py", 1, "", ""), ("a.py", 2, "", "")
        assert (writer.stack([]), writer.stack([outer, inner]), writer.stack([outer])) == (0, 2, 1)
        assert writer.stack([inner]) == 3
        values = [b"abc", memoryview(b"abc"), b"", b"abd"]
        assert [writer.value(value) for value in values] == [1, 1, 2, 3]
        assert writer.bytes_values == 6
    trace = load(path)
    assert len(trace._tables["frames"]) == 2 and len(trace._tables["value_bytes"]) == 6


@given(
    names=st.lists(st.text(st.characters(), max_size=4), max_size=5),
    shapes=st.lists(st.lists(st.integers(0, 2**62), max_size=3).map(tuple), max_size=4),
    paths=st.lists(st.lists(st.integers(0, 2**31 - 1), max_size=3).map(tuple), max_size=4),
    stacks=st.lists(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 2)), max_size=4), max_size=5),
)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_numbered_is_read_back(tmp_path, names, shapes, paths, stacks):
    path = tmp_path / "a.h5"
    frames = [[(file, line, "f", "text") for file, line in stack] for stack in stacks]
    with TraceWriter(path, force=True) as writer:
        name_ids = [writer.string(name) for name in names]
        shape_ids = [writer.shape(shape) for shape in shapes]
        writer.flush()
        path_ids = [writer.iteration(iteration) for iteration in paths]
        stack_ids = [writer.stack(stack) for stack in frames]
    trace = load(path)
    escaped = [name.encode("utf-8", "backslashreplace").decode() for name in names]  # lone surrogates
    assert [trace.string(number) for number in name_ids] == escaped
    assert [trace.shape(number) for number in shape_ids] == shapes
    assert [trace.iteration(number) for number in path_ids] == paths
    assert [trace.stack(number) for number in stack_ids] == [tuple(Source(*f) for f in stack) for stack in frames]
    assert trace.problems == (NO_END,)


@given(st.lists(st.lists(st.tuples(st.integers(0, 5), st.integers(-1, 2)), max_size=3), min_size=6, max_size=6))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_graphs_are_read_back(tmp_path, inputs):
    path = tmp_path / "a.h5"
    nodes = [
        Node(f"n{i}", "Op", inputs=tuple(sorted((Edge(*edge) for edge in edges), key=lambda edge: edge.slot < 0)))
        for i, edges in enumerate(inputs)
    ]
    with TraceWriter(path, force=True) as writer:
        for kind in GraphKind:
            writer.graph(f"g{kind}", "raw", kind, kind, nodes[: 6 if kind else 0] if kind != 2 else [])
    graphs = load(path).graphs
    assert len(graphs) == len(GraphKind)
    assert [graph.nodes for graph in graphs] == [(), tuple(nodes), (), *[tuple(nodes)] * (len(GraphKind) - 3)]


def test_rows_are_sorted_by_call_and_constants_stand_apart(path):
    with TraceWriter(path) as writer:
        nodes = [Node("c", "Const"), Node("y", "Relu", inputs=(Edge(0, 0),))]
        graphs = [writer.graph("f", "f", 1, 0, nodes) for _ in range(2)]
        sites = [writer.sites(graph, [(0, 0, SiteKind.CONST, 1), (1, 0, 0, 1)]) for graph in graphs]
        for graph, site in zip(graphs, sites, strict=True):
            writer.event(NO_CALL, site, 0, 1, 40 + graph)
        for call in (7, 3):
            writer.link(call, 1, -1, 0)
            writer.link(call, 0, -1, 0)
            writer.event(call, sites[0] + 1, 0, 1, call)
            writer.call(call, graphs[0], 0, 0, -1, -1, 0)
    trace = load(path)
    assert trace.calls["id"].tolist() == [3, 7]
    assert [row[:2] for row in trace.links.tolist()] == [(3, 0), (3, 1), (7, 0), (7, 1)]
    assert [trace.events[trace.events_of(call)]["digest"].tolist() for call in (3, 7)] == [[3], [7]]
    assert [trace.events["digest"][trace.constants(graph)[0]] for graph in graphs] == [40, 41]
    assert trace.constants(2) == {}


def test_events_in_bulk_are_events(tmp_path):
    for name in ("one", "bulk"):
        with TraceWriter(tmp_path / name) as writer:
            graph, site = small(writer)
            if name == "one":
                for digest in (5, 2**64 - 1):
                    writer.event(0, site, 0, 1, digest)
            else:
                writer.events(0, site, 0, 1, np.array([5, 2**64 - 1], np.uint64))
            assert writer.rows_buffered == 2
            writer.call(0, graph, 0, 0, -1, -1, 0)
            writer.flush()
            assert writer.rows_buffered == 0
    one, bulk = (load(tmp_path / name) for name in ("one", "bulk"))
    assert one.events.tolist() == bulk.events.tolist()


@pytest.mark.parametrize("number", sorted(set(schema.DTYPES) - {7, 20, 21}))
def test_values_have_the_type_of_their_site(path, number):
    data = bytes(range(1, 17))
    with TraceWriter(path) as writer:
        graph = writer.graph("f", "f", 1, 0, [Node("y", "Relu")])
        site = writer.sites(graph, [(0, 0, 0, number)])
        writer.event(0, site, 0, 0, 1, writer.value(data))
        writer.call(0, graph, 0, 0, -1, -1, 0)
    trace = load(path)
    value = trace.value(0)
    assert value is not None and value.tobytes() == data
    plain = trace.dtype(0).removeprefix("q")
    assert value.dtype.name == plain or value.dtype.kind == "u"
    assert value.ndim == 1


def test_a_value_that_does_not_fit_its_shape_is_none(path):
    with TraceWriter(path) as writer:
        graph, site = small(writer)
        writer.sites(graph, [(1, 1, 0, 7)])
        kept = writer.value(b"12345678")
        writer.events(0, [site, site + 1, site + 2], 0, [writer.shape([3]), writer.shape([2]), 0], [1, 2, 3], kept)
        writer.call(0, graph, 0, 0, -1, -1, 0)
    trace = load(path)
    assert [trace.value(row) is None for row in range(3)] == [True, False, True]


def test_large_values_do_not_wait_for_the_flush(path, monkeypatch):
    monkeypatch.setattr(trace_module, "_SPILL_BYTES", 100)
    with TraceWriter(path) as writer:
        graph, site = small(writer)
        data = [bytes([number]) * 80 for number in range(5)]
        for call, piece in enumerate(data):
            writer.event(call, site, 0, 0, call, writer.value(piece))
            assert len(writer._buffers["value_bytes"]) < 100
            writer.call(call, graph, 0, 0, -1, -1, 0)
    trace = load(path)
    assert [value.tobytes() for row in range(5) if (value := trace.value(row)) is not None] == data


def test_the_file_of_a_value_may_grow_but_not_be_another(path):
    writer = TraceWriter(path)
    graph, site = small(writer)
    writer.event(0, site, 0, 0, 1, writer.value(b"1234"))
    writer.call(0, graph, 0, 0, -1, -1, 0)
    writer.flush()
    trace = load(path)
    writer.value(b"5678")
    writer.close()
    assert trace.value(0) is not None
    other = path.with_name("other.h5")
    TraceWriter(other).close()
    os.replace(other, path)
    with pytest.raises(Damaged, match="another file"):
        trace.value(0)
    path.unlink()
    with pytest.raises(NotFound):
        trace.value(0)


def test_graphs_that_lead_nowhere_are_refused(path):
    with TraceWriter(path) as writer:
        with pytest.raises(ValueError, match="an edge leads to a node"):
            writer.graph("f", "f", 1, 0, [Node("y", "Relu", inputs=(Edge(1, 0),))])
        graph, _ = small(writer)
        with pytest.raises(ValueError, match="a site at a node"):
            writer.sites(graph, [(2, 0, 0, 1)])
    assert len(load(path).graphs) == 1


def test_an_existing_file_is_kept_unless_forced(path):
    path.write_text("mine")
    with pytest.raises(OutputExists):
        TraceWriter(path)
    assert path.read_text() == "mine"
    TraceWriter(path, force=True).close()
    assert load(path).problems == (NO_END,)


@pytest.mark.parametrize("name", ["missing/a.h5", ".", "file/a.h5"])
def test_what_cannot_be_written_is_said(tmp_path, name):
    (tmp_path / "file").write_text("")
    for force in (False, True):
        with pytest.raises(CannotWrite):
            TraceWriter(tmp_path / name, force=force)


def test_closing_twice_and_writing_after_it_is_harmless(path):
    writer = TraceWriter(path)
    writer.close()
    writer.event(0, 0, 0, 0, 0)
    writer.flush()
    writer.close()
    assert writer.rows_buffered == 0
    assert len(load(path).events) == 0


# -- processes that die -----------------------------------------------------------------------------------------------

KILLED = """
import sys
from tfbisect.trace import TraceWriter
from tfbisect.model import Node
writer = TraceWriter(sys.argv[1])
graph = writer.graph("f", "f", 1, 0, [Node("y", "Relu")])
site = writer.sites(graph, [(0, 0, 0, 1)])
call = 0
while True:
    for _ in range(20):
        shape = writer.shape([call])
        writer.events(call, site, writer.iteration([call]), shape, range(call, call + 50), writer.value(b"%08d" % call))
        writer.string(f"name {call}")
        writer.call(call, graph, 0, 0, -1, -1, writer.stack([("a.py", call, "f", f"line {call}")]))
        call += 1
    writer.flush()
    print(call, flush=True)
"""


@pytest.mark.parametrize("seed", range(5))
def test_what_was_flushed_survives_sigkill(path, seed):
    child = subprocess.Popen([sys.executable, "-c", KILLED, str(path)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    with child:
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(random.Random(seed).random() * 0.1)
        child.send_signal(signal.SIGKILL)
        flushed = max([20, *map(int, child.stdout.read().split())])
    trace = load(path)
    calls = len(trace.calls)
    assert calls >= flushed and calls % 20 == 0
    assert trace.problems == (NO_END,) and not trace.complete
    assert trace.calls["id"].tolist() == list(range(calls))
    wanted = np.arange(calls)[:, None] + np.arange(50)
    assert np.array_equal(trace.events["digest"].reshape(calls, 50), wanted)
    last = calls - 1
    row = trace.events_of(last).start
    assert trace.shape(int(trace.events["shape"][row])) == trace.iteration(int(trace.events["path"][row])) == (last,)
    assert trace.source(int(trace.calls["stack"][last])) == Source("a.py", last, "f", f"line {last}")
    start, length = trace._tables["values"][trace.events["value"][row]].item()
    assert trace._read_values([(start, length)]) == [b"%08d" % last]


def test_a_flush_that_was_interrupted_at_any_write_is_not_seen(path, monkeypatch):
    writer = TraceWriter(path)
    graph, site = small(writer)
    called(writer, 0, graph, site)
    writer.flush()
    extend, before, copy = writer._extend, content(load(path)), path.with_name("copy.h5")
    states = []

    def snapshot(name, start, rows):
        extend(name, start, rows)
        h5py.h5f.flush(writer._file.id)
        shutil.copy(path, copy)
        states.append((name, content(load(copy)) == before))

    monkeypatch.setattr(writer, "_extend", snapshot)
    called(writer, 1, *small(writer))
    writer.journal(END)
    writer.shape([3])
    writer.stack([("a.py", 1, "f", "")])
    writer.flush()
    assert len(states) > 10
    assert states[:-1] == [(name, True) for name, _ in states[:-1]] and states[-1] == ("commits", False)


def test_a_torn_chunk_costs_only_what_was_not_committed(path, monkeypatch):
    writer = TraceWriter(path)
    graph, site = small(writer)
    called(writer, 0, graph, site)
    writer.flush()
    before = content(load(path))
    monkeypatch.setattr(writer, "_commit", lambda: None)
    called(writer, 1, graph, site)
    writer.flush()
    dataset = writer._datasets["events"]
    place = dataset.get_chunk_info(0).byte_offset
    torn = bytearray(path.read_bytes())
    row = schema.BY_NAME["events"].dtype.itemsize
    torn[place + 2 * row : place + 3 * row] = bytes(row)
    copy = path.with_name("torn.h5")
    copy.write_bytes(torn)
    assert content(load(copy)) == before
    torn[place] ^= 1  # a committed row
    copy.write_bytes(torn)
    with pytest.raises(Damaged, match="events"):
        load(copy)
    monkeypatch.undo()
    writer.close()


@pytest.mark.parametrize("locking", ["TRUE", "FALSE", "BEST_EFFORT"])
def test_a_running_or_killed_recording_is_read_under_any_locking(path, locking):
    code = "import sys, tfbisect.trace as t; t.load(t.TraceWriter(sys.argv[1]).path); print(1, flush=True); input()"
    env = {**os.environ, "HDF5_USE_FILE_LOCKING": locking, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", code, str(path)]
    with subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None and child.stdout.readline() == "1\n"
        assert load(path).problems == (NO_END,)
        child.kill()
    done = subprocess.run(
        [sys.executable, "-c", "import sys, tfbisect.trace as t; t.load(sys.argv[1])", str(path)], env=env, check=False
    )
    assert done.returncode == 0


def test_a_forked_child_writes_nothing_and_ends_well(path):
    code = """
import os, sys
from tfbisect.trace import TraceWriter
writer = TraceWriter(sys.argv[1])
writer.string("parent")
child = os.fork()
if child:
    assert os.waitpid(child, 0)[1] == 0
    writer.string("after")
    writer.close()
else:
    writer.string("child" * 10000)
    writer.flush()
    writer.close()
"""
    assert subprocess.run([sys.executable, "-c", code, str(path)], cwd=ROOT, check=False).returncode == 0
    trace = load(path)
    assert [trace.string(number) for number in range(3)] == ["", "parent", "after"]
    assert len(trace._tables["string_ends"]) == 3


def test_a_full_disk_is_an_error_and_then_silence(path):
    code = """
import resource, signal, sys
from tfbisect.errors import CannotWrite
from tfbisect.trace import TraceWriter
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
writer = TraceWriter(sys.argv[1])
for number in range(10_000):
    writer.string(f"{number}" * 100)
    try:
        writer.flush()
    except CannotWrite as error:
        assert "File too large" in error.message, error
        break
writer.string("more")
writer.flush()
writer.close()
print(number)
"""
    command = [sys.executable, "-c", code, str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(load(path)._tables["string_ends"]) == int(done.stdout) + 1


# -- the layout and the cost ------------------------------------------------------------------------------------------


def test_the_page_of_the_layout_names_every_column():
    page = schema.markdown()
    for table in (*schema.TABLES, schema.COMMITS):
        section = page.split(f"### `{table.name}`")[1].split("###")[0]
        assert all(f"| `{column.type}` | {column.doc} |" in section for column in table.columns)
    assert max(schema.HISTORY) == schema.FORMAT


def test_a_hundred_thousand_events_are_quick(path):
    """Bounds for a slow machine; on a quick one it is about 0.3 µs an event, 10 ms a flush and 20 ms to load."""
    with TraceWriter(path) as writer:
        graph, site = small(writer)
        started = time.perf_counter()
        for number in range(100_000):
            writer.event(number // 100, site + number % 2, 0, 1, number)
        assert time.perf_counter() - started < 1
        for call in range(1000):
            writer.call(call, graph, 0, 0, -1, -1, 0)
        started = time.perf_counter()
        writer.flush()
        assert time.perf_counter() - started < 0.5
    started = time.perf_counter()
    trace = load(path)
    assert time.perf_counter() - started < 1
    assert trace.events_of(500) == slice(50_000, 50_100)


def test_the_language_plants_one_change_that_spreads(tmp_path):
    a = minilang.recorded(TEXT, tmp_path / "a.h5", values=True)
    b = minilang.recorded(TEXT, tmp_path / "b.h5", values=True, change={"e@1/1": 3})
    assert a.problems == b.problems == ()
    differs = np.flatnonzero(a.events["digest"] != b.events["digest"])
    names = []
    for row in differs:
        site = a.sites[a.events["site"][row]]
        names.append((a.graphs[site["graph"]].nodes[site["node"]].name, a.iteration(int(a.events["path"][row]))))
    assert names[:3] == [("e", (1,)), ("assign_v", ()), ("r", ())]
    first = [trace.value(int(differs[0])).ravel() for trace in (a, b)]
    assert first[1].view("i4")[0] - first[0].view("i4")[0] == 3 and np.array_equal(first[0][1:], first[1][1:])


# -- how ops were made, and files of the first format -----------------------------------------------------------------


def test_definitions_are_read_back(path):
    with TraceWriter(path) as writer:
        graph, _site = small(writer)
        writer.definition(graph, 1, b"how y was made")
        with pytest.raises(ValueError, match="does not have"):
            writer.definition(graph, 2, b"")
        writer.journal(END)
    trace = load(path)
    assert trace.definition(graph, 1) == b"how y was made"
    assert trace.definition(graph, 0) is None


def first_format(path):
    """Turn a new file into one of format 1, which had no definitions."""
    count = len(schema.tables(1))
    with h5py.File(path, "r+", libver="latest") as file:
        rows = file["commits"][:]
        del file["commits"], file["definitions"]
        commits = schema.commits(1)
        old = np.zeros(len(rows), commits.dtype)
        old["rows"], old["crc"] = rows["rows"][:, :count], rows["crc"][:, :count]
        file.create_dataset("commits", data=old, chunks=(commits.chunk,), maxshape=(None,), fletcher32=True)
        file.attrs[schema.FORMAT_ATTRIBUTE] = 1


def test_files_of_the_first_format_are_read(path):
    before = content(minilang.recorded(TEXT, path, values=True))
    first_format(path)
    trace = load(path)
    assert content(trace) == before
    assert trace.definition(0, 0) is None
