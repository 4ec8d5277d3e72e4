"""The way of a difference to the last result: searched for among few differences, followed among many."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from minilang import recorded
from test_property_bisector import chained, program

from tfbisect import ways
from tfbisect.alignment import pair
from tfbisect.bisector import bisect
from tfbisect.ways import Ways


def found(findings, start, searched):
    counted = np.ones(len(findings.equality.pairs), np.bool_)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ways, "SEARCHED", searched)
        return Ways(findings, counted, ~counted).best(start)


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 10**9))
def test_both_lead_from_the_culprit_to_the_same_end(tmp_path_factory, seed):
    folder = tmp_path_factory.mktemp("ways")
    for text, places in ((program(seed, 4)[0], program(seed, 4)[1].values()), (chained(seed)[0], [chained(seed)[1]])):
        a = recorded(text, folder / "a.h5", calls=2)
        b = recorded(text, folder / "b.h5", calls=2, change={place: 1 for place in places if place})
        findings = bisect(pair(a, b))
        edges, events = findings.effects.edges, len(findings.equality.pairs)
        for suspect in findings.suspects[:3]:
            if suspect.number < 0:
                continue
            best, followed = found(findings, suspect.number, 10**9), found(findings, suspect.number, -1)
            assert (best[0], best[-1]) == (followed[0], followed[-1]) and len(best) <= len(followed)
            for above, below in pairwise(followed):
                parts = {part for edge in edges[below] if edge >= events for part in edges[edge]}
                assert above in edges[below] or above in parts


def test_a_way_that_is_too_long_ends_earlier(tmp_path, monkeypatch):
    text = "; ".join(["n0 = MatMul x w", *(f"n{i} = Relu n{i - 1}" for i in range(1, 30))])
    a = recorded(f"w; {text}", tmp_path / "a.h5", calls=1)
    b = recorded(f"w; {text}", tmp_path / "b.h5", calls=1, change={"n0": 1})
    findings = bisect(pair(a, b))
    start = findings.suspects[0].number
    assert len(found(findings, start, -1)) == 30
    monkeypatch.setattr(ways, "HOPS", 10)
    way = found(findings, start, -1)
    assert way[0] == start and len(way) == 10
