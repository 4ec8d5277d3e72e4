"""What a difference leads to: which later differences, whether it reaches a result, or only file names.

Looks down the chains of differences that `bisector` found; blames nothing.
"""

from collections.abc import Collection
from functools import cached_property

import numpy as np

from tfbisect.differences import distinct
from tfbisect.equality import Equality
from tfbisect.flow import STRING, VARIANT
from tfbisect.model import GraphKind, NodeFlag, SiteKind
from tfbisect.provenance import Run
from tfbisect.reach import Links, Marks

# What temporary file names go through on their way to where files are saved, read or logged.
_SAVERS = frozenset({
    "ShardedFilename", "ShardedFilespec", "MergeV2Checkpoints", "SaveV2", "RestoreV2", "Save", "SaveSlices", "Restore",
    "RestoreSlice", "ReadFile", "WriteFile", "MatchingFiles", "CreateSummaryFileWriter", "CreateSummaryDbWriter",
    "SaveDataset", "SaveDatasetV2", "TextLineDataset", "TFRecordDataset", "TFRecordDatasetV2", "CacheDatasetV2",
    "InitializeTableFromTextFileV2", "CheckpointExists", "DeleteOldDirs",
    # data sets of file names: what comes out of the files is compared where the program gets it
    "TensorSliceDataset", "TensorDataset", "FlatMapDataset", "InterleaveDataset", "ParallelInterleaveDatasetV2",
    "ParallelInterleaveDatasetV3", "ParallelInterleaveDatasetV4", "LegacyParallelInterleaveDatasetV2", "ShuffleDataset",
    "ShuffleDatasetV2", "ShuffleDatasetV3", "RepeatDataset", "ShardDataset", "MapDataset", "ParallelMapDataset",
    "ParallelMapDatasetV2", "BatchDataset", "BatchDatasetV2", "PrefetchDataset", "ConcatenateDataset",
    "MatchingFilesDataset",
})  # fmt: skip
_NAME_OPS = frozenset({
    "StringJoin", "Pack", "Identity", "IdentityN", "Const", "StaticRegexFullMatch", "RegexFullMatch", "Select",
    "SelectV2", "StaticRegexReplace", "RegexReplace", "Reshape", "ExpandDims", "ConcatV2", "_Arg", "_Retval",
})  # fmt: skip
_HANDLE_TEXTS = frozenset({"IteratorToStringHandle", "MultiDeviceIteratorToStringHandle"})
_WALK = 5000


class Effects:
    """The graph of differences, downwards. edges: for each difference, mixtures included, those that it comes from.

    elsewhere: the differences that lead to results, and to outputs, of other workers.
    """

    def __init__(
        self, equality: Equality, edges: Links, elsewhere: tuple[Collection[int], Collection[int]] = ((), ())
    ) -> None:
        self._equality, self._elsewhere = equality, elsewhere
        self.edges = edges
        self._events = len(equality.pairs)

    @cached_property
    def followers(self) -> Links:
        """For each difference those that come from it."""
        return self.edges.back

    def near(self, start: int, limit: int) -> set[int]:
        """Differing events that come from one, itself left out, until there are about so many."""
        seen, stack = {start}, [start]
        while stack and len(seen) < limit:
            for follower in self.followers[stack.pop()]:
                if follower not in seen:
                    seen.add(follower)
                    stack.append(follower)
        return {number for number in seen if number < self._events} - {start}

    def below(self, start: int) -> Marks:
        """All differences that come from one, itself included."""
        return Marks(self.followers.closure(Marks.of([start], len(self.edges)).mask))

    def downstream(self, start: int) -> int:
        """How many differing events come from one."""
        return int(np.count_nonzero(self.below(start).mask[: self._events])) - (start < self._events)

    def above(self, targets: set[int]) -> Marks:
        """All that some differences come from, themselves too."""
        # What is compared late can be made of many, in a mixture that no event is known to come from.
        late = {number for number in targets if number >= len(self.edges)}
        known = (targets - late) | self._equality.unmixed(late)
        return Marks(self.edges.closure(Marks.of(known, len(self.edges)).mask))

    # -- results -----------------------------------------------------------------------------------------------------

    @cached_property
    def to_results(self) -> Marks:
        """The differences that lead to the last value of a variable or to a function's result."""
        return self.above(self._last_values().union(self._function_results(), self._elsewhere[0]))

    @cached_property
    def to_outputs(self) -> Marks:
        """Those that lead to a value of an eager op which no recorded op took: Python may have used it."""
        return self.above(self._loose_outputs().union(self._elsewhere[1]))

    def _last_values(self) -> set[int]:
        run = self._equality.a
        found: set[int] = set()
        partner = self._equality.alignment.event_to_b
        for writes in run.writes.values():
            known = [write for write in writes if write.row >= 0 and partner[write.row] >= 0]
            if not known:
                continue
            last = run.latest([write for write in known if write.call == known[-1].call])
            for write in (last, *reversed(known)):
                number = self._equality.number_of.get(write.row)
                found |= {number} if number is not None else set()
                if not run.partial(write):
                    break
        return found

    def _function_results(self) -> set[int]:
        """A result that was written into a variable lives on there and does not count as a result."""
        equality = self._equality
        found: set[int] = set()
        a, b = equality.a, equality.b
        for call in distinct(equality.calls, len(a.graph_of)):
            flow = a.flow(call) if call >= 0 else None
            other = equality.alignment.call_to_b[call] if call >= 0 else -1
            if flow is None or other < 0 or flow.graph.kind in (GraphKind.EAGER, GraphKind.ENTRY):
                continue
            for result in flow.graph.results:
                takers = a.takers.get((call, result), ())
                if takers and all(_writer(a, taker) for taker, _argument in takers):
                    continue
                one, two = a.result(call, result), b.result(other, result)
                if one is not None and two is not None:
                    found.update(equality.compare(one, two).edges)
        return found

    def _loose_outputs(self) -> set[int]:
        equality = self._equality
        found: set[int] = set()
        a = equality.a
        for number in np.flatnonzero(equality.at_sites(self._is_loose)).tolist():
            row = equality.pairs[number][0]
            flow, node, slot, _kind = a.node_of(row)
            if (a.event_call[row], slot) in a.takers:
                continue
            if flow.nodes[node].op == "Identity" and all(self._is_read(edge) for edge in self.edges[number]):
                continue  # `variable.numpy()`: what a variable held for a while is no result
            found.add(number)
        for call, _other, edges in equality.passed_results:
            if (call, 0) not in a.takers:
                found.update(edges)
        return found

    @cached_property
    def _is_loose(self) -> list[bool]:
        """For each site of A whether it is an output of an eager op that Python may use, if no recorded op takes it."""
        a, found = self._equality.a, []
        eager: list[bool] = (a.trace.kinds == GraphKind.EAGER).tolist()
        for site, (graph, node, _slot, kind, dtype) in enumerate(a.site_rows):
            value = eager[graph] and kind == SiteKind.OUTPUT and a.is_computed[site] and dtype not in (STRING, VARIANT)
            found.append(value and not a.flow_of_graph(graph).pure_read(node))
        return found

    def _is_read(self, number: int) -> bool:
        if number >= self._events:
            return False
        flow, node, _slot, _kind = self._equality.a.node_of(self._equality.pairs[number][0])
        return flow.pure_read(node)

    # -- file names --------------------------------------------------------------------------------------------------

    @cached_property
    def file_names(self) -> set[int]:
        """The differences that are names of files, which reach only ops that save, read or log."""
        equality = self._equality
        found: set[int] = set()
        a = equality.a
        texts = [dtype == STRING for *_, dtype in a.site_rows]
        for number in np.flatnonzero(equality.at_sites(texts)).tolist() if any(texts) else ():
            row = equality.pairs[number][0]
            if self.edges[number]:
                continue
            if a.host_value(row) or a.node_of(row)[3] == SiteKind.CONST or a.node(row).op in _HANDLE_TEXTS:
                family = {number} | self.near(number, _WALK)
                if len(family) < _WALK and self._only_names(family):
                    found |= family
        return found

    def _only_names(self, family: set[int]) -> bool:
        a = self._equality.a
        ops: set[str] = set()
        handles = False
        for number in family:
            row = self._equality.pairs[number][0]
            if a.dtype(row) == VARIANT:
                continue
            if a.node(row).op in _HANDLE_TEXTS:  # an address as text
                handles = True
                continue
            if a.dtype(row) != STRING:
                return False
            ops |= _takers_of(a, row)
        return (handles or bool(ops & _SAVERS)) and ops <= _SAVERS | _NAME_OPS


def _writer(run: Run, call: int) -> bool:
    flow = run.flow(call)
    return flow.graph.kind == GraphKind.EAGER and bool(flow.nodes[flow.graph.op].flags & NodeFlag.WRITER)


def _takers_of(run: Run, row: int) -> set[str]:
    """The types of all ops that take an event's value, through forwarders, results and arguments."""
    flow, node, slot, _kind = run.node_of(row)
    call = run.event_call[row]
    if call < 0:  # a constant: the same ops take it in each call
        call = run.first_calls[flow.graph.id]
    found: set[str] = set()
    todo = [(call, node)]
    if not flow.graph.results:
        todo += _entries(run, call, slot)
    seen = set(todo)
    while todo and len(seen) < _WALK:
        at, number = todo.pop()
        here = run.flow(at)
        more: list[tuple[int, int]] = []
        for consumer in here.consumers[number]:
            op = here.nodes[consumer]
            if op.op == "_Retval":
                more += _entries(run, at, op.index)
                continue
            found.add(op.op)
            if op.flags & NodeFlag.FORWARDER:
                more.append((at, consumer))
        todo += [place for place in more if place not in seen]
        seen.update(more)
    return found


def _entries(run: Run, call: int, result: int) -> list[tuple[int, int]]:
    """(call, _Arg) of the calls that take a result."""
    takers = run.takers.get((call, result), ())
    return [(taker, run.flow(taker).graph.args[arg]) for taker, arg in takers if arg in run.flow(taker).graph.args]
