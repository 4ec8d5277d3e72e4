"""How the calls of a session's signature run, and the rows that describe them in the trace before any call does.

Runs nothing: `session` does.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tensorflow.core.protobuf import config_pb2
from tensorflow.python.client import pywrap_tf_session as c_api
from tensorflow.python.framework import tensor_util

from tfbisect.model import NO_CALL, GraphKind, Node, NodeFlag, SiteKind
from tfbisect.recorder import definitions, digest, draws, session_dumps, session_graph
from tfbisect.recorder.recording import Recording
from tfbisect.recorder.session_dumps import Dump
from tfbisect.recorder.session_graph import Layout, UserGraph
from tfbisect.recorder.session_memory import Inbox
from tfbisect.recorder.session_writes import Write
from tfbisect.recorder.twin import note_kernels


class Signature(NamedTuple):
    """What makes two calls of a session run the same executors."""

    feeds: tuple[str, ...]
    fetches: tuple[str, ...]
    targets: tuple[str, ...]
    options: bytes

    def callable_options(self) -> Any:
        options = config_pb2.CallableOptions(feed=self.feeds, fetch=self.fetches, target=self.targets)
        options.run_options.ParseFromString(self.options)
        return options

    @property
    def name(self) -> str:
        """How a report names the call: by what it fetches and runs."""
        names = [*(fetch.removesuffix(":0") for fetch in self.fetches), *self.targets]
        more = f", {len(names) - 3} more" if len(names) > 3 else ""
        return f"Session.run({', '.join(names[:3])}{more})"


@dataclass(slots=True)
class Lane:
    """A callable for one call at a time: where its dumps go is fixed when it is made."""

    handle: Any
    folder: Path
    inbox: Inbox | None  # where what does not go into the folder goes

    def take(self) -> list[Dump]:
        """What the call dumped, each output's dumps in their order."""
        return [*session_dumps.take(self.folder), *(self.inbox.collect() if self.inbox is not None else ())]


@dataclass(slots=True)
class Plan:
    """How calls of a signature run and what is recorded of them."""

    signature: Signature
    name: str
    reason: str = ""  # why it is not recorded
    layout: Layout | None = None
    graph: int = -1
    arguments: list[int] = field(default_factory=list)  # ARG site of each feed, -1 where it has none
    hosts: list[tuple[int, int]] = field(default_factory=list)  # for each feed, graph and site of its value
    sites: dict[tuple[str, int], int] = field(default_factory=dict)
    wanted: frozenset[tuple[str, int]] = frozenset()  # outputs whose values may be kept
    writes: list[tuple[int, Write]] = field(default_factory=list)  # with their sites
    reader: Any = None  # callable that reads the variables in `read`
    read: tuple[str, ...] = ()
    lanes: list[Lane] = field(default_factory=list)  # those not in use
    nbytes: int = 0  # what the last call dumped into files


def signature_of(
    options: Any, feed_dict: Mapping[Any, Any], fetch_list: Sequence[Any], target_list: Sequence[Any]
) -> Signature:  # fmt: skip
    ends = (feed_dict, fetch_list)
    feeds, fetches = (tuple(f"{c_api.TF_OperationName(end.oper)}:{end.index}" for end in part) for part in ends)
    targets = tuple(c_api.TF_OperationName(target) for target in target_list)
    return Signature(feeds, fetches, targets, c_api.TF_GetBuffer(options) if options else b"")


def register(recording: Recording, plan: Plan, user: UserGraph) -> None:
    """Write the graph, its sites and its constants into the trace."""
    writer, layout = recording.writer, plan.layout
    assert layout is not None
    nodes = [*layout.nodes]
    arguments = {node.index: local for local, node in enumerate(nodes) if node.op == "_Arg"}
    for index, feed in enumerate(plan.signature.feeds):  # those that the optimizer found unused
        if index not in arguments:
            arguments[index] = len(nodes)
            nodes.append(Node(name=feed.removesuffix(":0"), op="_Arg", index=index))
    structure = digest.of_text(plan.name, [(n.name, n.op, n.attrs, n.inputs, n.index) for n in nodes])
    signature = plan.signature
    raw = f"{list(signature.feeds)} -> {list(signature.fetches)}, {list(signature.targets)}"
    plan.graph = writer.graph(plan.name, raw, GraphKind.SESSION, structure, nodes)
    note_kernels(writer, plan.graph, layout.protos)
    for index, feed in enumerate(signature.feeds):
        dtype = layout.protos[arguments[index]].attr["T"].type if arguments[index] < len(layout.protos) else 0
        if dtype in (digest.DT_RESOURCE, digest.DT_VARIANT):
            plan.arguments.append(-1)
            plan.hosts.append((-1, -1))
            continue
        plan.arguments.append(writer.sites(plan.graph, [(arguments[index], 0, SiteKind.ARG, dtype)]))
        plan.hosts.append(_host_graph(recording, user, feed, dtype))
    for key, (local, dtype) in layout.watched.items():
        plan.sites[key] = writer.sites(plan.graph, [(local, key[1], SiteKind.OUTPUT, dtype)])
    _register_writes(recording, plan)
    for local, node in enumerate(layout.protos):
        made = definitions.of_node(node)
        if made is not None:
            writer.definition(plan.graph, local, made)
        if node.op in ("Const", "HostConst"):
            _constant(recording, plan, local, node)
    for local, why in layout.unseen:
        recording.unseen(nodes[local].name, nodes[local].op, why, nodes[local].stack)
    draws.note(recording, f"session {user.number}", plan.graph, draws.of_nodes(layout.protos), user.draws())
    for condition in layout.loops.conditions:
        if _parallel(user, layout, condition):
            recording.unseen(layout.loops.conditions[condition][-1], "Enter", session_graph.LOOP)


def _register_writes(recording: Recording, plan: Plan) -> None:
    layout = plan.layout
    assert layout is not None
    for write in layout.writes:
        node = layout.nodes[write.node]
        reason = ""
        if write.proof is not None:
            pass
        elif write.variable not in plan.read:
            reason = f"the graph has no op that reads {write.variable}"
        elif not write.last:
            reason = f"{write.variable} is written again in the same call"
        elif write.witnesses == ():
            reason = f"whether it wrote {write.variable} cannot be told"
        if reason:
            recording.unseen(node.name, node.op, reason, node.stack)
            continue
        row = write.node, write.position, SiteKind.WRITE, write.dtype
        plan.writes.append((recording.writer.sites(plan.graph, [row]), write))


def _host_graph(recording: Recording, user: UserGraph, feed: str, dtype: int) -> tuple[int, int]:
    """The graph and site of values that Python feeds: named after what they are fed to."""
    name = feed.removesuffix(":0")
    op = user.op(feed.partition(":")[0])
    stack = user.stack(op) if op is not None else 0
    op_type = op.type if op is not None else "Placeholder"
    node = Node(name=name, op=op_type, stack=stack, flags=NodeFlag.HOSTVALUE, attrs=digest.of_text(dtype))
    structure = digest.of_text("feed", name, dtype)
    graph = recording.writer.graph(name, name, GraphKind.EAGER, structure, [node])
    return graph, recording.writer.sites(graph, [(0, 0, SiteKind.OUTPUT, dtype)])


def _constant(recording: Recording, plan: Plan, local: int, node: Any) -> None:
    dtype = node.attr["dtype"].type
    site = recording.writer.sites(plan.graph, [(local, 0, SiteKind.CONST, dtype)])
    try:
        array = np.asarray(tensor_util.MakeNdarray(node.attr["value"].tensor))
    except Exception:  # a variant or another type that NumPy has none for
        recording.unseen(node.name, node.op, f"dtype {dtype}")
        return
    recording.array_event(NO_CALL, site, array, f"{plan.name}/{node.name}")


def _parallel(user: UserGraph, layout: Layout, condition: str) -> bool:
    """Whether a loop runs several iterations at once in the plain run."""
    frame = layout.loops.conditions[condition]
    for node in layout.protos:
        if node.op in ("Enter", "RefEnter") and layout.loops.frames[node.name] == frame:
            op = user.find(node.name)
            if op is not None and any(name == "parallel_iterations" for name in op.node_def.attr):
                return int(op.get_attr("parallel_iterations")) > 1
    return True
