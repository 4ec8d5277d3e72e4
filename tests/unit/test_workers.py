"""Jobs of several processes: which worker differed first, through collective ops, and what is left undecided."""

import hashlib
import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema
import pytest
from graphs import INT32, Made, Recorder
from helpers import ROOT
from hypothesis import given, settings
from hypothesis import strategies as st

from tfbisect.comparison import compare
from tfbisect.errors import NotFound, Usage
from tfbisect.model import Comparison, Culprit, Edge, Node, NodeFlag
from tfbisect.outcomes import many_runs_of
from tfbisect.reporters import Page, render

SCHEMA = json.loads((ROOT / "tfbisect" / "reporters" / "schema.json").read_text(encoding="utf-8"))
GROUP, STATEFUL = 1, 1


def task(index: int, of: int = 2) -> dict[str, Any]:
    return {"worker": {"task": f"worker:{index}", "cluster": {"worker": of}}, "options": {"reads": True}}


def mixed(*parts: object) -> int:
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:7], "little")


class Worker:
    """The trace of one worker. Values are (where it was made, digest); digests follow from what went in."""

    def __init__(self, r: Recorder, index: int) -> None:
        self.r, self.index = r, index

    def value(self, digest: int, line: int) -> tuple[Made, int]:
        return self.r.host("MatMul", digest, line), digest

    def op(self, value: tuple[Made, int], line: int, change: int = 0, op: str = "MatMul") -> tuple[Made, int]:
        digest = mixed(op, line, value[1], change)
        return self.r.op(op, [value[0]], digest, line=line), digest

    def together(
        self, op: str, value: tuple[Made, int] | None, result: int, line: int, instance: int, change: int = 0
    ) -> tuple[Made, int]:
        """A collective op whose output is `result`."""
        keys = [self.r.host(op, mixed("key", key), line, INT32) for key in (2, GROUP, 1000 + instance)]
        inputs = [value[0], *keys] if value is not None else keys
        digest = mixed(result, change)
        return self.r.op(op, inputs, digest, line=line, flags=STATEFUL), digest


Program = Callable[[list[Worker], str], None]


@pytest.fixture
def job(tmp_path: Path) -> Callable[..., Comparison]:
    """Compares two runs of a program that is given the workers and "a" or "b"; lost: traces that are not there."""

    def run(program: Program, workers: int = 2, lost: Sequence[str] = ()) -> Comparison:
        write(tmp_path, program, workers)
        for name in lost:
            (tmp_path / name).unlink()
        return compare(tmp_path / "a", tmp_path / "b")

    return run


def write(folder: Path, program: Program, workers: int = 2) -> None:
    for name in "ab":
        (folder / name).mkdir()
        recorders = [Recorder(folder / name / f"worker{n}.h5", **task(n, workers)) for n in range(workers)]
        program([Worker(r, n) for n, r in enumerate(recorders)], name)
        for r in recorders:
            r.__exit__()


def reduce(workers: list[Worker], values: list[Any], line: int, change: Sequence[int] = ()) -> list[Any]:
    total = mixed("sum", *(value[1] for value in values))
    changes = [*change, *[0] * len(workers)]
    each = zip(workers, values, changes, strict=False)
    return [w.together("CollectiveReduceV2", v, total, line, line, more) for w, v, more in each]


def stepped(step: str, workers: list[Worker], values: list[Any], line: int, change: Sequence[int]) -> list[Any]:
    """Each worker does an op of its own ("own"), or all sum ("sum"), or the first one sends ("send")."""
    if step == "own":
        return [w.op(v, line, c) for w, v, c in zip(workers, values, change, strict=True)]
    if step == "sum":
        return reduce(workers, values, line, change)
    sent = values[0][1]
    made = [workers[0].together("CollectiveBcastSendV2", values[0], sent, line, line, change[0])]
    rest = zip(workers[1:], change[1:], strict=True)
    return made + [w.together("CollectiveBcastRecvV2", None, sent, line, line, c) for w, c in rest]


def told(culprit: Culprit) -> tuple[str, int, list[str]]:
    assert culprit.source is not None
    return culprit.op_type, culprit.source.line, culprit.extra["tasks"]


def states(result: Comparison) -> list[str]:
    return [each["state"] for each in result.extra["workers"]]


def train(
    workers: list[Worker],
    local: Callable[[int, int], int] = lambda worker, step: 0,
    reduced: Callable[[int, int], int] = lambda worker, step: 0,
    steps: int = 2,
) -> None:
    """Each step: an op of each worker's own, a sum over the workers, and what each makes of it."""
    values = [w.value(50 + w.index, 1) for w in workers]
    for step in range(steps):
        values = [w.op(v, 10 * step + 2, local(w.index, step)) for w, v in zip(workers, values, strict=True)]
        values = reduce(workers, values, 10 * step + 3, [reduced(w.index, step) for w in workers])
        values = [w.op(v, 10 * step + 4, op="Exp") for w, v in zip(workers, values, strict=True)]


def test_equal_runs_are_identical(job):
    result = job(lambda workers, run: train(workers))
    assert (result.verdict, states(result)) == ("identical", ["identical", "identical"])
    assert [run["path"][-2:] for run in result.runs] == ["/a", "/b"]


def test_the_worker_that_differed_is_named_though_the_others_differ_too(job):
    result = job(lambda workers, run: train(workers, lambda worker, step: run == "b" and (worker, step) == (1, 0)))
    [culprit] = result.culprits
    assert told(culprit) == ("MatMul", 2, ["worker:1"])
    assert culprit.extra["task"] == "worker:1"
    assert states(result) == ["received", "diverged"]
    assert result.verdict == "diverged"


def test_a_reduction_that_differs_on_equal_inputs_differs_on_all(job):
    result = job(lambda workers, run: train(workers, reduced=lambda worker, step: 7 * (run == "b" and step == 1)))
    [culprit] = result.culprits
    assert told(culprit) == ("CollectiveReduceV2", 13, ["worker:0", "worker:1"])
    assert culprit.explanation == "what both workers put into it is bit-identical in both runs, what it gave is not"
    assert states(result) == ["diverged", "diverged"]


def test_a_reduction_that_gives_one_worker_something_else_is_that_workers(job):
    result = job(
        lambda workers, run: train(workers, reduced=lambda worker, step: run == "b" and (worker, step) == (1, 0))
    )
    [culprit] = result.culprits
    assert told(culprit) == ("CollectiveReduceV2", 3, ["worker:1"])


def test_what_all_workers_do_otherwise_by_themselves_is_one_culprit(job):
    result = job(lambda workers, run: train(workers, lambda worker, step: run == "b" and step == 0))
    assert [told(culprit) for culprit in result.culprits] == [("MatMul", 2, ["worker:0", "worker:1"])]


def test_culprits_stand_in_the_order_that_collective_ops_give(job):
    # Of worker 1 the first, of worker 0 one behind the sum; the latter takes nothing of the former.
    def program(workers: list[Worker], run: str) -> None:
        values = [w.value(50 + w.index, 1) for w in workers]
        other = run == "b"
        alone = [w.op(v, 2, other and w.index == 1) for w, v in zip(workers, values, strict=True)]
        reduce(workers, values, 3)
        for w, value in zip(workers, alone, strict=True):
            w.op(value, 5, other and w.index == 0)

    assert [told(c)[1:] for c in job(program).culprits] == [(2, ["worker:1"]), (5, ["worker:0"])]


def test_what_python_did_after_an_earlier_difference_elsewhere_is_undecided(job):
    def program(workers: list[Worker], run: str) -> None:
        values = [w.value(50 + w.index, 1) for w in workers]
        [w.op(v, 2, run == "b" and w.index == 1) for w, v in zip(workers, values, strict=True)]
        reduce(workers, values, 3)
        [w.op(w.value(7 + (run == "b" and w.index == 0), 6), 6, op="Exp") for w in workers]

    result = job(program)
    assert [told(culprit) for culprit in result.culprits] == [("MatMul", 2, ["worker:1"])]
    assert any("earlier difference on another worker" in text for text in result.warnings)
    assert states(result) == ["inconclusive", "diverged"]


@pytest.mark.parametrize(("op", "flags"), [("RestoreV2", STATEFUL), ("PyFunc", STATEFUL | 16)])
def test_what_files_and_python_bring_after_a_difference_elsewhere_is_undecided(job, op, flags):
    # Worker 0 computes something else, saves it, and worker 1 reads it.
    def program(workers: list[Worker], run: str) -> None:
        for w in workers:
            if w.index == 0:
                w.op(w.value(5, 1), 2, run == "b")  # an eager op: Python may look at what it gave
            else:
                w.r.op(op, [w.value(6, 1)[0]], 70 + (run == "b"), line=3, flags=flags)

    result = job(program)
    assert [told(culprit) for culprit in result.culprits] == [("MatMul", 2, ["worker:0"])]
    assert any("earlier difference on another worker" in text for text in result.warnings)


def test_what_python_brings_where_no_python_knew_of_a_difference_is_named(job):
    # The first worker's own difference is inside a function, and nothing comes out of it but through the variable.
    def program(workers: list[Worker], run: str) -> None:
        for w in workers:
            nodes = [Node("v", "_Arg", index=0), Node("draw", "RandomUniform", "/device:CPU:0", flags=NodeFlag(3))]
            nodes.append(Node("write", "AssignVariableOp", flags=NodeFlag(33), inputs=(Edge(0, 0), Edge(1, 0))))
            graph, site = w.r.function("init", nodes, [(1, 0, 0, 1), (2, 0, 3, 1)])
            variable, call = w.r.variable(8), w.r.new_call()
            w.r.writer.link(call, 0, *variable)
            for n in (0, 1):
                w.r.writer.event(call, site + n, 0, 2, 11 + (run == "b"))
            w.r.call(call, graph, 3)
        values = [w.value(5, 4) for w in workers]
        reduce(workers, values, 6)
        for w in workers:
            w.op(w.value(5 + (run == "b"), 7), 9)

    both = ["worker:0", "worker:1"]
    assert sorted(map(told, job(program).culprits)) == [("MatMul", 7, both), ("RandomUniform", 3, both)]


def test_what_python_brings_to_all_workers_at_once_is_named(job):
    def program(workers: list[Worker], run: str) -> None:
        for w in workers:
            w.op(w.value(5 + (run == "b"), 1), 2)

    assert [told(culprit) for culprit in job(program).culprits] == [("MatMul", 1, ["worker:0", "worker:1"])]


@pytest.mark.parametrize("lost", [["b/worker1.h5"], ["a/worker1.h5", "b/worker1.h5"]])
def test_without_a_workers_trace_a_sum_is_undecided(job, lost):
    result = job(lambda workers, run: train(workers, lambda worker, step: run == "b" and worker == 1), lost=lost)
    assert (result.verdict, result.culprits) == ("inconclusive", ())
    assert any("worker" in text and "trace" in text for text in result.warnings)
    assert any("what other workers put into it was not recorded" in text for text in result.warnings)


def test_equal_traces_with_one_lost_are_not_called_identical(job):
    assert job(lambda workers, run: train(workers), lost=["b/worker1.h5"]).verdict == "inconclusive"


def test_one_workers_traces_alone_name_no_sum(tmp_path):
    write(tmp_path, lambda workers, run: train(workers, lambda worker, step: run == "b" and worker == 1))
    result = compare(tmp_path / "a" / "worker0.h5", tmp_path / "b" / "worker0.h5")
    assert (result.verdict, result.culprits) == ("inconclusive", ())
    assert result.warnings[0].startswith("worker:0 is one of 2 workers: compare the folders")


def test_a_tolerance_blames_no_sum_either(tmp_path):
    write(tmp_path, lambda workers, run: train(workers, lambda worker, step: run == "b" and worker == 1))
    result = compare(tmp_path / "a" / "worker0.h5", tmp_path / "b" / "worker0.h5", rtol=1e-3)
    assert result.culprits == ()


def test_a_trace_that_ends_early_leaves_what_follows_undecided(job):
    def program(workers: list[Worker], run: str) -> None:
        train(workers if run == "a" else [workers[0]], steps=1)  # in B worker 1 was gone before the sum

    def cut(workers: list[Worker], run: str) -> None:
        if run == "b":
            workers[1].op(workers[1].value(51, 1), 2)
        program(workers, run)

    result = job(cut)
    assert (result.verdict, result.culprits) == ("inconclusive", ())


def test_a_broadcast_brings_what_the_sender_put_in_and_carries_it_to_results(job):
    def program(workers: list[Worker], run: str) -> None:
        first, second = workers
        value = first.op(first.value(1, 1), 2, run == "b")
        first.together("CollectiveBcastSendV2", value, value[1], 3, 1)
        second.op(second.together("CollectiveBcastRecvV2", None, value[1], 3, 1), 4)

    [culprit] = job(program).culprits
    assert (*told(culprit), culprit.contained) == ("MatMul", 2, ["worker:0"], False)


def attributes(**numbers: int) -> bytes:
    """A NodeDef with attributes that are integers, as the trace keeps it."""
    data = b""
    for name, number in numbers.items():
        value = b"\x18" + bytes([number & 0x7F | 0x80, number >> 7])
        entry = b"\x0a" + bytes([len(name)]) + name.encode() + b"\x12" + bytes([len(value)]) + value
        data += b"\x2a" + bytes([len(entry)]) + entry
    return data


@pytest.mark.parametrize("group", [2, 3])
def test_keys_can_be_attributes(job, group):
    def program(workers: list[Worker], run: str) -> None:
        for w in workers:
            value = w.op(w.value(1, 1), 2, run == "b" and w.index == 0)
            sends = w.index == 0
            op, inputs = ("CollectiveBcastSend", [value[0]]) if sends else ("CollectiveBcastRecv", [])
            made = w.r.op(op, inputs, mixed("sent", run), line=3, flags=STATEFUL)
            graph = max(graph for graph, _ in w.r._graphs.values())
            data = attributes(group_key=1, instance_key=300, group_size=group)
            w.r.writer.definition(graph, len(inputs), data)
            w.op((made, mixed("sent", run)), 4)

    result = job(program)
    assert [told(culprit) for culprit in result.culprits] == [("MatMul", 2, ["worker:0"])]
    assert states(result) == ["diverged", "received"]


def test_what_dies_out_here_and_lives_on_elsewhere_is_not_contained(job):
    def program(workers: list[Worker], run: str) -> None:
        first, second = workers
        value = first.op(first.value(1, 1), 2, run == "b")
        sent = first.together("CollectiveBcastSendV2", value, value[1], 3, 1)
        first.r.op("Identity", [sent[0]], 99, line=5)  # an equal value: the difference goes no further here
        second.op(second.together("CollectiveBcastRecvV2", None, value[1], 3, 1), 4)

    result = job(program)
    assert [(*told(culprit), culprit.contained) for culprit in result.culprits][:1] == [
        ("MatMul", 2, ["worker:0"], False)
    ]


def test_what_nothing_tells_the_members_of_is_undecided(job):
    def program(workers: list[Worker], run: str) -> None:
        for w in workers:
            value = w.op(w.value(1, 1), 2, run == "b" and w.index == 1)
            out = mixed("sum", run)
            w.r.op("CollectiveReduceV3", [value[0], w.r.variable(8)], out, line=3, flags=STATEFUL)

    assert [told(culprit) for culprit in job(program).culprits] == [("MatMul", 2, ["worker:1"])]


def test_a_sum_of_more_members_than_there_are_traces_is_undecided(job, tmp_path):
    def program(workers: list[Worker], run: str) -> None:
        train(workers[:2], reduced=lambda worker, step: run == "b" and step == 0)

    result = job(program, workers=3, lost=["a/worker2.h5", "b/worker2.h5"])
    assert (result.verdict, result.culprits) == ("inconclusive", ())


def test_a_hidden_function_of_a_job_is_not_blamed(job):
    def program(workers: list[Worker], run: str) -> None:
        for w in workers:
            w.r.op("XlaLaunch", [w.value(1, 1)[0]], 5 + (run == "b"), line=2)

    result = job(program)
    assert (result.verdict, result.culprits) == ("inconclusive", ())
    assert any("may have taken what other workers made" in text for text in result.warnings)


def test_many_runs_of_a_job(tmp_path):
    write(tmp_path, lambda workers, run: train(workers, lambda worker, step: run == "b" and (worker, step) == (1, 0)))
    alike = compare(tmp_path / "a", tmp_path / "a", tmp_path / "a")
    many = many_runs_of(alike)
    assert many is not None
    assert (alike.verdict, many.doubt.agreeing, len(alike.runs)) == ("identical", 2, 3)
    other = compare(tmp_path / "a", tmp_path / "a", tmp_path / "b")
    assert (other.verdict, told(other.culprits[0])) == ("diverged", ("MatMul", 2, ["worker:1"]))
    assert "shown is run 3" in other.warnings[0]


def test_what_is_no_pair_of_jobs_is_said(tmp_path):
    write(tmp_path, lambda workers, run: train(workers))
    a, b = tmp_path / "a", tmp_path / "b"
    with pytest.raises(Usage, match="a folder, .*, beside a trace"):
        compare(a, b / "worker0.h5")
    with pytest.raises(Usage, match="a tolerance: found folders"):
        compare(a, b, rtol=1e-3)
    (b / "worker1.h5").write_bytes((b / "worker0.h5").read_bytes())
    with pytest.raises(Usage, match="two traces of worker:0"):
        compare(a, b)
    with Recorder(b / "worker1.h5", **{**task(1), "options": {"steps": "1:2"}}) as r:
        Worker(r, 1).value(1, 1)
    with pytest.raises(Usage, match="traces of other steps"):
        compare(a, b)
    (b / "worker1.h5").unlink()
    (a / "worker0.h5").unlink()
    with pytest.raises(Usage, match="expected traces of the same workers in both"):
        compare(a, b)
    (a / "worker1.h5").unlink()
    with pytest.raises(NotFound, match="no trace in it"):
        compare(a, b)


def test_reports_say_which_worker(job):
    result = job(lambda workers, run: train(workers, lambda worker, step: run == "b" and (worker, step) == (1, 0)))
    data = result.to_json()
    jsonschema.validate(data, SCHEMA, jsonschema.Draft202012Validator)
    assert {"task", "tasks"} <= set(SCHEMA["$defs"]["culprit"]["properties"])
    assert Comparison.from_json(data) == result
    for format in ("terminal", "junit", "sarif", "html"):
        assert "worker:1 alone, of 2" in render(result, format, Page()), format
    text = render(result, "terminal", Page())
    assert "on worker:1" in text.splitlines()[0]
    assert "received from others" in text
    assert json.loads(render(result, "json", Page()))["culprits"][0]["task"] == "worker:1"


@pytest.mark.parametrize(
    "told", [5, {}, {"task": 7, "cluster": "x"}, {"task": ["\x1b[2J"], "cluster": {"worker": "many", "b": -3}}]
)
def test_what_a_trace_says_of_its_worker_is_not_trusted(tmp_path, told):
    for name in "ab":
        (tmp_path / name).mkdir()
        with Recorder(tmp_path / name / "x.h5", worker=told, devices=[3]) as r:
            Worker(r, 0).op(Worker(r, 0).value(1, 1), 2)
    result = compare(tmp_path / "a", tmp_path / "b")
    assert result.verdict == "identical"
    assert "\x1b" not in render(result, "terminal", Page())


# -- any job ----------------------------------------------------------------------------------------------------------

STEPS = st.lists(st.sampled_from(["own", "sum", "send"]), min_size=1, max_size=7)


@settings(max_examples=60, deadline=None)
@given(steps=STEPS, workers=st.integers(2, 3), data=st.data())
def test_the_planted_op_of_the_planted_worker_is_the_one_found(steps, workers, data):
    """A change is planted at one of some steps."""
    at = data.draw(st.integers(0, len(steps) - 1), "step")
    who = data.draw(st.integers(0, workers - 1), "worker")
    everywhere = steps[at] != "own" and data.draw(st.booleans(), "everywhere")

    def program(every: list[Worker], run: str) -> None:
        values = [w.value(50 + w.index, 1) for w in every]
        for number, step in enumerate(steps):
            line, planted = number + 2, run == "b" and number == at
            change = [3 * (planted and (everywhere or w.index == who)) for w in every]
            values = stepped(step, every, values, line, change)
        for w, value in zip(every, values, strict=True):
            w.op(value, 90, op="Exp")

    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), program, workers)
        result = compare(Path(folder) / "a", Path(folder) / "b")
    assert result.verdict == "diverged"
    tasks = [f"worker:{n}" for n in range(workers) if everywhere or n == who]
    blamed = [task for culprit in result.culprits for task in culprit.extra["tasks"]]
    assert {culprit.source.line for culprit in result.culprits if culprit.source is not None} == {at + 2}
    assert sorted(blamed) == tasks


class Plan(NamedTuple):
    """Some program of a job: what each step is, and which of the values so far it takes."""

    steps: list[tuple[str, int]]
    planted: set[tuple[int, int]]  # (step, worker) of what differs in B

    def program(self, every: list[Worker], run: str) -> None:
        values = [[w.value(50 + w.index, 1)] for w in every]
        for number, (step, which) in enumerate(self.steps):
            line = number + 2
            change = [3 * (run == "b" and (number, w.index) in self.planted) for w in every]
            taken = [each[which % len(each)] for each in values]
            made = stepped(step, every, taken, line, change)
            for each, value in zip(values, made, strict=True):
                each.append(value)
        for w, each in zip(every, values, strict=True):
            for number, value in enumerate(each):
                w.op(value, 90 + number, op="Exp")


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(st.tuples(st.sampled_from(["own", "sum", "send"]), st.integers(0, 9)), min_size=1, max_size=7),
    workers=st.integers(2, 3),
    data=st.data(),
)
def test_whatever_differs_and_whatever_is_lost_nothing_else_is_named(steps, workers, data):
    places = st.tuples(st.integers(0, len(steps) - 1), st.integers(0, workers - 1))
    planted = data.draw(st.sets(places, max_size=3), "planted")
    traces = [f"{run}/worker{n}.h5" for run in "ab" for n in range(1, workers)]
    lost = data.draw(st.sets(st.sampled_from(traces), max_size=2), "lost")
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), Plan(steps, planted).program, workers)
        for name in lost:
            (Path(folder) / name).unlink()
        result = compare(Path(folder) / "a", Path(folder) / "b")
    named = {
        (culprit.source.line - 2, int(task.rpartition(":")[2]))
        for culprit in result.culprits
        if culprit.source is not None
        for task in culprit.extra["tasks"]
    }
    assert named <= planted
    assert all(culprit.source is not None for culprit in result.culprits)
    if not lost:
        assert result.verdict == ("diverged" if planted else "identical")
    elif not planted:
        assert result.verdict == "inconclusive"
