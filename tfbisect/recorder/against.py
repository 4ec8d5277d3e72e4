"""Compares a run with a finished trace of another one while it is recorded.

Tells only whether something differs, and what came first, so that values are kept where they are worth it and a program
can be ended: which op is to blame is for `compare` to say. Calls are paired by function or op, line and occurrence,
their events by node, slot and loop iteration.
"""

import itertools
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tfbisect.choices import ALL
from tfbisect.errors import Usage
from tfbisect.model import NO_CALL, GraphKind, Node, NodeFlag
from tfbisect.recorder.digest import DT_STRING
from tfbisect.recorder.policy import ValuePolicy
from tfbisect.tables import Trace
from tfbisect.trace import TraceWriter

Array = npt.NDArray[Any]
KEPT = 1000  # differing events whose values are kept
MAIN_THREAD = 0
# Made whenever Python collects garbage.
_UNORDERED = frozenset({"DestroyResourceOp", "DeleteIterator", "DeleteMultiDeviceIterator", "DeleteMemoryCache"})

Row = tuple[int, int, int, int, int]
"""An event: site, path, shape, digest, value."""


@dataclass(slots=True)
class _Graph:
    """A graph of this run."""

    name: str
    kind: int
    structure: int
    host: bool
    nodes: Sequence[Node]
    sites: list[int] = field(default_factory=list)


class Other:
    """The finished trace, for looking up. Raises what `trace.load` does."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.shapes = {trace.shape(i): i for i in trace.shapes}
        self.paths = {trace.iteration(i): i for i in trace.iterations}
        self.calls: dict[Any, list[int]] = {}
        self._contents: dict[Any, Counter[tuple[int, ...]]] = {}
        self._sites: dict[int, dict[tuple[int, int, int], int]] = {}
        calls = trace.calls
        columns = calls["graph"].astype(np.int64) << 33 | calls["stack"].astype(np.int64) << 1
        columns |= calls["thread"] == MAIN_THREAD
        order = np.argsort(columns, kind="stable")
        for rows in np.split(order, np.flatnonzero(np.diff(columns[order])) + 1) if len(order) else []:
            call = calls[rows[0]]
            graph = trace.graphs[int(call["graph"])]
            host = any(node.flags & NodeFlag.HOSTVALUE for node in graph.nodes)
            source = trace.source(int(call["stack"]))
            line = None if source is None else (source.base, source.line)
            key = graph.name, graph.kind == GraphKind.EAGER, host, line, bool(call["thread"] == MAIN_THREAD)
            self.calls.setdefault(key, []).extend(rows.tolist())
        for found in self.calls.values():
            found.sort()

    def rows(self, call: int) -> Array:
        """The events of a call."""
        return self.trace.events[self.trace.events_of(int(self.trace.calls["id"][call]))]

    def contents(self, key: Any) -> "Counter[tuple[int, ...]]":
        """What calls of a key made, as often as they made it: of threads that race, nobody knows which is which."""
        found = self._contents.get(key)
        if found is None:
            digests = (tuple(sorted(self.rows(call)["digest"].tolist())) for call in self.calls.get(key, ()))
            found = self._contents[key] = Counter(digests)
        return found

    def sites(self, graph: int) -> dict[tuple[int, int, int], int]:
        """{(node, slot, kind): site} of a graph."""
        found = self._sites.get(graph)
        if found is None:
            numbers = self.trace.sites_of(graph).tolist()
            rows = self.trace.sites[numbers].tolist()
            found = self._sites[graph] = {row[1:4]: number for number, row in zip(numbers, rows, strict=True)}
        return found

    def constants(self, name: str) -> dict[str, set[int]]:
        """{node: digests} of the constants of all functions of a name."""
        found: dict[str, set[int]] = {}
        for number, graph in enumerate(self.trace.graphs):
            if graph.name == name:
                for node, row in self.trace.constants(number).items():
                    digest = int(self.trace.events["digest"][row])
                    found.setdefault(graph.nodes[node].name, set()).add(digest)
        return found


class ComparingWriter(TraceWriter):
    """Writes a trace and compares each call with the other run's as it ends; keeps values of what differs only.

    policy: whose budget values take that are kept. `first`: what differed first, in words; None so far. `differing`:
    events. `unmatched`: calls that the other run does not make. `since`: calls since `first`. `step`: told by who
    counts steps.
    """

    def __init__(
        self, path: str | os.PathLike[str], other: Trace, policy: ValuePolicy, *, force: bool = False
    ) -> None:  # fmt: skip
        super().__init__(path, force=force)
        self._policy = policy
        self.first: str | None = None
        self.differing = self.unmatched = self.since = 0
        self.step = -1
        self._other = Other(other)
        self._graphs: list[_Graph] = []
        self._site_rows: list[tuple[int, int, int, int, int]] = []
        self._waiting: dict[int, list[Row]] = {}  # events of calls that have not ended, by call
        self._offered: dict[int, bytes] = {}  # values that are not written yet, by a number of their own
        self._numbers = itertools.count(1)
        self._lines: dict[int, tuple[str, int] | None] = {0: None}
        self._partners: dict[tuple[int, int], dict[int, int]] = {}
        self._counts: Counter[Any] = Counter()
        self._shape_ids: dict[int, int] = {0: 0}
        self._path_ids: dict[int, int] = {0: 0}
        self._known_constants: dict[str, dict[str, set[int]]] = {}

    # -- what must be known of this run ------------------------------------------------------------------------------

    def stack(self, frames: Sequence[tuple[str, int, str, str]]) -> int:
        number = super().stack(frames)
        if number not in self._lines:
            file, line = frames[-1][:2]
            self._lines[number] = os.path.basename(file.replace("\\", "/")), line
        return number

    def shape(self, dims: Sequence[int]) -> int:
        number = super().shape(dims)
        if number not in self._shape_ids:
            self._shape_ids[number] = self._other.shapes.get(tuple(dims), -1)
        return number

    def iteration(self, path: Sequence[int]) -> int:
        number = super().iteration(path)
        if number not in self._path_ids:
            self._path_ids[number] = self._other.paths.get(tuple(path), -1)
        return number

    def graph(self, name: str, raw_name: str, kind: int, structure: int, nodes: Sequence[Node]) -> int:
        host = any(node.flags & NodeFlag.HOSTVALUE for node in nodes)
        self._graphs.append(_Graph(name, kind, structure, host, list(nodes)))
        return super().graph(name, raw_name, kind, structure, nodes)

    def sites(self, graph: int, rows: Sequence[tuple[int, int, int, int]]) -> int:
        self._site_rows += [(graph, node, slot, int(kind), dtype) for node, slot, kind, dtype in rows]
        first = super().sites(graph, rows)
        self._graphs[graph].sites += range(first, first + len(rows))
        return first

    # -- events wait for the end of their call -----------------------------------------------------------------------

    def offered(self, data: bytes | bytearray | memoryview) -> int:
        """A number for bytes that get their id when their event is known to differ; 0: they are not kept."""
        if self.differing >= KEPT:
            self._policy.kept_bytes -= memoryview(data).nbytes
            return 0
        number = next(self._numbers)
        self._offered[number] = bytes(data)
        return number

    def event(self, call: int, site: int, path: int, shape: int, digest: int, value: int = 0) -> None:
        if call == NO_CALL:
            self._constant(site, path, shape, digest, value)
        else:
            self._waiting.setdefault(call, []).append((site, path, shape, digest, value))

    def events(
        self, call: npt.ArrayLike, site: npt.ArrayLike, path: npt.ArrayLike, shape: npt.ArrayLike,
        digest: npt.ArrayLike, value: npt.ArrayLike = 0,
    ) -> None:  # fmt: skip
        numbers = np.asarray(digest)
        columns = [
            np.broadcast_to(np.asarray(column), numbers.shape).tolist() for column in (site, path, shape, digest, value)
        ]
        rows = list(zip(*columns, strict=True))
        self._waiting.setdefault(int(np.asarray(call).reshape(-1)[0]), []).extend(rows)

    def call(self, id: int, graph: int, thread: int, state: int, parent: int, step: int, stack: int) -> None:
        rows = self._waiting.pop(id, [])
        self.since += self.first is not None
        different, missing = self._compare(graph, thread, stack, rows)
        if different or missing:
            self._note(graph, stack, [rows[i] for i in different], missing)
        keep = set(different)
        for i, (site, path, shape, digest, value) in enumerate(rows):
            super().event(id, site, path, shape, digest, self._settled(value, i in keep and self.differing <= KEPT))
        super().call(id, graph, thread, state, parent, step, stack)

    def _settled(self, offered: int, keep: bool) -> int:
        """The id of an offered value if it is kept; else 0, and its bytes do not count as kept any more."""
        if not offered:
            return 0
        data = self._offered.pop(offered)
        if keep:
            return self.value(data)
        self._policy.kept_bytes -= len(data)
        return 0

    # -- comparing ---------------------------------------------------------------------------------------------------

    def _compare(self, graph: int, thread: int, stack: int, rows: list[Row]) -> tuple[list[int], str]:
        """Which events of a call differ, by their place in `rows`; what only one run did in it, in words, or ""."""
        here = self._graphs[graph]
        if here.kind == GraphKind.ENTRY or here.name in _UNORDERED:
            return [], ""
        main = thread == MAIN_THREAD
        key = here.name, here.kind == GraphKind.EAGER, here.host, self._lines.get(stack), main
        if not main:
            contents = self._other.contents(key)
            made = tuple(sorted(row[3] for row in rows))
            if contents[made] > 0:
                contents[made] -= 1
                return [], ""
            return [i for i, row in enumerate(rows) if not self._is_text(row)], ""
        partners = self._other.calls.get(key, ())
        number = self._counts[key]
        self._counts[key] += 1
        if number >= len(partners):
            self.unmatched += not here.host  # what it leads to differs, if it leads to anything
            return [], ""
        return self._paired(graph, partners[number], rows)

    def _paired(self, graph: int, call: int, rows: list[Row]) -> tuple[list[int], str]:
        theirs = self._other.rows(call)
        there = int(self._other.trace.calls["graph"][call])
        partners = self._partner_sites(graph, there)
        known = {
            (site, path): (shape, digest)
            for site, path, shape, digest in zip(
                *(theirs[name].tolist() for name in ("site", "path", "shape", "digest")), strict=True
            )
        }
        different = []
        found = 0
        extra = False
        for i, (site, path, shape, digest, _value) in enumerate(rows):
            other = known.get((partners.get(site, -1), self._path_ids.get(path, -1)))
            if other is None:
                extra = True
                continue
            found += 1
            if other[1] != digest or other[0] != self._shape_ids.get(shape, -1):
                different.append(i)
        if extra or found < len(known):
            return different, "the two runs did not run the same ops in it"
        return different, ""

    def _partner_sites(self, graph: int, there: int) -> dict[int, int]:
        """{site of a graph of this run: site in the other run's}"""
        found = self._partners.get((graph, there))
        if found is None:
            here, other = self._graphs[graph], self._other.trace.graphs[there]
            sites = self._other.sites(there)
            same = here.structure == other.structure and len(here.nodes) == len(other.nodes)
            numbers = {} if same else {node.name: number for number, node in enumerate(other.nodes)}
            found = self._partners[graph, there] = {}
            for site in here.sites:
                _graph, node, slot, kind, _dtype = self._site_rows[site]
                partner = node if same else numbers.get(here.nodes[node].name, -1)
                found[site] = sites.get((partner, slot, kind), -1)
        return found

    def _constant(self, site: int, path: int, shape: int, digest: int, value: int) -> None:
        """A constant differs when no function of that name has it with this value."""
        graph, node = self._site_rows[site][:2]
        here = self._graphs[graph]
        known = self._known_constants.get(here.name)
        if known is None:
            known = self._known_constants[here.name] = self._other.constants(here.name)
        digests = known.get(here.nodes[node].name)
        different = digests is not None and digest not in digests
        if different:
            self._note(graph, here.nodes[node].stack, [(site, path, shape, digest, value)], "")
        super().event(NO_CALL, site, path, shape, digest, self._settled(value, different))

    def _is_text(self, row: Row) -> bool:
        """Whether an event is of a string: names of files differ in any two runs."""
        return self._site_rows[row[0]][4] == DT_STRING

    def _note(self, graph: int, stack: int, rows: list[Row], missing: str) -> None:
        telling = [row for row in rows if not self._is_text(row)]
        self.differing += len(rows)
        if self.first is not None or not (telling or missing):
            return
        here = self._graphs[graph]
        what, line = here.name, self._lines.get(stack)
        if telling:
            node = here.nodes[min(self._site_rows[row[0]][1] for row in telling)]
            what = node.op if node.op == here.name else f"{node.op} {node.name} in {here.name}"
            line = self._lines.get(node.stack) or line
        where = f" at line {line[1]} of {line[0]}" if line is not None else ""
        why = f": {missing}" if missing and not telling else ""
        self.first = f"{what}{where}" + (f", in step {self.step}" if self.step >= 0 else "") + why


def other_run(trace: Trace, steps: str | None, ops: str) -> Trace:
    """The trace back if it can be compared with a run of which these steps and ops are recorded. Raises Usage."""
    ours, theirs_ops = ops, str(trace.options.get("ops", ALL))
    if ours != theirs_ops:
        found, expected = f"--ops {theirs_ops}", f"--ops {ours}, as asked for"
        raise Usage(f"--against {trace.path}", found=found, expected=expected)
    theirs = trace.options.get("steps")
    if theirs != steps:
        raise Usage(
            f"--against {trace.path}",
            found=f"steps {theirs or 'all'}",
            expected=f"steps {steps or 'all'}, as asked for",
        )
    return trace
