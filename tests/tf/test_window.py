"""Recording some steps only: which ones, what enters them, and that the program stays what it is."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tf.recorded import bits, host_digest, recording

import tfbisect
from tfbisect.errors import Usage
from tfbisect.model import ENTERING_STATE, NodeFlag, SiteKind
from tfbisect.tables import Trace


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.h5"


def steps_of(trace: Trace, op: str) -> list[int]:
    """The steps in which an op or function ran, sorted."""
    return sorted(int(call["step"]) for call in trace.calls if trace.graphs[int(call["graph"])].name == op)


def by_function(count: int) -> list[Any]:
    v = tf.Variable(tf.ones([3]), name="weights")

    @tf.function
    def train(x: tf.Tensor) -> tf.Tensor:
        v.assign_sub(0.1 * v * x)
        return tf.reduce_sum(v)

    @tf.function
    def evaluate(x: tf.Tensor) -> tf.Tensor:
        return tf.reduce_max(v) * x

    return [(train(tf.constant(float(i))), evaluate(tf.constant(1.0)), tf.sin(v)) for i in range(count)]


def by_mark(count: int) -> list[Any]:
    v = tf.Variable(tf.ones([3]))
    found = []
    for _ in range(count):
        tfbisect.step()
        v.assign(tf.sin(v))
        v.assign(tf.sin(v))
        found.append(v.read_value())
    return found


def by_round(count: int) -> list[Any]:
    v, w = tf.Variable(tf.ones([3])), tf.Variable(tf.ones([3]))
    found = []
    for _ in range(count):
        y = tf.sin(v) * w
        v.assign_sub(0.1 * y)
        w.assign_add(0.1 * tf.cos(y))
        found.append(v.read_value())
    return found


def by_keras(count: int) -> list[Any]:
    tf.keras.utils.set_random_seed(1)
    model = tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dropout(0.5), tf.keras.layers.Dense(2)])
    model.compile(tf.keras.optimizers.SGD(0.1, momentum=0.9), "mse")
    x = np.arange(8 * count * 4, dtype=np.float32).reshape(-1, 4) / 100
    model.fit(x, x[:, :2], batch_size=8, epochs=1, shuffle=False, verbose=0)
    return model.get_weights()


@pytest.mark.parametrize(
    "program, op, inside",
    [(by_function, "train", [4, 5]), (by_mark, "Sin", [4, 4, 5, 5]), (by_round, "Cos", [4, 5])],
)
def test_only_the_steps_asked_for_are_recorded(
    program: Callable[[int], list[Any]], op: str, inside: list[int], path: Path
) -> None:
    plain = program(9)
    with recording(path, steps="4:6") as views:
        result = program(9)
    assert bits(result) == bits(plain)
    assert steps_of(views[0].trace, op) == inside
    assert {int(call["step"]) for call in views[0].trace.calls if not _makes(views[0].trace, call)} == {4, 5}


def _makes(trace: Trace, call: Any) -> bool:
    return _name(trace, call) == "VarHandleOp"


def _name(trace: Trace, call: Any) -> str:
    return trace.graphs[int(call["graph"])].name


def test_keras_batches_are_steps_and_are_counted_outside_the_window(path: Path) -> None:
    plain = by_keras(8)
    with recording(path, steps="5:7") as views:
        result = by_keras(8)
    assert bits(result) == bits(plain)
    calls = [(name, int(call["step"])) for call in views[0].trace.calls for name in [_name(views[0].trace, call)]]
    assert [step for name, step in calls if "step_on" in name] == [5, 6]


def test_ops_with_a_random_stream_draw_what_the_plain_run_draws_before_in_and_after_the_window(path: Path) -> None:
    def program() -> list[Any]:
        tf.random.set_seed(5)
        v = tf.Variable(tf.zeros([4]))

        @tf.function
        def train() -> tf.Tensor:
            drawn = tf.random.uniform([4]) + tf.random.normal([4])
            v.assign_add(drawn)
            return drawn

        @tf.function
        def other() -> tf.Tensor:
            return tf.random.shuffle(tf.range(20))

        return [(train(), other(), tf.random.uniform([2])) for _ in range(9)] + [v.read_value()]

    plain = program()
    for steps, draws in (("3:5", 2), ("8:", 1), (":2", 2), ("none", 0)):
        with recording(path, steps=steps, force=True) as views:
            result = program()
        assert bits(result) == bits(plain), steps
        assert len(views[0].of("RandomStandardNormal")) == draws, steps


def test_a_function_with_a_stream_draws_on_as_before_when_recording_is_over(path: Path) -> None:
    def program(record: bool) -> list[Any]:
        tf.random.set_seed(5)
        v = tf.Variable(0.0)

        @tf.function
        def train() -> tf.Tensor:
            v.assign_add(1.0)
            return tf.random.uniform([4])

        if not record:
            return [train() for _ in range(6)]
        with tfbisect.record(path, steps="1:2"):
            found = [train() for _ in range(4)]
        return found + [train() for _ in range(2)]

    plain = program(False)
    assert bits(program(True)) == bits(plain)


def momentum(count: int, poison: tuple[int, str] | None = None) -> None:
    """Steps whose op updates a variable that nothing reads; poison: the variable changed before a step."""
    v, m = tf.Variable(tf.ones([4]), name="weights"), tf.Variable(tf.zeros([4]), name="velocity")

    @tf.function
    def train(x: tf.Tensor) -> tf.Tensor:
        tf.raw_ops.ResourceApplyMomentum(var=v.handle, accum=m.handle, lr=0.01, grad=v * x, momentum=0.9)
        return tf.reduce_sum(v)

    h = tf.zeros([])
    for i in range(count):
        if poison is not None and poison[0] == i:
            {"weights": v, "velocity": m}[poison[1]].assign_add(tf.fill([4], 0.5))
        h = train(tf.constant(1.0) + 0.0 * h)


def test_variables_enter_the_window_with_what_they_hold(path: Path) -> None:
    with recording(path, steps="3:4") as views:
        v = tf.Variable([1.0, 2.0], name="weights")
        for _ in range(5):
            v.assign_add([1.0, 1.0])
    (entering,) = views[0].of(ENTERING_STATE, SiteKind.WRITE)
    assert entering.node == "weights"
    assert entering.digest == host_digest(np.array([4.0, 5.0], np.float32))


@pytest.mark.parametrize("name", ["weights", "velocity"])
def test_a_variable_that_differs_when_the_window_opens_is_state_with_its_name(name: str, tmp_path: Path) -> None:
    """Also where the op that updates it is the first to touch it, and nothing reads it."""
    paths = [tmp_path / "a.h5", tmp_path / "b.h5"]
    for path, poison in zip(paths, (None, (2, name)), strict=True):
        with tfbisect.record(path, steps="5:7"):
            momentum(8, poison)
    comparison = tfbisect.compare(*paths)
    assert comparison.verdict == "diverged"
    names = {culprit.name for culprit in comparison.culprits}
    assert {culprit.category for culprit in comparison.culprits} == {"state"}
    assert {culprit.op_type for culprit in comparison.culprits} == {ENTERING_STATE}
    assert name in names and names <= {"weights", "velocity", "train before the recorded steps"}
    source = comparison.culprits[0].source
    assert source is not None and "tf.Variable" in source.text


def test_state_that_enters_equal_leaves_the_blame_with_the_op(tmp_path: Path) -> None:
    paths = [tmp_path / "a.h5", tmp_path / "b.h5"]
    for path, factor in zip(paths, (1.0, 1.5), strict=True):
        noise = [1.0] * 6 + [factor] * 3
        v = tf.Variable(tf.ones([4]))

        @tf.function
        def train(x: tf.Tensor, v: tf.Variable = v, noise: list[float] = noise) -> tf.Tensor:
            y = tf.numpy_function(lambda x: x * np.float32(noise.pop(0)), [v * x], tf.float32)
            y.set_shape([4])
            v.assign_sub(0.1 * y)
            return tf.reduce_sum(y)

        with tfbisect.record(path, steps="5:8"):
            for _ in range(9):
                train(tf.constant(0.5))
    comparison = tfbisect.compare(*paths)
    assert [(c.op_type, c.step) for c in comparison.culprits] == [("PyFunc", 6)]
    assert any("only steps 5:8" in warning for warning in comparison.warnings)


def test_a_tensor_made_before_the_window_is_state_and_no_value_of_pythons(tmp_path: Path) -> None:
    paths = [tmp_path / "a.h5", tmp_path / "b.h5"]
    for path, start in zip(paths, (1.0, 2.0), strict=True):
        v = tf.Variable(0.0)
        with tfbisect.record(path, steps="2:4"):
            carried = tf.constant(start) * 2.0
            for _ in range(5):
                v.assign_add(1.0)
                carried = tf.sin(carried)
    comparison = tfbisect.compare(*paths)
    culprit = comparison.culprits[0]
    assert (culprit.category, culprit.op_type) == ("state", ENTERING_STATE)
    assert culprit.name == "Sin before the recorded steps"


def test_a_window_is_compared_only_with_the_same_window(tmp_path: Path) -> None:
    for name, steps in (("a", "2:4"), ("b", "3:5")):
        with tfbisect.record(tmp_path / f"{name}.h5", steps=steps):
            momentum(6)
    with pytest.raises(Usage, match="steps 2:4 in .* steps 3:5"):
        tfbisect.compare(tmp_path / "a.h5", tmp_path / "b.h5")


def test_the_first_window_holds_what_runs_before_the_first_step(path: Path) -> None:
    with recording(path, steps=":2") as views:
        by_function(4)
    assert steps_of(views[0].trace, "train") == [0, 1]
    assert not views[0].of(ENTERING_STATE, SiteKind.WRITE)
    assert any(event.op == "AssignVariableOp" for event in views[0].events)


def test_no_hook_does_more_than_it_must_outside_the_window(path: Path) -> None:
    with recording(path, steps="none") as views:
        by_function(4)
        by_round(4)
    assert not len(views[0].trace.events) and not len(views[0].trace.calls)


def test_names_of_graph_kinds_do_not_count_as_values_of_pythons(path: Path) -> None:
    with recording(path, steps="3:4") as views:
        momentum(5)
    flags = Counter(
        bool(node.flags & NodeFlag.HOSTVALUE)
        for graph in views[0].trace.graphs
        for node in graph.nodes
        if node.op == ENTERING_STATE
    )
    assert flags == {False: 3}  # two variables and the loss of the step before


def test_what_python_looked_at_before_the_window_is_told_where_it_enters(path: Path) -> None:
    v = tf.Variable(tf.ones([3]))

    @tf.function
    def train(x: tf.Tensor) -> tf.Tensor:
        v.assign_sub(0.1 * v * x)
        return tf.reduce_sum(v)

    total = tf.constant(1.0)
    with tfbisect.record(path, steps="2:4"):
        for _ in range(5):
            total = train(total)
            float(total)
    trace = tfbisect.load(path)
    assert trace.problems == ()
    entering = [int(call["id"]) for call in trace.calls
                if trace.graphs[int(call["graph"])].name == f"{ENTERING_STATE} train"]  # fmt: skip
    inside = [int(call["id"]) for call in trace.calls if trace.graphs[int(call["graph"])].name == "train"]
    assert len(entering) == 1 and len(inside) == 2
    assert [(call, result) for _moment, call, result in trace.reads] == [
        (entering[0], 0),
        (inside[0], 0),
        (inside[1], 0),
    ]
    assert trace.reads[0][0] == entering[0] < inside[0] < trace.reads[1][0] < inside[1] < trace.reads[2][0]
