"""The second execution of each pure op: in a function's twin, and right behind an eager op.

It waits for the first, and what consumes the first waits for the digests of both, so the program's own values stay
what they were. What must run once only is counted: ops that draw random numbers, call Python, read or write state, work
in place or call a function, and AddN of three inputs and more.

Private TensorFlow API used here, tried on 2.16.2, 2.18.1 and 2.21.0: `execute.quick_execute` with what an op callback
was given.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from tensorflow.core.framework import node_def_pb2
from tensorflow.python.eager import context as eager_context
from tensorflow.python.eager import execute
from tensorflow.python.framework import op_def_registry

from tfbisect.model import SiteKind
from tfbisect.recorder import digest, ops
from tfbisect.recorder.eager import EagerRecorder
from tfbisect.recorder.function import FunctionRecorder
from tfbisect.recorder.recording import Recording, Thread, array_of
from tfbisect.recorder.rows import DIGEST_BYTES, GroupReader, content
from tfbisect.recorder.session_graph import own_outputs
from tfbisect.recorder.shadow import ONCE, Ledger
from tfbisect.recorder.twin import Group, Tap, TwinBuilder

AGAIN = 1 << 14  # a tap of the second execution has the slot of the first plus this; a slot is 16 bits in the trace
SUMS_BY_BUFFER = "it sums in the order of the buffers that are free, which a second execution changes"
_STATE_DTYPES = (digest.DT_RESOURCE, digest.DT_VARIANT)


def exempt(op: str, dtypes: Sequence[int], inputs: int) -> str | None:
    """Why an op must not run twice; None when it may.

    dtypes: DataTypes of its inputs and outputs as far as they are known; inputs: how many data inputs it has.
    """
    definition = op_def_registry.get(op)
    if definition is None:
        return "it is not a registered op"
    if op in ops.RANDOM:
        return "it draws random numbers"
    if op in ops.HOST:
        return "it calls Python"
    if op in ops.ADDS_IN_PLACE and inputs > 2:
        return SUMS_BY_BUFFER
    if any(attr.type in ("func", "list(func)") for attr in definition.attr):
        return "it calls a function"
    if op.startswith("Inplace") or op == "_ParallelConcatUpdate":  # inplace_ops.cc: stateless by their definition
        return "it works in place"
    reference = any(arg.is_ref for arg in (*definition.input_arg, *definition.output_arg))
    if definition.is_stateful or reference or any(dtype in _STATE_DTYPES for dtype in dtypes):
        return "it reads or writes state"
    return None


class ShadowBuilder(TwinBuilder):
    """A twin in which pure ops have a second execution, tapped like the first."""

    def _tap_outputs(self, node: Any) -> None:
        super()._tap_outputs(node)
        if node.op in ops.FORWARDERS:
            return
        number = self._number[node.name]
        outputs = self._outputs[node.name]
        reason = exempt(node.op, self._dtypes(node), sum(not ref.startswith("^") for ref in node.input))
        if reason is not None:
            self.twin.unrecorded.append((number, 0, ONCE + reason))
            return
        meant = [(slot, output) for slot, output in enumerate(outputs) if digest.digestible(output[2])]
        meant = [each for each in meant if each[0] < min(AGAIN, own_outputs(node.op, len(outputs)))]
        if not meant:
            return
        again = node_def_pb2.NodeDef()
        again.CopyFrom(self._nodes[node.name])
        again.name = f"{self._prefix}/{number}.again"
        again.input.append(f"^{node.name}")
        self._extra.append(again)
        for slot, (name, index, dtype) in meant:
            self._tap(node, f"{again.name}:{name}:{index}", Tap(number, AGAIN + slot, SiteKind.OUTPUT, dtype, None, ""))

    def _dtypes(self, node: Any) -> list[int]:
        """DataTypes of a node's outputs and of those inputs that are outputs of another op or arguments."""
        found = [dtype for _, _, dtype in self._outputs[node.name]]
        for ref in node.input:
            if ref.startswith("^"):
                continue
            name, _, slot = ref.partition(":")
            if name in self._outputs:
                found.append(self._outputs[name][int(slot or 0)][2])
            else:
                found.append(self._original[name].attr["T"].type)
        return found


class _Reader(GroupReader):
    """Takes the digests out of a row and compares those of one op's two executions."""

    def __init__(self, ledger: Ledger, graph: int, group: Group) -> None:
        self._ledger, self._graph, self._group = ledger, graph, group

    def record(self, recording: Recording, call: int, path: np.ndarray, blob: bytes) -> None:
        taps = self._group.taps
        digests = np.frombuffer(content(blob)[-DIGEST_BYTES * len(taps) :], "<u8").tolist()
        for tap, value in zip(taps, digests, strict=True):
            if tap.kind != SiteKind.OUTPUT:
                continue
            slot = tap.slot % AGAIN
            key = call, path.tobytes(), self._graph, tap.node, slot
            other = self._ledger.waiting.pop(key, None)
            if other is None:
                self._ledger.waiting[key] = value
            else:
                self._ledger.add((self._graph, tap.node, slot), other == value)


class ShadowFunctions(FunctionRecorder):
    builder = ShadowBuilder
    ledger: Ledger

    def _reader(self, graph: int, first_site: int, group: Group) -> GroupReader:
        return _Reader(self.ledger, graph, group)


class ShadowEager(EagerRecorder):
    """Runs each pure eager op again, on the inputs that it had."""

    ledger: Ledger

    def _record(
        self, thread: Thread, op: str, inputs: Sequence[Any], attrs: Any, outputs: Any, stack: int | None = None
    ) -> None:  # fmt: skip
        recording = self._recording
        if op in ops.FORWARDERS or op in ops.SILENT:
            return
        outputs = [] if outputs is None else list(outputs) if isinstance(outputs, list | tuple) else [outputs]
        here = recording.stacks.here(1)
        dtypes = [tensor.dtype.as_datatype_enum for tensor in (*inputs, *outputs)]
        reason = exempt(op, dtypes, len(inputs))
        if reason is None and outputs:
            try:
                again = execute.quick_execute(op, len(outputs), list(inputs), attrs, eager_context.context())
            except Exception as error:
                reason = f"it could not be run again: {type(error).__name__}"
            else:
                pairs = list(zip(outputs, again, strict=True))
                for slot, (first, second) in enumerate(pairs[: own_outputs(op, len(pairs))]):
                    arrays = array_of(first), array_of(second)
                    if arrays[0] is not None and arrays[1] is not None:
                        one, other = (digest.of_array(array) for array in arrays if array is not None)
                        self.ledger.add((op, here, slot), one == other)
                return
        if reason is not None:
            recording.unseen(op, op, ONCE + reason, here)
