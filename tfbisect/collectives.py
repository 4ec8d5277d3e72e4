"""Collective ops of a run: which of their executions belong to one reduction, broadcast or gathering.

Looks at one run only, that of one worker; what the members put in is compared elsewhere (`job`).
"""

import re
from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

from tfbisect import definition
from tfbisect.flow import Flow
from tfbisect.model import Edge, SiteKind
from tfbisect.provenance import Kind, Ref, Run

# Ops whose output is made of what several devices or processes put in. Those that only set up a group are none, and
# those that TensorFlow replaces by others before they run.
_OPS = re.compile(r"^_?(Collective(?!AssignGroup|InitializeCommunicator)|Nccl(?!Reduce$|Broadcast$)|Horovod)")
_RECEIVES = re.compile(r"BcastRecv|BroadcastRecv")
_KEYS = ("group_size", "group_key", "instance_key")

Key = tuple[object, ...]


class Instance(NamedTuple):
    """One reduction, broadcast or gathering: its keys, how many calls used them before, and the loop iteration."""

    key: Key
    earlier: int
    iteration: tuple[int, ...]


class Member(NamedTuple):
    """One execution of a collective op. data: what it puts in; None for one that only receives."""

    call: int
    node: int
    path: int
    device: str
    data: Ref | None
    size: Ref | int  # members of the group; 0 if not known


@lru_cache(maxsize=1024)  # asked for each difference
def is_collective(op_type: str) -> bool:
    """Whether ops of a type take what others put in."""
    return _OPS.search(op_type) is not None


class Collectives:
    """The collective ops that a run executed."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._sizes: dict[tuple[str, int], int] = {}
        self._known_attrs: dict[tuple[int, int], dict[str, object]] = {}

    def instance(self, call: int, node: int, path: int) -> Instance | None:
        """What an execution takes part in; None if its keys were not recorded."""
        return self._index[0].get((call, node, self._run.path(path)))

    def members(self, instance: Instance | None) -> Sequence[Member]:
        """Those of this run, by device."""
        return self._index[1].get(instance, ()) if instance is not None else ()

    @cached_property
    def order(self) -> list[tuple[tuple[int, tuple[int, ...]], Instance]]:
        """(place, instance) of all executions as they ran; a place is a call and a moment in it."""
        run = self._run
        places = (
            ((call, run.flow(call).moment(node, path)), each) for (call, node, path), each in self._index[0].items()
        )
        return sorted(places, key=lambda item: item[0])

    def group_size(self, member: Member) -> int:
        """How many members there are; 0 if that was not kept."""
        if isinstance(member.size, int):
            return member.size
        end = self._run.terminal(member.size)
        if end.kind != Kind.EVENT:
            return 0
        key = self._run.scheme(end.row), self._run.event_digest[end.row]
        if key not in self._sizes:
            value = self._run.trace.value(end.row)
            known = value is not None and value.size == 1 and value.dtype.kind in "iu"
            self._sizes[key] = int(value.reshape(-1)[0]) if value is not None and known else 0
        return self._sizes[key]

    # -- the index ---------------------------------------------------------------------------------------------------

    @cached_property
    def _index(self) -> tuple[dict[tuple[int, int, tuple[int, ...]], Instance], dict[Instance, list[Member]]]:
        run = self._run
        nodes = {
            graph: [n for n, node in enumerate(run.trace.graphs[graph].nodes) if is_collective(node.op)]
            for graph in run.trace.graphs_with(is_collective)
        }
        known: dict[tuple[int, int, tuple[int, ...]], Instance] = {}
        members: dict[Instance, list[Member]] = {}
        earlier: dict[tuple[Key, str], tuple[int, int]] = {}  # the last call that used a key, and how many before it
        calls = np.flatnonzero(np.isin(run.trace.calls["graph"], list(nodes))).tolist()
        for call in calls:
            flow = run.flow(call)
            for number in nodes[run.graph_of[call]]:
                for path in self._paths(call, flow, number):
                    key = self._key(call, flow, number, path)
                    if key is None:
                        continue
                    device = flow.nodes[number].device
                    last, count = earlier.get((key, device), (call, 0))
                    count += last != call
                    earlier[key, device] = call, count
                    instance = Instance(key, count, run.path(path))
                    known[call, number, run.path(path)] = instance
                    members.setdefault(instance, []).append(self._member(call, flow, number, path, device))
        for each in members.values():
            each.sort(key=lambda member: (member.device, member.node))
        return known, members

    def _paths(self, call: int, flow: Flow, number: int) -> list[int]:
        """The iterations in which a node ran; outside loops one, whether it ran or not."""
        if not flow.nodes[number].frame:
            return [0]
        sites = {site for (node, _slot, kind), site in flow.sites.items() if node == number and kind == SiteKind.OUTPUT}
        span = self._run.trace.events_of(int(self._run.trace.calls["id"][call]))
        rows = (row for row in range(span.start, span.stop) if self._run.event_site[row] in sites)
        return sorted({self._run.event_path[row] for row in rows}, key=self._run.path)

    def _key(self, call: int, flow: Flow, number: int, path: int) -> Key | None:
        """What the members of one instance have in common: group and instance keys, as attributes or as digests."""
        node, attrs = flow.nodes[number], self._attrs(flow, number)
        if "instance_key" in attrs:
            return "attributes", attrs.get("group_key"), attrs["instance_key"]
        if "shared_name" in attrs:  # NCCL ops of one process
            return "name", attrs["shared_name"]
        if node.op.startswith("Horovod"):  # it negotiates by the names of ops
            return "op", node.op, node.name
        found: list[object] = ["digests"]
        for edge in self._key_edges(flow, number)[:3]:
            end = self._run.terminal(self._run.input_ref(call, flow, number, edge, path))
            if end.kind != Kind.EVENT:
                return None
            found += [self._run.scheme(end.row), self._run.event_digest[end.row]]
        return tuple(found) if len(found) == 1 + 2 * len(_KEYS) else None

    def _attrs(self, flow: Flow, number: int) -> dict[str, object]:
        place = flow.graph.id, number
        if place not in self._known_attrs:
            self._known_attrs[place] = definition.parse(self._run.trace.definition(*place)).attrs
        return self._known_attrs[place]

    @staticmethod
    def _key_edges(flow: Flow, number: int) -> tuple[Edge, ...]:
        """The inputs with group size, group key and instance key, in this order, and what follows them."""
        edges = flow.data_inputs(number)
        return edges if _RECEIVES.search(flow.nodes[number].op) else edges[1:]

    def _member(self, call: int, flow: Flow, number: int, path: int, device: str) -> Member:
        run, edges = self._run, flow.data_inputs(number)
        receives = _RECEIVES.search(flow.nodes[number].op)
        data = None if receives or not edges else run.input_ref(call, flow, number, edges[0], path)
        attrs = self._attrs(flow, number)
        told = attrs.get("group_size", attrs.get("num_devices"))
        size: Ref | int = told if isinstance(told, int) else 0
        keys = self._key_edges(flow, number)
        if not size and keys and "shared_name" not in attrs and not flow.nodes[number].op.startswith("Horovod"):
            size = run.input_ref(call, flow, number, keys[0], path)
        return Member(call, number, path, device, data, size)
