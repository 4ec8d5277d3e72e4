"""To and from JSON: values are checked, because a result file may come from anywhere.

Knows kinds of values and nothing of what they mean; that is `model`.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

Json = dict[str, Any]

T = TypeVar("T")


def same(value: Any) -> Any:
    """As it is."""
    return value


def optional(convert: Callable[[Any], T], value: Any) -> T | None:
    """Converted unless it is None."""
    return None if value is None else convert(value)


def json_or_none(value: Any) -> Json | None:
    """The JSON of what may be None."""
    return None if value is None else value.to_json()


def each(convert: Callable[[Any], T], values: Any) -> tuple[T, ...]:
    """A list, item by item. Raises TypeError for anything else."""
    if not isinstance(values, (list, tuple)):
        raise TypeError(f"{type(values).__name__} where a list belongs")
    return tuple(convert(value) for value in values)


def ints(values: Iterable[Any]) -> tuple[int, ...]:
    """A list of whole numbers."""
    return each(int, values)


def an_object(value: Any) -> Json:
    """An object. Raises TypeError for anything else."""
    if not isinstance(value, dict):
        raise TypeError(f"{type(value).__name__} where an object belongs")
    return value


def one_of(allowed: tuple[str, ...], value: Any) -> str:
    """One of a few texts. Raises ValueError for another."""
    if value not in allowed:
        raise ValueError(f"{value!r}, not one of {', '.join(allowed)}")
    return str(value)


def step_count(pair: Any) -> tuple[int | None, int]:
    """[step or null, number]."""
    step, count = pair
    return optional(int, step), int(count)


def finite(value: float | None) -> float | str | None:
    """JSON has no infinity: such numbers travel as text, which float() reads back."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def number(value: Any) -> float | None:
    """The inverse of `finite`. Raises TypeError for what is no number."""
    return float(value) if isinstance(value, str) else optional(_plain_number, value)


def _plain_number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{value!r} where a number belongs")
    return value
