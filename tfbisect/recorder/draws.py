"""The seeds of ops that draw random numbers, in the order in which a program made them, as the trace keeps them.

Without a seed of its own, an op gets one that depends on the ops made before it in its graph (the random ones; in older
TensorFlow all of them), or in eager mode on the draws before it: tensorflow/python/framework/random_seed.py, get_seed.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from tensorflow.python.framework import op_def_registry

from tfbisect.recorder.recording import Recording

Made = tuple[str, str, int, int, int]  # name, op type, stack, graph seed, op seed


@cache
def seeded(op: str) -> bool:
    """Whether ops of this type have the two seeds."""
    definition = op_def_registry.get(op)
    names = {attr.name for attr in definition.attr} if definition is not None else set()
    return {"seed", "seed2"} <= names


def note(
    recording: Recording, scope: str, graph: int, drawn: Sequence[tuple[int, int, int]], made: Sequence[Made]
) -> None:
    """Write down the seeds of a graph's nodes (node, graph seed, op seed), and the ops that were `made` since the last
    time in the same `scope`: a user's graph, a function, eager code."""
    if drawn or made:
        entry = {"kind": "seeds", "scope": scope, "graph": graph, "drawn": list(drawn), "made": list(made)}
        recording.writer.journal(entry)


def of_nodes(nodes: Sequence[Any]) -> list[tuple[int, int, int]]:
    """Seeds of those NodeDefs that have them, by their places."""
    return [
        (place, node.attr["seed"].i, node.attr["seed2"].i) for place, node in enumerate(nodes) if seeded(node.op)
    ]  # fmt: skip


def made_of(nodes: Sequence[Any], stack: Callable[[Any], int]) -> list[Made]:
    """Those NodeDefs that have seeds, in their order."""
    return [
        (node.name, node.op, stack(node), node.attr["seed"].i, node.attr["seed2"].i)
        for node in nodes
        if seeded(node.op)
    ]


def of_eager(op: str, attrs: Sequence[Any]) -> tuple[int, int] | None:
    """The seeds among the names and values of an eager op's attributes."""
    if not seeded(op):
        return None
    pairs = dict(zip(map(str, attrs[::2]), attrs[1::2], strict=True))
    return int(pairs.get("seed") or 0), int(pairs.get("seed2") or 0)  # None: the op was given none
