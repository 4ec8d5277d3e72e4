"""Three runs and more: outcomes, how often each culprit shows, doubt, and grouping by inputs."""

import gc
import json
import weakref
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from minilang import record

from tfbisect import crosscheck, errors
from tfbisect.alignment import pair
from tfbisect.bisector import bisect
from tfbisect.comparison import compare
from tfbisect.crosscheck import Grouping, differing_ops, inputs_of
from tfbisect.model import Comparison
from tfbisect.outcomes import doubt, many_runs_of
from tfbisect.provenance import Run
from tfbisect.trace import load

TEXT = "w; dense = MatMul x w; act = Relu dense; loss = Sum act"


@pytest.fixture
def runs(tmp_path: Path):
    def make(*changes, text=TEXT, **options):
        paths = [tmp_path / f"run{number}.h5" for number in range(len(changes))]
        for path, change in zip(paths, changes, strict=True):
            record(text, path, change=change, **options)
        return paths

    return make


def test_runs_that_all_agree_and_the_doubt_that_remains(runs):
    result = compare(*runs({}, {}, {}, {}))
    many = many_runs_of(result)
    assert (result.verdict, result.culprits, len(result.runs)) == ("identical", (), 4)
    assert many.outcomes == ((0, 1, 2, 3),)
    assert [item.runs for item in many.pairs] == [(0, 1), (0, 2), (0, 3)]
    assert (many.doubt.pairs, many.doubt.agreeing) == (3, 3)
    assert dict(many.doubt.unseen)[0.5] == 0.125
    assert many.doubt.excluded == pytest.approx(1 - 0.05 ** (1 / 3))
    assert [outputs for outputs, _ in many.outputs] == [1]


def test_no_pair_leaves_all_doubt():
    assert doubt(0, 0).excluded == 1 and set(dict(doubt(0, 0).unseen).values()) == {1}


def test_outcomes_and_how_often_a_culprit_shows(runs):
    result = compare(*runs({}, {"dense@1": 1}, {}, {"dense@1": 2}, {"dense@1": 1}))
    many = many_runs_of(result)
    assert result.verdict == "diverged"
    assert many.outcomes == ((0, 2), (1, 4), (3,))
    [culprit], [told] = result.culprits, many.culprits
    assert (culprit.name, culprit.call, culprit.extra["pair"]) == ("dense", 1, [0, 1])
    assert (told.name, told.groups, told.missing) == ("dense", ((0, 2), (1, 4), (3,)), ())
    assert (told.seen_in, told.pairs) == ((1, 3, 4), 4)
    assert dict(many.outputs)[3] == 3  # dense, act and loss of call 1
    assert (many.cross_check.confirmed, many.cross_check.contradicted, many.cross_check.unnamed) == (1, (), ())


def test_culprits_of_all_pairs_are_ranked_as_those_of_one(runs):
    result = compare(*runs({}, {"act@1": 1}, {"dense@0": 1}, {"act@1": 1, "dense@2": 1}))
    assert [(culprit.name, culprit.call) for culprit in result.culprits] == [("dense", 0), ("act", 1)]
    assert [told.seen_in for told in many_runs_of(result).culprits] == [(2, 3), (1, 3)]


def test_what_the_first_run_hides_is_found_by_grouping(runs):
    # Runs 2 and 3 have the same input of `act`, another one than run 1: only against each other do they show it.
    text = "w; dense = MatMul x w; act = Relu dense; loss = Sum act"
    result = compare(*runs({}, {"dense": 1}, {"dense": 1, "act": 1}, text=text, calls=1))
    many = many_runs_of(result)
    assert {culprit.name for culprit in result.culprits} == {"dense", "act"}
    assert many.pairs[-1].runs == (1, 2)
    assert [told.seen_in for told in many.culprits] == [(1, 2), (1, 2)]
    assert result.culprits[0].name == "dense"


def test_a_difference_that_dies_out_is_no_other_outcome(runs):
    text = "w; dense = MatMul x w; off = Greater dense; kept = Relu w; return off kept"
    result = compare(*runs({}, {"dense": 1}, text=text, mask=["off"]))
    assert result.verdict == "diverged"
    result = compare(*runs({}, {"dense": 1}, {}, text=text, mask=["off"]))
    assert many_runs_of(result).outcomes == ((0, 1, 2),)
    assert result.culprits[0].contained


def test_a_shorter_run_is_another_outcome_and_inconclusive(runs, tmp_path):
    paths = runs({}, {}, {})
    record(TEXT, paths[1], calls=2)
    result = compare(*paths)
    assert (result.verdict, many_runs_of(result).outcomes) == ("inconclusive", ((0, 2), (1,)))
    assert any(warning.startswith("runs 1 and 2: ") for warning in result.warnings)


def test_culprits_that_are_too_many_to_be_listed_are_counted(runs):
    ops = [f"n{number}" for number in range(240)]
    changes = [dict.fromkeys(some, 1) for some in (ops[:120], ops[120:])]
    result = compare(*runs({}, *changes, text="; ".join(f"{op} = Exp x" for op in ops), calls=1))
    assert len(result.culprits) == 200
    assert "40 more culprits are not listed" in result.warnings


def test_settings_are_compared_over_all_runs(runs):
    paths = runs({}, {}, {})
    record(TEXT, paths[2], info={"threads": {"intra_op": 1}})
    [item] = compare(*paths).environment
    assert (item.key, item.values) == ("threads.intra_op", (None, None, 1))


def test_of_many_traces_few_are_held_at_a_time(runs, monkeypatch):
    paths = runs({}, {"dense": 1}, {"dense": 1, "act": 1}, {}, {"dense@1": 2}, calls=2)
    record(TEXT, paths[3], info={"threads": {"intra_op": 1}})
    held, most = weakref.WeakSet(), []

    def counted(path):
        gc.collect()
        held.add(found := load(path))
        most.append(len(held))
        return found

    monkeypatch.setattr("tfbisect.trace.load", counted)
    result = compare(*paths)
    assert len(many_runs_of(result).pairs) > 4 and result.environment
    assert max(most) == 3  # the first, and two that it hides something of


def test_it_goes_to_json_and_back_and_two_runs_have_no_such_key(runs):
    paths = runs({}, {"dense@1": 1}, {})
    result = compare(*paths)
    data = json.loads(json.dumps(result.to_json()))
    assert Comparison.from_json(data) == result
    assert many_runs_of(Comparison.from_json(data)) == many_runs_of(result)
    assert "many_runs" not in compare(*paths[:2]).to_json() and many_runs_of(compare(*paths[:2])) is None
    data["many_runs"]["pairs"] = 3
    with pytest.raises(errors.Damaged):
        many_runs_of(Comparison.from_json(data))


# -- grouping by inputs ------------------------------------------------------------------------------------------------


def test_grouping_needs_no_alignment(runs):
    """Runs of other lengths, ops in another order: equal inputs still meet."""
    paths = runs({}, {"dense@0": 1})
    record("w; dense = MatMul x w; other = Exp w; act = Relu dense; loss = Sum act", paths[1], change={"dense@0": 1})
    grouping = Grouping()
    first = Run(load(paths[0]))
    ops = differing_ops(first, np.arange(len(first.trace.events)))
    for number, path in enumerate(paths):
        grouping.add(number, Run(load(path)), ops)
    [group] = grouping.several()
    assert (group.op[1], group.outputs) == ("dense", ((0,), (1,)))


def test_an_op_that_varies_within_one_run_is_seen(runs):
    text = "def f x\n y = Relu x\nend\np := Variable s\nt = f q\nu = f q\n"
    [path] = runs({"y@1": 1}, text=text, calls=1)
    run = Run(load(path))
    grouping = Grouping()
    grouping.add(0, run, differing_ops(run, np.arange(len(run.trace.events))))
    assert [group.op[1] for group in grouping.several()] == ["y"]


def test_draws_iterators_and_python_are_no_functions_of_their_inputs(runs):
    [path] = runs({}, text="a = RandomUniform x; b = PyFunc x; c = IteratorGetNext x; d = Relu x", calls=1)
    run = Run(load(path))
    known = {run.node(row).name: inputs_of(run, row) is not None for row in range(len(run.trace.events))}
    assert {name: known[name] for name in "abcd"} == {"a": False, "b": False, "c": False, "d": True}


def test_what_grouping_contradicts_is_not_blamed(runs, monkeypatch):
    paths = runs({}, {"dense@1": 1})
    findings = bisect(pair(load(paths[0]), load(paths[1])))
    # A bisector that is wrong: it blames what merely received the difference.
    number = next(
        n for n, (row, _) in enumerate(findings.equality.pairs) if findings.equality.a.node(row).name == "act"
    )
    wrong = replace(findings.suspects[0], number=number, row=findings.equality.pairs[number][0])
    settled, names = crosscheck.settle(replace(findings, suspects=[*findings.suspects, wrong]))
    assert [suspect.row for suspect in settled.suspects] == [findings.suspects[0].row]
    assert names == ("act",) and settled.undecided == [number]
    monkeypatch.setattr("tfbisect.pairwise.bisect", lambda alignment: replace(bisect(alignment), suspects=[wrong]))
    result = compare(*paths)
    assert (result.verdict, result.culprits) == ("inconclusive", ())
    assert any("contradicts" in warning and "act" in warning for warning in result.warnings)
