"""Two arrays -> how they differ, bit by bit and number by number.

Compares what it is given; which arrays belong together is decided elsewhere.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from tfbisect.model import Difference, Json

Array = npt.NDArray[Any]

CELLS = 48


def difference(a: Array, b: Array, basis: str = "all elements, bits") -> Difference:
    """How `b` differs from `a`. Bits count: other NaN payloads and a zero of the other sign are differences.

    Arrays of other types or shapes differ in all elements of the larger, in class "dtype" or "shape", without figures.
    `max_ulp` counts the steps from float to float, infinity included and NaN left out; a complex number counts as its
    two parts. `max_abs` and `max_rel` (|a - b| / max(|a|, |b|)) are over elements that are finite on both sides. If
    several classes occur, "values" wins over "nan_payload", and that over "zero_sign". Equal arrays have `differing` 0.
    `basis` says what was compared.
    """
    a, b = _native(a), _native(b)
    if a.dtype != b.dtype:
        return _incomparable(a, b, "dtype", f"{a.dtype} in A, {b.dtype} in B")
    if a.shape != b.shape:
        return _incomparable(a, b, "shape", f"{list(a.shape)} in A, {list(b.shape)} in B")
    at = np.flatnonzero(_differing(a, b))
    left, right = a.reshape(-1)[at], b.reshape(-1)[at]
    kind, nonfinite = _kind(left, right)
    max_abs, max_rel = _largest(left, right)
    return Difference(
        dtype=str(a.dtype),
        shape=tuple(a.shape),
        elements=a.size,
        differing=len(at),
        max_ulp=_max_ulp(left, right),
        max_abs=max_abs,
        max_rel=max_rel,
        first_index=tuple(int(i) for i in np.unravel_index(at[0], a.shape)) if len(at) else None,
        kind=kind,
        basis=basis,
        nonfinite=nonfinite,
    )


def spread(a: Array, b: Array, cells: int = CELLS) -> Json | None:
    """How many ulp the elements of two float arrays are apart, and where in the tensor the differing ones lie.

    `ulp`: [low, high, count] for powers of two. `where`: the array as a picture, the leading dimensions down and the
    last one across, in at most `cells` x `cells` cells; `counts` are differing elements, `full` the elements of a cell.
    None for other types or shapes, and where nothing differs.
    """
    a, b = _native(a), _native(b)
    if a.dtype != b.dtype or a.shape != b.shape or not _is_number(a.dtype):
        return None
    differs = _differing(a, b)
    if not differs.any():
        return None
    return {
        "ulp": _ulp_bins(a.reshape(-1)[differs], b.reshape(-1)[differs]) if _is_float(a.dtype) else [],
        "where": _picture(differs, a.shape, cells),
    }


def _ulp_bins(left: Array, right: Array) -> list[list[int]]:
    steps, known = _ulps(left, right)
    steps = steps[known & (steps > 0)]
    exponents = np.frexp(steps.astype(np.float64))[1] - 1
    found, counts = np.unique(exponents, return_counts=True)
    return [[2**low, 2 ** (low + 1) - 1, count] for low, count in zip(found.tolist(), counts.tolist(), strict=True)]


def _picture(differs: Array, shape: tuple[int, ...], cells: int) -> Json:
    width = shape[-1] if shape else 1
    height = differs.size // width
    at_row, at_column = np.divmod(np.flatnonzero(differs), width)
    rows, columns = min(height, cells), min(width, cells)
    down, across = -(-height // rows), -(-width // columns)
    rows, columns = -(-height // down), -(-width // across)
    counts = np.bincount((at_row // down) * columns + at_column // across, minlength=rows * columns)
    return {
        "shape": list(shape),
        "down": down,
        "across": across,
        "full": down * across,
        "counts": counts.reshape(rows, columns).tolist(),
    }


def _native(array: Array) -> Array:
    """In this machine's byte order."""
    array = np.asarray(array)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _incomparable(a: Array, b: Array, kind: str, basis: str) -> Difference:
    count = max(a.size, b.size)
    return Difference(str(a.dtype), tuple(a.shape), count, count, None, None, None, None, kind, basis)


def _differing(a: Array, b: Array) -> Array:
    """Which elements differ in any bit, flat."""
    width = a.dtype.itemsize
    if a.dtype.hasobject or not width or not a.size:
        return np.asarray(a != b, bool).reshape(-1)
    left = np.ascontiguousarray(a).reshape(-1).view(np.uint8)
    right = np.ascontiguousarray(b).reshape(-1).view(np.uint8)
    word = next(size for size in (8, 4, 2, 1) if width % size == 0)
    differs = left.view(f"u{word}") != right.view(f"u{word}")
    return np.asarray(differs.reshape(a.size, -1).any(axis=1))


def _is_float(dtype: np.dtype[Any]) -> bool:
    """Floating or complex. Most types of ml_dtypes, bfloat16 too, are of kind "V"."""
    return dtype.kind in "fc" or (dtype.kind == "V" and "float" in dtype.name)


def _is_number(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "biu" or _is_float(dtype) or dtype.name in ("int4", "uint4", "int2", "uint2")


def _wide(values: Array) -> Array:
    """As float64 or complex128; integers above 2**53 are rounded."""
    with np.errstate(invalid="ignore"):  # a signalling NaN becomes a quiet one
        return values.astype(np.complex128 if values.dtype.kind == "c" else np.float64)


def _parts(values: Array) -> Array:
    """Complex numbers as real and imaginary parts, one after the other; other values as they are."""
    return values.view(f"f{values.dtype.itemsize // 2}") if values.dtype.kind == "c" else values


def _kind(left: Array, right: Array) -> tuple[str, int]:
    """The class of differing elements, and how many of them are NaN or infinite on a side at least."""
    if not _is_float(left.dtype) or not len(left):
        return "values", 0
    x, y = _parts(left), _parts(right)
    differs = _differing(x, y)
    x, y = _wide(x), _wide(y)
    nan = np.isnan(x) & np.isnan(y)
    zero = (x == 0) & (y == 0)
    odd = differs & ~(np.isfinite(x) & np.isfinite(y))
    nonfinite = int(np.count_nonzero(odd.reshape(len(left), -1).any(axis=1)))
    if np.any(differs & ~nan & ~zero):
        return "values", nonfinite
    return ("nan_payload" if np.any(differs & nan) else "zero_sign"), nonfinite


def _ordered(parts: Array) -> Array:
    """Floats as unsigned integers in the order of the floats, neighbours adjacent; -0.0 and 0.0 are one."""
    width = parts.dtype.itemsize
    bits = parts.view(f"u{width}").astype(np.uint64)
    sign = np.uint64(1 << ((4 if "float4" in parts.dtype.name else 8 * width) - 1))
    magnitude = bits & (sign - np.uint64(1))
    zero = np.uint64(2**63)
    return np.asarray(np.where(bits & sign, zero - magnitude, zero + magnitude))


def _ulps(left: Array, right: Array) -> tuple[Array, Array]:
    """The distance of each part, and whether it has one: NaN has none."""
    x, y = _parts(left), _parts(right)
    i, j = _ordered(x), _ordered(y)
    known = ~(np.isnan(_wide(x)) | np.isnan(_wide(y)))
    return np.maximum(i, j) - np.minimum(i, j), known


def _max_ulp(left: Array, right: Array) -> int | None:
    if not _is_float(left.dtype):
        return None
    steps, known = _ulps(left, right)
    return int(steps[known].max()) if np.any(known) else None


def _distance(left: Array, right: Array) -> Array:
    """|a - b|, rounded once."""
    if left.dtype.kind in "iu" and left.dtype.itemsize == 8:  # float64 does not hold them all
        larger, smaller = np.maximum(left, right), np.minimum(left, right)
        return np.asarray((larger.view("u8") - smaller.view("u8")).astype(np.float64))
    return np.asarray(np.abs(_wide(left) - _wide(right)))


def _largest(left: Array, right: Array) -> tuple[float | None, float | None]:
    if not _is_number(left.dtype):
        return None, None
    x, y = _wide(left), _wide(right)
    finite = np.isfinite(x) & np.isfinite(y)
    if not np.any(finite):
        return None, None
    with np.errstate(over="ignore", invalid="ignore"):
        distance = _distance(left, right)[finite]
        scale = np.maximum(np.abs(x[finite]), np.abs(y[finite]))
        relative = distance / np.where(scale == 0, 1.0, scale)
    return float(distance.max()), float(relative.max())
