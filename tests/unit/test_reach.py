"""Links and what they reach, against a walk that looks at each number."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfbisect import circles, reach
from tfbisect.reach import Growing, Links, Marks, gathered, tally


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(reach, "BLOCK", 3)
    monkeypatch.setattr(reach, "STRIDE", 2)


def graphs(ordered):
    """Lists of others; `ordered`: all are smaller, so that there are no circles."""

    def lists(count):
        def others(number):
            most = number if ordered else count
            return st.lists(st.integers(0, most - 1), max_size=4) if most else st.just([])

        return st.tuples(*map(others, range(count)))

    return st.integers(1, 14).flatmap(lists)


def walked(lists, start):
    found, waiting = set(start), list(start)
    while waiting:
        more = [other for other in lists[waiting.pop()] if other not in found]
        found.update(more)
        waiting += more
    return found


@settings(max_examples=150, deadline=None)
@given(st.booleans().flatmap(graphs), st.data())
def test_a_closure_is_all_that_a_walk_finds_in_both_directions(lists, data):
    links, count = Links.of(lists), len(lists)
    assert [list(each) for each in links] == [list(each) for each in lists]
    back = [[n for n in range(count) for other in lists[n] if other == number] for number in range(count)]
    assert [list(each) for each in links.back] == back and links.back.back is links
    start = data.draw(st.sets(st.integers(0, count - 1)))
    mask = Marks.of(start, count).mask
    assert set(Marks(links.closure(mask))) == walked(lists, start)
    assert set(Marks(links.back.closure(mask))) == walked(back, start)
    assert set(Marks(mask)) == start


@given(graphs(True))
def test_links_to_smaller_numbers_have_no_circles(lists):
    assert Links.of(lists).acyclic


@given(graphs(False))
def test_nothing_that_has_a_circle_is_called_acyclic(lists):
    circle = any(number in walked(lists, lists[number]) for number in range(len(lists)))
    assert not (circle and Links.of(lists).acyclic)


@settings(max_examples=100, deadline=None)
@given(graphs(False))
def test_a_circle_begins_where_nothing_grounded_leads_to(lists):
    count = len(lists)
    grounded = np.asarray([not others for others in lists], np.bool_)
    back = [[n for n in range(count) if number in lists[n]] for number in range(count)]
    known, wanted = walked(back, np.flatnonzero(grounded).tolist()), []
    for number in sorted(set(range(count)) - known, key=lambda number: -number):
        if number not in known:
            wanted.append(number)
            known |= walked(back, [number])
    assert circles.starts(Links.of(lists), grounded, count, lambda number: -number) == wanted


@given(graphs(False), st.data())
def test_lists_are_replaced_and_added(lists, data):
    other = data.draw(st.dictionaries(st.integers(0, len(lists) - 1), st.lists(st.integers(0, 3), max_size=3)))
    more = data.draw(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=3), max_size=2))
    found = Links.of(lists).replaced(other, more)
    wanted = [other.get(number, each) for number, each in enumerate(lists)] + more
    assert [list(each) for each in found] == wanted


def test_links_grow_by_parts():
    growing = Growing()
    growing.add(np.asarray([0, 2]), np.asarray([5, 6]))
    growing.add(np.asarray([1]), np.asarray([7]))
    assert list(growing.links()) == [(), (5, 6), (7,)]
    assert len(Growing().links()) == 0


@given(st.lists(st.integers(-1, 9), max_size=20))
def test_what_is_counted_and_gathered_by_parts(numbers):
    array = np.asarray(numbers, np.int32)
    counts = [numbers.count(number) for number in range(9)] + [numbers.count(9) + numbers.count(-1)]
    assert tally(array, 10).tolist() == counts
    table = np.arange(10, dtype=np.uint8) * 3
    assert gathered(table, array).tolist() == table[array].tolist()


def test_marks_are_a_set():
    some, more = Marks.of([1, 3], 5), Marks.of([3, 4], 5)
    assert set(some.united(more)) == {1, 3, 4} and len(some) == 2
    assert 3 in some and 2 not in some and 7 not in some and -2 not in some
    assert some.isdisjoint([0, 2, 9]) and not some.isdisjoint([9, 1])
