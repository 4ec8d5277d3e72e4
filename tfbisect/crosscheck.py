"""A second opinion that needs no alignment: ops that gave several outputs for equal inputs, by digests alone.

An op that is a function of its inputs gives equal outputs for equal inputs, in whatever run, call and iteration. Knows
nothing of which event of one run is which of the other; it names no culprit, it can only contradict one.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tfbisect.bisector import Findings, Suspect
from tfbisect.collectives import is_collective
from tfbisect.flow import CALLS, OVERWRITES
from tfbisect.judgements import Judgement, What
from tfbisect.model import GraphKind, NodeFlag, SiteKind
from tfbisect.provenance import Kind, Ref, Run
from tfbisect.upstream import leaves

LIMIT = 200_000  # events of a run that are grouped
_NO_FUNCTION = NodeFlag.RANDOM | NodeFlag.HOST | NodeFlag.OPAQUE | NodeFlag.HOSTVALUE

Op = tuple[Any, ...]
Digest = tuple[str, int, Any, int]


class Group(NamedTuple):
    """An op that gave several outputs for the same inputs: the runs of each output, and how many events there are."""

    op: Op
    outputs: tuple[tuple[int, ...], ...]
    events: int


def op_of(run: Run, row: int) -> Op:
    """Which op of the program an event belongs to: function and node, or type and line of an eager op."""
    flow, node, slot, kind = run.node_of(row)
    itself = flow.nodes[node]
    line = None
    if flow.graph.kind == GraphKind.EAGER:
        source = run.source(row)
        line = (source.base, source.line) if source is not None else None
    return flow.graph.name, itself.name, itself.op, itself.attrs, slot, int(kind), line


def inputs_of(run: Run, row: int) -> tuple[Digest, ...] | None:
    """The digests of all that went into an event, in order; None if the op is no function of what was recorded."""
    flow, number, _slot, kind = run.node_of(row)
    node = flow.nodes[number]
    writes = kind == SiteKind.WRITE
    if kind in (SiteKind.ARG, SiteKind.CONST) or node.flags & _NO_FUNCTION or node.op in CALLS:
        return None
    if node.flags & NodeFlag.STATEFUL and not (writes or flow.pure_read(number)):
        return None
    if is_collective(node.op):
        return None
    call, path = run.event_call[row], run.event_path[row]
    found: list[Digest] = []
    for edge in flow.data_inputs(number):
        terminal = run.terminal(run.input_ref(call, flow, number, edge, path))
        rows: list[int] | None
        if terminal.kind == Kind.HANDLE:
            if writes and node.op in OVERWRITES:
                continue
            write = run.state(Ref(call, number, 0, path), run.handle(terminal))
            if write is None or write.row < 0 or run.partial(write):
                return None
            rows = [write.row]
        else:
            passed: list[Ref] = []
            rows = leaves(run, terminal, passed)
            between = (run.flow(ref.call).nodes[ref.node] for ref in passed)
            found += [("not recorded", 0, each.op, each.attrs) for each in between]
        if rows is None:
            return None
        found += [_digest(run, each) for each in rows]
    return tuple(found) or None


def _digest(run: Run, row: int) -> Digest:
    return run.scheme(row), run.dtype(row), run.trace.shape(run.event_shape[row]), run.event_digest[row]


# ---------------------------------------------------------------------------------------------------------------------
# Two runs
# ---------------------------------------------------------------------------------------------------------------------


def settle(findings: Findings) -> tuple[Findings, tuple[str, ...]]:
    """The findings without the culprits whose inputs have other digests, which become undecided; their names.

    Alignment says which values are each other's inputs; digests say whether these are equal. Where the two opinions do
    not agree nobody is blamed.
    """
    contradicted = [suspect for suspect in findings.suspects if _contradicted(findings, suspect)]
    if not contradicted:
        return findings, ()
    reason = "its inputs have other digests in the two runs"
    judged = findings.judgements.replaced(
        {suspect.number: Judgement(What.UNDECIDED, reason=reason) for suspect in contradicted}
    )
    rest = [suspect for suspect in findings.suspects if suspect not in contradicted]
    undecided = sorted({*findings.undecided, *(suspect.number for suspect in contradicted)})
    run = findings.equality.a
    names = tuple(sorted({run.node(suspect.row).name for suspect in contradicted}))
    return replace(findings, suspects=rest, judgements=judged, undecided=undecided), names


def _contradicted(findings: Findings, suspect: Suspect) -> bool:
    if suspect.number < 0 or suspect.finding is not None:
        return False
    row, other = findings.equality.pairs[suspect.number]
    one, two = inputs_of(findings.equality.a, row), inputs_of(findings.equality.b, other)
    if one is None or two is None or len(one) != len(two):
        return False
    return any(x != y for x, y in zip(one, two, strict=True) if x[0] == y[0] and x[2] is not None and y[2] is not None)


# ---------------------------------------------------------------------------------------------------------------------
# Any number of runs
# ---------------------------------------------------------------------------------------------------------------------


@dataclass
class Grouping:
    """Events by (op, digests of the inputs), over all iterations, calls and runs that are added."""

    checked: int = 0
    not_checkable: int = 0
    left_out: int = 0
    _groups: dict[tuple[Op, tuple[Digest, ...]], dict[Digest, set[int]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(set))
    )
    _events: dict[tuple[Op, tuple[Digest, ...]], int] = field(default_factory=lambda: defaultdict(int))

    def add(self, number: int, run: Run, ops: Iterable[Op]) -> None:
        """Group the events of some ops in the run that is the `number`-th."""
        rows = rows_of(run, ops)
        self.left_out += max(0, len(rows) - LIMIT)
        for row in rows[:LIMIT]:
            inputs = inputs_of(run, row)
            if inputs is None:
                self.not_checkable += 1
                continue
            self.checked += 1
            key = op_of(run, row), inputs
            self._groups[key][_digest(run, row)].add(number)
            self._events[key] += 1

    def several(self) -> list[Group]:
        """The ops that gave several outputs for equal inputs, one group for each op: the one with most outputs."""
        found: dict[Op, Group] = {}
        for (op, inputs), outputs in self._groups.items():
            if len(outputs) < 2:
                continue
            runs = tuple(sorted(tuple(sorted(numbers)) for numbers in outputs.values()))
            if op not in found or len(found[op].outputs) < len(runs):
                found[op] = Group(op, runs, self._events[op, inputs])
        return list(found.values())


def rows_of(run: Run, ops: Iterable[Op]) -> list[int]:
    """The events of some ops, in order. Lines of eager ops are not looked at: `op_of` tells them apart."""
    wanted = {op[:2] + op[4:6] for op in ops}
    graphs = run.trace.graphs
    chosen = np.zeros(len(run.site_rows), np.bool_)
    for site, (graph, node, slot, kind, _dtype) in enumerate(run.site_rows):
        chosen[site] = (graphs[graph].name, graphs[graph].nodes[node].name, slot, int(kind)) in wanted
    rows: list[int] = np.flatnonzero(chosen[run.trace.events["site"]]).tolist()
    return rows


def differing_ops(run: Run, rows: npt.NDArray[np.integer]) -> set[Op]:
    """The ops that some events belong to."""
    sites = run.trace.events["site"][rows].astype(np.int64)
    eager = (run.trace.kinds == GraphKind.EAGER)[run.trace.sites["graph"][sites]]
    # One event for each op: those of an eager op are at several lines.
    stacks = np.append(run.trace.calls["stack"].astype(np.int64), 0)[np.asarray(run.event_call)[rows]] * eager
    _, first = np.unique(sites << 32 | stacks, return_index=True)
    return {op_of(run, row) for row in rows[first].tolist()}
