"""The shortcut for receivers says what the bisector says without it."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from minilang import recorded
from test_property_bisector import chained, program

from tfbisect import bisector, flow, receivers
from tfbisect.alignment import pair


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("receivers")


def judged(a, b, few: int):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(receivers, "FEW", few)
        findings = bisector.bisect(pair(a, b))
    shown = [(suspect.number, suspect.tier, suspect.finding) for suspect in findings.suspects]
    return [(each.what, tuple(each.edges), each.finding) for each in findings.judgements], shown, findings


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 10**9))
def test_it_says_what_a_look_at_each_says(folder, seed):
    for text, places in ((program(seed, 6)[0], program(seed, 6)[1].values()), (chained(seed)[0], [chained(seed)[1]])):
        a = recorded(text, folder / "a.h5", calls=2)
        b = recorded(text, folder / "b.h5", calls=2, change={place: 1 for place in places if place})
        quick, slow = judged(a, b, -1), judged(a, b, 10**9)
        assert quick[:2] == slow[:2]


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 10**9))
def test_what_a_cheap_recording_passed_by_makes_no_difference_to_it(folder, seed):
    def passes(name):
        return bool((seed + len(name) + ord(name[-1])) % 3)

    for text, places in ((program(seed, 6)[0], program(seed, 6)[1].values()), (chained(seed)[0], [chained(seed)[1]])):
        a = recorded(text, folder / "a.h5", calls=2, passes=passes)
        b = recorded(text, folder / "b.h5", calls=2, change={place: 1 for place in places if place}, passes=passes)
        quick, slow = judged(a, b, -1), judged(a, b, 10**9)
        assert quick[:2] == slow[:2]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(flow, "MOST_PARTS", 0)  # all by walks
            walked = judged(a, b, 10**9)
        assert [(what, set(edges)) for what, edges, _ in walked[0]] == [(w, set(edges)) for w, edges, _ in slow[0]]
        assert walked[1] == slow[1]


def test_it_finds_the_receivers_of_plain_functions(folder):
    text = "w; c = Const v=1; dense = MatMul x w; act = Relu dense; loss = Sum act c"
    a, b = (recorded(text, folder / "a.h5"), recorded(text, folder / "b.h5", change={"dense": 1}))
    findings = judged(a, b, 10**9)[2]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(receivers, "FEW", 0)
        (found,) = receivers.plain_receivers(findings.equality, lambda one, two: True)
    numbers = np.flatnonzero(found.plain).tolist()
    names = [findings.equality.a.node(findings.equality.pairs[number][0]).name for number in numbers]
    assert sorted(names) == ["act"] * 3 + ["loss"] * 3
