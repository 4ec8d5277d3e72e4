"""What an op was given in one execution: the kept values of its inputs and of the variables it touches.

Where a value was not kept, it says which label of the value policy would have kept it.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tfbisect.model import GraphKind, NodeFlag, SiteKind
from tfbisect.provenance import Handle, Ref, Run, Write
from tfbisect.recorder.ops import ROW_WRITES
from tfbisect.tables import numpy_dtype

Array = npt.NDArray[Any]
STRING, RESOURCE = 7, 20
_LONGEST = 100_000  # steps back through a run for what a variable held


class Missing(NamedTuple):
    """A value that the trace does not hold. `label`: what `--values` must match to keep it; "" if nothing would."""

    what: str
    label: str = ""


class Values:
    """The kept values of a run. definition: TensorFlow's NodeDef of (graph, node); input_names: its inputs' names."""

    def __init__(
        self, run: Run, definition: Callable[[int, int], Any], input_names: Callable[[Any], Sequence[str]]
    ) -> None:
        self._run, self._definition, self._input_names = run, definition, input_names
        self._reads: dict[Handle, dict[Write | None, int]] | None = None
        self.missing: dict[Missing, None] = {}
        self.labels: dict[str, None] = {}  # what `--values` must match to keep all that was asked for

    def input(self, call: int, node: int, position: int, path: int) -> Array | None:
        """The value of a data input; None, and an entry in `missing`, when it was not kept."""
        run = self._run
        flow = run.flow(call)
        return self._value(run.input_ref(call, flow, node, flow.data_inputs(node)[position], path))

    def handle(self, call: int, node: int, position: int, path: int) -> Handle | None:
        """The variable, table or iterator that a data input names; None if that cannot be told."""
        return self._run.input_handle(call, self._run.flow(call), node, position, path)

    def held(self, handle: Handle, call: int, node: int, path: int) -> Array | None:
        """What a variable held just before an op ran; None, and entries in `missing`, when that cannot be told.

        It is what the last write of all of it left, or what a read saw; what scatters wrote later is put in.
        """
        run = self._run
        write = run.state(Ref(call, node, 0, path), handle)
        scatters: list[Write] = []
        for _ in range(_LONGEST):
            seen = self._seen(handle, write)
            if seen is not None:
                return self._scattered(seen.copy(), scatters)
            if write is None or write.row < 0:
                break
            if not run.partial(write):
                array = self._kept(write.row, "what a variable held")
                return self._scattered(None if array is None else array.copy(), scatters)
            scatters.append(write)
            write = run.before_write(write, handle)
        self._lacks("what a variable held: nothing recorded wrote or read all of it before")
        return None

    def _scattered(self, array: Array | None, scatters: Sequence[Write]) -> Array | None:
        """The array with the rows that scatters wrote, the last of which comes first in the list."""
        run, whole = self._run, array is not None
        for write in reversed(scatters):
            flow = run.flow(write.call)
            definition = self._definition(flow.graph.id, write.node)
            names = self._input_names(definition) if definition is not None else ()
            if "indices" not in names:
                self._lacks(f"which rows {flow.nodes[write.node].op} wrote")
                return None
            written = self._kept(write.row, "rows that were written to a variable")
            data = run.trace.kept(write.row)
            indices = self.input(write.call, write.node, names.index("indices"), write.path)
            if written is None or data is None or indices is None or array is None:
                whole = False
                continue
            rows = np.frombuffer(data, array.dtype)
            if ROW_WRITES.match(definition.op):
                array[indices.reshape(-1)] = rows.reshape(-1, *array.shape[1:])
            else:
                array[tuple(np.moveaxis(indices, -1, 0))] = rows.reshape(
                    indices.shape[:-1] + array.shape[indices.shape[-1] :]
                )
        return array if whole else None

    def _seen(self, handle: Handle, write: Write | None) -> Array | None:
        """What a read of all of a variable saw between a write (None: before any) and the next."""
        if self._reads is None:
            self._reads = {}
            run = self._run
            kept = np.flatnonzero(run.trace.events["value"])
            for row in kept.tolist():
                call = run.event_call[row]
                flow, node, _slot, kind = run.node_of(row)
                # a gather is a read too, but not of all
                if call < 0 or kind != SiteKind.OUTPUT or flow.nodes[node].op != "ReadVariableOp":
                    continue
                path = run.event_path[row]
                read = run.input_handle(call, flow, node, 0, path)
                if read is not None:
                    self._reads.setdefault(read, {}).setdefault(run.state(Ref(call, node, 0, path), read), row)
        row = self._reads.get(handle, {}).get(write, -1)
        return self._run.trace.value(row) if row >= 0 else None

    # -- one value, step by step upwards -----------------------------------------------------------------------------

    def _value(self, ref: Ref) -> Array | None:
        changes: list[tuple[Ref, str]] = []  # ops that gave the same elements another shape, the last one first
        at: Ref | None = ref
        passed: set[Ref] = set()
        while at is not None and at not in passed:
            passed.add(at)
            row = self._row(at)
            if row >= 0:
                array = self._kept(row)
                return None if array is None else self._reshaped(array, changes)
            at = self._above(at, changes)
        return None

    def _row(self, ref: Ref) -> int:
        """The event of a value itself, not of what it was forwarded from; -1 if it has none."""
        flow = self._run.flow(ref.call)
        for slot, kind, path in ((ref.slot, SiteKind.OUTPUT, ref.path), (0, SiteKind.ARG, 0)):
            site = flow.sites.get((ref.node, slot, kind), -1)
            if site >= 0:
                return self._run.row(ref.call, site, path)
        site = flow.sites.get((ref.node, 0, SiteKind.CONST), -1)
        return self._run.constant(site) if site >= 0 else -1

    def _above(self, ref: Ref, changes: list[tuple[Ref, str]]) -> Ref | None:
        """Where a value without an event was forwarded from; None, and an entry in `missing`, when it was not."""
        run = self._run
        flow = run.flow(ref.call)
        node = flow.nodes[ref.node]
        found: Ref | None = None
        if node.op == "_Arg":
            found = run.argument(ref.call, node.index)
            if found is None:
                self.missing[Missing(f"argument {node.index} of {flow.graph.name}", f"{flow.graph.name}/arguments")] = (
                    None
                )
            return found
        if node.flags & NodeFlag.FORWARDER:
            data = flow.data_inputs(ref.node)
            if node.op in ("Reshape", "Squeeze", "ExpandDims"):
                changes.append((ref, node.op))
                found = run.input_ref(ref.call, flow, ref.node, data[0], ref.path)
            elif node.op == "IdentityN":
                found = run.input_ref(ref.call, flow, ref.node, data[ref.slot], ref.path)
            else:
                found = run.only_part(ref)
                values = run.parts(ref).values if found is None else ()
                found = values[0] if len(values) == 1 else found
        if found is None:
            self.missing[
                Missing(f"{node.op} {node.name}: it has no recorded value", self.label(flow.graph.id, ref.node))
            ] = None
        return found

    def _reshaped(self, array: Array, changes: Sequence[tuple[Ref, str]]) -> Array | None:
        """The array in the shape that Reshape, Squeeze and ExpandDims gave it."""
        for ref, op in reversed(changes):
            if op == "Squeeze":
                definition = self._definition(self._run.flow(ref.call).graph.id, ref.node)
                dims = tuple(definition.attr["squeeze_dims"].list.i) if definition is not None else ()
                array = np.squeeze(array, dims or None)
                continue
            how = self.input(ref.call, ref.node, 1, ref.path)
            if how is None:
                return None
            if op == "Reshape":
                array = array.reshape(how.reshape(-1).tolist())
            else:
                axis = int(how.reshape(-1)[0])
                array = np.expand_dims(array, axis)
        return array

    # -- what is missing ---------------------------------------------------------------------------------------------

    def _kept(self, row: int, what: str = "") -> Array | None:
        """The value of an event; None, and an entry in `missing`, when it was not kept."""
        run = self._run
        flow, node, _slot, kind = run.node_of(row)
        here = flow.nodes[node]
        label = f"{flow.graph.name}/arguments" if kind == SiteKind.ARG else self.label(flow.graph.id, node)
        self.labels[label] = None
        array = run.trace.value(row)
        if array is None:
            name = f"argument {here.index} of {flow.graph.name}" if kind == SiteKind.ARG else here.op
            name += f" {here.name}" if kind != SiteKind.ARG and here.name != here.op else ""
            shape, dtype = run.trace.shape(run.event_shape[row]), run.trace.dtype(run.event_site[row])
            size = f", {list(shape)}" if shape is not None else ""
            never = numpy_dtype(run.dtype(row)) is None
            told = f"{dtype}: such values are never kept" if never else f"{dtype}{size}"
            self._lacks(f"{what or name} ({told})", "" if never else label)
        return array

    def _lacks(self, what: str, label: str = "") -> None:
        self.missing[Missing(what, label)] = None
        if label:
            self.labels[label] = None

    def label(self, graph: int, node: int) -> str:
        """What the value policy of a recording calls an op."""
        found = self._run.trace.graphs[graph]
        here = found.nodes[node]
        if here.flags & NodeFlag.HOSTVALUE:
            return f"{found.name} host value"
        if found.kind != GraphKind.EAGER:
            return f"{found.name}/{here.name}"
        return eager_label(self._run, graph, node)


def eager_label(run: Run, graph: int, node: int) -> str:
    """`OpType at file.py:line`: what the value policy of a recording calls an eager op."""
    here = run.trace.graphs[graph].nodes[node]
    source = run.trace.source(here.stack)
    where = "?" if source is None else f"{source.base}:{source.line}"
    return f"{here.op} at {where}"
