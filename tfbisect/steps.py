"""Which step of the program and which of its like a call is.

Steps the program marked count as they are; else they are found from what writes variables.
"""

from collections import Counter
from functools import cached_property
from typing import Any

import numpy as np

from tfbisect.flow import Flow
from tfbisect.model import OP_BY_OP, GraphKind, SiteKind
from tfbisect.provenance import Run
from tfbisect.recorded import is_host_value
from tfbisect.sequences import ranks


class Steps:
    """Steps and ordinals of the calls of a run. Calls are rows of `trace.calls`."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def ordinal(self, call: int) -> int | None:
        """How many calls of the same function, or of the same eager op at the same line, came before."""
        call = self._shown(call)
        return self._ordinals[call] if call >= 0 else None

    def step(self, call: int) -> int | None:
        """The step that a call belongs to, from 0; None if the program shows none."""
        call = self._shown(call)
        return self._steps[call] if call >= 0 else None

    def _shown(self, call: int) -> int:
        """A value of Python's is shown as the op that takes it."""
        return self._run.first_takers.get(call, (call, 0))[0]

    @cached_property
    def _ordinals(self) -> list[int]:
        run, labels = self._run, dict[Any, int]()
        stacks = run.trace.calls["stack"].astype(np.int64)
        names, eager = np.zeros(len(run.trace.graphs), np.int64), np.zeros(len(run.trace.graphs), np.int64)
        for number in set(run.graph_of):
            graph = run.flow_of_graph(number).graph
            eager[number] = graph.kind == GraphKind.EAGER
            names[number] = labels.setdefault((graph.name, bool(eager[number]), is_host_value(graph)), len(labels))
        graphs = np.asarray(run.graph_of, np.int64)
        keys = names[graphs] << 32 | stacks * eager[graphs]
        found: list[int] = ranks(keys).tolist()
        return found

    @cached_property
    def _steps(self) -> list[int | None]:
        marked = self._run.trace.calls["step"].tolist()
        if any(step >= 0 for step in marked):
            return [step if step >= 0 else None for step in marked]
        steps = self._by_functions()
        if steps is None:
            steps = self._by_lines()
        for call, parent in enumerate(self._run.parent_row):
            if parent >= 0:
                steps[call] = steps[parent]
        return steps

    def _by_functions(self) -> list[int | None] | None:
        """A call of a function that writes variables is a step of its own; what follows belongs to it."""
        run = self._run
        writing = {graph for graph in set(run.graph_of) if _writes(run.flow_of_graph(graph))}
        seen: Counter[str] = Counter()
        found: list[int | None] = []
        now: int | None = None
        first = ""
        for call, graph in enumerate(run.graph_of):
            if run.parent_row[call] < 0 and graph in writing:
                name = run.flow_of_graph(graph).graph.name
                first = first or name
                if name == first:
                    now = seen[name]
                found.append(seen[name])
                seen[name] += 1
            else:
                found.append(now)
        return found if seen else None

    def _by_lines(self) -> list[int | None]:
        """Eager code: a step ends when a line writes again a variable that it wrote in this step.

        More exactly before the first op after the step's last write that this step has run already: the next step's
        first ops come before its first write.
        """
        run = self._run
        stacks = run.trace.calls["stack"].tolist()
        written: dict[int, list[Any]] = {}
        for handle, writes in run.writes.items():
            for write in writes:
                written.setdefault(write.call, []).append((stacks[write.call], handle))
        if not written:
            return [None] * len(stacks)
        found: list[int | None] = [0] * len(stacks)
        step, start, last = 0, 0, -1
        seen: set[Any] = set()
        for call in sorted(written):
            if run.parent_row[call] >= 0:
                continue
            if any(item in seen for item in written[call]):
                begin = self._repeated(start, last, call, stacks)
                found[start:begin] = [step] * (begin - start)
                step, start = step + 1, begin
                seen = set()
            seen.update(written[call])
            last = call
        found[start:] = [step] * (len(stacks) - start)
        return found

    def _repeated(self, start: int, last: int, call: int, stacks: list[int]) -> int:
        """The first call after `last` that does what a call of the step from `start` on did."""
        graphs = self._run.graph_of
        done = {(graphs[i], stacks[i]) for i in range(start, last + 1)}
        for i in range(last + 1, call):
            key = graphs[i], stacks[i]
            if key in done:
                return i
            done.add(key)
        return call


def _writes(flow: Flow) -> bool:
    """Whether a function writes variables, as far as is known; one whose inside is hidden may, if it takes any."""
    if flow.graph.kind in OP_BY_OP:
        return any(kind == SiteKind.WRITE for _node, _slot, kind in flow.sites)
    if flow.graph.kind == GraphKind.OPAQUE:
        return any((node, 0, SiteKind.ARG) not in flow.sites for node in flow.graph.args.values())
    return False
