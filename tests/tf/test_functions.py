"""What is recorded of tf.functions: every output, with its bits, its loop iteration and where its inputs came from."""

import threading
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import context
from tf.recorded import bits, graph_digest, host_digest, recording

from tfbisect.model import GraphKind, NodeFlag, SiteKind


@pytest.fixture
def x() -> tf.Tensor:
    return tf.random.stateless_normal([6, 6], [1, 2])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.h5"


def test_outputs_have_the_digest_and_shape_of_what_was_computed(path: Path, x: tf.Tensor) -> None:
    @tf.function
    def chain(x: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(tf.sin(x) * 3.0, axis=0)

    plain = chain(x)
    with recording(path) as views:
        result = chain(x)
    assert bits(result) == bits(plain)
    (view,) = views
    assert view.trace.complete and not view.trace.problems and not view.trace.opaque
    (total,) = view.of("Sum")
    assert (total.digest, total.shape, total.path) == (graph_digest(plain), (6,), ())
    (sine,) = view.of("Sin")
    assert (sine.digest, sine.shape) == (graph_digest(tf.sin(x)), (6, 6))
    (argument,) = view.of("_Arg", SiteKind.ARG)
    assert argument.digest == host_digest(x)
    assert np.array_equal(view.trace.value(total.row), plain.numpy())


def test_every_dtype_that_has_bytes_is_digested(path: Path) -> None:
    names = "float32 float64 float16 bfloat16 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool complex64 "
    names += "complex128"
    values = [tf.cast(tf.constant([[1, 0, 3]]), name) for name in names.split()]

    @tf.function
    def each(values: list[tf.Tensor]) -> list[tf.Tensor]:
        return [tf.concat([value, value], 0) for value in values]

    with recording(path) as views:
        results = each(values)
    found = {(e.shape, e.digest) for e in views[0].of("ConcatV2")}
    assert found == {((2, 3), graph_digest(result)) for result in results}
    assert len(views[0].of("ConcatV2")) == len(values)


def test_small_floats_and_quantized_types_are_digested(path: Path) -> None:
    value = tf.constant([[1.5, 0.25]])

    @tf.function
    def odd(value: tf.Tensor) -> list[tf.Tensor]:
        quantized = tf.raw_ops.QuantizeV2(input=value, min_range=0.0, max_range=2.0, T=tf.quint8).output
        return [tf.cast(value, "float8_e5m2"), tf.cast(value, "float8_e4m3fn"), quantized]

    for values in ("auto", "none"):
        with recording(path, values=values, force=True) as views:
            results = odd(value)
        assert {e.digest for e in views[0].of("Cast")} == {graph_digest(r._numpy_internal()) for r in results[:2]}
        assert graph_digest(results[2]._numpy_internal()) in {e.digest for e in views[0].of("QuantizeV2")}
        assert not views[0].trace.opaque


def test_strings_empty_tensors_and_scalars_are_digested(path: Path) -> None:
    @tf.function
    def odd(text: tf.Tensor, empty: tf.Tensor, flag: tf.Tensor) -> list[tf.Tensor]:
        return [tf.strings.upper(text), tf.sin(empty), tf.logical_not(flag)]

    with recording(path) as views:
        odd(tf.constant(["ab", "c"]), tf.zeros([0, 3]), tf.constant(True))
        odd(tf.constant(["ab", "d"]), tf.zeros([0, 3]), tf.constant(True))
    (view,) = views
    first, second = view.of("StringUpper")
    assert first.shape == (2,) and first.digest != second.digest
    assert {e.shape for e in view.of("Sin")} == {(0, 3)}
    assert {e.shape for e in view.of("LogicalNot")} == {()}


def test_iterations_of_nested_loops_are_told_apart(path: Path, x: tf.Tensor) -> None:
    @tf.function
    def nested(x: tf.Tensor) -> tf.Tensor:
        for i in tf.range(3):
            for _ in tf.range(i + 1):
                x = tf.sin(x)
            x = tf.cos(x)
        return x

    plain = nested(x)
    with recording(path) as views:
        result = nested(x)
    assert bits(result) == bits(plain)
    (view,) = views
    assert list(view.paths("Sin").values()) == [{(i, j) for i in range(3) for j in range(i + 1)}]
    assert list(view.paths("Cos").values()) == [{(0,), (1,), (2,)}]
    value = x
    for i in range(3):
        for j in range(i + 1):
            value = tf.sin(value)
            assert [e.digest for e in view.of("Sin") if e.path == (i, j)] == [graph_digest(value)]
        value = tf.cos(value)


def test_overtaking_iterations_keep_their_number(path: Path) -> None:
    def slow(i: np.ndarray) -> np.ndarray:
        import time

        time.sleep(0.02 * (5 - int(i)))
        return np.float32(i)

    @tf.function
    def overtaking() -> tf.Tensor:
        def body(i: tf.Tensor, out: tf.TensorArray) -> tuple[tf.Tensor, tf.TensorArray]:
            value = tf.numpy_function(slow, [i], tf.float32, stateful=False)
            return i + 1, out.write(i, tf.ensure_shape(value, []) * 2.0)

        loop = tf.while_loop(lambda i, _: i < 5, body, [0, tf.TensorArray(tf.float32, 5)], parallel_iterations=10)
        return loop[1].stack()

    with recording(path) as views:
        overtaking()
    found = {e.path: e.digest for e in views[0].of("Mul")}
    assert found == {(i,): graph_digest(np.float32(2 * i)) for i in range(5)}


def test_only_the_branch_that_ran_has_events(path: Path, x: tf.Tensor) -> None:
    @tf.function
    def branch(x: tf.Tensor, flag: tf.Tensor) -> tf.Tensor:
        return tf.cond(flag, lambda: tf.sin(x) + 1.0, lambda: tf.cos(x) * 2.0)

    with recording(path) as views:
        branch(x, tf.constant(True))
        branch(x, tf.constant(False))
    (view,) = views
    calls = sorted({e.call for e in view.of("_Arg", SiteKind.ARG)})
    assert [e.call for e in view.of("Sin")] == calls[:1]
    assert [e.call for e in view.of("Cos")] == calls[1:]


def test_each_write_of_a_variable_is_an_event(path: Path, x: tf.Tensor) -> None:
    variable = tf.Variable(tf.zeros([6, 6]))

    @tf.function
    def writes(x: tf.Tensor) -> tf.Tensor:
        variable.assign_add(x)
        variable.assign(variable * 2.0)
        variable.scatter_sub(tf.IndexedSlices(x[:2], tf.constant([1, 3])))
        return variable + 0.0

    with recording(path) as views:
        writes(x)
    (view,) = views
    assert [e.digest for e in view.of("AssignAddVariableOp", SiteKind.WRITE)] == [graph_digest(x)]
    assert [e.digest for e in view.of("AssignVariableOp", SiteKind.WRITE, "writes")] == [graph_digest(x * 2)]
    rows = tf.gather(variable, [1, 3])  # a scatter's event holds the rows that it wrote
    assert [e.digest for e in view.of("ResourceScatterSub", SiteKind.WRITE)] == [graph_digest(rows)]


def test_a_write_in_a_branch_is_seen_before_the_next_write(path: Path) -> None:
    big = tf.Variable(tf.zeros([1 << 20]))

    @tf.function
    def branch_then_write(flag: tf.Tensor) -> None:
        if flag:
            big.assign_add(tf.ones_like(big))
        big.assign_add(tf.ones_like(big) * 2.0)

    for _ in range(3):
        big.assign(tf.zeros_like(big))
        with recording(path, force=True) as views:
            branch_then_write(tf.constant(True))
        found = {e.digest for e in views[0].of("AssignAddVariableOp", SiteKind.WRITE)}
        assert found == {graph_digest(np.full(1 << 20, value, np.float32)) for value in (1.0, 3.0)}


def test_constants_are_events_of_the_graph(path: Path, x: tf.Tensor) -> None:
    table = np.arange(36, dtype=np.float32).reshape(6, 6)

    @tf.function
    def add(x: tf.Tensor) -> tf.Tensor:
        return x + table

    with recording(path) as views:
        add(x)
        add(x)
    constants = [e for e in views[0].events if e.kind == SiteKind.CONST]
    assert [(e.call, e.digest, e.shape) for e in constants] == [(-1, host_digest(table), (6, 6))]


def test_values_can_be_followed_through_calls_and_eager_ops(path: Path, x: tf.Tensor) -> None:
    @tf.function
    def double(x: tf.Tensor) -> tf.Tensor:
        return x * 2.0

    with recording(path) as views:
        double(tf.sin(double(x)))
    trace = views[0].trace
    names = {int(c["id"]): trace.graphs[int(c["graph"])].name for c in trace.calls}
    links = {(int(link["call"]), int(link["arg"])): int(link["src_call"]) for link in trace.links}
    calls = sorted(names)
    assert [names[c] for c in calls] == ["Mul", "double", "Sin", "double"]
    host, first, sine, second = calls
    assert NodeFlag.HOSTVALUE in trace.graphs[int(trace.calls[0]["graph"])].nodes[0].flags
    assert (links[first, 0], links[sine, 0], links[second, 0]) == (host, first, sine)


def test_lines_are_the_users(path: Path, x: tf.Tensor) -> None:
    @tf.function
    def inner(x: tf.Tensor) -> tf.Tensor:
        return tf.tanh(x)  # the line of Tanh

    @tf.function
    def outer(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = inner(x)
        return tape.gradient(y, x)  # the line of TanhGrad

    with recording(path) as views:
        outer(x)
    trace = views[0].trace
    graph = next(g for g in trace.graphs if g.name == "outer")
    lines = {node.op: trace.source(node.stack) for node in graph.nodes if node.stack}
    assert lines["Tanh"] is not None and "the line of Tanh" in lines["Tanh"].text
    assert lines["TanhGrad"] is not None and "the line of TanhGrad" in lines["TanhGrad"].text
    assert {n.function for n in graph.nodes if n.op == "Tanh"} <= {"inner", "inner (forward)"}


def test_a_gradient_op_knows_its_forward_op(path: Path, x: tf.Tensor) -> None:
    @tf.function
    def step(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.tanh(x, name="squash")
        return tape.gradient(y, x)

    with recording(path) as views:
        step(x)
    graph = next(g for g in views[0].trace.graphs if g.name == "step")
    (grad,) = (node for node in graph.nodes if node.op == "TanhGrad")
    assert grad.forward_name == "squash" and graph.nodes[grad.forward].op == "Tanh"


def test_a_kernel_stream_goes_on_as_if_nothing_was_recorded(path: Path) -> None:
    def draws(record: bool) -> list[bytes]:
        tf.random.set_seed(7)
        draw = tf.function(lambda: tf.random.uniform([3], seed=5))
        if not record:
            return [bits(draw())[0] for _ in range(6)]
        found = []
        with recording(path):
            found += [bits(draw())[0] for _ in range(3)]
        return found + [bits(draw())[0] for _ in range(3)]

    assert draws(False) == draws(True)


def test_functions_called_after_the_recording_get_no_twin(path: Path) -> None:
    draw = tf.function(lambda: tf.random.uniform([3], seed=5))  # goes on as its twin, so calls stay hooked
    during, after = tf.function(lambda x: x + 1.0), tf.function(lambda x: x * 2.0)
    with recording(path):
        draw(), during(tf.ones([]))
    known = set(context.context().list_function_names())
    draw(), during(tf.ones([])), after(tf.ones([]))
    new = {str(name) for name in set(context.context().list_function_names()) - known}
    assert not any("__twin" in name for name in new), new


def test_a_stream_that_ran_before_is_left_alone(path: Path) -> None:
    def draws(record: bool) -> list[bytes]:
        tf.random.set_seed(7)
        draw = tf.function(lambda: tf.random.uniform([3], seed=5))
        found = [bits(draw())[0] for _ in range(2)]
        if not record:
            return found + [bits(draw())[0] for _ in range(4)]
        with recording(path) as views:
            found += [bits(draw())[0] for _ in range(2)]
        assert [o.reason for o in views[0].trace.opaque] == [
            "it draws random numbers and may have run before recording began"
        ]
        return found + [bits(draw())[0] for _ in range(2)]

    assert draws(False) == draws(True)


def test_errors_are_the_programs_own(path: Path, x: tf.Tensor) -> None:
    @tf.function
    def fails(x: tf.Tensor) -> tf.Tensor:
        y = tf.sin(x)
        tf.debugging.assert_less(y, -5.0, message="boom")
        return y

    with pytest.raises(tf.errors.InvalidArgumentError) as plain:
        fails(x)
    with recording(path) as views, pytest.raises(tf.errors.InvalidArgumentError) as recorded:
        fails(x)
    assert str(recorded.value) == str(plain.value)
    assert recorded.value.node_def == plain.value.node_def
    trace = views[0].trace
    (call,) = (c for c in trace.calls if trace.graphs[int(c["graph"])].name == "fails")
    assert call["state"] == 1


def test_an_xla_function_is_opaque_and_counted(path: Path, x: tf.Tensor) -> None:
    compiled = tf.function(lambda x: tf.sin(x) * 2.0, jit_compile=True)
    plain = compiled(x)
    with recording(path) as views:
        result = compiled(x)
    assert bits(result) == bits(plain)
    trace = views[0].trace
    assert [(o.reason, o.count) for o in trace.opaque] == [("compiled by XLA as one cluster", 1)]
    (graph,) = (g for g in trace.graphs if g.kind == GraphKind.OPAQUE)
    results = [e for e in views[0].events if e.graph == graph.name and e.kind == SiteKind.OUTPUT]
    assert [e.digest for e in results] == [host_digest(result)]


def test_two_threads_in_one_function_lose_nothing(path: Path) -> None:
    square = tf.function(lambda x: tf.sin(x) * x)
    inputs = [tf.fill([4], float(i)) for i in range(40)]
    square(inputs[0])

    def work(part: list[tf.Tensor]) -> None:
        for value in part:
            square(value)

    with recording(path) as views:
        threads = [threading.Thread(target=work, args=(inputs[i::2],)) for i in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    (view,) = views
    assert sorted(e.digest for e in view.of("Mul", graph=view.of("Sin")[0].graph)) == sorted(
        graph_digest(tf.sin(x) * x) for x in inputs
    )
    calls = [c for c in view.trace.calls if view.trace.graphs[int(c["graph"])].kind == GraphKind.TWIN]
    assert len(calls) == 40 and len({int(c["thread"]) for c in calls}) == 2


@pytest.mark.parametrize("count", [30, pytest.param(1000, marks=pytest.mark.slow)])
def test_a_twin_goes_with_its_function(path: Path, x: tf.Tensor, count: int) -> None:
    import gc

    def twins() -> int:
        return sum("__twin" in str(name) for name in context.context().list_function_names())

    before = twins()
    with recording(path) as views:
        for number in range(count):
            scale = number + 1.0  # times zero, TensorFlow 2.16 leaves the Sin out
            tf.function(lambda x, scale=scale: tf.sin(x) * scale)(x)
        gc.collect()
        assert twins() - before <= 2
    assert len(views[0].of("Sin")) == count


def test_an_xla_function_can_be_recorded_op_by_op(path: Path, x: tf.Tensor) -> None:
    inner = tf.function(lambda x: tf.sin(x) * 2.0, jit_compile=True)

    @tf.function
    def outer(x: tf.Tensor) -> tf.Tensor:
        return tf.cos(inner(x))

    with recording(path, xla="expand") as views:
        inner(x)
        outer(x)
    (view,) = views
    assert len(view.of("Sin")) == 2 and len(view.of("Cos")) == 1
    assert {o.count for o in view.trace.opaque} == {1} and "another program" in view.trace.opaque[0].reason
    graph = next(g for g in view.trace.graphs if g.name == "outer")
    source = view.trace.source(next(n.stack for n in graph.nodes if n.op == "Sin"))
    assert source is not None and "tf.sin" in source.text


@pytest.mark.parametrize("values", ["auto", "all", "none", "Sum$"])
def test_values_are_kept_by_policy_and_drops_are_counted(path: Path, values: str) -> None:
    @tf.function(input_signature=[tf.TensorSpec([None, 64], tf.float32), tf.TensorSpec([4], tf.float32)])
    def step(x: tf.Tensor, small: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(tf.sin(x)) + tf.cos(small)

    x, small = tf.random.stateless_normal([64, 64], [1, 2]), tf.constant([1.0, 2.0, 3.0, 4.0])
    with recording(path, values=values) as views:
        step(x[:2], small)
        step(x, small)
    (view,) = views
    kept = [(e.op, e.shape) for e in view.events if view.trace.value(e.row) is not None and e.call >= 0]
    outputs = {item for item in kept if item[0] in ("Sin", "Cos", "Sum")}
    expected = {
        "none": set(),
        "auto": {("Sin", (2, 64)), ("Cos", (4,)), ("Sum", ())},
        "all": {("Sin", (2, 64)), ("Sin", (64, 64)), ("Cos", (4,)), ("Sum", ())},
        "Sum$": {("Sum", ())},
    }[values]
    assert outputs == expected
    for event, wanted in zip(view.of("Sin"), (tf.sin(x[:2]), tf.sin(x)), strict=True):
        found = view.trace.value(event.row)
        assert found is None or np.array_equal(found, wanted.numpy())
    assert ("values over 4 KiB" in view.trace.dropped) == (values == "auto")


def test_the_programs_own_collection_of_graphs_goes_on(path: Path, x: tf.Tensor, tmp_path: Path) -> None:
    step = tf.function(lambda x: tf.sin(x) + 1.0)
    with recording(path) as views:
        with tf.summary.create_file_writer(str(tmp_path / "logs")).as_default():
            tf.summary.trace_on(graph=True)
            step(x)
            tf.summary.trace_export("graphs", step=0)
        step(x)
    (view,) = views
    assert [(o.reason, o.count) for o in view.trace.opaque] == [("the program collects run metadata", 1)]
    assert len(view.of("Sin")) == 1
    (logged,) = (tmp_path / "logs").iterdir()
    events = tf.compat.v1.train.summary_iterator(str(logged))
    assert any(event.HasField("summary") or event.graph_def for event in events)


def test_what_was_computed_before_a_check_failed_is_kept(path: Path, x: tf.Tensor) -> None:
    @tf.function
    def checked(x: tf.Tensor) -> tf.Tensor:
        y = tf.sin(x) * 2.0
        return tf.cos(tf.debugging.check_numerics(tf.math.log(y - 5.0), "no logarithm"))

    with recording(path) as views, pytest.raises(tf.errors.InvalidArgumentError, match="no logarithm"):
        checked(x)
    (view,) = views
    assert {e.op for e in view.events if e.kind == SiteKind.OUTPUT} >= {"Sin", "Log"}
    assert not view.of("Cos")


def test_outputs_that_no_kernel_writes_are_left_out(path: Path, x: tf.Tensor) -> None:
    @tf.function
    def step(x: tf.Tensor) -> tf.Tensor:
        return tf.linalg.svd(x, compute_uv=False) * 2.0  # two more outputs, which hold whatever was there

    with recording(path) as views:
        step(x)
    assert views[0].trace.complete
    assert [e.shape for e in views[0].of("Svd")] == [(6,)]


@pytest.mark.slow  # 7 GB of memory
@pytest.mark.parametrize(("known", "values"), [(True, "auto"), (False, "auto"), (True, "all"), (False, "all")])
def test_tensors_of_over_2_gib(path: Path, known: bool, values: str) -> None:
    count = 2**31 + 16  # neither its bytes nor its elements can be counted in 32 bits

    def fill(count: tf.Tensor, last: tf.Tensor) -> tf.Tensor:
        zeros = tf.zeros([2**31 + 15] if known else count[None] - 1, tf.uint8)
        return tf.concat([zeros, last[None]], 0)

    spec = [tf.TensorSpec([], tf.int64), tf.TensorSpec([], tf.uint8)]
    small = tf.function(lambda count, last: tf.reduce_sum(tf.cast(fill(count, last)[-3:], tf.int32)), spec)
    with recording(path, values=values) as views:
        results = [int(small(tf.constant(count, tf.int64), tf.constant(last, tf.uint8))) for last in (1, 2, 1)]
    assert results == [1, 2, 1]
    first, second, third = (event for event in views[0].of("ConcatV2") if event.shape == (count,))
    assert first.digest == third.digest != second.digest
    what = "values over 1 GiB" if values == "all" else "values over 4 KiB"
    assert views[0].trace.dropped == {what: 4 if known else 6}
