"""Cheap recordings (`--ops suspects`) as a comparison needs them: which they are, what they leave out, common ground.

Which ops are left out is `passed`'s to say.
"""

from collections import Counter

import numpy as np

from tfbisect.choices import SUSPECTS
from tfbisect.model import Graph, GraphKind, Json, Node, NodeFlag, SiteKind
from tfbisect.passed import MAIN_THREAD, is_passed, passed_by
from tfbisect.tables import Array, Trace

NAMED = 5  # op types that a warning names


def is_cheap(trace: Trace) -> bool:
    """Whether a run was recorded with `--ops suspects`."""
    return trace.options.get("ops") == SUSPECTS


def without_passed(trace: Trace) -> Trace:
    """A trace in which everything was recorded, as far as a cheap recording of the same run would hold it."""
    nodes = trace.table("nodes").copy()
    starts = np.searchsorted(nodes["graph"], np.arange(len(trace.graphs)))
    dropped = np.zeros(len(trace.sites), np.bool_)
    for number in np.unique(trace.calls["graph"]).tolist():
        graph = trace.graphs[number]
        sites = trace.sites_of(number)
        rows = trace.sites[sites]
        outputs = rows["kind"] == SiteKind.OUTPUT
        passed = _passed_in(trace, graph, rows[outputs])
        nodes["flags"][starts[number] + np.asarray(sorted(passed), np.int64)] |= np.uint16(NodeFlag.PASSED)
        dropped[sites] = outputs & np.isin(rows["node"], sorted(passed))
    events = trace.events[~dropped[trace.events["site"]]]
    return trace.replaced(trace.path, nodes=nodes, events=events)


def _passed_in(trace: Trace, graph: Graph, outputs: Array) -> frozenset[int]:
    dtypes: dict[int, set[int]] = {}
    for node, dtype in zip(outputs["node"].tolist(), outputs["dtype"].tolist(), strict=True):
        dtypes.setdefault(node, set()).add(dtype)
    found = {
        number
        for number, types in dtypes.items()
        if is_passed(graph.nodes[number].op, _data_inputs(graph.nodes[number]), types)
        and not graph.nodes[number].flags & (NodeFlag.HOSTVALUE | NodeFlag.OPAQUE)
    }
    if graph.kind == GraphKind.TWIN:
        return passed_by(graph.nodes, found)
    calls = trace.calls[trace.calls["graph"] == graph.id]
    main = bool(np.all((calls["thread"] == MAIN_THREAD) & (calls["parent"] < 0)))
    return frozenset(found) if graph.kind == GraphKind.EAGER and main else frozenset()


def _data_inputs(node: Node) -> int:
    return sum(edge.slot >= 0 for edge in node.inputs)


def common(a: Trace, b: Trace) -> tuple[Trace, Trace]:
    """Two traces as far as both hold the same ops: of a cheap recording and a full one, the full one is cut down."""
    if is_cheap(a) == is_cheap(b):
        return a, b
    return (a, without_passed(b)) if is_cheap(a) else (without_passed(a), b)


def told(a: Trace, b: Trace) -> tuple[Json, list[str]]:
    """What a comparison says of cheap recordings among its runs: keys for the JSON, and warnings. a, b: as `common`."""
    letters = [letter for letter, each in (("A", a), ("B", b)) if is_cheap(each)]
    if not letters:
        return {}, []
    types = Counter(node.op for node in _ops_passed(a))
    full = _in_full(a)
    count = sum(types.values())
    which = "both runs" if len(letters) == 2 else f"run {letters[0]}"
    most = ", ".join(op for op, _ in types.most_common(NAMED)) + (", ..." if len(types) > NAMED else "")
    text = (
        f"cheap recording (--ops suspects) of {which}: {count:,} elementwise, exact ops were not recorded"
        + (f" ({most})" if most else "")
        + "; what is named stands for itself and the unrecorded ops above it, and whether a difference passes one is "
        "not seen"
    )
    warnings = [text, *([f"recorded in full all the same: {', '.join(full)}"] if full else [])]
    found = {"ops": SUSPECTS, "runs": letters, "passed": count, "op_types": sorted(types), "in_full": full}
    return {"recording": found}, warnings


def _in_full(trace: Trace) -> list[str]:
    """What a cheap recording does not make cheaper, of what a run holds."""
    kinds = {trace.graphs[number].kind for number in np.unique(trace.calls["graph"]).tolist()}
    found = []
    if GraphKind.SESSION in kinds:
        found.append("calls of Session.run")
    if GraphKind.SOURCE in kinds:
        found.append("functions inside tf.data")
    eager = np.isin(trace.calls["graph"], np.flatnonzero(trace.kinds == GraphKind.EAGER))
    if np.any(eager & ((trace.calls["thread"] != MAIN_THREAD) | (trace.calls["parent"] >= 0))):
        found.append("eager ops of other threads and callbacks")
    return found


def _ops_passed(trace: Trace) -> list[Node]:
    """The ops of the graphs that ran which were passed by."""
    graphs = np.unique(trace.calls["graph"]).tolist()
    return [node for number in graphs for node in trace.graphs[number].nodes if node.flags & NodeFlag.PASSED]
