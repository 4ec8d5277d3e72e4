"""A comparison as JSON, for programs. Adds nothing to what the comparison says and needs no width."""

import json
import math
from typing import Any

from tfbisect.model import Comparison
from tfbisect.reporters import Page


def render(comparison: Comparison, page: Page) -> str:
    """ASCII only, and strict (no NaN or Infinity tokens), so that every parser reads it."""
    return json.dumps(strict(comparison.to_json()), indent=2, allow_nan=False) + "\n"


def strict(value: Any) -> Any:
    """`value` with the numbers that JSON lacks as text; they can come from a program's environment or options."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {str(key): strict(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [strict(item) for item in value]
    return value
