"""Cheap recordings: whatever part of what may be left out is left out, no wrong op is ever named."""

import tempfile
from pathlib import Path
from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from minilang import record
from test_property_bisector import CALLS, chained, program

from tfbisect.comparison import compare

SETTINGS = {"deadline": None, "suppress_health_check": list(HealthCheck)}


def passing(seed, share):
    """Which of the ops that need not be recorded are left out."""
    return lambda name: Random(f"{seed} {name}").random() < share


def compared(text, other, change, passes, cheap="ab", calls=CALLS, mask=()):
    """The comparison of two runs of two programs, of which those in `cheap` are recorded cheaply."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / name for name in ("a.h5", "b.h5")]
        for letter, path, source in zip("ab", paths, (text, other), strict=True):
            record(
                source,
                path,
                calls=calls,
                change=change if letter == "b" else {},
                passes=passes if letter in cheap else None,
                mask=mask,
            )
        return compare(*paths)


def answers(culprit):
    """The names that a culprit stands for."""
    return {culprit.name, *(each["name"] for each in culprit.extra.get("unrecorded", ()))}


def check(result, planted):
    """Each function's own culprits are what was planted in it, or stand below it."""
    wrong = []
    for culprit in result.culprits:
        mine = {name for name in planted if name.partition("n")[0] == culprit.function}
        if not answers(culprit) & mine:
            wrong.append((culprit.name, culprit.category, culprit.explanation, answers(culprit), mine))
    assert not wrong, wrong
    named = {name for culprit in result.culprits for name in answers(culprit)}
    return {name for name in planted if name in named}


def settled(result, share, cheap):
    """Nothing is undecided: of a full run just what a cheap one may leave out is taken away, so that both are alike."""
    assert result.coverage.undecided == 0 or (cheap != "ab" and share < 1)


@settings(max_examples=25, **SETTINGS)
@given(st.integers(0, 10**9), st.sampled_from((0.3, 0.7, 1.0)), st.sampled_from(("ab", "a", "b")))
def test_the_planted_op_is_named_or_is_one_above_what_is_named(seed, share, cheap):
    text, planted, _ = program(seed)
    result = compared(text, text, dict.fromkeys(planted.values(), 1), passing(seed, share), cheap)
    settled(result, share, cheap)
    missed = set(planted) - check(result, planted)
    if cheap == "ab":  # what is missed was left out, and nothing came of it
        assert all(passing(seed, share)(name) for name in missed), missed


@settings(max_examples=10, **SETTINGS)
@given(st.integers(0, 10**9), st.sampled_from((0.5, 1.0)))
def test_what_is_absorbed_on_its_way_makes_no_other_op_a_culprit(seed, share):
    text, planted, _ = program(seed)
    names = [line.split()[0] for line in text.split("\n") if " = " in line and "n" in line.split()[0]]
    mask = set(Random(seed).sample(names, len(names) // 4))
    result = compared(text, text, dict.fromkeys(planted.values(), 1), passing(seed, share), mask=mask)
    assert result.coverage.undecided == 0
    check(result, planted)


@settings(max_examples=15, **SETTINGS)
@given(st.integers(0, 10**9), st.sampled_from((0.3, 1.0)), st.sampled_from(("ab", "b")))
def test_the_planted_op_is_found_through_functions_and_eager_ops(seed, share, cheap):
    text, place = chained(seed)
    result = compared(text, text, {place: 1} if place else {}, passing(seed, share), cheap)
    name = place.partition("@")[0]
    line = next((line for line in text.split("\n") if line.startswith(f"{name} =")), "")
    planted = {name, line.split()[2] if line and name.startswith("t") else name}  # an eager op is named by its type
    for culprit in result.culprits:
        assert answers(culprit) & planted, (culprit.name, answers(culprit), planted)
    if not place.startswith("t"):  # what functions make of an eager op that was passed by can be undecided
        settled(result, share, cheap)


@settings(max_examples=25, **SETTINGS)
@given(st.integers(0, 10**9), st.sampled_from((0.3, 0.7, 1.0)), st.sampled_from(("ab", "a", "b")))
def test_another_op_in_one_run_is_named_or_nothing_is(seed, share, cheap):
    text, _, _ = program(seed)
    lines, chance = text.split("\n"), Random(seed)
    changed = {}
    for number, line in enumerate(lines):
        words = line.split()
        function = words[0].partition("n")[0] if words else ""
        plain = len(words) > 2 and words[2] in ("Relu", "Add", "MatMul", "Sum", "ConcatV2")
        if plain and function.startswith("f") and function not in changed and chance.random() < 0.4:
            changed[function] = words[0]
            other = chance.choice([op for op in ("Relu", "Add", "MatMul", "Sum", "ConcatV2") if op != words[2]])
            lines[number] = " ".join([*words[:2], other, *words[3:]])
    result = compared(text, "\n".join(lines), {}, passing(seed, share), cheap)
    check(result, set(changed.values()))
    assert result.verdict != "identical" or not changed


@settings(max_examples=5, **SETTINGS)
@given(st.integers(0, 10**9), st.sampled_from(("ab", "a")))
def test_equal_runs_are_identical(seed, cheap):
    text = program(seed)[0]
    assert compared(text, text, {}, passing(seed, 1.0), cheap).verdict == "identical"
