"""What is recorded of eager ops, and that recording leaves no trace of itself in the program."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from keras.src.callbacks import callback_list
from tensorflow.python.client import session
from tensorflow.python.data.ops import structured_function
from tensorflow.python.eager import context, execute
from tensorflow.python.framework import ops
from tensorflow.python.ops import script_ops
from tf.recorded import bits, host_digest, recording

import tfbisect
from tfbisect import errors
from tfbisect.model import GraphKind, NodeFlag, SiteKind


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.h5"


def test_each_eager_op_is_a_call_of_one_op(path: Path) -> None:
    x = tf.random.stateless_normal([4, 4], [1, 2])
    with recording(path) as views:
        y = tf.matmul(x, x) * 2.0
    (view,) = views
    (product,), (double,) = view.of("MatMul"), view.of("Mul")
    assert product.digest == host_digest(tf.matmul(x, x)) and double.digest == host_digest(y)
    links = {(int(k["call"]), int(k["arg"])): (int(k["src_call"]), int(k["src_ret"])) for k in view.trace.links}
    assert links[double.call, 0] == (product.call, 0)
    source = view.trace.source(int(view.trace.calls[-1]["stack"]))
    assert source is not None and source.text == "y = tf.matmul(x, x) * 2.0"
    assert Path(source.file).name == "test_eager.py"


def test_a_value_python_hands_in_is_one_call_however_often_it_is_used(path: Path) -> None:
    with recording(path) as views:
        x = tf.constant(np.arange(6, dtype=np.float32))
        tf.sin(x)
        tf.cos(x)
    trace = views[0].trace
    host = [int(c["id"]) for c in trace.calls if NodeFlag.HOSTVALUE in trace.graphs[int(c["graph"])].nodes[0].flags]
    assert len(host) == 1
    assert [int(k["src_call"]) for k in trace.links] == host * 2


@pytest.mark.parametrize(
    ("write", "rows"),
    [
        (lambda v: v.assign(tf.ones([5, 2])), None),
        (lambda v: v.assign_add(tf.ones([5, 2])), None),
        (lambda v: v.scatter_sub(tf.IndexedSlices(tf.ones([2, 2]), tf.constant([0, 3]))), [0, 3]),
        (lambda v: v.scatter_nd_add([[1]], tf.ones([1, 2])), [1]),
        (lambda v: v[1:3].assign(tf.ones([2, 2]) * 7), None),
    ],
)  # fmt: skip
def test_an_eager_write_of_a_variable_is_an_event(path: Path, write: object, rows: list[int] | None) -> None:
    v = tf.Variable(tf.random.stateless_normal([5, 2], [3, 4]))
    with recording(path) as views:
        write(v)  # type: ignore[operator]
    written = v.numpy() if rows is None else v.numpy()[rows]
    found = [e for e in views[0].events if e.kind == SiteKind.WRITE]
    assert [e.digest for e in found] == [host_digest(written)]


def test_random_generators_write_their_state(path: Path) -> None:
    generator = tf.random.Generator.from_seed(3)
    with recording(path) as views:
        generator.normal([2])
    writes = [e for e in views[0].events if e.kind == SiteKind.WRITE]
    assert [e.digest for e in writes][-1:] == [host_digest(generator.state)]


def test_a_variable_made_before_is_an_entry(path: Path) -> None:
    v = tf.Variable([1.0, 2.0])
    with recording(path) as views:
        tf.identity(v)
    kinds = [GraphKind(views[0].trace.graphs[int(c["graph"])].kind) for c in views[0].trace.calls]
    assert GraphKind.ENTRY in kinds


def test_ops_of_a_new_thread_and_of_a_py_function_are_seen(path: Path) -> None:
    def body(a: tf.Tensor) -> tf.Tensor:
        return tf.tanh(a)

    step = tf.function(lambda x: tf.py_function(body, [x], tf.float32))
    x = tf.constant([0.5])
    with recording(path) as views:
        thread = threading.Thread(target=lambda: tf.atan(x))
        thread.start()
        thread.join()
        step(x)
    (view,) = views
    assert len(view.of("Atan")) == 1
    (tanh,) = view.of("Tanh")
    (outer,) = (c for c in view.trace.calls if view.trace.graphs[int(c["graph"])].kind == GraphKind.TWIN)
    (inner,) = (c for c in view.trace.calls if int(c["id"]) == tanh.call)
    assert int(inner["parent"]) == int(outer["id"])


def test_every_hook_is_gone_afterwards(path: Path) -> None:
    classes: list[type] = [
        context.Context, script_ops.EagerFunc, threading.Thread, session.BaseSession, callback_list.CallbackList,
        ops._EagerTensorBase, structured_function.StructuredFunctionWrapper,
    ]  # fmt: skip

    def state() -> list[object]:
        return [
            *(dict(vars(cls)) for cls in classes), execute.execute, list(sys.meta_path),
            list(context.context().op_callbacks), os._exit, os.fork, sys.excepthook,
        ]  # fmt: skip

    def program() -> None:
        float(tf.function(lambda x: x + 1)(tf.constant(1)))

    program()  # TensorFlow completes some classes when they are first used
    before = state()
    with tfbisect.record(path, data=True):
        program()
        during = state()
    changed = [one is not two and one != two for one, two in zip(before, during, strict=True)]
    assert all(changed[: len(classes)]), changed
    after = state()
    assert [one == two for one, two in zip(before, after, strict=True)] == [True] * len(before)


def test_a_function_whose_random_stream_goes_on_hears_of_no_eager_ops(path: Path) -> None:
    draw = tf.function(lambda: tf.random.uniform([2], seed=3))
    with tfbisect.record(path):
        draw()
    draw()
    assert not context.context().op_callbacks


def test_hooks_are_gone_after_an_error_too(path: Path) -> None:
    before = context.Context.call_function
    with pytest.raises(ZeroDivisionError), tfbisect.record(path):
        1 / 0  # noqa: B018
    assert context.Context.call_function is before


def test_one_recording_at_a_time(path: Path) -> None:
    with tfbisect.record(path), pytest.raises(errors.Usage), tfbisect.record(path.with_suffix(".other")):
        pass


def test_values_that_are_no_policy(path: Path) -> None:
    with pytest.raises(errors.Usage, match="unterminated"), tfbisect.record(path, values="["):
        pass
    assert not path.exists()


def test_an_existing_file_is_kept(path: Path) -> None:
    path.write_text("mine")
    with pytest.raises(errors.OutputExists), tfbisect.record(path):
        pass
    assert path.read_text() == "mine"


BEFORE_TENSORFLOW = """
import shutil, sys
import tfbisect
try:
    with tfbisect.record(sys.argv[1] + "/a.h5", data=True):
        shutil.rmtree(sys.argv[1])
        import tensorflow as tf
        print([int(x) for x in tf.data.Dataset.range(2).map(lambda x: x + 1)])
        raise KeyError("mine")
except KeyError as error:
    print("passed on", error)
"""


def test_a_file_that_cannot_be_made_later_is_a_warning_and_the_program_goes_on(tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    command = [sys.executable, "-c", BEFORE_TENSORFLOW, str(tmp_path / "gone")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "[1, 2]\npassed on 'mine'\n"), done.stderr
    assert done.stderr.count("tfbisect: nothing is recorded") == 1 and "Traceback" not in done.stderr


def test_seeds_and_streams_are_untouched(path: Path) -> None:
    import random

    def draws() -> list[bytes]:
        random.seed(1)
        np.random.seed(1)
        tf.random.set_seed(1)
        return [bits(tf.random.normal([2]))[0], np.random.rand(2).tobytes(), str(random.random()).encode()]

    plain = draws()
    with tfbisect.record(path):
        assert draws() == plain


def test_an_error_of_tfbisects_own_never_reaches_the_program(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tfbisect.trace import TraceWriter

    def breaks(*_args: object, **_kwargs: object) -> None:
        raise RuntimeError("planted")

    with tfbisect.record(path):
        before = tf.sin(tf.constant(1.0))
        monkeypatch.setattr(TraceWriter, "event", breaks)
        after = tf.sin(tf.constant(1.0))
        tf.function(tf.cos)(tf.constant(1.0))
    assert bits(before) == bits(after)
    assert capsys.readouterr().err.count("tfbisect:") == 1
    trace = tfbisect.load(path)
    assert not trace.complete and len(trace.events) >= 1


def test_nothing_is_imported_or_started_before_the_program_does(tmp_path: Path) -> None:
    program = tmp_path / "early.py"
    program.write_text(
        "import sys\n"
        "print([m for m in ('tensorflow', 'numpy', 'h5py') if m in sys.modules])\n"
        "import tensorflow as tf\n"
        "tf.config.threading.set_intra_op_parallelism_threads(1)\n"
        "tf.config.set_logical_device_configuration(tf.config.list_physical_devices('CPU')[0],\n"
        "    [tf.config.LogicalDeviceConfiguration()] * 2)\n"
        "print(len(tf.config.list_logical_devices('CPU')))\n"
        "print(sys.argv, __name__, __file__, sys.path[0])\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "tfbisect", "record", "-o", "a.h5", "early.py", "-x", "--values", "3"],
        cwd=tmp_path, capture_output=True, text=True, env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:2] == ["[]", "2"]
    assert lines[2] == f"['early.py', '-x', '--values', '3'] __main__ {tmp_path}/early.py {tmp_path}"


def test_steps_are_the_ones_the_program_marks(path: Path) -> None:
    with recording(path) as views:
        tf.sin(tf.constant(0.5))
        for _ in range(2):
            tfbisect.step()
            tf.cos(tf.constant(0.5))
    trace = views[0].trace
    steps = {trace.graphs[int(c["graph"])].name: [] for c in trace.calls}
    for call in trace.calls:
        if NodeFlag.HOSTVALUE not in trace.graphs[int(call["graph"])].nodes[0].flags:
            steps[trace.graphs[int(call["graph"])].name].append(int(call["step"]))
    assert steps == {"Sin": [-1], "Cos": [0, 1]}


def test_a_keras_batch_is_a_step(path: Path) -> None:
    import keras

    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    x = np.ones((8, 3), np.float32)
    with recording(path) as views:
        model.fit(x, x[:, :1], batch_size=4, epochs=2, verbose=0, validation_data=(x, x[:, :1]))
        model.predict(x, verbose=0)
    trace = views[0].trace
    training = {
        int(c["step"]) for c in trace.calls
        if any(n.op == "AssignSubVariableOp" for n in trace.graphs[int(c["graph"])].nodes)
        and trace.graphs[int(c["graph"])].kind == GraphKind.TWIN
    }  # fmt: skip
    assert training == {0, 1, 2, 3}
    assert int(trace.calls[-1]["step"]) == -1


def test_a_variable_that_an_op_is_given_as_it_is_counts_as_read(path: Path) -> None:
    v = tf.Variable([[1.0, 2.0]])
    w = tf.Variable([[3.0, 4.0]])
    with recording(path) as views:
        tf.raw_ops.AddN(inputs=[v, w, v])
        tf.raw_ops.Sub(x=w, y=v)
    (view,) = views
    reads = view.of("ReadVariableOp")
    assert [e.digest for e in reads] == [host_digest(x) for x in (v, w, v, w, v)]
    flags = [view.trace.graphs[int(c["graph"])].nodes[0].flags for c in view.trace.calls]
    assert not any(NodeFlag.HOSTVALUE in flag for flag in flags)
