"""What a call may use, found from the callable and its arguments: closures, globals it names, attributes, containers.

Looks at Python objects only and calls nothing of theirs. Of libraries' own objects the inside is not looked at.
"""

import collections
import functools
import types
from collections.abc import Iterable, Iterator
from typing import Any

MOST = 200_000  # objects: what is larger is a data structure, not a program's state
_LIBRARIES = frozenset({"tensorflow", "keras", "tf_keras", "numpy", "h5py", "threading", "logging", "builtins"})
_CONTAINERS = (list, tuple, set, frozenset, collections.deque)
_PLAIN = (str, bytes, bytearray, int, float, complex, type(None), type, types.ModuleType, types.CodeType)


def reachable(roots: Iterable[Any]) -> Iterator[Any]:
    """Each object once, in no particular order."""
    waiting, seen = list(roots), dict[int, Any]()
    while waiting and len(seen) < MOST:
        item = waiting.pop()
        if isinstance(item, _PLAIN) or id(item) in seen:
            continue
        seen[id(item)] = item  # kept, so that no other object gets its id
        yield item
        waiting += _inside(item)


def _inside(item: Any) -> Iterable[Any]:
    if isinstance(item, types.FunctionType):
        return [*_closure(item), *(item.__defaults__ or ()), *(item.__kwdefaults__ or {}).values(), *_globals(item),
                *vars(item).values()]  # fmt: skip
    if isinstance(item, types.MethodType):
        return [item.__self__, item.__func__]
    if isinstance(item, functools.partial):
        return [item.func, *item.args, *item.keywords.values()]
    if isinstance(item, dict):
        return list(item.values())
    if isinstance(item, _CONTAINERS):
        return list(item)
    python = getattr(item, "python_function", None)  # a tf.function
    if isinstance(python, types.FunctionType | types.MethodType | functools.partial):
        return [python]
    if type(item).__module__.partition(".")[0] in _LIBRARIES:
        return []
    return [*getattr(item, "__dict__", {}).values(), *_slots(item)]


def _closure(function: types.FunctionType) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not filled yet
            continue


def _globals(function: types.FunctionType) -> list[Any]:
    """The globals that a function, or one defined in it, names."""
    names, codes = set[str](), [function.__code__]
    while codes:
        code = codes.pop()
        names.update(code.co_names)
        codes += [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
    space = function.__globals__
    return [space[name] for name in names if name in space]


def _slots(item: Any) -> Iterator[Any]:
    for kind in type(item).__mro__:
        slots = vars(kind).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            value = getattr(item, name, None) if not name.startswith("__") else None
            if value is not None:
                yield value
