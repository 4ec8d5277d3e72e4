"""Lines of code that AutoGraph generated, as the user wrote them.

Private TensorFlow API used here, tried on 2.21.0: `autograph.impl.api._TRANSPILER._cache._cache`, the converted
functions and their source maps. Where it is not to be had, generated lines stay unknown.
"""

import sys
from typing import Any

GENERATED = "__autograph_generated_file"  # part of the names of files with generated code
_API = "tensorflow.python.autograph.impl.api"
_maps: dict[str, dict[int, tuple[str, int, str]]] = {}


def original(file: str, line: int) -> tuple[str, int, str] | None:
    """(file, line, function) that a line of a generated file was made of; None if that is not known."""
    known = _maps.get(file)
    if known is None:
        found = _source_map(file)
        if found is None:
            return None
        known = _maps[file] = found
    return known.get(line)


def _source_map(file: str) -> dict[int, tuple[str, int, str]] | None:
    try:
        cache: Any = sys.modules[_API]._TRANSPILER._cache._cache
        for factories in list(cache.values()):
            for factory in list(factories.values()):
                if getattr(factory.module, "__file__", None) == file:
                    return {
                        place.lineno: (origin.loc.filename, origin.loc.lineno, str(origin.function_name or ""))
                        for place, origin in factory.source_map.items()
                    }
    except Exception:
        return None
    return None
