"""Since when Python may have known of a difference: what it does afterwards can come from it.

Python sees the values of eager ops and the results of functions, but nothing inside a function, and no variable unless
it reads it. The recorder hears of `numpy()`, `float()`, `print` and the like. NumPy can also take a tensor's bytes
unheard (`np.asarray`), so a value counts as seen since it was made if it leads to a result, or to nothing that was
recorded.
"""

import bisect
from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tfbisect.differences import distinct
from tfbisect.effects import Effects
from tfbisect.equality import Equality, Status
from tfbisect.model import GraphKind, NodeFlag, SiteKind
from tfbisect.provenance import Kind, Run
from tfbisect.reach import Marks

READ_DEPTH = 3  # ops between a variable's write and what Python gets of it: the read, and copies
_HOST = int(NodeFlag.HOST)


class Seen:
    """The first call, of A and of B, before which Python can have known of no difference.

    leave_out: differences that are none to Python. A trace that does not say what Python looked at gets the cautious
    answer: at all that an op computed.
    """

    def __init__(self, equality: Equality, effects: Effects, leave_out: Marks) -> None:
        self._equality, self._edges, self._leave_out = equality, effects.edges, leave_out
        self._live = effects.to_results.united(effects.to_outputs)
        self._heard = all(_says(run) for run in equality.runs)
        self._firsts: dict[tuple[int, bool], int] = {}
        self._looks: dict[int, int] = {}  # {difference: the call in A before which Python may have known it}
        self._last: dict[int, list[int]] = {}
        self._rows: tuple[dict[int, Counter[bytes] | None], dict[int, Counter[bytes] | None]] = ({}, {})

    def first(self, side: int, dead: bool = False) -> int:
        """The row of the call with the first difference that Python may have known; beyond all calls if there is none.

        dead: also of those that died out. A value of Python's can carry them on.
        """
        key = side, dead
        if key not in self._firsts:
            found = self._by_reads(side, dead) if self._heard else self._computed(side, dead)
            self._firsts[key] = min(found, default=len(self._equality.runs[side].graph_of))
        return self._firsts[key]

    def known_before(self, numbers: Marks, call: int) -> bool:
        """Whether Python may have known one of these differing events before it made what a call of A takes."""
        self.first(0, dead=True)
        events = len(self._equality.pairs)
        return any(look < call and number < events and number in numbers for number, look in self._looks.items())

    def reordered(self, row: int, other: int) -> bool:
        """Whether a value of Python's is a part of data that both runs handed in here, in another order.

        Its bits were then not computed from what differed before.
        """
        a, b = self._equality.runs
        rows = [self._rows_here(run, at) for run, at in ((a, row), (b, other))]
        return rows[0] is not None and rows[0] == rows[1]

    def _rows_here(self, run: Run, row: int) -> Counter[bytes] | None:
        """The rows of all that Python handed in at a line; None if some of it was not kept."""
        site = run.event_site[row]
        if site not in self._rows[run is self._equality.b]:
            events = np.flatnonzero(run.trace.events["site"] == site).tolist()
            values = run.trace.values(events)
            known = [value for value in values if value is not None and value.ndim]
            found = Counter(part.tobytes() for value in known for part in value)
            self._rows[run is self._equality.b][site] = found if len(known) == len(values) else None
        return self._rows[run is self._equality.b][site]

    def _computed(self, side: int, dead: bool) -> list[int]:
        equality, run = self._equality, self._equality.runs[side]
        known = equality.at_sites(equality.a.is_computed) & ~self._leave_out.mask
        if not dead:
            known &= self._live.mask[: len(known)]
        rows = (equality.pairs.others if side else equality.pairs.rows)[known]
        return [int(np.asarray(run.event_call)[rows].min())] if len(rows) else []

    def _by_reads(self, side: int, dead: bool) -> list[int]:
        equality, run = self._equality, self._equality.runs[side]
        ids: list[int] = run.trace.calls["id"].tolist()
        rows = {id: row for row, id in enumerate(ids)}
        reads = {
            (rows.get(call, -1), result): bisect.bisect_left(ids, moment) - 1
            for moment, call, result in run.trace.reads
        }
        found: list[int] = []
        sites = run.trace.events["site"][equality.pairs.others if side else equality.pairs.rows]
        for number in np.flatnonzero(_is_shown(run)[sites] & ~self._leave_out.mask).tolist():
            pair = equality.pairs[number]
            flow, node, slot, _kind = run.node_of(pair[side])
            call = run.event_call[pair[side]]
            if call < 0:
                continue
            if flow.flags[node] & _HOST and self._handed(side, call, number):
                found.append(call)
            if flow.graph.kind == GraphKind.EAGER and not run.host_value(pair[side]):
                found.append(self._look(side, call, slot, [number], reads, dead))
        for call, result, numbers in self._results(side):
            found.append(self._look(side, call, result, numbers, reads, dead))
        for call, other, edges in equality.passed_results:
            found.append(self._look(side, other if side else call, 0, edges, reads, dead))
        return [call for call in found if call >= 0]

    def _look(
        self, side: int, call: int, result: int, numbers: Sequence[int], reads: dict[tuple[int, int], int], dead: bool
    ) -> int:  # fmt: skip
        since = self._since(side, call, result, numbers, reads, dead)
        if since >= 0 and dead and not side:
            for number in numbers:
                self._looks[number] = min(since, self._looks.get(number, since))
        return since

    def _handed(self, side: int, call: int, number: int) -> bool:
        """Whether Python inside an op was given what differs, and did not only make it."""
        run = self._equality.runs[side]
        for edge in self._edges[number]:
            pair = self._equality.pairs[edge] if edge < len(self._equality.pairs) else None
            if pair is None or run.event_call[pair[side]] == call or not run.inside(run.event_call[pair[side]], call):
                return True
        return False

    def _ends(self, side: int) -> list[int]:
        """For each call the last one that ran inside it, or itself: what it gives is not there before."""
        if side not in self._last:
            parents = self._equality.runs[side].parent_row
            last = list(range(len(parents)))
            for call in range(len(parents) - 1, -1, -1):
                if parents[call] >= 0:
                    last[parents[call]] = max(last[parents[call]], last[call])
            self._last[side] = last
        return self._last[side]

    def _results(self, side: int) -> list[tuple[int, int, Sequence[int]]]:
        """(call, result, the differences in it) of what functions gave."""
        equality = self._equality
        a, b = equality.runs
        found: list[tuple[int, int, Sequence[int]]] = []
        for call in distinct(equality.calls[~self._leave_out.mask], len(a.graph_of)):
            other = equality.alignment.call_to_b[call] if call >= 0 else -1
            if other < 0 or a.flow(call).graph.kind in (GraphKind.EAGER, GraphKind.ENTRY):
                continue
            for result in a.flow(call).graph.results:
                one, two = a.result(call, result), b.result(other, result)
                outcome = equality.compare(one, two) if one is not None and two is not None else None
                if outcome is not None and outcome.status == Status.DIFFERS:
                    found.append((other if side else call, result, outcome.edges))
        return found

    def _since(
        self, side: int, call: int, result: int, numbers: Sequence[int], reads: dict[tuple[int, int], int], dead: bool
    ) -> int:  # fmt: skip
        """The row of the last call before Python may have known a value that differs; -1 if it did not see it."""
        run = self._equality.runs[side]
        if any(self._other_shape(number) for number in numbers):
            return self._ends(side)[call]  # shapes are seen without a look at the value
        if (call, result) in reads:
            return reads[call, result] if dead or not self._died(numbers) else -1
        flow = run.flow(call)
        if flow.graph.kind == GraphKind.EAGER and flow.pure_read(flow.graph.op):
            # What a variable held for a while, and what came of it elsewhere.
            above = [edge for number in numbers for edge in self._above(number)]
            return self._ends(side)[call] if not above or not self._live.isdisjoint(above) else -1
        taken = (call, result) in run.takers
        return self._ends(side)[call] if not taken or not self._live.isdisjoint(numbers) else -1

    def _died(self, numbers: Sequence[int]) -> bool:
        """Whether a value is what variables held that were written anew before anything that lasts came of it."""
        above = set(numbers)
        for _ in range(READ_DEPTH):
            above |= {edge for number in above for edge in self._above(number)}
        return self._live.isdisjoint(above)

    def _above(self, number: int) -> tuple[int, ...]:
        """What a differing event comes from; nothing for a mixture."""
        return self._edges[number] if number < len(self._equality.pairs) else ()

    def _other_shape(self, number: int) -> bool:
        if number >= len(self._equality.pairs):
            return False
        a, b = self._equality.runs
        one, two = self._equality.pairs[number]
        return a.trace.shape(a.event_shape[one]) != b.trace.shape(b.event_shape[two])


def _is_shown(run: Run) -> npt.NDArray[np.bool_]:
    """For each site whether it is an output of an eager op, or of an op that runs Python."""
    eager: list[bool] = (run.trace.kinds == GraphKind.EAGER).tolist()
    return np.asarray(
        [
            kind == SiteKind.OUTPUT and (eager[graph] or bool(run.flow_of_graph(graph).flags[node] & _HOST))
            for graph, node, _slot, kind, _dtype in run.site_rows
        ],
        np.bool_,
    )


def only_asked(run: Run, row: int) -> bool:
    """Whether a value tells nothing but which variables are set: TensorFlow asks so for all that a function made."""
    flow, node, _slot, _kind = run.node_of(row)
    call, path = run.event_call[row], run.event_path[row]
    edges = flow.data_inputs(node)
    above = [run.terminal(run.input_ref(call, flow, node, edge, path)) for edge in edges]
    return bool(above) and all(one.kind == Kind.EVENT and run.node(one.row).op == "VarIsInitializedOp" for one in above)


def _says(run: Run) -> bool:
    return run.trace.options.get("reads") is True
