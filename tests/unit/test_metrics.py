"""Two arrays -> Difference."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tfbisect.metrics import difference
from tfbisect.tolerance import Tolerance, error

FLOATS = [np.float16, np.float32, np.float64]


def nan(payload, dtype=np.float32):
    return np.array([0x7FC00000 | payload], np.uint32).view(dtype)


def test_one_ulp():
    a = np.ones((2, 3), np.float32)
    b = a.copy()
    b[1, 2] = np.nextafter(np.float32(1), np.float32(2))
    d = difference(a, b)
    assert (d.dtype, d.shape, d.elements, d.differing, d.max_ulp, d.first_index) == ("float32", (2, 3), 6, 1, 1, (1, 2))
    assert (d.kind, d.nonfinite, d.basis) == ("values", 0, "all elements, bits")
    assert d.max_abs == np.float32(2**-23)
    assert d.max_rel == pytest.approx(2**-23)


def test_equal_arrays_have_no_differing_element():
    d = difference(np.arange(3), np.arange(3))
    assert (d.differing, d.first_index, d.max_ulp, d.max_abs, d.max_rel) == (0, None, None, None, None)


@pytest.mark.parametrize("dtype", FLOATS)
def test_ulps_cross_zero_and_reach_infinity(dtype):
    tiny = np.nextafter(dtype(0), dtype(1))
    assert difference(np.array([-tiny]), np.array([tiny])).max_ulp == 2
    largest = np.finfo(dtype).max
    d = difference(np.array([largest]), np.array([np.inf], dtype))
    assert (d.max_ulp, d.max_abs, d.nonfinite) == (1, None, 1)


def test_sign_of_zero():
    d = difference(np.array([0.0, 1.0]), np.array([-0.0, 1.0]))
    assert (d.kind, d.differing, d.max_ulp, d.max_abs, d.max_rel) == ("zero_sign", 1, 0, 0.0, 0.0)


def test_nan_payload():
    d = difference(nan(0), nan(1))
    assert (d.kind, d.differing, d.max_ulp, d.max_abs, d.nonfinite) == ("nan_payload", 1, None, None, 1)
    assert difference(nan(1), nan(1)).differing == 0


def test_classes_are_ranked():
    zero, other = np.array([0.0], np.float32), np.array([-0.0], np.float32)
    assert difference(np.concatenate([nan(0), zero]), np.concatenate([nan(1), other])).kind == "nan_payload"
    one, two = np.array([1.0], np.float32), np.array([2.0], np.float32)
    assert difference(np.concatenate([nan(0), zero, one]), np.concatenate([nan(1), other, two])).kind == "values"
    assert difference(nan(0), one).kind == "values"


def test_other_shape_and_type():
    d = difference(np.zeros((2, 3)), np.zeros((2, 4)))
    assert (d.kind, d.shape, d.elements, d.differing, d.max_abs) == ("shape", (2, 3), 8, 8, None)
    assert d.basis == "[2, 3] in A, [2, 4] in B"
    assert difference(np.zeros(2, np.float32), np.zeros(2)).kind == "dtype"


def test_integers():
    d = difference(np.array([-(2**63), 5], np.int64), np.array([2**63 - 1, 5], np.int64))
    assert (d.max_ulp, d.max_abs, d.differing) == (None, float(2**64 - 1), 1)
    assert difference(np.array([2**64 - 1], np.uint64), np.array([0], np.uint64)).max_abs == float(2**64 - 1)
    assert difference(np.array([250], np.uint8), np.array([3], np.uint8)).max_abs == 247.0
    assert difference(np.array([True]), np.array([False])).max_abs == 1.0


def test_complex_numbers_count_once_and_measure_their_parts():
    a = np.array([1 + 1j, 2 + 0j], np.complex64)
    b = a.copy()
    b.imag[0] = np.nextafter(np.float32(1), np.float32(2))
    d = difference(a, b)
    assert (d.elements, d.differing, d.max_ulp, d.first_index) == (2, 1, 1, (0,))
    assert difference(np.array([complex(0.0, 0.0)]), np.array([complex(0.0, -0.0)])).kind == "zero_sign"


@pytest.mark.parametrize("name", ["bfloat16", "float8_e5m2", "float8_e4m3fn", "float8_e4m3fnuz", "float4_e2m1fn"])
def test_small_floats(name):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    if not hasattr(ml_dtypes, name):
        pytest.skip(f"ml_dtypes without {name}")
    dtype = np.dtype(getattr(ml_dtypes, name))
    a = np.array([1.0, -1.0], np.float32).astype(dtype)
    b = np.array([1.5, 1.0], np.float32).astype(dtype)
    d = difference(a, b)
    assert (d.dtype, d.differing, d.max_abs) == (name, 2, 2.0)
    assert d.max_ulp == 2 * int(a[:1].view(f"u{dtype.itemsize}").astype(np.uint64)[0])


def test_scalars_empty_arrays_and_strings():
    assert difference(np.float32(1), np.float32(2)).first_index == ()
    assert difference(np.zeros((0, 3)), np.zeros((0, 3))).differing == 0
    d = difference(np.array(["a", "b"], object), np.array(["a", "c"], object))
    assert (d.differing, d.max_abs, d.first_index) == (1, None, (1,))
    assert difference(np.array([b"a"]), np.array([b"b"])).differing == 1


def test_byte_order_is_no_difference():
    assert difference(np.arange(3.0), np.arange(3.0).astype(">f8")).differing == 0


def test_overflow_is_infinite_without_a_warning():
    assert difference(np.array([1e308]), np.array([-1e308])).max_abs == math.inf


SIX = arrays.arrays(np.float32, 6, elements=st.floats(width=32))


@given(SIX, SIX)
def test_against_a_slow_comparison(a, b):
    d = difference(a, b)
    bits = [(x, y) for x, y in zip(a.view("u4").tolist(), b.view("u4").tolist(), strict=True)]
    assert d.differing == sum(x != y for x, y in bits)

    def order(x):
        return -(x & 0x7FFFFFFF) if x >> 31 else x

    numbers = [(x, y) for (x, y), s, t in zip(bits, a, b, strict=True) if x != y and s == s and t == t]
    assert d.max_ulp == max((abs(order(x) - order(y)) for x, y in numbers), default=None)
    finite = [(float(s), float(t)) for s, t in zip(a, b, strict=True) if np.isfinite(s) and np.isfinite(t)]
    if d.max_abs is not None:
        assert d.max_abs == max(abs(s - t) for s, t in finite)
    assert error(a, b, Tolerance()).within == (d.kind in ("nan_payload", "zero_sign") or d.differing == 0)
