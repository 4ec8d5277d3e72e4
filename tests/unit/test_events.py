"""Events as columns and where they are, against structured rows that are looked through one by one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfbisect import events, places
from tfbisect.events import DTYPE, CheckedEvents, Events
from tfbisect.model import NO_CALL
from tfbisect.places import Places

CALLS, SITES, PATHS = 5, 4, 3


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(places, "BLOCK", 3)
    monkeypatch.setattr(events, "BLOCK", 3)


ROWS = st.lists(
    st.tuples(
        st.integers(0, CALLS - 1), st.integers(0, SITES - 1), st.integers(0, PATHS - 1),
        st.sampled_from([0, 1, 70_000]),
        st.integers(0, 2**64 - 1), st.sampled_from([0, 0, 0, 300]),
    ),
    max_size=25,
)  # fmt: skip


@given(ROWS, st.integers(1, 6), st.data())
def test_columns_are_what_the_rows_were(rows, step, data):
    array = np.asarray(rows, DTYPE)
    found = Events.of((array[low : low + step] for low in range(0, len(array), step)), len(array))
    assert len(found) == len(array) and found.tolist() == rows and [row.item() for row in found] == rows
    assert all(np.array_equal(found[name], array[name]) for name in DTYPE.names)
    mask = np.asarray(data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows))), np.bool_)
    assert found.chosen(mask).tolist() == array[mask].tolist()
    assert found[mask].tolist() == array[mask].tolist() and found[1:-1].tolist() == array[1:-1].tolist()
    for at in range(-len(rows), len(rows)):
        assert found[at] == array[at]


def test_columns_that_are_zero_take_no_memory_and_none_can_be_written():
    found = Events.of([np.zeros(4, DTYPE)], 4)
    assert found["path"].strides == (0,)
    with pytest.raises(ValueError, match="read-only"):
        found["digest"][0] = 1


@settings(max_examples=200)
@given(ROWS, st.integers(0, 2), st.booleans())
def test_an_event_is_found_where_a_look_at_all_rows_finds_it(rows, constants, ordered):
    rows = sorted(rows, key=lambda row: row[: 3 if ordered else 1])
    array = np.asarray(rows + [(NO_CALL, site, 0, 0, 0, 0) for site in range(constants)], DTYPE)
    found = Events.of([array], len(array))
    ids = found.spans[0]
    checked = CheckedEvents(found, np.where(ids == np.uint64(NO_CALL), -1, ids.astype(np.int64)))
    assert checked.called == len(rows)
    assert checked.call_row.tolist() == [row[0] for row in rows] + [-1] * constants
    bounds = checked.starts(CALLS).tolist()
    assert bounds == [sum(row[0] < call for row in rows) for call in range(CALLS + 1)]
    outside, inside = (Places(checked, CALLS, loops=loops) for loops in (False, True))
    last = {row[:3]: at for at, row in enumerate(rows)}
    for site in range(SITES):
        for call in range(CALLS):
            assert outside.row(call, site) == last.get((call, site, 0), -1)
            for path in range(1, PATHS + 2):
                assert inside.row(call, site, path) == last.get((call, site, path), -1)
        calls = np.asarray([3, 0, 1, 1, 4, 2])
        assert outside.rows(calls, site).tolist() == [last.get((call, site, 0), -1) for call in calls.tolist()]
