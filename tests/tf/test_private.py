"""A TensorFlow that calls things otherwise: every private name is taken away once from the real one, and looked for.

TensorFlow itself still finds it (through `__getattr__`), as a newer one would find its own, so the program runs. That
the recorder asks for it is an error, as it would be there.
"""

import importlib
import json
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from helpers import python

import tfbisect
from tfbisect.recorder import private
from tfbisect.recorder.private import Part

HIDING = '''
import importlib, inspect, sys

def ours():
    return sys._getframe(2).f_globals["__name__"].startswith("tfbisect")

def hide(where):
    """Take a name away; -> what puts it back."""
    module, _, path = where.partition(":")
    owner = importlib.import_module(module)
    *outer, name = path.split(".")
    for part in outer:
        owner = getattr(owner, part)
    plain, before = inspect.getattr_static(owner, name), getattr(owner, "__getattr__", None)

    def of_object(self, asked):
        if asked == name and not ours():
            return plain.__get__(self, type(self))
        if asked == name or before is None:
            raise AttributeError(asked)
        return before(self, asked)

    def of_module(asked):
        if asked == name and not ours():
            return plain
        raise AttributeError(asked)

    had = "__getattr__" in vars(owner)
    owners = [each for each in getattr(owner, "__mro__", [owner]) if name in vars(each)]
    kept = [vars(each)[name] for each in owners]
    for each in owners:
        delattr(each, name)
    owner.__getattr__ = of_object if isinstance(owner, type) else of_module

    def put_back():
        for each, value in zip(owners, kept):
            setattr(each, name, value)
        if had:
            owner.__getattr__ = before
        else:
            del owner.__getattr__

    return put_back
'''

PROGRAM = """
import sys
import numpy as np
import tensorflow as tf
import tfbisect

def program(session):
    tf.random.set_seed(3)
    v, table = tf.Variable([1.0, 2.0]), []

    @tf.function
    def train(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.sin(v * x))
        v.assign_sub(0.1 * tape.gradient(loss, v))
        return loss + tf.py_function(lambda y: tf.cos(y) * 2.0, [loss], tf.float32)

    for x in tf.data.Dataset.range(3).map(lambda n: tf.cast(n, tf.float32) * 0.3):
        table += [train(x), tf.cos(v) * x]
    if session:
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            held = tf.compat.v1.placeholder(tf.float32, [2])
            table.append(tf.compat.v1.Session.run(session, tf.tanh(held) + 1, {held: np.array([0.5, 2], np.float32)}))
    return [np.asarray(each).tobytes().hex() for each in [*table, v.numpy()]]
"""

TRY_EACH = """
import contextlib, io, json
plain, found = {}, {}
for session in (False, True):
    plain[session] = program(session)
for number, (where, session, data) in enumerate(json.loads(sys.argv[1])):
    said, path = io.StringIO(), f"{number}.h5"
    put_back = hide(where)
    with contextlib.redirect_stderr(said), tfbisect.record(path, data=data):
        same = program(session) == plain[session]
    put_back()
    found[where] = same, [line for line in said.getvalue().splitlines() if line.startswith("tfbisect:")], path
print(json.dumps(found))
"""
AT_IMPORT = """
from tfbisect.recorder import hooks, run_program
where = sys.argv[1]
hooks.when_imported({where.partition(":")[0]: lambda module: hide(where)})
sys.exit(run_program("a.h5", "program.py", []))
"""
# Without these TensorFlow's own module stops: it uses them as its globals, or Python looks them up in the class.
NEEDED = ("_context", "EagerFunc.__call__", "_py_funcs", "BaseResourceVariable", "OwnedIterator")
HIDDEN = [name for name in private.NAMES if name.short not in NEEDED]


@pytest.fixture(scope="module")
def tries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[bool, list[str], Path]]:
    """{name: (whether the program's bits stayed, what was said, the trace)}"""
    folder = tmp_path_factory.mktemp("private")
    (folder / "try.py").write_text(HIDING + PROGRAM + TRY_EACH)
    cases = [(name.where, name.part == Part.SESSIONS, name.part == Part.DATA) for name in HIDDEN]
    done = python("try.py", json.dumps(cases), cwd=folder)
    assert done.returncode == 0, done.stderr[-3000:]
    return {where: (same, said, folder / path) for where, (same, said, path) in json.loads(done.stdout).items()}


def test_this_tensorflow_lacks_nothing() -> None:
    assert private.lacking() == [] and private.version() == f"TensorFlow {tf.__version__}"


@pytest.mark.parametrize("name", HIDDEN, ids=lambda name: name.short)
def test_a_name_that_is_missing_costs_what_stands_on_it(name: private.Name, tries: Any) -> None:
    same, said, path = tries[name.where]
    assert same
    trace = tfbisect.load(path)
    names = {graph.name for graph in trace.graphs}
    if name.part == Part.RESTORING:  # `check` needs it, recording does not
        assert said == [] and trace.complete
        return
    assert len(said) == 1 and f"TensorFlow {tf.__version__} has no {name.short}" in said[0], said
    if name.part in (Part.ALL, Part.SESSIONS):
        assert not trace.complete and any(name.short in problem for problem in trace.problems)
        assert ("Cos" in names) == (name.part == Part.SESSIONS) and "Tanh" not in names
        if name.part == Part.ALL:
            with pytest.raises(tfbisect.errors.EmptyTrace, match=f"has no {name.short}"):
                tfbisect.compare(path, path)
        return
    assert trace.complete and "Cos" in names
    assert name.part.value in said[0]
    unseen = f"TensorFlow {tf.__version__} has none: {name.part.value}"
    assert (name.short, unseen) in {(item.op_type, item.reason) for item in trace.opaque}
    assert ("reads" in trace.options) == (name.part != Part.READS)
    inside = {node.op for graph in trace.graphs if graph.name == "train" for node in graph.nodes}
    assert ("PartitionedCall" in inside) == (name.part == Part.FUNCTIONS)


@pytest.mark.parametrize("name", [name for name in private.NAMES if name.short in NEEDED], ids=lambda name: name.short)
def test_a_name_that_tensorflow_cannot_be_without_is_looked_for(
    name: private.Name, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, _, path = name.where.partition(":")
    owner: Any = importlib.import_module(module)
    *outer, last = path.split(".")
    for part in outer:
        owner = getattr(owner, part)
    monkeypatch.delattr(owner, last)
    assert private.lacking() == private.lacking(name.part) == private.lacking(module=module) == [name]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("plain")
    (folder / "program.py").write_text(PROGRAM + "\nprint(*program(True))\n")
    return python("program.py", cwd=folder).stdout.split()


@pytest.mark.parametrize(
    ("where", "complete"),
    [
        ("tensorflow.python.eager.context:Context.call_function", False),
        ("tensorflow.python.framework.ops:_EagerTensorBase._numpy", True),
    ],
)
def test_it_is_noticed_when_the_program_imports_tensorflow(
    where: str, complete: bool, plain: list[str], tmp_path: Path
) -> None:
    (tmp_path / "program.py").write_text(PROGRAM + "\nprint(*program(True))\n")
    (tmp_path / "start.py").write_text("import sys\n" + HIDING + AT_IMPORT)
    done = python("start.py", where, cwd=tmp_path)
    assert (done.returncode, done.stdout.split()) == (0, plain), done.stderr
    said = [line for line in done.stderr.splitlines() if line.startswith("tfbisect:")]
    assert len(said) == 2 and where.partition(":")[2] in said[0] and said[1].startswith("tfbisect: trace a.h5"), said
    assert tfbisect.load(tmp_path / "a.h5").complete == complete


def test_other_arguments_are_another_function(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from tensorflow.python.eager.context import Context

    plain = Context.call_function

    def call_function(self: Any, name: Any, tensor_inputs: Any, num_outputs: Any, more: Any = None) -> Any:
        return plain(self, name, tensor_inputs, num_outputs)

    monkeypatch.setattr(Context, "call_function", call_function)
    (missing,) = private.lacking()
    assert private.sentence([missing]).endswith("has no Context.call_function(name, tensor_inputs, num_outputs)")
    with tfbisect.record(tmp_path / "a.h5"):
        assert Context.call_function is call_function
        assert float(tf.function(lambda x: x * 2)(tf.constant(2.0))) == 4.0
    assert not tfbisect.load(tmp_path / "a.h5").complete
    with pytest.raises(tfbisect.errors.UnsupportedTensorFlow, match="Context.call_function"):
        tfbisect.check(lambda: tf.constant(1.0))
