"""What is recorded of tf.compat.v1 Sessions, and that recording leaves no trace of itself in the program."""

import contextlib
import itertools
import os
import re
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tf.recorded import View, bits, host_digest, recording

from tfbisect.model import NodeFlag, SiteKind
from tfbisect.recorder import session_dumps, session_graph, session_plan, session_probe

v1 = tf.compat.v1


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.h5"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files, where nothing else is."""
    found = tmp_path / "temporary"
    found.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(found))
    return found


def data(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype("float32")


def variable(name: str, shape: list[int], resource: bool, **options: Any) -> Any:
    return v1.get_variable(name, shape, use_resource=resource, **options)


# ---------------------------------------------------------------------------------------------------------------------
# Programs
# ---------------------------------------------------------------------------------------------------------------------


def mlp(resource: bool = False, steps: int = 4) -> list[Any]:
    """Dense layers, dropout, momentum: each run draws random numbers from streams of the session's."""
    v1.set_random_seed(1)
    x, y = v1.placeholder(tf.float32, [None, 20], "x"), v1.placeholder(tf.int32, [None], "y")
    hidden = tf.nn.relu(tf.matmul(x, variable("w0", [20, 16], resource)) + variable("b0", [16], resource))
    hidden = v1.nn.dropout(hidden, rate=0.3)
    logits = tf.matmul(hidden, variable("w1", [16, 5], resource))
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
    train = v1.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
    feeds = {x: data(32, 20), y: np.arange(32, dtype=np.int32) % 5}
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        values = [session.run([train, loss], feeds)[1] for _ in range(steps)]
        return [*values, session.run(loss, feeds), *session.run(v1.trainable_variables())]


def lstm() -> list[Any]:
    """A cell in a while_loop with gradients, and a cond."""
    v1.set_random_seed(2)
    x = v1.placeholder(tf.float32, [8, 6, 4])
    kernel = variable("kernel", [4 + 5, 20], True)
    steps = tf.TensorArray(tf.float32, 6).unstack(tf.transpose(x, [1, 0, 2]))

    def body(t: Any, h: Any, c: Any) -> Any:
        i, f, o, g = tf.split(tf.matmul(tf.concat([steps.read(t), h], 1), kernel), 4, 1)
        c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(g)
        return t + 1, tf.sigmoid(o) * tf.tanh(c), c

    _, h, _ = v1.while_loop(lambda t, h, c: t < 6, body, [0, tf.zeros([8, 5]), tf.zeros([8, 5])])
    h = v1.cond(tf.reduce_sum(h) > 0, lambda: h * 2, lambda: tf.sin(h))
    loss = tf.reduce_mean(tf.square(h - 0.3))
    train = v1.train.MomentumOptimizer(0.5, 0.9).minimize(loss)
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        return [session.run([train, loss], {x: data(8, 6, 4)})[1] for _ in range(4)] + [session.run(kernel)]


def lstm_v1() -> list[Any]:
    return with_control_flow(False)


def lstm_v2() -> list[Any]:
    return with_control_flow(True)


def with_control_flow(v2: bool) -> list[Any]:
    before = v1.control_flow_v2_enabled()
    (v1.enable_control_flow_v2 if v2 else v1.disable_control_flow_v2)()
    try:
        return lstm()
    finally:
        (v1.enable_control_flow_v2 if before else v1.disable_control_flow_v2)()


def monitored() -> list[Any]:
    """A finalized graph, hooks, a global step, an embedding, a queue runner."""
    v1.set_random_seed(3)
    ids = v1.train.input_producer(tf.range(40), shuffle=False).dequeue_many(8)
    table = variable("table", [40, 6], True)
    loss = tf.reduce_mean(tf.square(tf.nn.embedding_lookup(table, ids) - 0.5))
    step = v1.train.get_or_create_global_step()
    train = v1.train.GradientDescentOptimizer(0.3).minimize(loss, global_step=step)
    with v1.train.MonitoredTrainingSession(hooks=[v1.train.StopAtStepHook(last_step=6)]) as session:
        values = []
        while not session.should_stop():
            values.append(session.run([train, loss])[1])
        return values


def added() -> list[Any]:
    """AddN sums into the first buffer that nobody else holds: a copy made by a watch would change the order."""
    v1.set_random_seed(4)
    parts = [variable(f"part{i}", [64, 64], True) for i in range(4)]
    x = v1.placeholder(tf.float32, [64, 64])
    total = tf.add_n([parts[0], tf.reshape(parts[1], [64, 64]), tf.sin(x) * 1e4, x, parts[2], tf.exp(parts[3])])
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        return [session.run(total, {x: data(64, 64)}), session.run(parts)]


def plain(program: Callable[[], list[Any]]) -> list[bytes]:
    with tf.Graph().as_default():
        return bits(program())


PROGRAMS = [
    pytest.param(lambda: mlp(False), id="mlp, reference variables"),
    pytest.param(lambda: mlp(True), id="mlp, resource variables"),
    lstm_v1,
    lstm_v2,
    pytest.param(monitored, marks=pytest.mark.filterwarnings("ignore::ResourceWarning")),
    added,
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_recorded_programs_give_the_bits_of_plain_ones(program: Callable[[], list[Any]], path: Path) -> None:
    expected = plain(program)
    with recording(path) as views:
        found = plain(program)
    assert found == expected
    (view,) = views
    assert view.trace.complete and len(view.events) > 30
    reasons = {o.reason for o in view.trace.opaque}
    assert not any("could not" in reason for reason in reasons), reasons


# ---------------------------------------------------------------------------------------------------------------------
# What is recorded
# ---------------------------------------------------------------------------------------------------------------------


def test_ops_have_the_digests_lines_and_forward_ops_of_what_they_computed(path: Path) -> None:
    with tf.Graph().as_default(), recording(path) as views, v1.Session() as session:
        x = v1.placeholder(tf.float32, [4, 4], "x")
        y = tf.matmul(x, x, name="product")
        (gradient,) = tf.gradients(tf.reduce_sum(tf.tanh(y)), [x])
        value, _ = session.run([y, gradient], {x: data(4, 4)})
    (view,) = views
    (product,) = (event for event in view.of("MatMul") if event.node == "product")
    assert product.digest == host_digest(value) and product.shape == (4, 4)
    (graph,) = (graph for graph in view.trace.graphs if graph.name.startswith("Session.run"))
    (node,) = (node for node in graph.nodes if node.name == "product")
    source = view.trace.source(node.stack)
    assert source is not None and source.text == 'y = tf.matmul(x, x, name="product")'
    gradients = [node for node in graph.nodes if node.op == "TanhGrad"]
    assert [graph.nodes[node.forward].op for node in gradients] == ["Tanh"]


def test_feeds_are_values_that_python_handed_in(path: Path) -> None:
    fed = data(3)
    with tf.Graph().as_default(), recording(path) as views, v1.Session() as session:
        x = v1.placeholder(tf.float32, [3], "x")
        y = tf.sin(x) * 2
        session.run(y, {x: fed})
    (view,) = views
    (argument,) = view.of("_Arg", SiteKind.ARG)
    assert argument.node == "x" and argument.digest == host_digest(fed)
    links = {int(link["call"]): int(link["src_call"]) for link in view.trace.links}
    calls = {int(call["id"]): call for call in view.trace.calls}
    source = calls[links[argument.call]]
    node = view.trace.graphs[int(source["graph"])].nodes[0]
    assert (node.name, node.op) == ("x", "Placeholder") and NodeFlag.HOSTVALUE in node.flags
    line = view.trace.source(int(source["stack"]))
    assert line is not None and line.text == "session.run(y, {x: fed})"


@pytest.mark.parametrize("resource", [False, True])
def test_a_variable_is_an_event_after_each_op_that_wrote_it(path: Path, resource: bool) -> None:
    with tf.Graph().as_default(), recording(path) as views, v1.Session() as session:
        counter = variable("counter", [], resource, initializer=v1.zeros_initializer(), trainable=False)
        add = v1.assign_add(counter, 1.0)
        session.run(counter.initializer)
        for _ in range(3):
            session.run(add.op)
    (view,) = views
    writes = view.of("AssignAddVariableOp" if resource else "AssignAdd", SiteKind.WRITE)
    assert [event.digest for event in writes] == [host_digest(np.float32(i)) for i in (1, 2, 3)]
    assert len({event.call for event in writes}) == 3
    first = view.of("AssignVariableOp" if resource else "Assign", SiteKind.WRITE)
    assert [event.digest for event in first] == [host_digest(np.float32(0))]


def test_a_branch_that_was_not_taken_wrote_nothing(path: Path) -> None:
    with tf.Graph().as_default(), recording(path) as views, v1.Session() as session:
        state = variable("state", [], True, initializer=v1.zeros_initializer())
        flag = v1.placeholder(tf.bool, [])
        value = v1.placeholder(tf.float32, [])
        write = v1.cond(flag, lambda: state.assign_add(tf.sin(value), read_value=False), lambda: tf.no_op())
        session.run(state.initializer)
        for taken in (False, True, False):
            session.run(write, {flag: taken, value: 1.0})
    assert len(views[0].of("AssignAddVariableOp", SiteKind.WRITE)) == 1


@pytest.mark.parametrize("resource", [False, True])
def test_a_variable_that_is_written_twice_is_an_event_after_each_write(path: Path, resource: bool) -> None:
    with tf.Graph().as_default(), recording(path) as views, v1.Session() as session:
        state = variable("state", [], resource, initializer=v1.zeros_initializer(), trainable=False)
        with tf.control_dependencies([tf.identity(v1.assign_add(state, 1.0))]):
            last = v1.assign(state, state.read_value() * 5.0)
        session.run(state.initializer)
        session.run([last.op])
        session.run([last.op])
    (view,) = views
    first = view.of("AssignAddVariableOp" if resource else "AssignAdd", SiteKind.WRITE)
    assert [event.digest for event in first] == [host_digest(np.float32(i)) for i in (1, 6)]
    second = view.of("AssignVariableOp" if resource else "Assign", SiteKind.WRITE)
    assert [event.digest for event in second] == [host_digest(np.float32(i)) for i in (0, 5, 30)]


@pytest.mark.parametrize("v2", [False, True])
def test_each_iteration_of_nested_loops_has_its_path(path: Path, v2: bool) -> None:
    before = v1.control_flow_v2_enabled()
    (v1.enable_control_flow_v2 if v2 else v1.disable_control_flow_v2)()
    try:
        with tf.Graph().as_default(), recording(path) as views, v1.Session() as session:
            start = v1.placeholder(tf.float32, [2])

            def inner(i: Any, j: Any, x: Any) -> Any:
                odd = v1.cond(tf.equal(j % 2, 1), lambda: tf.sin(x), lambda: tf.square(x))
                return i, j + 1, odd + tf.tanh(x)

            def outer(i: Any, x: Any) -> Any:
                _, _, x = v1.while_loop(lambda i, j, x: j < i, inner, [i, 0, x])
                return i + 1, tf.cos(x)

            _, result = v1.while_loop(lambda i, x: i < 4, outer, [0, start])
            session.run(result, {start: data(2)})
    finally:
        (v1.enable_control_flow_v2 if before else v1.disable_control_flow_v2)()
    (view,) = views
    assert set().union(*view.paths("Cos").values()) == {(i,) for i in range(4)}
    assert set().union(*view.paths("Tanh").values()) == {(i, j) for i in range(4) for j in range(i)}
    assert set().union(*view.paths("Sin").values()) == {(i, j) for i in range(4) for j in range(i) if j % 2}
    assert set().union(*view.paths("Square").values()) == {(i, j) for i in range(4) for j in range(i) if not j % 2}
    assert any("parallel_iterations" in opaque.reason for opaque in view.trace.opaque)


def test_steps_are_the_calls_that_train(path: Path) -> None:
    with tf.Graph().as_default(), recording(path) as views:
        mlp(steps=3)
    (view,) = views
    of_calls = Counter(int(call["step"]) for call in view.trace.calls if "Session" in _graph(view, call))
    assert of_calls == {-1: 1, 0: 1, 1: 1, 2: 3}  # the initializer; what follows a step belongs to it


def _graph(view: View, call: Any) -> str:
    return view.trace.graphs[int(call["graph"])].name


def test_threads_run_the_same_signature_at_the_same_time(path: Path) -> None:
    found: dict[int, list[Any]] = {}
    with tf.Graph().as_default() as graph, recording(path) as views, v1.Session() as session:
        x = v1.placeholder(tf.float32, [50, 50])
        y = tf.reduce_sum(tf.tanh(tf.matmul(x, x)))

        def work(number: int) -> None:
            with graph.as_default():
                found[number] = [session.run(y, {x: data(50, 50) * number}) for _ in range(20)]

        threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    (view,) = views
    assert len(view.of("Tanh")) == 40
    assert len({int(call["thread"]) for call in view.trace.calls if "Session" in _graph(view, call)}) == 2
    by_call = {event.call: event.digest for event in view.of("Sum")}
    expected = Counter(host_digest(value) for values in found.values() for value in values)
    assert Counter(by_call.values()) == expected


def test_make_callable_and_interactive_sessions_are_recorded_and_partial_runs_are_counted(path: Path) -> None:
    with tf.Graph().as_default(), recording(path) as views:
        session = v1.InteractiveSession()
        x = v1.placeholder(tf.float32, [3])
        y = tf.sin(x)
        y.eval({x: data(3)})
        session.make_callable(y, [x])(data(3))
        handle = session.partial_run_setup([y], [x])
        with contextlib.suppress(tf.errors.NotFoundError):  # TensorFlow 2.21 does not find the feed, recorded or not
            session.partial_run(handle, y, {x: data(3)})
        session.close()
    (view,) = views
    assert len(view.of("Sin")) == 2
    assert [o.count for o in view.trace.opaque if o.name == "Session.partial_run"] == [1]


def test_datasets_restores_and_run_metadata(path: Path, tmp_path: Path) -> None:
    with tf.Graph().as_default(), recording(path) as views, v1.Session() as session:
        rows = v1.data.make_one_shot_iterator(tf.data.Dataset.range(6).map(lambda i: i * 2).batch(2)).get_next()
        state = variable("state", [], True, initializer=v1.zeros_initializer())
        saver = v1.train.Saver()
        session.run(state.initializer)
        session.run(state.assign(3.0).op)
        saver.save(session, str(tmp_path / "model"))
        session.run(state.initializer)
        saver.restore(session, str(tmp_path / "model"))
        metadata = v1.RunMetadata()
        options = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE)
        assert session.run([state, rows], options=options, run_metadata=metadata)[0] == 3.0
        assert len(metadata.step_stats.dev_stats)
        assert session.run(rows).tolist() == [4, 6]
    (view,) = views
    assert len(view.of("IteratorGetNext")) == 2
    restored = [event for event in view.of("AssignVariableOp", SiteKind.WRITE) if "save" in event.node]
    assert [event.digest for event in restored] == [host_digest(np.float32(3))]
    assert [o.count for o in view.trace.opaque if "metadata" in o.reason] == [1]


def test_strings_are_recorded(path: Path) -> None:
    with tf.Graph().as_default(), recording(path) as views, v1.Session() as session:
        x = v1.placeholder(tf.string, [2])
        y = tf.strings.length(tf.strings.upper(x))
        session.run(y, {x: ["a", "bc"]})
    (upper,) = views[0].of("StringUpper")
    assert upper.digest == host_digest(np.array([b"A", b"BC"], object))


# ---------------------------------------------------------------------------------------------------------------------
# The program's own
# ---------------------------------------------------------------------------------------------------------------------


def _error(run: Callable[[], Any]) -> tuple[type[BaseException], str]:
    with pytest.raises(Exception) as caught:  # noqa: PT011
        run()
    return caught.type, re.sub(r"_\d+_fifo_queue", "_fifo_queue", str(caught.value))  # numbered over the process


def _failing() -> list[tuple[type[BaseException], str]]:
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [None], "x")
        y = v1.placeholder(tf.float32, [None], "y")
        state = variable("state", [2], True)
        total = x + y
        queue = tf.queue.FIFOQueue(1, [tf.float32], [[]])
        closed = queue.close()
        taken = tf.sin(queue.dequeue())
        found = [
            _error(lambda: session.run(total, {x: [1.0, 2.0], y: [1.0, 2.0, 3.0]})),
            _error(lambda: session.run(total, {x: [1.0]})),
            _error(lambda: session.run(tf.sin(state))),
        ]
        session.run(closed)
        found.append(_error(lambda: session.run(taken)))
    found.append(_error(lambda: session.run(total, {x: [1.0], y: [1.0]})))
    return found


def test_errors_of_the_program_are_as_they_would_be(path: Path) -> None:
    views: list[View] = []
    found = []
    for recorded in (False, True):
        with recording(path) if recorded else contextlib.nullcontext(views) as views:
            found.append(_failing())
    assert found[0] == found[1]
    assert views[0].trace.complete


@pytest.mark.parametrize("options", [{}, {"steps": "7:9"}], ids=["recorded", "outside the window"])
def test_a_call_that_fails_has_run_once(path: Path, options: dict[str, str]) -> None:
    calls = []

    def fails() -> np.ndarray:
        calls.append(1)
        raise ValueError("on purpose")

    with tf.Graph().as_default(), recording(path, **options) as views, v1.Session() as session:
        with pytest.raises(tf.errors.InvalidArgumentError, match="on purpose"):
            session.run(v1.py_func(fails, [], tf.float32))
        session.run(tf.sin(1.0))
    assert len(calls) == 1
    assert views[0].trace.complete


def _fetched(resource: bool) -> list[Any]:
    fed = data(3)
    x = v1.placeholder(tf.float32, [3])
    state = variable("state", [3], resource, initializer=v1.zeros_initializer())
    same = [tf.identity(x), tf.constant([1.0, 2.0, 3.0]), tf.reshape(state, [3, 1])]
    add = v1.assign_add(state, tf.ones([3]))
    found = []
    with v1.Session() as session:
        session.run(state.initializer)
        for _ in range(3):
            found.append(session.run([state, *same], {x: fed}))
            found[-1][1] += 5.0
            found[-1][2] += 5.0
            session.run(add.op)
    return [*found, fed]


@pytest.mark.parametrize("resource", [False, True])
def test_what_was_fetched_stays_as_it_was(path: Path, resource: bool) -> None:
    """Of a variable that is written later; and what the program changes in place is its own."""
    expected = plain(lambda: _fetched(resource))
    with recording(path):
        assert plain(lambda: _fetched(resource)) == expected


def test_the_graph_and_the_environment_stay_the_programs(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFDBG_DISK_BYTES_LIMIT", "1000")
    with tf.Graph().as_default() as graph, recording(path), v1.Session() as session:
        y = tf.sin(tf.constant(data(3)))
        graph.finalize()
        names = [op.name for op in graph.get_operations()]
        session.run(y)
        assert [op.name for op in graph.get_operations()] == names
    assert os.environ["TFDBG_DISK_BYTES_LIMIT"] == "1000"


def test_the_temporary_folder_holds_one_call_and_is_gone_at_the_end(
    path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = []
    take = session_dumps.take

    def measured(where: Path) -> Any:
        sizes.append(sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()))
        found = take(where)
        assert not [file for file in folder.rglob("*") if file.is_file()]
        return found

    monkeypatch.setenv(session_probe.SWITCH, "files")
    with tf.Graph().as_default(), recording(path):
        monkeypatch.setattr(session_dumps, "take", measured)
        mlp(steps=20)
    assert len(sizes) > 20 and max(sizes) < 100_000
    assert not list(folder.iterdir())


@pytest.mark.parametrize("good", [0, 1, 3])
def test_an_error_of_the_recorders_own_leaves_the_program_alone(
    path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], good: int
) -> None:
    """Whether it comes before the first call, or behind a call that must not run again."""
    expected = plain(mlp)
    take, calls = session_dumps.take, itertools.count()

    def broken(where: Path) -> Any:
        if next(calls) >= good:
            raise ZeroDivisionError("on purpose")
        return take(where)

    with recording(path) as views:
        monkeypatch.setattr(session_dumps, "take", broken)
        assert plain(mlp) == expected
    assert not views[0].trace.complete
    assert "the program goes on" in capfd.readouterr().err
    assert not list(folder.iterdir())


# ---------------------------------------------------------------------------------------------------------------------
# How the dumps come
# ---------------------------------------------------------------------------------------------------------------------


def _rows(view: View) -> Counter[Any]:
    return Counter((e.graph, e.node, e.op, e.kind, e.slot, e.path, e.shape, e.digest) for e in view.events)


def _numbers(view: View) -> list[int]:
    return [event.row for event in view.events]


def _how(view: View) -> str:
    (text,) = (o.reason for o in view.trace.opaque if o.reason.startswith("seen through"))
    return text


@pytest.mark.parametrize("program", [mlp, lstm_v1, lstm_v2, added])
def test_dumps_in_files_and_in_memory_are_the_same(
    program: Callable[[], list[Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if session_probe.usable():
        pytest.skip(session_probe.usable())
    found = []
    for name in ("memory", "files"):
        monkeypatch.setenv(session_probe.SWITCH, name)
        with recording(tmp_path / f"{name}.h5") as views:
            plain(program)
        found += views
    assert "in memory" in _how(found[0]) and "files: TFBISECT_SESSIONS=files" in _how(found[1])
    assert _rows(found[0]) == _rows(found[1])
    kept = [
        Counter(None if v is None else v.tobytes() for v in map(view.trace.value, _numbers(view))) for view in found
    ]
    assert kept[0] == kept[1] and len(kept[0]) > 2


@pytest.mark.parametrize("program", [lstm_v1, lstm_v2])
def test_iterations_do_not_depend_on_which_op_was_dumped_first(
    program: Callable[[], list[Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = session_plan.Lane.take
    rng = np.random.default_rng(1)

    def shuffled(lane: Any) -> Any:
        waiting: dict[Any, list[Any]] = {}
        for dump in take(lane):
            waiting.setdefault((dump.node, dump.slot), []).append(dump)
        keys = [key for key, dumps in waiting.items() for _ in dumps]
        rng.shuffle(keys)
        return [waiting[tuple(key)].pop(0) for key in ((node, int(slot)) for node, slot in keys)]

    found = []
    for mixed in (False, True):
        if mixed:
            monkeypatch.setattr(session_plan.Lane, "take", shuffled)
        with recording(tmp_path / f"{mixed}.h5") as views:
            plain(program)
        found.append(_rows(views[0]))
    assert found[0] == found[1]


@pytest.mark.parametrize(("python", "why"), [("/bin/false", "ended with status 1"), ("", "no Python")])
def test_without_a_passed_self_test_files_are_used(
    python: str, why: str, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "executable", python)
    with recording(path) as views:
        plain(added)
    assert why in _how(views[0]) and "files" in _how(views[0])
    monkeypatch.setattr(session_probe, "_try", lambda: pytest.fail("what was found out is remembered"))
    assert why in session_probe.usable()


def test_coverage_tells_what_recording_does_to_a_program(path: Path) -> None:
    with recording(path) as views:
        plain(added)
        plain(lstm_v1)
    reasons = {o.reason for o in views[0].trace.opaque}
    assert session_graph.ADDN in reasons and session_graph.LOOP in reasons
    assert _how(views[0])
