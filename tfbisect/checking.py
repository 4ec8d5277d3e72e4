"""Does a computation repeat? Run several times from one state in this process, recorded each time, and compared.

Saves and restores nothing itself: `recorder.restoring` does. Traces are kept only where the caller says so.
"""

import contextlib
import dataclasses
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tfbisect import recorder, trace
from tfbisect.comparison import compare
from tfbisect.errors import CannotWrite, EmptyTrace, Usage
from tfbisect.model import Comparison, NodeFlag
from tfbisect.tables import Trace

EXAMPLES = 3


def check(fn: Callable[..., Any], *args: Any, runs: int = 5, keep: str | os.PathLike[str] | None = None) -> Comparison:
    """Run `fn(*args)` several times from the same state in this process; -> whether it repeats, and if not, which op.

    fn: anything that can be called: a tf.function, a method, plain Python that uses TensorFlow. Before each run, and at
    the end, all variables (weights, optimizer slots, metrics, Keras seed generators, `tf.random.Generator`s), mutable
    tables, dataset iterators and the random generators of Python and NumPy get back the bits they had. A first run that
    is not compared lets functions be traced and optimizers make their variables. Kernels that keep a random stream of
    their own begin it anew in each run, and are named among the warnings; other state of Python's is left as the runs
    make it. runs: at most so many runs are compared with the first; the first that differs ends it. keep: a folder for
    the traces `run1.h5`, `run2.h5`, ... of the runs, for `tfbisect.replay` or a report; by default they are deleted.

    Raises Usage, OutputExists, EmptyTrace where no TensorFlow op ran, and what `fn` itself raises; the state is put
    back then too.
    """
    if not callable(fn):
        raise Usage("check", found=type(fn).__name__, expected="something to call and its arguments")
    if runs < 2:
        raise Usage("check: runs", found=runs, expected="2 or more: one run has nothing to be compared with")
    from tfbisect.recorder.restoring import State

    with _folder(keep) as folder:
        state = State((fn, args))
        try:
            return _repeated(lambda: fn(*args), state, folder, runs)
        finally:
            state.put_back()


def check_model(
    model: Any, x: Any, y: Any = None, *, runs: int = 5, batch_size: int | None = None,
    keep: str | os.PathLike[str] | None = None,
) -> Comparison:  # fmt: skip
    """Train a compiled Keras model for one epoch several times from the same weights; -> whether training repeats.

    x, y, batch_size: as for `model.fit`, which is called with `shuffle=False`. Weights, optimizer, metrics and history
    of the model are as before afterwards. Everything else is as in `check`.
    """
    if not hasattr(model, "fit") or not getattr(model, "compiled", True):
        raise Usage("check_model", found=type(model).__name__, expected="a Keras model on which compile() was called")

    def epoch() -> None:
        model.fit(x, y, batch_size=batch_size, epochs=1, shuffle=False, verbose=0)

    history = vars(model).get("history")
    try:
        return check(epoch, runs=runs, keep=keep)
    finally:
        model.history = history


def _repeated(run: Callable[[], Any], state: Any, folder: Path, runs: int) -> Comparison:
    with recorder.record_afresh(folder / "run0.h5", values="none"), state.adopting():  # sees a call before its twin
        run()
    (folder / "run0.h5").unlink()
    undecided: Comparison | None = None
    first = folder / "run1.h5"
    for number in range(1, runs + 1):
        path = folder / f"run{number}.h5"
        with recorder.record_afresh(path) as recorded:
            state.put_back()  # recorded too: so it is known that the variables begin equal
            before = recorded()
            run()
            if recorded() == before:
                raise EmptyTrace(
                    "check", found="no TensorFlow op in what was called", expected="one that can be compared"
                )
        if number == 1:
            continue
        comparison = compare(first, path)
        if comparison.verdict == "diverged":
            break
        if comparison.verdict == "inconclusive" and undecided is None:
            undecided = comparison
    else:
        comparison = undecided or comparison
    remarks = [*state.remarks, *_streams(trace.load(first), state.draws_eagerly)]
    return dataclasses.replace(comparison, warnings=(*comparison.warnings, *dict.fromkeys(remarks)))


def _streams(run: Trace, eagerly: bool) -> list[str]:
    """The kernels of a run that keep a random stream of their own, as remarks."""
    places: dict[str, None] = {}
    for number in dict.fromkeys(run.calls["graph"].tolist()):
        for node in run.graphs[number].nodes:
            if node.flags & NodeFlag.RANDOM:
                source = run.source(node.stack)
                line = f" at {source.base}:{source.line}" if source is not None else ""
                places[f"{node.op}{line}"] = None
    if not places:
        return []
    shown = ", ".join(list(places)[:EXAMPLES])
    if len(places) > EXAMPLES:
        shown += f" and {len(places) - EXAMPLES} more"
    text = f"kernels that keep a random stream of their own, which cannot be saved: {shown}; each run began it anew"
    if eagerly:
        text += ", and so does what the program draws next with such eager ops"
    return [text]


@contextlib.contextmanager
def _folder(given: str | os.PathLike[str] | None) -> Iterator[Path]:
    if given is None:
        with tempfile.TemporaryDirectory(prefix="tfbisect-check-") as name:
            yield Path(name)
        return
    folder = Path(given)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CannotWrite(f"folder {folder}", found=error.strerror, expected="a folder to write in") from error
    yield folder
