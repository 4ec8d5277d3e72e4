"""Random programs over many steps, with two faults or over many runs: what is named is what was planted.

The programs are those of `test_property_bisector`: functions with loops and branches that share variables.
"""

import tempfile
from pathlib import Path
from random import Random

from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from minilang import record
from test_property_bisector import chained

from tfbisect.alignment import pair
from tfbisect.comparison import compare
from tfbisect.outcomes import many_runs_of
from tfbisect.trace import load

STEPS = 5
slow = settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
seeds = st.integers(0, 10**9)


def place_of(text: str, place: str) -> tuple[str, int, tuple[int, ...]]:
    """(name, call, iteration) as a culprit has them; an eager op is named after its type."""
    name, _, where = place.partition("@")
    call, _, path = where.partition("/")
    if not name.startswith("f"):
        name = next(line.split()[2] for line in text.split("\n") if line.startswith(f"{name} ="))
        return name, -1, ()  # which of the ops of its type at its line: told by `call`, counted by line
    return name, int(call), tuple(int(i) for i in path.split(",") if i)


def named(culprit) -> tuple[str, int, tuple[int, ...]]:
    return (culprit.name, culprit.call, culprit.iteration) if culprit.function else (culprit.name, -1, ())


def two_faults(seed: int) -> tuple[str, str, str]:
    """A program, and two places in it that are not the same op."""
    text, one = chained(seed, STEPS)
    _, two = chained(seed, STEPS, again=Random(seed + 1).randrange(1000))
    assume(one and two and one.partition("@")[0] != two.partition("@")[0])
    return text, one, two


def differing(a: Path, b: Path) -> set[tuple[str, int, tuple[int, ...]]]:
    """All that differs between two runs, by (name, call, iteration); needs no bisector."""
    found = pair(load(a), load(b))
    run, seen = found.a, set()
    ordinals: dict[int, int] = {}
    counts: dict[str, int] = {}
    for call, graph in enumerate(run.graph_of):
        name = run.trace.graphs[graph].name
        ordinals[call] = counts.get(name, 0)
        counts[name] = ordinals[call] + 1
    for row in found.rows_a[found.differs].tolist():
        node, call = run.node(row), run.event_call[row]
        seen.add((node.name, ordinals.get(call, -1), run.path(run.event_path[row])))
    return seen


@slow
@given(seeds)
def test_a_fault_in_any_step_is_found_in_that_step(seed):
    text, place = chained(seed, STEPS)
    assume(place)
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / name for name in ("a.h5", "b.h5")]
        record(text, paths[0], calls=STEPS, steps=True)
        record(text, paths[1], calls=STEPS, steps=True, change={place: 1})
        result = compare(*paths)
    assert [named(culprit) for culprit in result.culprits] == [place_of(text, place)]
    assert result.coverage.undecided == 0
    if not place.startswith("f"):
        assert result.culprits[0].step == int(place.partition("@")[2])


@slow
@given(seeds)
def test_of_two_faults_those_are_named_that_the_other_does_not_reach(seed):
    text, one, two = two_faults(seed)
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / name for name in ("plain.h5", "one.h5", "two.h5", "both.h5")]
        for path, change in zip(paths, ({}, {one: 1}, {two: 1}, {one: 1, two: 1}), strict=True):
            record(text, path, calls=STEPS, change=change)
        reached = differing(paths[0], paths[1]), differing(paths[0], paths[2])
        result = compare(paths[0], paths[3])
    assume(all(place.startswith("f") for place in (one, two)))
    wanted = set()
    if place_of(text, one) not in reached[1]:
        wanted.add(place_of(text, one))
    if place_of(text, two) not in reached[0]:
        wanted.add(place_of(text, two))
    assert {named(culprit) for culprit in result.culprits} == wanted and wanted


@slow
@given(seeds, st.lists(st.sampled_from(["none", "one", "one again", "two"]), min_size=3, max_size=5))
@example(241, ["none", "none", "one"])  # the op that differs has two outputs
def test_many_runs_are_grouped_by_what_was_planted_and_nothing_else_is_named(seed, choices):
    text, one, two = two_faults(seed)
    changes = {"none": {}, "one": {one: 1}, "one again": {one: 2}, "two": {two: 1}}
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"run{number}.h5" for number in range(len(choices))]
        for path, choice in zip(paths, choices, strict=True):
            record(text, path, calls=STEPS, change=changes[choice])
        result = compare(*paths)
    many = many_runs_of(result)
    groups = [{number for number, choice in enumerate(choices) if choice == each} for each in dict.fromkeys(choices)]
    for group in groups:  # differences that die out may put several of them together, nothing takes one apart
        assert any(group <= set(outcome) for outcome in many.outcomes)
    assert result.verdict == ("identical" if len(groups) == 1 else "diverged")
    allowed = {place_of(text, place)[0] for place in (one, two)}
    assert {culprit.name for culprit in result.culprits} <= allowed
    assert bool(result.culprits) == (len(groups) > 1)
    assert (many.cross_check.contradicted, many.cross_check.unnamed) == ((), ())
    agreeing = sum(choice == choices[0] for choice in choices[1:])
    assert (many.doubt.pairs, many.doubt.agreeing) == (len(choices) - 1, agreeing)
