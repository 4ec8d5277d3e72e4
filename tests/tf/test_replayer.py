"""Replay: an op alone on its recorded inputs gives the bits that the run computed, or says why it cannot."""

import ast
import dataclasses
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import node_def_pb2
from tf.recorded import recording

from tfbisect import definition
from tfbisect.errors import Damaged, NewerFormat, OutputExists, TfbisectError, Usage
from tfbisect.model import CallState, Culprit, Edge, GraphKind, Node, SiteKind
from tfbisect.provenance import Run
from tfbisect.replayer import NotKept, Replay, executions, processes, replay, script, settings
from tfbisect.replayer.case import Builder, Case, Unknown
from tfbisect.replayer.executions import Op, Wanted
from tfbisect.steps import Steps
from tfbisect.trace import TraceWriter, load

RNG = np.random.default_rng(7)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def build(run: Run, text: str, *, slot: int | None = None, **wanted: Any) -> Case:
    """The case of the first wanted execution of an op."""
    op = executions.find(run, text)
    return Builder(run).build(op, executions.executions(run, op, Wanted(**wanted), Steps(run))[0], slot)


def results(run: Run, case: Case, folder: Path) -> list[np.ndarray]:
    """What the exported script of a case computes, run in this process."""
    path = folder / "case.py"
    path.write_text(script.text(case, settings.of(run.trace.info, case.device), "case.npz", 1), encoding="utf-8")
    script.save(case, folder / "case.npz")
    ran = runpy.run_path(str(path), run_name="test")
    try:
        return [np.asarray(result) for result in ran["run"]()]
    finally:
        ran["session"].close()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A program with fused ops, a loop, a branch, lists, small floats, several variables and eager ops."""
    path = tmp_path_factory.mktemp("replay") / "a.h5"
    kernel, bias, dense = tf.constant(floats(3, 3, 3, 8)), tf.constant(floats(8)), tf.constant(floats(8, 4))
    table, other = tf.Variable(floats(10, 4)), tf.Variable(np.zeros((4, 4)))
    moved, momentum = tf.Variable(floats(4, 4)), tf.Variable(floats(4, 4))

    @tf.function
    def program(x: Any, ids: Any, n: Any) -> Any:
        y = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, kernel, 1, "SAME"), bias))
        y, mean, *_ = tf.compat.v1.nn.fused_batch_norm(y, tf.ones([8]), tf.zeros([8]))
        z = tf.nn.relu(tf.matmul(tf.reshape(y, [-1, 8]), dense) + 1.0)
        total = tf.zeros_like(z)
        for i in tf.range(n):
            total += tf.tanh(z) * tf.cast(i, tf.float32)
            if tf.reduce_sum(total) > 0.0:
                total = tf.sqrt(tf.abs(total))
        table.scatter_sub(tf.IndexedSlices(tf.gather(z, ids), ids))
        rows = tf.gather(table, ids)
        other.scatter_nd_update([[0, 1], [2, 2]], [1.0, 2.0])
        tf.raw_ops.ResourceApplyMomentum(
            var=moved.handle, accum=momentum.handle, lr=0.1, grad=tf.reshape(rows, [4, 4]), momentum=0.9
        )
        small = tf.matmul(tf.cast(z, tf.bfloat16), tf.cast(z, tf.bfloat16), transpose_a=True)
        parts = tf.concat(tf.split(z, 2, axis=1)[::-1], 1)
        text = tf.strings.join([tf.strings.as_string(ids), "x"])
        drawn = tf.random.uniform([3])
        called = tf.py_function(lambda a: a.numpy() * 2, [z], tf.float32)
        return total, mean, rows, small, parts, text, drawn, called, tf.expand_dims(tf.squeeze(z[None]), 0) * 2.0

    with recording(path, values="all"):
        table.assign(floats(10, 4))
        other.assign(np.ones((4, 4)))
        moved.assign(floats(4, 4))
        momentum.assign(floats(4, 4))
        for _ in range(2):
            program(tf.constant(floats(2, 6, 6, 3)), tf.constant([1, 3, 3, 7]), tf.constant(3))
        tf.linalg.matmul(dense, dense, transpose_a=True)
        next(iter(tf.data.Dataset.range(3)))
    return Run(load(path))


def test_every_op_gives_the_bits_of_the_run(run: Run, tmp_path: Path) -> None:
    same, kernels = 0, set()
    for op in executions._ops(run):
        try:
            case = Builder(run).build(op, executions.executions(run, op, Wanted(), Steps(run))[0], None)
        except (Usage, Unknown):
            continue
        found = results(run, case, tmp_path)
        for index, data in case.expected.items():
            assert found[index].tobytes() == data, (op.label, case.kernel)
            same += 1
        kernels.add(case.kernel)
    assert same > 25
    assert any("Fused" in kernel for kernel in kernels)
    assert "ResourceApplyMomentum" in kernels  # of two variables
    assert {"ResourceScatterSub", "ResourceScatterNdUpdate", "ResourceGather", "ConcatV2", "Split", "Tanh"} <= kernels


def test_each_call_and_iteration_has_inputs_of_its_own(run: Run, tmp_path: Path) -> None:
    seen = set()
    for call in (0, 1):
        for iteration in ((0,), (1,), (2,)):
            case = build(run, _loop_op(run), call=call, iteration=iteration)
            (found,) = results(run, case, tmp_path)
            assert found.tobytes() == case.expected[0]
            seen.add(found.tobytes())
    assert len(seen) == 5  # in iteration 0 both calls multiply by zero


def _loop_op(run: Run) -> str:
    """The product in the loop: its inputs are other ones in each call and iteration."""
    names = [op for op in executions._ops(run) if op.computes and op.op_type == "Mul"]
    for op in names:
        graph, node = op.places[0]
        if run.trace.graphs[graph].nodes[node].frame:
            return op.label
    raise AssertionError("no op in the loop")


def test_a_variable_is_as_it_was_before_the_op(run: Run) -> None:
    """The second scatter starts from what the first left, put together from the first write and the rows since."""
    first, second = (build(run, "ResourceScatterSub", call=call) for call in (0, 1))
    before, after = first.feeds["variable0_before"][1], second.feeds["variable0_before"][1]
    changed = np.flatnonzero((before != after).any(axis=1))
    assert changed.tolist() == [1, 3, 7]
    assert second.inputs[0] == "variable resource float32[10, 4]"


@pytest.mark.parametrize(
    ("op", "why"),
    [
        ("RandomUniform", "draws from a random stream of its own"),
        ("EagerPyFunc", "it calls Python"),
        ("program/Reshape", "nothing that it computed was recorded"),
        ("IteratorGetNext", "is no variable"),
    ],
)
def test_what_cannot_be_run_alone_is_refused_with_its_reason(run: Run, op: str, why: str) -> None:
    with pytest.raises(Usage, match=why):
        build(run, op)


def test_strings_are_never_kept_and_the_message_says_so(run: Run) -> None:
    with pytest.raises(NotKept, match="string: such values are never kept") as caught:
        replay(run.trace, "StringJoin")
    assert "tfbisect info" in caught.value.hint


def test_an_op_is_found_by_name_label_and_type(run: Run) -> None:
    names = {op.name: op for op in executions._ops(run)}
    assert executions.find(run, "ConcatV2").op_type == "ConcatV2"
    assert executions.find(run, "program/concat") == executions.find(run, "concat") == names["concat"]
    eager = executions.find(run, next(op.label for op in executions._ops(run) if op.label.startswith("MatMul at ")))
    assert re.fullmatch(r"MatMul at test_replayer\.py:\d+", eager.label)
    with pytest.raises(Usage, match=r"found \d+ that fit: .*, expected the name of one") as caught:
        executions.find(run, "Mul")
    assert shlex.split(caught.value.hint)[-1] in caught.value.message
    with pytest.raises(Usage, match=r"near names: .*ConcatV2"):
        executions.find(run, "ConcatV3")
    with pytest.raises(Usage, match="call 9: found no such execution; it ran 2 times"):
        build(run, "ConcatV2", call=9)
    with pytest.raises(Usage, match="no recorded output 5"):
        build(run, "ConcatV2", slot=5)


def test_one_output_can_be_asked_for(run: Run) -> None:
    assert build(run, "Split", slot=1).results == ((SiteKind.OUTPUT, 1),)
    assert len(build(run, "Split").results) == 2


def test_missing_values_come_with_the_recording_that_keeps_them(tmp_path: Path) -> None:
    table = tf.Variable(floats(40, 50))

    @tf.function
    def step(ids: Any, rows: Any) -> Any:
        table.scatter_add(tf.IndexedSlices(rows * 2.0, ids))
        return tf.reduce_sum(rows)

    def program() -> None:
        table.assign(tf.constant(floats(40, 50)))
        step(tf.constant([1, 2, 2]), tf.constant(floats(3, 500)[:, :50]))
        step(tf.constant(RNG.integers(0, 40, 2000)), tf.constant(floats(2000, 50)))

    with recording(tmp_path / "a.h5"):
        program()
    with pytest.raises(NotKept) as caught:
        replay(tmp_path / "a.h5", "ResourceScatterAdd", call=1)
    message = caught.value.message
    assert "what a variable held (float32, [40, 50])" in message and "[2000, 50]" in message
    pattern = ast.literal_eval(re.search(r"values=(.*)\) and then", caught.value.hint)[1])  # type: ignore[index]
    with recording(tmp_path / "values.h5", values=pattern):
        program()
    again = Run(load(tmp_path / "values.h5"))
    case = build(again, "ResourceScatterAdd", call=1)
    assert case.feeds["variable0_before"][1].shape == (40, 50)


# --- what it says -------------------------------------------------------------------------------------------------


def _process(**counts: int) -> processes.Process:
    return processes.Process(counts, 0, None, {})


def test_three_outcomes_are_told_apart() -> None:
    assert processes.outcome([_process(a=9, b=1), _process(a=5)]) == processes.VARIES
    assert processes.outcome([_process(a=9), _process(a=5, b=1)]) == processes.VARIES
    assert processes.outcome([_process(a=9), _process(b=5)]) == processes.PER_PROCESS
    assert processes.outcome([_process(a=9), _process(a=5)]) == processes.STABLE


@pytest.fixture(scope="module")
def bias_grad(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """BiasAddGrad sums in as many pieces as there are threads."""
    path = tmp_path_factory.mktemp("bias") / "a.h5"
    with recording(path, values="all"):
        tf.raw_ops.BiasAddGrad(out_backprop=tf.constant(floats(4096, 37)))
    return Run(load(path))


def test_a_choice_made_once_per_process_is_called_so(bias_grad: Run, tmp_path: Path) -> None:
    """Real processes that settle for other threads stand for those that settle for other algorithms."""
    case = build(bias_grad, "BiasAddGrad")
    plain = settings.of(bias_grad.trace.info, case.device)
    done = []
    for threads in (1, 2):
        setup = dataclasses.replace(plain, intra_op=threads)
        path = tmp_path / "replay.py"
        path.write_text(script.text(case, setup, "replay.npz", 20), encoding="utf-8")
        script.save(case, tmp_path / "replay.npz")
        done.append(processes.run(path, 20, case, setup, least=20, seconds=0))
    assert processes.outcome(done) == processes.PER_PROCESS
    assert [sum(each.counts.values()) for each in done] == [20, 20]
    assert done[0].difference is None and done[1].difference is not None
    assert done[1].difference.max_abs is not None and done[1].difference.max_abs > 0


def test_a_replay_of_a_stable_op_and_its_script(bias_grad: Run, tmp_path: Path) -> None:
    target = tmp_path / "repro.py"
    found = replay(bias_grad.trace, "BiasAddGrad", times=4, processes=2, export=target)
    assert (found.outcome, found.times, found.as_recorded) == ("stable", 8, 8)
    assert (found.measured, found.exported) == ((1, 4), str(target))
    assert Replay.from_json(found.to_json()) == found
    text = target.read_text(encoding="utf-8")
    assert "1 of 4 distinct, as measured" in text and "tfbisect" not in text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["repro.npz", "repro.py"]
    with pytest.raises(OutputExists):
        replay(bias_grad.trace, "BiasAddGrad", export=target)
    assert "stable in isolation" in str(found) and "8 of 8 runs gave the bits" in str(found)


def test_an_op_that_makes_strings_runs_again(run: Run) -> None:
    found = replay(run.trace, "AsString", times=2, processes=1, call=0)
    assert (found.outcome, found.times, found.as_recorded) == ("stable", 2, None)


def test_a_culprit_of_a_comparison_is_an_op(bias_grad: Run) -> None:
    trace = bias_grad.trace
    source = trace.source(trace.graphs[-1].nodes[trace.graphs[-1].op].stack)
    culprit = Culprit(
        "BiasAddGrad", "BiasAddGrad", "", 0, 0, "", None, 0, None, (), None, "kernel", False, source
    )  # fmt: skip
    found = replay(bias_grad.trace, culprit, times=2, processes=1)
    assert (found.op_type, found.call) == ("BiasAddGrad", 0)


@pytest.mark.parametrize("options", [{"times": 1}, {"processes": 0}, {"export": "repro.txt"}])
def test_senseless_options_are_refused(bias_grad: Run, options: dict[str, Any]) -> None:
    with pytest.raises(Usage):
        replay(bias_grad.trace, "BiasAddGrad", **options)


def test_json_that_is_no_replay_is_refused() -> None:
    with pytest.raises(NewerFormat):
        Replay.from_json({"format": 99})
    for data in ({}, [], {"format": 1, "outcome": "maybe"}, None):
        with pytest.raises(Damaged):
            Replay.from_json(data)


def test_a_device_that_is_not_here_is_named(tmp_path: Path) -> None:
    path = _forged(tmp_path, "MatMul", device="/job:localhost/replica:0/task:0/device:GPU:0")
    with pytest.raises(Usage, match="cannot run the op here") as caught:
        replay(path, "MatMul", times=2)
    assert "GPU:0" in caught.value.hint


# --- what a trace may hold that means harm ---------------------------------------------------------------------------

HOSTILE = [
    "x'\nimport os; os.system('touch owned')  #",
    '"""\nopen("owned", "w")\n"""',
    "a\\'; __import__('os').mkdir('owned') #",
    "\u2028open('owned','w')\r\x0bopen('owned','w')\x85open('owned','w')",
    "{0} {times} %s \udcff\x1b[2J",
]


def _forged(folder: Path, op: str, *, name: str = "", device: str = "", text: str | None = None) -> Path:
    """A trace of one op with two inputs, as somebody else may have written it."""
    definition = node_def_pb2.NodeDef(op=op, device=device)
    definition.attr["T"].type = 1
    if text is not None:
        definition.attr["fill"].s = text.encode("utf-8", "surrogatepass")
    count = 1 if op == "AsString" else 2
    name = name or op
    path = folder / "forged.h5"
    path.unlink(missing_ok=True)
    with TraceWriter(path) as writer:
        nodes = [Node(f"arg{i}", "_Arg", index=i) for i in range(count)]
        nodes.append(Node(name, op, function=name, inputs=tuple(Edge(i, 0) for i in range(count))))
        graph = writer.graph(name, name, GraphKind.TWIN, 1, nodes)
        site = writer.sites(graph, [*((i, 0, SiteKind.ARG, 1) for i in range(count)), (count, 0, SiteKind.OUTPUT, 1)])
        writer.definition(graph, count, definition.SerializeToString())
        value = writer.value(np.ones((2, 2), np.float32).tobytes())
        for i in range(count):
            writer.link(0, i, -1, 0)
            writer.event(0, site + i, 0, writer.shape([2, 2]), 1, value)
        writer.event(0, site + count, 0, writer.shape([2, 2]), 2)
        writer.call(0, graph, 0, CallState.OK, -1, -1, 0)
        environment = {"TF_ENABLE_X": name, "LD_PRELOAD": "evil.so", "TF_X\n": "1"}
        writer.journal({"kind": "info", "run": {"argv": ["train.py"], "environment": environment}})
        writer.journal({"kind": "end", "status": "complete", "exit": 0, "reason": None})
    return path


@pytest.mark.parametrize("hostile", HOSTILE)
def test_text_of_a_trace_cannot_become_code(hostile: str, tmp_path: Path) -> None:
    run = Run(load(_forged(tmp_path, "AsString", name=hostile, text=hostile)))
    op: Op = next(op for op in executions._ops(run) if op.op_type == "AsString")
    case = Builder(run).build(op, executions.executions(run, op, Wanted(), Steps(run))[0], None)
    setup = settings.of(run.trace.info, case.device)
    text = script.text(case, setup, "case.npz", 2, (repr(hostile), hostile))
    harmless = script.text(build(Run(load(_forged(tmp_path, "AsString"))), "AsString"), setup, "case.npz", 2)
    assert _shape(text) == _shape(harmless)
    assert "evil" not in text
    path = tmp_path / "case.py"
    path.write_text(text, encoding="utf-8")
    compile(path.read_bytes(), "case.py", "exec")


def _shape(text: str) -> list[str]:
    """The statements of a script without its strings."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node.value = ""
    return [ast.dump(statement) for statement in tree.body]


def test_a_hostile_script_runs_and_harms_nothing(tmp_path: Path) -> None:
    path = _forged(tmp_path, "MatMul", name=HOSTILE[0])
    target = tmp_path / "repro.py"
    found = replay(path, "MatMul", times=2, processes=1, export=target)
    done = subprocess.run([sys.executable, target], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (done.returncode, found.measured) == (0, (1, 2))
    assert not (tmp_path / "owned").exists()
    assert "\n" not in found.name.encode("unicode_escape").decode() and "\x1b" not in str(found)


@pytest.mark.parametrize("op", ["WriteFile", "PyFunc", "NoSuchOp", "CollectiveReduce", "_Arg"])
def test_an_op_that_does_more_than_compute_is_not_run(op: str, tmp_path: Path) -> None:
    with pytest.raises(TfbisectError):
        replay(_forged(tmp_path, op), op, times=2)
    assert sorted(tmp_path.iterdir()) == [tmp_path / "forged.h5"]


def test_definitions_are_read_without_tensorflow() -> None:
    node = node_def_pb2.NodeDef(op="Op", device="/device:CPU:0", name="n", input=["a", "^b"])
    attrs = {"i": -3, "f": 0.5, "b": False, "s": b"NHWC\xff"}
    for key, value in attrs.items():
        setattr(node.attr[key], key, value)
    node.attr["T"].type = 1
    node.attr["shape"].shape.dim.add(size=3)
    node.attr["is"].list.i.extend([1, -2])
    node.attr["fs"].list.f.extend([1.0, 2.0])
    node.attr["types"].list.type.extend([1, 9])
    node.attr["texts"].list.s.extend([b"a", b"b"])
    node.attr["none"].list.SetInParent()
    made = definition.parse(node.SerializeToString())
    assert (made.op, made.device) == ("Op", "/device:CPU:0")
    assert made.attrs == {
        "i": -3, "f": 0.5, "b": False, "s": "NHWC\\xff", "T": "float32", "is": [1, -2], "fs": [1.0, 2.0],
        "types": ["float32", "int64"], "texts": ["a", "b"], "none": [],
    }  # fmt: skip
