"""The use case: errors, verdicts, warnings, measures, causes, environment, JSON."""

import json
import time
from pathlib import Path

import pytest
from graphs import Recorder, wide
from minilang import record

from tfbisect import errors
from tfbisect.comparison import compare
from tfbisect.model import Comparison, Edge, Node, NodeFlag

TEXT = "w; dense = MatMul x w; loss = Sum dense"


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    return [tmp_path / name for name in ("a.h5", "b.h5")]


def test_one_trace_has_nothing_to_be_compared_with(paths):
    record(TEXT, paths[0])
    for traces in ((), paths[:1]):
        with pytest.raises(errors.Usage, match="expected two"):
            compare(*traces)


def test_a_trace_without_a_recorded_op(paths):
    record(TEXT, paths[0])
    with Recorder(paths[1]):
        pass
    with pytest.raises(errors.EmptyTrace, match="no recorded op"):
        compare(*paths)


def test_digests_of_other_schemes_say_nothing(paths):
    record(TEXT, paths[0])
    record(TEXT, paths[1], info={"digest": {"graph": "portable/1", "host": "portable/1"}})
    with pytest.raises(errors.SchemeMismatch, match="portable/1"):
        compare(*paths)


def test_other_programs_are_unrelated(paths):
    record(TEXT, paths[0])
    record("def g x\n a = Exp x\nend\n\n\n\ny = g p\n", paths[1], info={"argv": ["other.py"]})
    with pytest.raises(errors.Unrelated, match="program.py and other.py"):
        compare(*paths)


def test_a_renamed_program_is_still_compared(paths):
    record(TEXT, paths[0])
    record(TEXT, paths[1], info={"argv": ["copy.py"]})
    assert compare(*paths).verdict == "identical"


def test_a_run_that_died_is_compared_as_far_as_it_goes(paths):
    record(TEXT, paths[0])
    record(TEXT, paths[1], complete=False)
    result = compare(*paths)
    assert result.verdict == "inconclusive"
    assert any("run B" in warning and "no end" in warning for warning in result.warnings)
    record(TEXT, paths[1], complete=False, change={"dense@1": 1}, calls=2)
    assert compare(*paths).culprits[0].name == "dense"


def test_nothing_in_common_is_never_identical(paths):
    record("y = Relu x", paths[0], calls=1)
    record("def g x\n a = Exp x\nend\n\n\n\ny = g p\n", paths[1], calls=1)
    result = compare(*paths)
    assert (result.verdict, result.coverage.compared) == ("inconclusive", 0)


def test_what_ran_unseen_is_said_of_equal_runs(paths):
    for path in paths:
        record("y = XlaLaunch x; z = Relu y", path, opaque=["y"])
    result = compare(*paths)
    assert result.verdict == "identical"
    assert [item.op_type for item in result.coverage.opaque] == ["XlaLaunch"]
    assert any("ran unseen" in warning for warning in result.warnings)


def test_the_difference_is_measured_on_kept_values(paths):
    record(TEXT, paths[0], values=True)
    record(TEXT, paths[1], values=True, change={"dense@0": 3})
    [culprit] = compare(*paths).culprits
    difference = culprit.difference
    assert (difference.elements, difference.max_ulp, difference.first_index) == (6, 3, (0, 0))
    assert difference.kind == "values"


def test_without_kept_values_there_is_no_measure(paths):
    record(TEXT, paths[0])
    record(TEXT, paths[1], change={"dense": 1})
    assert compare(*paths).culprits[0].difference is None


def test_causes_come_from_the_knowledge_base(paths):
    record("v := Variable x0; r = read v; g = MatMul x r; u = ResourceScatterSub v g", paths[0])
    record("v := Variable x0; r = read v; g = MatMul x r; u = ResourceScatterSub v g", paths[1], change={"u": 1})
    [culprit] = compare(*paths).culprits
    assert culprit.causes
    assert all(cause.title and cause.explanation for cause in culprit.causes)


def test_settings_that_differ_are_listed_and_what_always_does_is_not(paths):
    one = {"pid": 1, "time": "10:00", "environment": {"A": "1", "B": "2"}, "versions": {"tensorflow": "2.21.0"}}
    two = {"pid": 2, "time": "11:00", "environment": {"A": "1", "C": "3"}, "versions": {"tensorflow": "2.20.0"}}
    record(TEXT, paths[0], info=one)
    record(TEXT, paths[1], info=two)
    assert [(item.key, item.values) for item in compare(*paths).environment] == [
        ("environment.B", ("2", None)),
        ("environment.C", (None, "3")),
        ("versions.tensorflow", ("2.21.0", "2.20.0")),
    ]


def test_the_runs_are_described(paths):
    for path in paths:
        record(TEXT, path)
    runs = compare(*paths).runs
    assert [run["path"] for run in runs] == list(map(str, paths))
    assert runs[0]["argv"] == ["program.py"]
    assert (runs[0]["complete"], runs[0]["exit"], runs[0]["events"]) == (True, 0, 12)


def test_a_comparison_goes_to_json_and_back(paths):
    record(TEXT, paths[0], values=True)
    record(TEXT, paths[1], values=True, change={"dense": 1})
    result = compare(*paths)
    assert Comparison.from_json(json.loads(json.dumps(result.to_json()))) == result


def test_repeated_comparison_gives_the_same_text(paths):
    record(TEXT, paths[0])
    record(TEXT, paths[1], change={"dense": 1, "loss@2": 3})
    assert compare(*paths).to_json() == compare(*paths).to_json()


def test_the_other_way_round_names_the_same_op(paths):
    record(TEXT, paths[0])
    record(TEXT, paths[1], change={"dense@1": 1})
    names = [[(c.name, c.call) for c in compare(*order).culprits] for order in (paths, paths[::-1])]
    assert names[0] == names[1] == [("dense", 1)]


def test_a_chain_of_forwarders_far_beyond_the_recursion_limit_is_walked(paths):
    count = 20_000
    nodes = [Node("x", "_Arg", index=0)]
    nodes += [
        Node(f"i{k}", "Identity" if k % 2 else "Reshape", flags=NodeFlag.FORWARDER, inputs=(Edge(k, 0), Edge(0, 0)))
        for k in range(count)
    ]
    nodes.append(Node("y", "Relu", inputs=(Edge(count, 0),)))
    for path, digest in zip(paths, (1, 2), strict=True):
        with Recorder(path) as r:
            graph, site = r.function("f", nodes, [(0, 0, 1, 1), (count + 1, 0, 0, 1)])
            x, call = r.host("Relu", 5, 1), r.new_call()
            r.writer.link(call, 0, *x)
            r.writer.event(call, site, 0, 1, 5)
            r.writer.event(call, site + 1, 0, 1, digest)
            r.call(call, graph, 1)
    assert [c.name for c in compare(*paths).culprits] == ["y"]


@pytest.mark.parametrize("diverged", [False, True])
def test_a_hundred_thousand_events_are_a_matter_of_moments(paths, diverged):
    wide(paths[0])
    wide(paths[1], diverged)
    start = time.process_time()
    result = compare(*paths)
    assert time.process_time() - start < 10  # 0.3 and 1.5 s on an idle machine; this finds quadratic walks
    assert [c.name for c in result.culprits] == (["n4"] if diverged else [])


def test_other_attributes_under_another_set_up_are_a_matter_of_the_set_up(paths):
    one, two = "w; dense = MatMul x w; loss = Sum dense", "w; dense = MatMul x w fused=1; loss = Sum dense"
    record(one, paths[0])
    record(two, paths[1], change={"dense": 1})
    assert (compare(*paths).culprits[0].name, compare(*paths).culprits[0].category) == ("dense", "structure")
    record(two, paths[1], change={"dense": 1}, info={"flags": {"onednn_built_in": False}})
    assert compare(*paths).culprits[0].category == "environment"
