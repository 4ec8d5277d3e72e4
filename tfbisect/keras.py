"""Callbacks for `model.fit`: record its steps, or only digests of the weights.

    model.fit(x, y, callbacks=[tfbisect.keras.Recorder("a.h5", steps="0:3")])
    model.fit(x, y, callbacks=[tfbisect.keras.Digest("a.h5")])

Both files are for `tfbisect compare`. They change neither the model nor what is trained.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from tfbisect import recorder
from tfbisect.errors import Usage
from tfbisect.model import CallState, Edge, GraphKind, Node, NodeFlag, SiteKind
from tfbisect.recorder import digest, runinfo, stacks
from tfbisect.recorder.window import Window
from tfbisect.trace import TraceWriter

__all__ = ["Digest", "Recorder"]

_Callback: Any = tf.keras.callbacks.Callback
WEIGHT = "Weight"  # the op type under which a weight is shown
_UINT64 = 23  # TensorFlow's DataType of a digest of digests


class Recorder(_Callback):  # type: ignore[misc]
    """Records what TensorFlow runs in `fit` into a trace, as `tfbisect.record` does.

    steps: the batches to record op by op, counted from 0 over all epochs: 3 for the first three, "10:12" for batches 10
    and 11, "7" for batch 7; None: all. values, force: as in `tfbisect.record`. Raises Usage, and in `fit` what
    `tfbisect.record` raises.
    """

    def __init__(
        self, path: str | os.PathLike[str], steps: int | str | None = None, *, values: str = "auto",
        force: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self._path, self._values, self._force = Path(path), values, force
        self._steps = f"0:{steps}" if isinstance(steps, int) else steps
        if self._steps is not None:
            Window.parse(self._steps)  # what makes no sense is told here, not hours later
        self._recording: Any = None

    def on_train_begin(self, logs: Any = None) -> None:
        self._stop()  # of a fit that raised
        recording = recorder.record(self._path, values=self._values, force=self._force, steps=self._steps)
        recording.__enter__()
        self._recording = recording

    def on_train_end(self, logs: Any = None) -> None:
        self._stop()

    def _stop(self) -> None:
        recording, self._recording = self._recording, None
        if recording is not None:
            recording.__exit__(None, None, None)


class Digest(_Callback):  # type: ignore[misc]
    """Writes a digest of each weight to a small file: before training, and after each epoch or batch.

    `tfbisect compare` of two such files names the first epoch or batch in which a weight differs, and the weight. What
    computed it is not recorded: `Recorder` does that. each: "epoch" or "batch". A weight is read once for each digest.
    Raises Usage, and in `fit` OutputExists (without `force`) and CannotWrite.
    """

    def __init__(self, path: str | os.PathLike[str], each: str = "epoch", *, force: bool = False) -> None:
        super().__init__()
        if each not in ("epoch", "batch"):
            raise Usage("Digest: each", found=each, expected="epoch or batch")
        self._path, self._force, self._each = Path(path), force, each
        self._file: _WeightsFile | None = None
        if each == "epoch":
            self.on_epoch_end = self._after
        else:
            self.on_train_batch_end = self._after

    def on_train_begin(self, logs: Any = None) -> None:
        if self._file is not None:
            self._file.close("the fit before was not finished")
        self._file = _WeightsFile(self._path, self._each, self._force)
        self._file.add(self.model.weights, begins=False)

    def on_train_end(self, logs: Any = None) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _after(self, number: int, logs: Any = None) -> None:
        if self._file is not None:
            self._file.add(self.model.weights, begins=True)


class _WeightsFile:
    """A trace of weights: each round is a call that takes one digest of all weights of the round before.

    So a weight that differs is a receiver if any weight differed before, and else the first that does.
    """

    def __init__(self, path: Path, each: str, force: bool) -> None:
        self._writer = TraceWriter(path, force=force)
        self._each = each
        self._stacks = stacks.Stacks(stacks.UserCode(), self._writer.stack)
        self._graphs: dict[tuple[str, tuple[tuple[str, int], ...]], tuple[int, int]] = {}
        self._calls, self._step = 0, -1
        argv = list(sys.argv)
        info = runinfo.at_start(argv[0] if argv else None, argv, {"values": "none", "weights": each})
        self._writer.journal({"kind": "info", "run": info})
        self._writer.flush()

    def add(self, weights: Sequence[Any], begins: bool) -> None:
        """Another round. begins: it is a step of its own; else what was there before the first."""
        arrays = [weight.numpy() for weight in weights]
        names = tuple(
            (_name(weight), tf.as_dtype(array.dtype).as_datatype_enum)
            for weight, array in zip(weights, arrays, strict=True)
        )
        self._step += begins
        stack = self._stacks.here(1)
        graph, site = self._graph(self._each if begins else "start", names, stack)
        call, self._calls = self._calls, self._calls + 1
        digests = [digest.of_array(array) for array in arrays]
        if call > 0:
            self._writer.link(call, 0, call - 1, 0)
        for offset, (array, value) in enumerate(zip(arrays, digests, strict=True)):
            self._writer.event(call, site + offset, 0, self._writer.shape(array.shape), value)
        all_of_them = digest.of_text(digests)
        self._writer.event(call, site + len(arrays), 0, self._writer.shape(()), all_of_them)
        self._writer.call(call, graph, 0, CallState.OK, -1, self._step, stack)
        self._writer.flush()

    def close(self, reason: str | None = None) -> None:
        self._writer.journal({"kind": "info", "run": runinfo.of_process()})
        status = "complete" if reason is None else "incomplete"
        self._writer.journal({"kind": "end", "status": status, "exit": None, "reason": reason})
        self._writer.close()

    def _graph(self, name: str, weights: tuple[tuple[str, int], ...], stack: int) -> tuple[int, int]:
        """(graph, first site): the weights in order, then the digest of them all."""
        key = name, weights
        if key not in self._graphs:
            flags = NodeFlag.OPAQUE  # what computed a weight is hidden in it
            takes = name != "start"
            nodes = [Node("weights before", "_Arg", index=0)] if takes else []
            first = len(nodes)
            inputs = (Edge(0, 0),) if takes else ()
            nodes += [Node(each, WEIGHT, function=name, stack=stack, flags=flags, inputs=inputs) for each, _ in weights]
            everything = tuple(Edge(first + number, 0) for number in range(len(weights)))
            nodes.append(Node("weights", "Weights", function=name, stack=stack, inputs=everything))
            nodes.append(Node("weights after", "_Retval", index=0, inputs=(Edge(len(nodes) - 1, 0),)))
            graph = self._writer.graph(name, name, GraphKind.SOURCE, digest.of_text(name, weights), nodes)
            rows = [(first + number, 0, SiteKind.OUTPUT, dtype) for number, (_, dtype) in enumerate(weights)]
            rows.append((first + len(weights), 0, SiteKind.OUTPUT, _UINT64))
            self._graphs[key] = graph, self._writer.sites(graph, rows)
        return self._graphs[key]


def _name(weight: Any) -> str:
    return str(getattr(weight, "path", "") or weight.name)
