"""Comparing within a tolerance: the measure, the first op beyond it, growth of the error, graphs that differ."""

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from minilang import record

from tfbisect import errors
from tfbisect.comparison import compare
from tfbisect.model import Comparison
from tfbisect.outcomes import tolerated_of
from tfbisect.reporters import Page, render
from tfbisect.tolerance import Tolerance, error

# The digests of what a changed op leads to are new, so what follows it is far off; `keep` forwards the change as it is.
TEXT = "w; dense = MatMul x w; keep = Identity dense; loss = Sum keep; return keep loss"


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    return [tmp_path / name for name in ("a.h5", "b.h5")]


def both(paths, text=TEXT, change=None, **options):
    record(text, paths[0], values=True)
    record(text, paths[1], values=True, change=change or {}, **options)


# -- the measure -------------------------------------------------------------------------------------------------------


def test_rounding_is_within_one_ulp():
    a = np.float32([1.0, -2.0, 3.0])
    b = np.nextafter(a, np.float32(10))
    assert not error(a, b, Tolerance(atol=1e-12)).within
    found = error(a, b, Tolerance(ulp=1))
    assert found.within and found.max_ulp == 1
    assert not error(a, b + np.float32(1e-6), Tolerance(ulp=1)).within


def test_floats_of_two_types_are_compared_as_numbers_in_the_coarser_ones_ulp():
    a = np.float32([1.0, 1.003])
    b = a.astype(ml_dtypes.bfloat16)
    found = error(a, b, Tolerance(ulp=1))
    assert found.within and found.max_ulp == 1 and found.max_rel == pytest.approx(0.003, rel=0.05)
    assert not error(a, b, Tolerance(rtol=1e-4)).within


def test_numbers_are_close_by_any_of_the_three():
    a, b = np.array([1.0, 100.0]), np.array([1.0, 100.1])
    assert not error(a, b, Tolerance()).within
    assert error(a, b, Tolerance(rtol=1e-3)).within and error(a, b, Tolerance(atol=0.2)).within
    assert not error(a, b, Tolerance(rtol=1e-4)).within and not error(a, b, Tolerance(atol=0.05)).within
    assert not error(np.array([1.0]), np.array([1 + 2**-51]), Tolerance(ulp=1)).within
    one, next_one, other = (np.array([complex(x, y)]) for x, y in ((1, 1), (1, np.nextafter(1.0, 2.0)), (2, 1)))
    assert error(one, next_one, Tolerance(ulp=1)).within and not error(one, other, Tolerance(ulp=1)).within
    five, six = np.array([5]), np.array([6])
    assert error(five, six, Tolerance(atol=1)).within and not error(five, six, Tolerance(ulp=9)).within
    assert not error(np.array(["a"], object), np.array(["b"], object), Tolerance(atol=1)).within


@pytest.mark.parametrize("dtype", ["int64", "uint64"])
def test_integers_beyond_what_a_float_holds_are_told_apart(dtype):
    a = np.array([2**62, 7], dtype)
    b = a + np.array([1, 0], dtype)
    assert error(a, a, Tolerance(ulp=4)).within and not error(a, b, Tolerance(ulp=4)).within
    assert not error(a, b, Tolerance(atol=0.5)).within and error(a, b, Tolerance(atol=1.0)).within
    assert error(a, b, Tolerance(rtol=1e-6)).within and error(a, b, Tolerance(ulp=4)).max_abs == 1


def test_what_is_no_number_or_has_another_shape_is_beyond_every_tolerance():
    everything = Tolerance(rtol=1, atol=1e9)
    assert not error(np.zeros(2), np.zeros(3), everything).within
    assert not error(np.zeros(2), np.asarray([b"a", b"b"]), everything).within
    assert error(np.asarray([b"a"]), np.asarray([b"a"]), everything).within


def test_infinity_is_near_nothing_and_nan_is_nan():
    tolerance = Tolerance(rtol=1.0, atol=1e300, ulp=2**40)
    infinite, nan = np.float32([np.inf]), np.float32([np.nan])
    assert error(infinite, infinite, tolerance).within and error(nan, nan, tolerance).within
    assert not error(infinite, np.float32([1]), tolerance).within
    assert not error(infinite, -infinite, tolerance).within
    assert not error(nan, np.float32([1]), tolerance).within
    assert error(infinite, np.float32([1]), tolerance).max_abs is None


@given(arrays.arrays(np.float32, 5), arrays.arrays(np.float32, 5))
def test_error_is_symmetric_in_what_counts(a, b):
    tolerance = Tolerance(rtol=1e-3, atol=1e-3, ulp=3)
    one, two = error(a, b, tolerance), error(b, a, tolerance)
    assert (one.within, one.max_abs, one.max_rel, one.max_ulp) == (two.within, two.max_abs, two.max_rel, two.max_ulp)


@given(arrays.arrays(np.float64, 4), st.integers(0, 3))
def test_equal_bits_are_within(a, ulp):
    assert error(a, a.copy(), Tolerance(ulp=ulp)).within


@pytest.mark.parametrize("tolerance", [{"rtol": -1.0}, {"atol": float("nan")}, {"ulp": -2}, {"rtol": float("inf")}])
def test_a_tolerance_that_is_none(paths, tolerance):
    with pytest.raises(errors.Usage, match="expected 0 or more"):
        compare(*paths, **tolerance)


def test_a_tolerance_is_for_two_traces(paths):
    with pytest.raises(errors.Usage, match="found 3 traces"):
        compare(paths[0], *paths, rtol=1e-3)


# -- two runs ----------------------------------------------------------------------------------------------------------


def test_bits_that_are_equal_are_within_everything(paths):
    both(paths)
    result = compare(*paths, ulp=1)
    assert (result.verdict, result.culprits) == ("identical", ())
    assert tolerated_of(result).equal == result.coverage.compared


def test_within_is_said_to_be_within_and_not_equal(paths):
    both(paths, change={"loss@1": 3})
    assert compare(*paths).verdict == "diverged"
    result = compare(*paths, ulp=4)
    assert result.verdict == "identical" and tolerated_of(result).within == 1
    assert any("all of them within the tolerance" in warning for warning in result.warnings)
    assert "all within the tolerance" in render(result, "terminal", Page())


def test_the_first_beyond_the_tolerance_is_named_and_not_what_was_first_to_differ(paths):
    both(paths, change={"dense@1": 3})
    tight, loose = compare(*paths, ulp=2), compare(*paths, ulp=4)
    assert (tight.culprits[0].name, tight.culprits[0].call) == ("dense", 1)
    assert "all before is equal" in tight.culprits[0].explanation
    first = loose.culprits[0]
    assert (first.name, first.category, first.causes) == ("loss", "unknown", ())
    assert "1 of the values that went into it differ, within it" in first.explanation
    assert len(loose.culprits) == 1


def test_growth_goes_from_where_the_error_enters_through_the_culprit_to_the_end(paths):
    both(paths, text="w; dense = MatMul x w; act = Relu dense; loss = Sum act", change={"dense@1": 3})
    growth = tolerated_of(compare(*paths, ulp=4)).growth
    assert [(item.name, item.within) for item in growth] == [("dense", True), ("act", False), ("loss", False)]
    assert growth[0].max_ulp == 3 and growth[0].source.line == 2


def test_culprits_that_are_too_many_to_be_listed_are_counted(paths):
    ops = [f"n{number}" for number in range(205)]
    both(paths, text="; ".join(f"{op} = Exp x" for op in ops), change=dict.fromkeys(ops, 9))
    result = compare(*paths, ulp=1)
    assert len(result.culprits) == 200
    assert "5 more culprits are not listed" in result.warnings


def test_values_that_were_not_kept_leave_it_open(paths):
    record(TEXT, paths[0])
    record(TEXT, paths[1], change={"dense@1": 1})
    result = compare(*paths, rtol=1e-3)
    assert (result.verdict, result.culprits) == ("inconclusive", ())
    assert any("--values all" in warning for warning in result.warnings)


def test_nothing_behind_an_unmeasured_value_is_blamed(paths):
    both(paths, change={"dense@1": 3}, opaque=["dense"])
    record(TEXT, paths[0], values=True, opaque=["dense"])
    result = compare(*paths, ulp=4)
    assert (result.verdict, result.culprits) == ("inconclusive", ())
    assert any(warning.startswith("undecided: Sum loss") for warning in result.warnings)


def test_it_warns_of_what_was_not_seen_not_recorded_and_left_out_as_a_comparison_of_bits_does(paths):
    text, options = "w; dense = MatMul x w; aside = Exp dense; loss = Sum dense", {"options": {"steps": "0:2"}}
    for path, change in zip(paths, ({}, {"loss@1": 3}), strict=True):
        record(text, path, values=True, change=change, opaque=["aside"], info=options)
    bits, near = compare(*paths), compare(*paths, ulp=4)
    assert near.verdict == "identical" and bits.verdict == "diverged"
    steps = "only steps 0:2 were recorded; calls are counted from the first one recorded"
    assert steps in bits.warnings and steps in near.warnings
    assert any("ran unseen" in warning for warning in near.warnings)


def test_ops_of_other_types_meet_under_one_name(paths):
    record("w; y = FusedMatMul x w; loss = Sum y", paths[0], values=True)
    record("w; m = MatMul x w; y = BiasAdd m w; loss = Sum y", paths[1], values=True)
    result = compare(*paths, rtol=1e-6)
    assert (result.culprits[0].name, result.culprits[0].op_type) == ("y", "FusedMatMul")
    assert "run B computed it with BiasAdd" in result.culprits[0].explanation
    found = {(item.kind, item.op_type_a, item.op_type_b): item for item in tolerated_of(result).graph_differences}
    assert set(found) == {("type", "FusedMatMul", "BiasAdd"), ("only_b", "", "MatMul")}
    assert found["only_b", "", "MatMul"].instead == "FusedMatMul y"
    text = render(result, "terminal", Page(120))
    assert "The graphs are not the same" in text and "MatMul in B only, for it A has FusedMatMul y" in text


def test_it_goes_to_json_and_back(paths):
    both(paths, change={"dense@1": 3})
    result = compare(*paths, ulp=2)
    data = json.loads(json.dumps(result.to_json()))
    assert tolerated_of(Comparison.from_json(data)) == tolerated_of(result)
    assert tolerated_of(compare(*paths)) is None
    data["tolerance"]["growth"] = [{}]
    with pytest.raises(errors.Damaged):
        tolerated_of(Comparison.from_json(data))


@pytest.mark.parametrize("format", ["terminal", "junit", "sarif"])
def test_no_report_says_that_what_went_in_was_the_same(paths, format):
    both(paths, change={"dense@1": 3})
    result = compare(*paths, ulp=2)
    said = "is where the tolerance is passed"
    assert said in render(result, format, Page(200)) and said not in render(compare(*paths), format, Page(200))


def test_runs_that_only_have_to_be_close_are_not_called_bit_identical(paths):
    both(paths, "w; dense = MatMul x w; return dense", change={"dense@0": 3})
    result = compare(*paths, ulp=3)
    assert result.verdict == "identical" and "bit-identical" not in render(result, "junit", Page())
