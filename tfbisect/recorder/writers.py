"""Which of its arguments a function may write, told from its definition without running or optimizing it.

Knows nothing of twins. Follows handles through Identity, calls and branches; an op that takes a variable's handle and
is not known to leave it alone may write it, as in `twin`.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from tfbisect.recorder import executed, ops
from tfbisect.recorder.controlflow import base

# Ops that hand their inputs to a function: how many of the first inputs they keep for themselves.
_CALLS = {
    "PartitionedCall": 0, "StatefulPartitionedCall": 0, "While": 0, "StatelessWhile": 0, "If": 1, "StatelessIf": 1,
    "Case": 1, "StatelessCase": 1, "RemoteCall": 1,
}  # fmt: skip


def written_arguments(context: Any, definition: Any, variables: Iterable[int]) -> frozenset[int]:
    """The numbers of those arguments, handles of variables, that a call of the function may write.

    variables: the numbers of all arguments that are handles of variables.
    """
    functions = executed.library(context, definition)
    known: dict[str, frozenset[int]] = {}
    _analyse(definition.signature.name, functions, known)
    return known[definition.signature.name] & frozenset(variables)


def _analyse(name: str, functions: Mapping[str, Any], known: dict[str, frozenset[int]]) -> frozenset[int]:
    if name in known:
        return known[name]
    known[name] = frozenset()  # a function that calls itself writes what the rest of it writes
    function = functions.get(name)
    if function is None:
        return known[name]
    carries = {arg.name: index for index, arg in enumerate(function.signature.input_arg)}
    written: set[int] = set()
    waiting = list(function.node_def)
    while waiting:  # nodes stand in any order: Identity chains are settled when nothing is new any more
        rest = [node for node in waiting if not _carry(node, carries)]
        if len(rest) == len(waiting):
            break
        waiting = rest
    for node in function.node_def:
        data = [ref for ref in node.input if not ref.startswith("^")]
        handles = {position: carries[base(ref)] for position, ref in enumerate(data) if base(ref) in carries}
        if not handles or node.op in ops.READERS or node.op in ops.HANDLE_CARRIERS:
            continue
        callees = [callee for callee in executed.callees(node) if callee in functions]
        if not callees:
            written.update(handles.values())
            continue
        skipped = _CALLS.get(node.op)
        if skipped is None:
            continue  # a data set's function, say: what it does is not a step of the program
        for callee in callees:
            inner = _analyse(callee, functions, known)
            written.update(argument for position, argument in handles.items() if position - skipped in inner)
    known[name] = frozenset(written)
    return known[name]


def _carry(node: Any, carries: dict[str, int]) -> bool:
    """Whether a node hands a handle on as it is; if so, note which."""
    if node.op in ops.HANDLE_CARRIERS and node.input and base(node.input[0]) in carries:
        carries[node.name] = carries[base(node.input[0])]
        return True
    return False
