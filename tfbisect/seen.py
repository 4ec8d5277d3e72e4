"""Since when Python may have known of a difference: what it does afterwards can come from it.

Python sees the values of eager ops and the results of functions, but nothing inside a function, and no variable unless
it reads it. The recorder hears of `numpy()`, `float()`, `print` and the like. NumPy can also take a tensor's bytes
unheard (`np.asarray`), so a value counts as seen since it was made if it leads to a result, or to nothing that was
recorded.
"""

import bisect
from collections.abc import Collection, Sequence

from tfbisect.effects import Effects
from tfbisect.equality import Equality, Status
from tfbisect.model import GraphKind, NodeFlag, SiteKind
from tfbisect.provenance import Run

_HOST = int(NodeFlag.HOST)


class Seen:
    """The first call, of A and of B, before which Python can have known of no difference.

    edges: for each difference those that it comes from. leave_out: differences that are none to Python. A trace that
    does not say what Python looked at gets the cautious answer: at all that an op computed.
    """

    def __init__(
        self, equality: Equality, effects: Effects, edges: Sequence[Sequence[int]], leave_out: Collection[int]
    ) -> None:
        self._equality, self._edges, self._leave_out = equality, edges, leave_out
        self._live = effects.to_results | effects.to_outputs
        self._heard = all(_says(run) for run in equality.runs)
        self._firsts: dict[tuple[int, bool], int] = {}

    def first(self, side: int, values: bool = False) -> int:
        """The row of the call with the first difference that Python may have known; beyond all calls if there is none.

        values: asked for a value of Python's, which may carry on what itself died out, and not for an op that it ran.
        """
        key = side, values
        if key not in self._firsts:
            found = self._by_reads(side) if self._heard else self._computed(side, values)
            self._firsts[key] = min(found, default=len(self._equality.runs[side].graph_of))
        return self._firsts[key]

    def _computed(self, side: int, values: bool) -> list[int]:
        equality, run = self._equality, self._equality.runs[side]
        return [
            run.event_call[pair[side]]
            for number, pair in enumerate(equality.pairs)
            if number not in self._leave_out and (values or number in self._live)
            and equality.a.is_computed[equality.a.event_site[pair[0]]]
        ]  # fmt: skip

    def _by_reads(self, side: int) -> list[int]:
        equality, run = self._equality, self._equality.runs[side]
        ids: list[int] = run.trace.calls["id"].tolist()
        partners = equality.alignment.call_to_a if side else equality.alignment.call_to_b
        rows = {id: row for row, id in enumerate(ids)}
        reads: dict[tuple[int, int], int] = {}
        found: list[int] = []
        for moment, call, result in run.trace.reads:
            row, before = rows.get(call, -1), bisect.bisect_left(ids, moment) - 1
            reads[row, result] = before
            if row >= 0 and partners[row] < 0:
                found.append(before)  # of an op that the other run does not have
        for number, pair in enumerate(equality.pairs):
            flow, node, slot, kind = run.node_of(pair[side])
            call = run.event_call[pair[side]]
            if number in self._leave_out or call < 0 or kind != SiteKind.OUTPUT:
                continue
            if flow.flags[node] & _HOST and self._edges[number]:
                found.append(call)  # Python was handed what differs
            if flow.graph.kind == GraphKind.EAGER and not run.host_value(pair[side]):
                found.append(self._since(side, call, slot, [number], reads))
        for call, result, numbers in self._results(side):
            found.append(self._since(side, call, result, numbers, reads))
        return [call for call in found if call >= 0]

    def _results(self, side: int) -> list[tuple[int, int, Sequence[int]]]:
        """(call, result, the differences in it) of what functions gave."""
        equality = self._equality
        a, b = equality.runs
        calls = {a.event_call[row] for number, (row, _) in enumerate(equality.pairs) if number not in self._leave_out}
        found: list[tuple[int, int, Sequence[int]]] = []
        for call in calls:
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
        self, side: int, call: int, result: int, numbers: Sequence[int], reads: dict[tuple[int, int], int]
    ) -> int:
        """The row of the last call before Python may have known a value that differs; -1 if it did not see it."""
        run = self._equality.runs[side]
        if any(self._other_shape(number) for number in numbers):
            return call  # shapes are seen without a look at the value
        if (call, result) in reads:
            return reads[call, result]
        flow = run.flow(call)
        if flow.graph.kind == GraphKind.EAGER and flow.pure_read(flow.graph.op):
            # What a variable held for a while, and what came of it elsewhere.
            above = [edge for number in numbers if number < len(self._edges) for edge in self._edges[number]]
            return call if not above or not self._live.isdisjoint(above) else -1
        taken = (call, result) in run.takers
        return call if not taken or not self._live.isdisjoint(numbers) else -1

    def _other_shape(self, number: int) -> bool:
        if number >= len(self._equality.pairs):
            return False
        a, b = self._equality.runs
        one, two = self._equality.pairs[number]
        return a.trace.shape(a.event_shape[one]) != b.trace.shape(b.event_shape[two])


def _says(run: Run) -> bool:
    options = run.trace.info.get("options")
    return isinstance(options, dict) and options.get("reads") is True
