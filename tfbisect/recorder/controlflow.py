"""Loop frames and branches of an executed graph: which ops run together, and in which loop.

Reads a GraphDef after lowering (Switch, Merge, Enter, Exit, NextIteration); changes nothing.
"""

import collections
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Frame = tuple[str, ...]  # names of the loop frames, outermost first; () outside loops
Branch = frozenset[tuple[str, int]]  # (predicate, output of its Switch) that must have been taken


class Unsupported(Exception):
    """The graph's control flow is not of the kinds TensorFlow's lowering makes."""


def base(ref: str) -> str:
    """The node name of an input reference (`^name`, `name:slot`)."""
    return ref.lstrip("^").partition(":")[0]


def slot(ref: str) -> int:
    """The output slot of an input reference; -1 for a control input."""
    return -1 if ref.startswith("^") else int(ref.partition(":")[2] or 0)


def topological(nodes: Sequence[Any]) -> list[Any]:
    """NodeDefs ordered so that producers come first; the back edges of loops (from NextIteration) are left out.

    Raises Unsupported when there is another cycle.
    """
    by_name = {node.name: node for node in nodes}
    waiting, consumers = {}, collections.defaultdict(list)
    for node in nodes:
        refs = [base(ref) for ref in node.input if base(ref) in by_name]
        if node.op in ("Merge", "RefMerge", "_MklMerge"):
            refs = [ref for ref in refs if by_name[ref].op not in ("NextIteration", "RefNextIteration")]
        waiting[node.name] = len(refs)
        for ref in refs:
            consumers[ref].append(node)
    ready = collections.deque(node for node in nodes if not waiting[node.name])
    order = []
    while ready:
        node = ready.popleft()
        order.append(node)
        for consumer in consumers[node.name]:
            waiting[consumer.name] -= 1
            if not waiting[consumer.name]:
                ready.append(consumer)
    if len(order) != len(nodes):
        raise Unsupported(f"{len(nodes) - len(order)} of {len(nodes)} nodes are in a cycle that is not a loop")
    return order


def frames(ordered: Sequence[Any]) -> dict[str, Frame]:
    """{node: its loop frame}; `ordered` as `topological` gives it.

    An op is in the frame of its inputs; Enter's output is in the frame it names, Exit's in the parent.
    """
    result: dict[str, Frame] = {}
    for node in ordered:
        found = [result[base(ref)] for ref in node.input if base(ref) in result]
        here = max(found, key=len) if found else ()
        if any(other != here[: len(other)] for other in found):
            raise Unsupported(f"{node.name} takes inputs of different loops: {found}")
        if node.op in ("Enter", "RefEnter"):
            here = (*here, node.attr["frame_name"].s.decode())
        elif node.op in ("Exit", "RefExit"):
            here = here[:-1]
        elif any(other != here for other in found):
            raise Unsupported(f"{node.name} takes inputs of different loops: {found}")
        result[node.name] = here
    return result


def branches(ordered: Sequence[Any], frame: Mapping[str, Frame]) -> dict[str, Branch]:
    """{node: the branches that must have been taken for it to run}, within its own loop frame.

    Two nodes of one frame with equal values run in exactly the same iterations. Where a Merge does not join all
    branches of one predicate, it gets a condition of its own, so nothing is claimed about it.
    """
    return branches_and_entries(ordered, frame)[0]


def predicate(by_name: Mapping[str, Any], switch: Any) -> str:
    """The reference of what a Switch chooses by."""
    ref = switch.input[1]
    while by_name[base(ref)].op == "Identity" and by_name[base(ref)].input:
        ref = by_name[base(ref)].input[0]
    return str(ref)


def branches_and_entries(
    ordered: Sequence[Any], frame: Mapping[str, Frame]
) -> tuple[dict[str, Branch], dict[Frame, Branch]]:  # fmt: skip
    """`branches`, and {loop: the branches, in the frame around it, that must have been taken for it to begin}."""
    by_name = {node.name: node for node in ordered}
    result: dict[str, Branch] = {}
    entered: dict[Frame, Branch] = {}
    widths: dict[str, int] = {}  # predicate -> how many branches it chooses among

    def of(ref: str) -> Branch:
        name = base(ref)
        if by_name[name].op in ("Switch", "RefSwitch", "_SwitchN") and not ref.startswith("^"):
            return result[name] | {(predicate(by_name, by_name[name]), slot(ref))}
        return result[name]

    def joined(node: Any, inputs: Sequence[Branch]) -> Branch:
        common = frozenset.intersection(*inputs)
        rest = [taken - common for taken in inputs]
        if all(len(taken) == 1 for taken in rest):
            (names, outputs) = zip(*(next(iter(taken)) for taken in rest), strict=True)
            if len(set(names)) == 1 and set(outputs) == set(range(widths.get(names[0], 0))):
                return common
        return common | {(f"merge:{node.name}", 0)}

    for node in ordered:
        if node.op in ("Switch", "RefSwitch", "_SwitchN"):
            widths[predicate(by_name, node)] = node.attr["num_outs"].i if node.op == "_SwitchN" else 2
        refs: Iterable[str] = [ref for ref in node.input if base(ref) in result or base(ref) in by_name]
        if node.op in ("Enter", "RefEnter"):
            inside = frame[node.name]
            entered[inside] = entered.get(inside, frozenset()).union(*(of(ref) for ref in refs))
            result[node.name] = frozenset()
        elif node.op in ("Exit", "RefExit"):
            result[node.name] = entered.get(frame[base(node.input[0])], frozenset())
        elif node.op in ("Merge", "RefMerge"):
            data = [ref for ref in node.input if not ref.startswith("^")]
            if any(base(ref) not in result for ref in data):  # the back edge: a loop's Merge runs in each iteration
                result[node.name] = frozenset()
            else:
                result[node.name] = joined(node, [of(ref) for ref in data])
        else:
            result[node.name] = frozenset().union(*(of(ref) for ref in refs))
    return result, entered
