"""The JSON file of a comparison, read back.

What is in it is checked by `model`; here only the file is.
"""

import json
import os
from pathlib import Path

from tfbisect.errors import CannotRead, Damaged, NotAResult, NotFound
from tfbisect.model import Comparison

LARGEST = 256 * 2**20
"""Bytes of a result; what `compare` writes stays far below."""


def load(path: Path) -> Comparison:
    """Raises NotFound, CannotRead, NotAResult (no JSON, or no comparison), NewerFormat and Damaged."""
    name = os.fspath(path)
    try:
        if path.is_dir():
            raise NotAResult(f"result {name}", found="a folder", expected="a JSON file")
        size = path.stat().st_size
        if size > LARGEST:
            raise NotAResult(f"result {name}", found=f"{size:,} bytes", expected="the JSON of a comparison")
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotFound(f"result {name}", found="no such file", hint=NotAResult.default_hint) from error
    except (OSError, ValueError) as error:
        raise CannotRead(f"result {name}", found=getattr(error, "strerror", None) or error) from error
    if data.startswith(b"\x89HDF"):
        hint = f"python -m tfbisect compare {name} other.h5 -o result.json"
        raise NotAResult(f"result {name}", found="a trace", expected="the JSON that compare writes", hint=hint)
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise NotAResult(f"result {name}", found=error, expected="JSON") from error
    if not isinstance(value, dict) or "verdict" not in value:
        raise NotAResult(f"result {name}", found="JSON of something else", expected="the JSON of a comparison")
    try:
        return Comparison.from_json(value)
    except Damaged as error:
        raise Damaged(f"result {name}: {error.message}", hint=NotAResult.default_hint) from error
