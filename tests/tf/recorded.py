"""Helpers for tests with TensorFlow: record a block in this process and look at the events."""

import contextlib
import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

import tfbisect
from tfbisect import trace
from tfbisect.model import NO_CALL, NodeFlag, SiteKind
from tfbisect.recorder import digest


class Event(NamedTuple):
    """An event, readable."""

    call: int
    graph: str
    node: str
    op: str
    kind: SiteKind
    slot: int
    path: tuple[int, ...]
    shape: tuple[int, ...] | None
    digest: int
    row: int


class View:
    """A trace as lists of events; values that Python handed in are left out."""

    def __init__(self, path: Path) -> None:
        self.trace = trace.load(path)
        self.events: list[Event] = []
        graph_of = {int(call["id"]): int(call["graph"]) for call in self.trace.calls}
        for row, event in enumerate(self.trace.events):
            site = self.trace.sites[int(event["site"])]
            graph = self.trace.graphs[int(site["graph"])]
            node = graph.nodes[int(site["node"])]
            call = int(event["call"])
            if NodeFlag.HOSTVALUE in node.flags:
                continue
            assert call == NO_CALL or graph_of.get(call) == int(site["graph"])
            self.events.append(Event(
                call if call != NO_CALL else -1, graph.name, node.name, node.op, SiteKind(int(site["kind"])),
                int(site["slot"]), self.trace.iteration(int(event["path"])), self.trace.shape(int(event["shape"])),
                int(event["digest"]), row,
            ))  # fmt: skip

    def of(self, op: str, kind: SiteKind = SiteKind.OUTPUT, graph: str | None = None) -> list[Event]:
        """Events of an op type, in the order of call and path."""
        found = [e for e in self.events if e.op == op and e.kind == kind and graph in (None, e.graph)]
        return sorted(found, key=lambda e: (e.call, e.path, e.node, e.slot))

    def paths(self, op: str, kind: SiteKind = SiteKind.OUTPUT) -> dict[str, set[tuple[int, ...]]]:
        """{node: its iteration paths} of an op type."""
        result: dict[str, set[tuple[int, ...]]] = defaultdict(set)
        for event in self.of(op, kind):
            assert event.path not in result[event.node], "an iteration came twice"
            result[event.node].add(event.path)
        return dict(result)


@contextlib.contextmanager
def recording(path: Path, **options: Any) -> Iterator[list[View]]:
    """Record the block; afterwards the list holds its View."""
    views: list[View] = []
    with tfbisect.record(path, **options):
        yield views
    views.append(View(path))


def graph_digest(array: Any) -> int:
    """What a twin's tap says of a value: TensorFlow's own Fingerprint of its bytes."""
    array = np.asarray(array)
    data = array.tobytes() if array.dtype != object else None
    assert data is not None
    flat = np.frombuffer(data, np.uint8).reshape(1, -1)
    raw = tf.raw_ops.Fingerprint(data=flat, method="farmhash64").numpy()
    return int(raw.copy().view(np.uint64)[0, 0])


def host_digest(array: Any) -> int:
    """What the recorder's host side says of a value."""
    return digest.of_array(np.asarray(array))


def bits(result: Any) -> list[bytes]:
    """The exact bytes of everything in a structure."""
    return [np.asarray(part).tobytes() for part in tf.nest.flatten(result)]
