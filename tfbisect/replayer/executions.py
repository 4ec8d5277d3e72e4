"""Which op a user means, and when it ran.

Finds ops and their executions in a recorded run; takes no values from it.
"""

import difflib
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tfbisect.errors import Usage
from tfbisect.model import GraphKind, NodeFlag, SiteKind
from tfbisect.provenance import Run
from tfbisect.replayer.values import eager_label
from tfbisect.steps import Steps

SHOWN = 8
_COMPUTED = (SiteKind.OUTPUT, SiteKind.WRITE)
_NO_OPS = frozenset({"_Arg", "_Retval", "Const"})


@dataclass(frozen=True, slots=True)
class Op:
    """An op of the program. `label` names it and nothing else in the trace; `places`: (graph, node) of its copies.

    `inner`: the same with the function that the op was written in, where that was inlined into another.
    """

    label: str
    inner: str
    name: str
    op_type: str
    places: tuple[tuple[int, int], ...]
    computes: bool  # something that it computed is recorded


class Execution(NamedTuple):
    """One run of an op: row of the call, node of its graph, loop iteration (a path id)."""

    call: int
    node: int
    path: int


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which executions are meant: `call` among those of the function, `step`, loop `iteration`; None: any."""

    call: int | None = None
    step: int | None = None
    iteration: tuple[int, ...] | None = None


def find(run: Run, text: str) -> Op:
    """The op that `text` names: `function/node`, a node's name, `OpType at file.py:line`, or an op type.

    A name wins over an op type. Raises Usage when none or several fit, and lists what fits.
    """
    ops = list(_ops(run))
    for fits in (_labelled, _named, _typed):
        fitting = [op for op in ops if fits(op, text)]
        found = {op.label: op for op in [op for op in fitting if op.computes] or fitting}
        if len(found) == 1:
            return next(iter(found.values()))
        if found:
            shown = ", ".join(list(found)[:SHOWN]) + (", ..." if len(found) > SHOWN else "")
            raise Usage(
                f"op {text}",
                found=f"{len(found)} that fit: {shown}",
                expected="the name of one",
                hint=f"python -m tfbisect replay {shlex.quote(run.trace.path)} {shlex.quote(next(iter(found)))}",
            )
    names = dict.fromkeys(name for op in ops for name in (op.label, op.name, op.op_type))
    near = difflib.get_close_matches(text, names, n=3)
    raise Usage(
        f"op {text}",
        found="none of that name or type in the trace" + (f"; near names: {', '.join(near)}" if near else ""),
        expected="function/node, OpType at file.py:line, or an op type",
        hint=f"python -m tfbisect info {shlex.quote(run.trace.path)} --ops {shlex.quote(re.escape(text))}",
    )


def _labelled(op: Op, text: str) -> bool:
    return text in (op.label, op.inner)


def _named(op: Op, text: str) -> bool:
    return text == op.name or op.label.endswith(f"/{text}")


def _typed(op: Op, text: str) -> bool:
    return text == op.op_type


def _ops(run: Run) -> Iterator[Op]:
    """All ops that computed something, copies of a function traced several times together."""
    computing = {(graph, node) for graph, node, _slot, kind, _dtype in run.site_rows if kind in _COMPUTED}
    found: dict[tuple[str, str, str, str], list[tuple[int, int]]] = {}
    for number in sorted(set(run.graph_of)):
        graph = run.trace.graphs[number]
        for index, node in enumerate(graph.nodes):
            if node.op in _NO_OPS or node.flags & NodeFlag.HOSTVALUE or graph.kind == GraphKind.ENTRY:
                continue
            if graph.kind == GraphKind.EAGER:
                label = eager_label(run, number, index)
                key = label, label, "", node.op
            else:
                label = f"{graph.name}/{node.name}"
                key = label, f"{node.function or graph.name}/{node.name}", node.name, node.op
            found.setdefault(key, []).append((number, index))
    for (label, inner, name, op_type), places in found.items():
        yield Op(label, inner, name, op_type, tuple(places), not computing.isdisjoint(places))


def executions(run: Run, op: Op, wanted: Wanted, steps: Steps) -> list[Execution]:
    """When the op ran, in order, as far as that is wanted. Raises Usage when it never did."""
    chosen: dict[Execution, None] = {}
    places = set(op.places)
    mine = [(row[0], row[1]) in places and row[3] in _COMPUTED for row in run.site_rows]
    sites = run.trace.events["site"]
    for row in np.flatnonzero(np.asarray(mine, np.bool_)[sites]).tolist() if len(mine) else []:
        call = run.event_call[row]
        if call >= 0:
            chosen[Execution(call, run.site_rows[run.event_site[row]][1], run.event_path[row])] = None
    ran = sorted(chosen, key=lambda each: (each.call, run.path(each.path)))
    fitting = [each for each in ran if _fits(run, each, wanted, steps)]
    if not fitting:
        times = f"it ran {len(ran)} times" if ran else "nothing that it computed was recorded"
        raise Usage(
            f"op {op.label}: {_text(wanted)}" if ran else f"op {op.label}",
            found=f"no such execution; {times}" if ran else times,
            expected="one execution at least",
            hint=f"python -m tfbisect info {shlex.quote(run.trace.path)} --ops {shlex.quote(re.escape(op.op_type))}",
        )
    return fitting


def _fits(run: Run, each: Execution, wanted: Wanted, steps: Steps) -> bool:
    return (
        (wanted.iteration is None or run.path(each.path) == wanted.iteration)
        and (wanted.call is None or steps.ordinal(each.call) == wanted.call)
        and (wanted.step is None or steps.step(each.call) == wanted.step)
    )


def _text(wanted: Wanted) -> str:
    parts = [("call", wanted.call), ("step", wanted.step), ("iteration", wanted.iteration)]
    return ", ".join(f"{name} {value}" for name, value in parts if value is not None)
