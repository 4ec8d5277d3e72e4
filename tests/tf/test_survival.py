"""The program survives tfbisect: whatever part of the recorder fails, the program's bits are those of a plain run.

One warning is printed, and the trace says that it is incomplete.
"""

import errno
import os
import shutil
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from helpers import python
from recorded import bits

import tfbisect
from tfbisect.model import GraphKind
from tfbisect.recorder import hooks, runinfo, stacks
from tfbisect.recorder import recording as recording_module
from tfbisect.recorder.data import DataRecorder
from tfbisect.recorder.eager import EagerRecorder
from tfbisect.recorder.function import FunctionRecorder
from tfbisect.recorder.policy import ValuePolicy
from tfbisect.recorder.session import SessionRecorder
from tfbisect.recorder.state import StateKeeper
from tfbisect.recorder.watch import Watch
from tfbisect.trace import TraceWriter


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.h5"


def program() -> list[bytes]:
    """Eager ops, a function with a gradient and a random stream, tf.data and a v1 Session; -> all bits it made."""
    tf.random.set_seed(3)
    v = tf.Variable([1.0, 2.0])

    @tf.function
    def train(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.sin(v * x) + tf.random.uniform([2]))
        v.assign_sub(0.1 * tape.gradient(loss, v))
        return loss

    out = []
    for x in tf.data.Dataset.range(3).map(lambda n: tf.cast(n, tf.float32) * 0.3):
        tfbisect.step()
        out += [train(x), tf.cos(v) * x]
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        held = tf.compat.v1.placeholder(tf.float32, [2])
        out.append(session.run(tf.tanh(held) + 1, {held: np.array([0.5, 2], np.float32)}))
    return bits([*out, v])


class Planted(Exception):
    """What a part of the recorder raises."""


def raises(*_: object, **__: object) -> Any:
    raise Planted("planted")


def after(calls: int, plain: Callable[..., Any], error: BaseException | None = None) -> Callable[..., Any]:
    """`plain`, that fails from its call number `calls` on."""
    left = [calls]

    def function(*args: Any, **kwargs: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise error or Planted("planted")
        return plain(*args, **kwargs)

    return function


@pytest.fixture(scope="module")
def wanted() -> list[bytes]:
    return program()


# what fails -> after how many calls. `missing`: nothing at all is recorded.
PARTS: list[tuple[Any, str, int]] = [
    (EagerRecorder, "__init__", 0),
    (EagerRecorder, "_record", 0),
    (EagerRecorder, "_record", 7),
    (EagerRecorder, "_plan", 2),
    (EagerRecorder, "_written", 0),
    (FunctionRecorder, "__init__", 0),
    (FunctionRecorder, "_plan", 1),
    (FunctionRecorder, "_make", 0),
    (FunctionRecorder, "_prepare", 0),
    (FunctionRecorder, "_tensor", 0),
    (FunctionRecorder, "_tensor", 3),
    (FunctionRecorder, "_tensor", 5),  # in the second call: the random stream has begun in the twin
    (FunctionRecorder, "_nodes", 0),
    (FunctionRecorder, "_drain", 0),
    (FunctionRecorder, "_drain", 1),
    (recording_module.Recording, "array_event", 0),
    (recording_module.Recording, "array_event", 9),
    (recording_module.Recording, "producer", 3),
    (recording_module.Recording, "_write_reads", 0),
    (recording_module.Recording, "mark_step", 1),
    (recording_module.Recording, "flush", 2),
    (TraceWriter, "event", 5),
    (TraceWriter, "graph", 4),
    (TraceWriter, "call", 6),
    (TraceWriter, "string", 30),
    (TraceWriter, "stack", 3),
    (TraceWriter, "flush", 2),
    (TraceWriter, "_extend", 20),
    (TraceWriter, "journal", 3),
    (TraceWriter, "close", 0),
    (SessionRecorder, "__init__", 0),
    (SessionRecorder, "_plan", 0),
    (SessionRecorder, "_mark_step", 0),
    (SessionRecorder, "_append", 0),
    (stacks.Stacks, "here", 5),
    (runinfo, "at_start", 0),
    (runinfo, "of_tensorflow", 0),
    (ValuePolicy, "admits", 4),
    (hooks.Hooks, "attach", 1),
]


def survives(path: Path, wanted: list[bytes], err: Callable[[], str], **options: Any) -> None:
    """Run the program recorded while something fails."""
    with tfbisect.record(path, **options):
        assert program() == wanted
    said = [line for line in err().splitlines() if line.startswith("tfbisect:")]
    assert len(said) == 1, said
    assert hooks_are_gone()


def hooks_are_gone() -> bool:
    from tensorflow.python.client import session
    from tensorflow.python.eager import context, execute

    hooked = (session.BaseSession._call_tf_sessionrun, threading.Thread.start, context.Context.__init__)
    assert not [function for function in hooked if function.__module__.startswith("tfbisect")]
    assert not context.context().op_callbacks
    return execute.execute is execute.quick_execute


@pytest.mark.parametrize(("owner", "name", "calls"), PARTS, ids=lambda value: getattr(value, "__name__", str(value)))
def test_a_part_that_fails_costs_the_trace_and_not_the_program(
    owner: Any, name: str, calls: int, path: Path, wanted: list[bytes], monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    fails = after(calls, getattr(owner, name))
    early = owner in (runinfo,) and name == "at_start"
    if early:  # the file is made when recording begins, if TensorFlow is there: that is told as an error
        monkeypatch.setattr(owner, name, fails)
        with pytest.raises(Planted), tfbisect.record(path):
            pass
        assert hooks_are_gone()
        return
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, fails)
        survives(path, wanted, lambda: capsys.readouterr().err)
    trace = tfbisect.load(path)
    assert not trace.complete
    assert any("no end" in problem or "ended early" in problem for problem in trace.problems)


def test_a_function_of_a_dataset_that_cannot_be_copied_is_named(
    path: Path, wanted: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DataRecorder, "_copy", raises)
    with tfbisect.record(path, data=True):
        assert program() == wanted
    trace = tfbisect.load(path)
    assert any("Planted" in item.reason for item in trace.opaque)


@pytest.mark.parametrize("name", ["call", "finish", "forget"])
def test_following_the_steps_may_fail(
    name: str, path: Path, wanted: list[bytes], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if name == "call":
        monkeypatch.setattr(Watch, "_written_by", raises)
    else:
        monkeypatch.setattr(Watch if name == "forget" else Watch, name, raises)
    with tfbisect.record(path, steps="1:2"):
        assert program() == wanted
    said = capsys.readouterr().err.count("tfbisect:")
    assert said == (0 if name == "forget" else 1) and StateKeeper is not None


# --- the disk and the folder -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("table", ["string_bytes", "nodes", "events", "commits"])
def test_a_disk_that_fills_up(
    table: str, path: Path, wanted: list[bytes], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    plain = TraceWriter._extend

    def extend(writer: TraceWriter, name: str, start: int, rows: Any) -> None:
        if name == table and len(rows) and writer._node_counts:  # not when the file is made
            raise full
        plain(writer, name, start, rows)

    with monkeypatch.context() as patch:
        patch.setattr(TraceWriter, "_extend", extend)
        survives(path, wanted, lambda: capsys.readouterr().err)
    assert not tfbisect.load(path).complete


def test_a_folder_that_is_removed_while_recording(path: Path, wanted: list[bytes]) -> None:
    folder = path.parent / "gone"
    folder.mkdir()
    with tfbisect.record(folder / "a.h5"):
        shutil.rmtree(folder)
        assert program() == wanted
    assert not folder.exists()


def test_another_writer_cannot_take_the_file(path: Path, wanted: list[bytes]) -> None:
    with tfbisect.record(path):
        with pytest.raises(tfbisect.errors.OutputExists):
            TraceWriter(path)
        assert program() == wanted
    assert tfbisect.load(path).complete


def test_a_file_that_is_replaced_while_recording_stays_the_other_ones(path: Path, wanted: list[bytes]) -> None:
    with tfbisect.record(path):
        TraceWriter(path, force=True).close()
        assert program() == wanted
    assert len(tfbisect.load(path).events) == 0


def test_a_reader_while_it_is_written(path: Path) -> None:
    seen = []
    with tfbisect.record(path):
        for _ in range(5):
            program()
            trace = tfbisect.load(path)
            assert not trace.complete and set(trace.problems) <= {
                "the recording has no end: the process died or still runs"
            } | {problem for problem in trace.problems if "did not end" in problem}
            seen.append(len(trace.events))
    assert seen == sorted(seen) and len(tfbisect.load(path).events) >= seen[-1] > 0


# --- interrupts ------------------------------------------------------------------------------------------------------

INTERRUPTED = """
import contextlib, os, sys
import tensorflow as tf
import tfbisect

def turns(first):
    for turn in range(first, first + 2):
        v = tf.Variable(tf.fill([turn + 1], 1.0), name=f"v{turn}")
        tf.sin(v + float(turn))

def interrupted_at(moment):
    # Executes turns; at the first execution of the moment-th line of the package an interrupt comes. -> lines executed
    known = set()

    def line(frame, event, _):
        if event == "line" and (frame.f_code, frame.f_lineno) not in known:
            known.add((frame.f_code, frame.f_lineno))
            if len(known) == moment:
                sys.settrace(None)
                raise KeyboardInterrupt
        return line

    package = os.path.dirname(tfbisect.__file__) + os.sep
    sys.settrace(lambda frame, *_: line if frame.f_code.co_filename.startswith(package) else None)
    try:
        turns(2)
    finally:
        sys.settrace(None)
    return len(known)

with tfbisect.record("all.h5"):
    turns(0)
    moments = interrupted_at(None)
missed = 0  # where flushing, which goes by the clock, executed other lines
for moment in range(1, moments + 1):
    with tfbisect.record(f"{moment}.h5"):
        turns(0)
        with contextlib.suppress(KeyboardInterrupt):
            interrupted_at(moment)
            missed += 1
        turns(4)
print(moments, missed)
"""


def test_an_interrupt_at_any_line_leaves_names_as_they_were(tmp_path: Path) -> None:
    """An interrupt between a number that is given out and its row would make all later names those of others.

    It is raised at each line of ours that an op executes. Real signals would not do: they also come while TensorFlow's
    C++ compares the keys of its cache of constants or asks a TensorShape for its length, where a plain program dies of
    them (`Check failed: !PyErr_Occurred()`, or a segmentation fault) or loses them.
    """
    (tmp_path / "program.py").write_text(INTERRUPTED)
    done = python("program.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    moments, missed = map(int, done.stdout.split())
    assert moments - missed > 200
    for moment in range(1, moments + 1):
        trace = tfbisect.load(tmp_path / f"{moment}.h5")
        named = []
        for call in trace.calls:
            graph, source = trace.graphs[int(call["graph"])], trace.source(int(call["stack"]))
            if graph.kind == GraphKind.EAGER and source is not None:
                assert os.path.basename(source.file) == "program.py"
                wanted = {"Sin": "tf.sin(v", "AddV2": "tf.sin(v", "Fill": "tf.fill"}.get(graph.name, "")
                assert wanted in source.text, (moment, graph.name, source)
                named.append(graph.name)
        assert named.count("Fill") >= 4 or not trace.complete, (moment, named)  # its writer ends where one cuts a write


# --- the program's own doings ----------------------------------------------------------------------------------------


def test_recursion_to_depth_900(path: Path) -> None:
    double = tf.function(lambda x: x * 2)

    def deep(depth: int) -> Any:
        return deep(depth - 1) if depth else double(tf.constant(1.5)) + 1

    depth = 900 - len(list_of_frames())
    plain = bits(deep(depth - 60))
    with tfbisect.record(path):
        assert bits(deep(depth - 60)) == plain
    assert len(tfbisect.load(path).events) > 0


def list_of_frames() -> list[Any]:
    frame, found = sys._getframe(), []
    while frame is not None:
        found.append(frame)
        frame = frame.f_back  # type: ignore[assignment]
    return found


def test_settings_that_change_while_recording(path: Path) -> None:
    @tf.function
    def f(x: tf.Tensor) -> tf.Tensor:
        return tf.matmul(x, x) + tf.sin(x) * 3.0

    def run() -> list[bytes]:
        x, out = tf.reshape(tf.range(16.0), [4, 4]) / 7, []
        for on in (True, False, True):
            tf.config.optimizer.set_experimental_options({"remapping": on, "constant_folding": on})
            tf.config.experimental.set_synchronous_execution(True)
            tf.config.run_functions_eagerly(not on)
            out.append(f(x))
        tf.config.run_functions_eagerly(False)
        return bits(out)

    plain = run()
    with tfbisect.record(path):
        assert run() == plain
    assert tfbisect.load(path).complete


def test_a_program_with_op_callbacks_of_its_own(path: Path) -> None:
    from tensorflow.python.framework import op_callbacks

    seen: list[str] = []

    def own(op_type: Any, inputs: Any, attrs: Any, outputs: Any, op_name: Any = None, graph: Any = None) -> None:
        seen.append(str(op_type))

    with tfbisect.record(path):
        op_callbacks.add_op_callback(own)
        tf.sin(tf.constant(0.5))
        op_callbacks.remove_op_callback(own)
        tf.cos(tf.constant(0.5))
        with pytest.raises(KeyError):
            op_callbacks.remove_op_callback(own)
    assert "Sin" in seen and "Cos" not in seen
    names = [graph.name for graph in tfbisect.load(path).graphs]
    assert {"Sin", "Cos"} <= set(names)


def test_a_program_that_clears_all_op_callbacks(path: Path) -> None:
    from tensorflow.python.framework import op_callbacks

    with tfbisect.record(path):
        tf.sin(tf.constant(0.5))
        op_callbacks.clear_op_callbacks()
        tf.cos(tf.constant(0.5))
        tf.function(tf.tanh)(tf.constant(0.5))
    trace = tfbisect.load(path)
    assert len(trace.events) > 0


def test_a_program_under_debugger_v2(path: Path, tmp_path: Path) -> None:
    f = tf.function(lambda x: tf.sin(x) * 2)

    def run(folder: str) -> list[bytes]:
        tf.debugging.experimental.enable_dump_debug_info(str(tmp_path / folder), "NO_TENSOR")
        try:
            return bits([f(tf.constant(0.5)), tf.cos(tf.constant(1.5))])
        finally:
            tf.debugging.experimental.disable_dump_debug_info()

    plain = run("plain")
    with tfbisect.record(path):
        assert run("recorded") == plain
    assert len(tfbisect.load(path).events) > 0
