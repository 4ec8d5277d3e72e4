"""A planted difference in a TensorFlow 1 program is named with its line, step and iteration, whatever runs the graph.

Each program calls `planted`, a Python kernel that gives back its input, and in run B changes one element when the
number it is given is the wanted one.
"""

import contextlib
import dataclasses
import importlib.util
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tfbisect
from tfbisect.model import Comparison, Culprit

v1 = tf.compat.v1
WANTED = 2  # the number at which run B differs
SHAPE = (4, 4)
run_b = False


def _kernel(x: np.ndarray, number: np.ndarray) -> np.ndarray:
    return disturbed(x, int(number))


def disturbed(x: np.ndarray, number: int) -> np.ndarray:
    if run_b and number == WANTED:
        x = x.copy()
        x.reshape(-1)[0] += 0.25
    return x


def planted(x: Any, number: Any) -> Any:
    made = v1.py_func(_kernel, [x, number], tf.float32)  # the planted line
    made.set_shape(x.shape)
    return made


def compared(path: Path, program: Callable[[], Any], graph: bool = True) -> Comparison:
    """Two recorded runs of a program, in a graph of its own, of which the second has the difference planted."""
    global run_b
    try:
        for name in ("a.h5", "b.h5"):
            run_b = name == "b.h5"
            with tf.Graph().as_default() if graph else contextlib.nullcontext(), tfbisect.record(path / name):
                program()
    finally:
        run_b = False
    return tfbisect.compare(path / "a.h5", path / "b.h5")


def named(result: Comparison, op_type: str = "PyFunc", text: str = "the planted line") -> Culprit:
    """The one culprit, after checking that it is the planted one."""
    assert result.verdict == "diverged", (result.verdict, result.warnings)
    found = [culprit for culprit in result.culprits if not culprit.contained]
    assert len(found) == 1, found
    (culprit,) = found
    assert culprit.op_type == op_type, culprit
    assert culprit.source is not None and text in culprit.source.text, culprit
    assert all(item.equal for item in culprit.inputs)
    return culprit


@contextlib.contextmanager
def control_flow(v2: bool) -> Iterator[None]:
    before = v1.control_flow_v2_enabled()
    (v1.enable_control_flow_v2 if v2 else v1.disable_control_flow_v2)()
    try:
        yield
    finally:
        (v1.enable_control_flow_v2 if before else v1.disable_control_flow_v2)()


resources = pytest.mark.parametrize("resource", [False, True], ids=["reference variables", "resource variables"])


def data(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype("float32")


class Net:
    """A layer that is trained: `x` and `number` are fed, `number` says which batch it is."""

    def __init__(self, resource: bool = True, through: Callable[[Any, Any], Any] = planted) -> None:
        self.x = v1.placeholder(tf.float32, SHAPE, "x")
        self.number = v1.placeholder(tf.int32, [], "number")
        initial = v1.constant_initializer(data(*SHAPE))
        self.weights = v1.get_variable("weights", SHAPE, initializer=initial, use_resource=resource)
        self.h = tf.tanh(tf.matmul(through(self.x, self.number), self.weights))
        self.loss = tf.reduce_mean(tf.square(self.h))
        optimizer = v1.train.MomentumOptimizer(0.1, 0.9)
        self.train = optimizer.minimize(self.loss, v1.train.get_or_create_global_step())

    def feeds(self, number: int) -> dict[Any, Any]:
        return {self.x: data(*SHAPE) + np.float32(number), self.number: number}


# ---------------------------------------------------------------------------------------------------------------------
# What runs the graph
# ---------------------------------------------------------------------------------------------------------------------


@resources
def test_session_run(tmp_path: Path, resource: bool) -> None:
    def program() -> None:
        net = Net(resource)
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            for number in range(4):
                session.run([net.train, net.loss], net.feeds(number))

    assert named(compared(tmp_path, program)).step == WANTED


def test_a_feed(tmp_path: Path) -> None:
    def program() -> None:
        net = Net(through=lambda x, _: x)
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            for number in range(4):
                feeds = {net.x: disturbed(data(*SHAPE), number)}
                session.run(net.train, feeds)

    culprit = named(compared(tmp_path, program), "Placeholder", "session.run(net.train, feeds)")
    assert (culprit.name, culprit.step, culprit.category) == ("x", WANTED, "input")


def test_a_program_with_sessions_and_functions(tmp_path: Path) -> None:
    scale = tf.Variable(1.0)

    @tf.function
    def scaled(x: tf.Tensor) -> tf.Tensor:
        scale.assign(scale * 1.25)
        return tf.sin(x) * scale

    def program() -> None:
        scale.assign(1.0)
        values = [scaled(tf.constant(data(*SHAPE))).numpy() for _ in range(4)]
        with tf.Graph().as_default(), v1.Session() as session:
            net = Net()
            session.run(v1.global_variables_initializer())
            for number in range(4):
                session.run(net.train, {**net.feeds(number), net.x: values[number]})

    assert named(compared(tmp_path, program, graph=False)).step == WANTED


def test_a_function_whose_result_is_fed(tmp_path: Path) -> None:
    @tf.function
    def made(x: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
        return tf.sin(planted(tf.cos(x), number))

    def program() -> None:
        values = [made(tf.constant(data(*SHAPE)), tf.constant(number)).numpy() for number in range(4)]
        with tf.Graph().as_default(), v1.Session() as session:
            net = Net(through=lambda x, _: x)
            session.run(v1.global_variables_initializer())
            for number in range(4):
                session.run(net.train, {net.x: values[number]})

    result = compared(tmp_path, program, graph=False)
    assert result.verdict == "diverged"
    assert [culprit.op_type for culprit in result.culprits] == ["PyFunc"], result.culprits


def test_a_callable(tmp_path: Path) -> None:
    def program() -> None:
        net = Net()
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            step = session.make_callable([net.train, net.loss], [net.x, net.number])
            for number in range(4):
                step(data(*SHAPE), number)

    assert named(compared(tmp_path, program)).step == WANTED


def _monitored_training_session() -> None:
    net = Net()
    hooks = [v1.train.StopAtStepHook(last_step=4)]
    with v1.train.MonitoredTrainingSession(hooks=hooks) as session:
        number = 0
        while not session.should_stop():
            session.run([net.train, net.loss], net.feeds(number))
            number += 1


def _singular_monitored_session() -> None:
    net = Net()
    with v1.train.SingularMonitoredSession() as session:
        for number in range(4):
            session.run([net.train, net.loss], net.feeds(number))


def _interactive_session() -> None:
    net = Net()
    session = v1.InteractiveSession()
    v1.global_variables_initializer().run()
    for number in range(4):
        net.train.run(net.feeds(number))
        net.loss.eval(net.feeds(9))
    session.close()


@pytest.mark.parametrize("program", [_monitored_training_session, _singular_monitored_session, _interactive_session])
def test_other_sessions(tmp_path: Path, program: Callable[[], None]) -> None:
    result = compared(tmp_path, program)
    # A hook fetches the global step while the training op adds to it: a race, and it may show.
    races = [culprit for culprit in result.culprits if "global_step" in culprit.name]
    assert all(culprit.category == "race" for culprit in races), races
    culprits = tuple(culprit for culprit in result.culprits if culprit not in races)
    assert named(dataclasses.replace(result, culprits=culprits)).step == WANTED


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_queue_that_threads_fill(tmp_path: Path) -> None:
    def program() -> None:
        numbers = v1.train.range_input_producer(8, shuffle=False, num_epochs=1)
        number = numbers.dequeue()
        row = planted(tf.ones(SHAPE) * tf.cast(number, tf.float32), number)
        queue = v1.FIFOQueue(3, [tf.float32], [SHAPE])
        v1.train.add_queue_runner(v1.train.QueueRunner(queue, [queue.enqueue(row)]))
        net = Net(through=lambda x, _: x + queue.dequeue())
        with v1.Session() as session:
            session.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
            coordinator = v1.train.Coordinator()
            threads = v1.train.start_queue_runners(session, coordinator)
            for _ in range(6):
                session.run(net.train, {net.x: data(*SHAPE)})
            coordinator.request_stop()
            session.run(queue.close(cancel_pending_enqueues=True))
            coordinator.join(threads, stop_grace_period_secs=10)

    named(compared(tmp_path, program))


# ---------------------------------------------------------------------------------------------------------------------
# What is in the graph
# ---------------------------------------------------------------------------------------------------------------------


@resources
@pytest.mark.parametrize("v2", [False, True], ids=["v1 control flow", "v2 control flow"])
@pytest.mark.parametrize("read", [False, True], ids=["unread", "read"])
def test_a_variable_that_a_loop_adds_to(tmp_path: Path, v2: bool, resource: bool, read: bool) -> None:
    if v2 and not resource:
        pytest.skip("TensorFlow has no such loops")

    def program() -> None:
        total = v1.get_variable("total", SHAPE, initializer=v1.zeros_initializer(), use_resource=resource)
        start = v1.placeholder(tf.float32, SHAPE)

        def body(i: Any, x: Any) -> Any:
            x = tf.sin(x) + 1.0
            added = v1.assign_add(total, planted(x, i))
            with tf.control_dependencies([added.op]):
                return i + 1, (x + 0.1 * added if read else tf.identity(x))

        with control_flow(v2):
            _, last = v1.while_loop(lambda i, x: i < 4, body, [0, start])
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            session.run(last, {start: data(*SHAPE)})
            session.run(total)

    assert named(compared(tmp_path, program)).iteration == (WANTED,)


def test_a_checkpoint_that_is_restored(tmp_path: Path) -> None:
    def program() -> None:
        net = Net(through=lambda x, _: x)
        saver = v1.train.Saver([net.weights])
        folder = tmp_path / "checkpoint"
        with v1.Session() as session, _unrecorded():
            session.run(v1.global_variables_initializer())
            session.run(net.weights.assign(disturbed(data(*SHAPE), WANTED)))
            saver.save(session, str(folder / "model"))
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            saver.restore(session, str(folder / "model"))
            session.run(net.train, {net.x: data(*SHAPE)})

    culprit = named(compared(tmp_path, program), "RestoreV2", "v1.train.Saver")
    assert culprit.category == "input"


@contextlib.contextmanager
def _unrecorded() -> Iterator[None]:
    """What happens in another process in a real program."""
    recording = tfbisect.recorder._current
    assert recording is not None
    with recording.open().muted():
        yield


def test_a_frozen_graph(tmp_path: Path) -> None:
    """Its ops have no lines of their own: the line that runs them is named."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, SHAPE, "x")
        tf.sin(tf.matmul(x, x), name="y")
    frozen = graph.as_graph_def()

    def program() -> None:
        x = v1.placeholder(tf.float32, SHAPE)
        number = v1.placeholder(tf.int32, [])
        (y,) = tf.import_graph_def(frozen, {"x": planted(x, number)}, ["y:0"])
        with v1.Session() as session:
            for step in range(4):
                session.run(y, {x: data(*SHAPE), number: step})

    result = compared(tmp_path, program)
    assert named(result).call == WANTED


@pytest.mark.skipif(importlib.util.find_spec("tf_keras") is None, reason="tf.compat.v1.layers needs tf_keras")
@pytest.mark.filterwarnings("ignore:.*is deprecated and will be removed:UserWarning")
def test_layers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "TF_USE_LEGACY_KERAS", "1")

    def program() -> None:
        v1.set_random_seed(1)
        x = v1.placeholder(tf.float32, [8, 6, 6, 2])
        number = v1.placeholder(tf.int32, [])
        training = v1.placeholder(tf.bool, [])
        initial = v1.glorot_uniform_initializer(seed=1)  # without one, Keras draws seeds with Python's random
        h = v1.layers.conv2d(planted(x, number), 4, 3, activation=tf.nn.relu, kernel_initializer=initial)
        h = v1.layers.batch_normalization(h, training=training)
        h = v1.layers.dropout(v1.layers.flatten(h), 0.3, training=training)
        loss = tf.reduce_mean(tf.square(v1.layers.dense(h, 3, kernel_initializer=initial)))
        with tf.control_dependencies(v1.get_collection(v1.GraphKeys.UPDATE_OPS)):
            train = v1.train.AdamOptimizer(0.01).minimize(loss)
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            for step in range(4):
                session.run(train, {x: data(8, 6, 6, 2), number: step, training: True})

    assert named(compared(tmp_path, program)).step == WANTED


# ---------------------------------------------------------------------------------------------------------------------
# Steps
# ---------------------------------------------------------------------------------------------------------------------


def test_the_program_may_say_itself_where_a_step_begins(tmp_path: Path) -> None:
    def program() -> None:
        net = Net()
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            for number in range(4):
                if number % 2 == 0:
                    tfbisect.step()
                session.run(net.train, net.feeds(number))

    assert named(compared(tmp_path, program)).step == WANTED // 2
