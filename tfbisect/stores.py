"""What lies in a queue or a variable when not each op that put something there has an event that says so.

Compares; blames nothing: `bisector` asks it for what an op took.
"""

from collections.abc import Iterator

from tfbisect.equality import EQUAL, UNKNOWN, Equality, Outcome, Status, combined
from tfbisect.flow import Flow
from tfbisect.model import GraphKind, NodeFlag, SiteKind
from tfbisect.provenance import QUEUES, Handle, Kind, Run


class Stores:
    """Queues, and variables that a v1 Session's loops write, of two aligned runs."""

    def __init__(self, equality: Equality) -> None:
        self._equality = equality
        self._a, self._b = equality.a, equality.b
        self._paths: dict[tuple[int, int, tuple[str, ...]], list[int]] = {}

    # -- queues ------------------------------------------------------------------------------------------------------

    def queued(self, row: int, handle_a: Handle, handle_b: Handle) -> Outcome | None:
        """How what was put into a queue compares, as far as a differing event of A can come from it; None: no queue.

        An element that run A put in just as run B did and that came out in another place is no difference.
        """
        put = self._put(self._a, handle_a)
        if not put or not self._put(self._b, handle_b):
            return None
        same = [outcome for call, node in put if self._is(row, call, node) for outcome in self._pair(call, node)]
        outcome = combined(same or [outcome for call, node in put for outcome in self._pair(call, node)])
        # A queue counts as having no inputs: what is not known of what was put in does not matter.
        return outcome if outcome.status == Status.DIFFERS else EQUAL

    @staticmethod
    def _put(run: Run, handle: Handle) -> list[tuple[int, int]]:
        """(call, node) of the ops that filled a queue."""
        filled = run.feeders.get(handle, ())
        return [(call, node) for call, node, _ in filled if QUEUES.match(run.flow(call).nodes[node].op)]

    def _is(self, row: int, call: int, node: int) -> bool:
        """Whether one of the values that an op of run A put in has the bits of an event."""
        a, flow = self._a, self._a.flow(call)
        for edge in flow.data_inputs(node):
            terminal = a.terminal(a.input_ref(call, flow, node, edge, 0))
            if terminal.kind == Kind.EVENT and a.event_digest[terminal.row] == a.event_digest[row]:
                return True
        return False

    def _pair(self, call: int, node: int) -> Iterator[Outcome]:
        """How what an op of run A put in compares with what its partner did."""
        a, b, partner = self._a, self._b, self._equality.alignment.call_to_b[call]
        if partner < 0:
            return
        flow_a, flow_b = a.flow(call), b.flow(partner)
        other = self._equality.alignment.nodes(flow_a.graph.id, flow_b.graph.id).to_b[node]
        if other < 0:
            return
        for one, two in zip(flow_a.data_inputs(node), flow_b.data_inputs(other), strict=False):
            ref_a, ref_b = a.input_ref(call, flow_a, node, one, 0), b.input_ref(partner, flow_b, other, two, 0)
            if a.terminal(ref_a).kind != Kind.HANDLE:
                yield self._equality.compare(ref_a, ref_b)

    # -- variables ---------------------------------------------------------------------------------------------------

    def earlier_writes(self, row: int, other: int) -> Iterator[Outcome]:
        """What a write by a v1 Session takes from writes of the same call that have no events.

        Those are its own in earlier iterations of its loop, whose inputs are known, and other ops' writes.
        """
        a, b = self._a, self._b
        flow_a, node_a, slot, kind = a.node_of(row)
        if kind != SiteKind.WRITE or flow_a.graph.kind != GraphKind.SESSION:
            return
        flow_b, node_b, _slot, _kind = b.node_of(other)
        call_a, call_b = a.event_call[row], b.event_call[other]
        if flow_a.nodes[node_a].flags & NodeFlag.LAST_ONLY:
            paths = zip(self._before(a, row, flow_a, node_a), self._before(b, other, flow_b, node_b), strict=False)
            for path_a, path_b in paths:
                edges = zip(flow_a.data_inputs(node_a), flow_b.data_inputs(node_b), strict=False)
                for place, (edge_a, edge_b) in enumerate(edges):
                    if place != slot:
                        ref_a = a.input_ref(call_a, flow_a, node_a, edge_a, path_a)
                        yield self._equality.compare(ref_a, b.input_ref(call_b, flow_b, node_b, edge_b, path_b))
        if self._follows_unseen(a, row, flow_a, node_a, slot) or self._follows_unseen(b, other, flow_b, node_b, slot):
            yield UNKNOWN

    def _before(self, run: Run, row: int, flow: Flow, node: int) -> list[int]:
        """The iterations of a node's loop before the event's own, in order."""
        call, frame = run.event_call[row], flow.nodes[node].frame
        key = id(run), call, frame
        found = self._paths.get(key)
        if found is None:
            span = run.trace.events_of(int(run.trace.calls["id"][call]))
            paths = {run.event_path[at] for at in range(span.start, span.stop) if self._frame(run, at) == frame}
            found = self._paths[key] = sorted(paths, key=run.path)
        own = run.path(run.event_path[row])
        return [path for path in found if run.path(path) < own]

    @staticmethod
    def _frame(run: Run, row: int) -> tuple[str, ...]:
        flow, node, _slot, _kind = run.node_of(row)
        return flow.nodes[node].frame

    @staticmethod
    def _follows_unseen(run: Run, row: int, flow: Flow, node: int, slot: int) -> bool:
        """Whether another op of the call may have written the variable before and has no event that tells what."""
        call, path = run.event_call[row], run.event_path[row]
        handle = run.input_handle(call, flow, node, slot, path)
        return handle is not None and any(
            write.row < 0
            and write.call == call
            and write.node != node
            and (flow.nodes[node].frame or not flow.reaches(node, write.node))
            for write in run.writes.get(handle, ())
        )
