"""Small traces written op by op, for what the mini-language has no words for; on the real writer.

with Recorder(path) as r:
    w = r.host("MatMul", 1, line=3)           # a value that Python hands in; digest 1
    y = r.op("MatMul", [x, w], 7, line=3)     # an eager op; digest of its output 7
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tfbisect.model import Edge, GraphKind, Node, NodeFlag, SiteKind
from tfbisect.trace import TraceWriter

FILE = "program.py"
FLOAT, INT32, STRING, INT64, BOOL, VARIANT = 1, 3, 7, 9, 10, 21
Made = tuple[int, int]  # call, result


class Recorder:
    """Writes a trace as the recorder does: host values are calls of their own, handles have links and no events."""

    def __init__(self, path: Any, **info: Any) -> None:
        self.writer = TraceWriter(path, force=True)
        digest = {"graph": "farmhash64/1", "host": "xxh3_64/1"}
        self.writer.journal({"kind": "info", "run": {"argv": [FILE], "digest": digest, **info}})
        self._calls = 0
        self._graphs: dict[Any, tuple[int, int]] = {}

    def __enter__(self) -> "Recorder":
        return self

    def __exit__(self, *_: object) -> None:
        self.writer.journal({"kind": "end", "status": "complete", "exit": 0, "reason": None})
        self.writer.close()

    def stack(self, line: int, text: str = "") -> int:
        return self.writer.stack([(FILE, line, "<module>", text or f"line {line}")])

    def new_call(self) -> int:
        self._calls += 1
        return self._calls - 1

    def call(self, call: int, graph: int, line: int, thread: int = 0, parent: int = -1, state: int = 0) -> None:
        self.writer.call(call, graph, thread, state, parent, -1, self.stack(line))

    def host(
        self, taker: str, digest: int, line: int, dtype: int = FLOAT, shape: Sequence[int] = (), **where: int
    ) -> Made:
        """A value of Python's, first taken by an op of type `taker`."""
        key = "host", taker, line, dtype
        if key not in self._graphs:
            node = Node(taker, taker, stack=self.stack(line), attrs=dtype, flags=NodeFlag.HOSTVALUE)
            graph = self.writer.graph(taker, taker, GraphKind.EAGER, hash(key) & 0xFFFF, [node])
            self._graphs[key] = graph, self.writer.sites(graph, [(0, 0, SiteKind.OUTPUT, dtype)])
        graph, site = self._graphs[key]
        call = self.new_call()
        self.writer.event(call, site, 0, self.writer.shape(shape), digest)
        self.call(call, graph, line, **where)
        return call, 0

    def op(
        self, op: str, inputs: Sequence[Made], *digests: int, line: int, dtype: int = FLOAT, flags: int = 0,
        writes: int = -1, written: int = 0, shape: Sequence[int] = (2,), handle: bool = False, attrs: int = 0,
        **where: int,
    ) -> Made:  # fmt: skip
        """An eager op with an output for each digest; `writes`: the input whose variable it leaves as `written`."""
        key = op, line, len(inputs), len(digests), dtype, attrs
        count = len(inputs)
        if key not in self._graphs:
            nodes = [Node(f"arg{i}", "_Arg", index=i) for i in range(count)]
            kind = NodeFlag(flags) | (NodeFlag.WRITER if writes >= 0 else NodeFlag.NONE)
            edges = tuple(Edge(i, 0) for i in range(count))
            nodes.append(Node(op, op, "/device:CPU:0", stack=self.stack(line), attrs=attrs, flags=kind, inputs=edges))
            outputs = max(len(digests), int(handle))
            nodes += [Node(f"result{i}", "_Retval", index=i, inputs=(Edge(count, i),)) for i in range(outputs)]
            graph = self.writer.graph(op, op, GraphKind.EAGER, hash(key) & 0xFFFF, nodes)
            rows = [(count, i, SiteKind.OUTPUT, dtype) for i in range(len(digests))]
            rows += [(count, writes, SiteKind.WRITE, FLOAT)] if writes >= 0 else []
            self._graphs[key] = graph, self.writer.sites(graph, rows) if rows else 0
        graph, site = self._graphs[key]
        call = self.new_call()
        for i, made in enumerate(inputs):
            self.writer.link(call, i, *made)
        for i, digest in enumerate(digests):
            self.writer.event(call, site + i, 0, self.writer.shape(shape), digest)
        if writes >= 0:
            self.writer.event(call, site + len(digests), 0, self.writer.shape(shape), written)
        self.call(call, graph, line, **where)
        return call, 0

    def variable(self, line: int, digest: int | None = None) -> Made:
        """A variable; with a digest it is assigned a host value of these bits."""
        handle = self.op("VarHandleOp", [], line=line, handle=True, flags=NodeFlag.STATEFUL)
        if digest is not None:
            value = self.host("AssignVariableOp", digest, line)
            self.op("AssignVariableOp", [handle, value], line=line, writes=0, written=digest, flags=NodeFlag.STATEFUL)
        return handle

    def function(
        self, name: str, nodes: Sequence[Node], sites: Sequence[tuple[int, int, int, int]], **options: Any
    ) -> tuple[int, int]:
        """A graph; -> (its id, its first site)."""
        structure = hash((name, *((n.name, n.op, n.attrs, n.inputs) for n in nodes))) & 0xFFFFFF
        kind = options.get("kind", GraphKind.TWIN)
        graph = self.writer.graph(name, f"__inference_{name}_1", kind, structure, nodes)
        return graph, self.writer.sites(graph, sites) if sites else 0


def wide(path: Path, differs: bool = False) -> None:
    """A trace of 100,000 events: a hundred calls of a thousand ops in a row, which differ from `n4` on."""
    width, calls = 1000, 100
    nodes = [Node("x", "_Arg", index=0)]
    nodes += [Node(f"n{k}", "MatMul", inputs=(Edge(k, 0), Edge(max(k - 7, 0), 0))) for k in range(width)]
    with Recorder(path) as r:
        graph, site = r.function("f", nodes, [(0, 0, 1, 1), *((k, 0, 0, 1) for k in range(1, width + 1))])
        for step in range(calls):
            x, call = r.host("MatMul", step, 1), r.new_call()
            r.writer.link(call, 0, *x)
            digests = np.arange(width + 1, dtype=np.uint64) * np.uint64(1000) + np.uint64(step)
            digests[5:] += np.uint64(2**40 * differs)
            r.writer.events(call, np.arange(site, site + width + 1), 0, 1, digests)
            r.call(call, graph, 1)
