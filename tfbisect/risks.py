"""Which ops of one recorded run are known to vary on their device and with the run's settings.

Needs no second run and proves nothing: the knowledge base says what can vary, a comparison says what did.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from tfbisect import definition, knowledge
from tfbisect.categories import flattened
from tfbisect.knowledge import Entry, Evidence
from tfbisect.model import Graph, GraphKind, NodeFlag, SiteKind, Source
from tfbisect.tables import Trace

_NO_OPS = frozenset({"_Arg", "_Retval", "Const"})


@dataclass(frozen=True, slots=True)
class RiskyOp:
    """An op at a line. runs: how often its graph ran (loops and branches inside it are not counted)."""

    op_type: str
    name: str
    source: Source | None
    runs: int


@dataclass(frozen=True, slots=True)
class Risk:
    """A reason why ops of this run can vary, the ops it is about, and what cures it."""

    id: str
    title: str
    why: str
    condition: str
    cure: str
    source: str
    ops: tuple[RiskyOp, ...]


@dataclass(slots=True)
class _Found:
    entry: Entry
    evidence: Evidence
    ops: dict[tuple[str, str, Source | None], int] = field(default_factory=dict)


def risks(trace: Trace) -> tuple[Risk, ...]:
    """The reasons, those that reach most ops first. The `condition` of each is on the data and was not checked."""
    info = flattened(trace.info)
    runs = np.bincount(trace.calls["graph"], minlength=len(trace.graphs)).tolist()
    stacks = {int(call["graph"]): int(call["stack"]) for call in trace.calls[::-1]}
    found: dict[str, _Found] = {}
    for number, count in enumerate(runs):
        if not count:
            continue
        graph = trace.graphs[number]
        for index, evidence in _ops(trace, graph, info):
            node = graph.nodes[index]
            source = trace.source(node.stack) or trace.source(stacks.get(number, 0))
            name = node.name if graph.kind == GraphKind.EAGER else f"{node.function or graph.name}/{node.name}"
            for entry in knowledge.risks(evidence):
                ops = found.setdefault(entry.id, _Found(entry, evidence)).ops
                key = node.op, name, source
                ops[key] = ops.get(key, 0) + count
    return tuple(_risk(each) for each in sorted(found.values(), key=lambda each: (-len(each.ops), each.entry.id)))


def _ops(trace: Trace, graph: Graph, info: dict[str, object]) -> Iterator[tuple[int, Evidence]]:
    """The ops of a graph, and what is known of each."""
    if graph.kind == GraphKind.ENTRY:
        return
    dtypes: dict[int, str] = {}
    for site in trace.sites_of(graph.id).tolist():
        row = trace.sites[site]
        if row["kind"] in (SiteKind.OUTPUT, SiteKind.WRITE):
            dtypes.setdefault(int(row["node"]), trace.dtype(site))
    for index, node in enumerate(graph.nodes):
        if node.op in _NO_OPS or node.flags & (NodeFlag.HOSTVALUE | NodeFlag.FORWARDER):
            continue
        made = definition.parse(trace.definition(graph.id, index))
        yield (
            index,
            Evidence(
                op_type=node.op,
                device=node.device or made.device,
                dtype=dtypes.get(index, ""),
                flags=int(node.flags),
                attrs=made.attrs,
                in_loop=bool(node.frame),
                info=info,
            ),
        )


def _risk(found: _Found) -> Risk:
    entry = found.entry
    cures = knowledge.cures_for(entry, found.evidence)
    return Risk(
        id=entry.id,
        title=entry.title,
        why=entry.mechanism,
        condition=entry.condition,
        cure=cures[0].line if cures else entry.workaround,
        source=entry.sources[0],
        ops=tuple(RiskyOp(*key, runs) for key, runs in found.ops.items()),
    )
