"""The use case: open traces and compare them, two or more, bit for bit or within a tolerance.

Picks who does it: `pairwise`, `manyruns`, `tolerance` or `workers`.
"""

import os
from collections.abc import Sequence

from tfbisect import storage, trace
from tfbisect.cheap import is_cheap
from tfbisect.errors import Usage
from tfbisect.manyruns import compare_many
from tfbisect.model import Comparison
from tfbisect.pairwise import compare_pair
from tfbisect.tables import Trace
from tfbisect.tolerance import Tolerance, compare_within
from tfbisect.workers import compare_workers, jobs_together

Path = str | os.PathLike[str]


def compare(*paths: Path, rtol: float = 0.0, atol: float = 0.0, ulp: int = 0) -> Comparison:
    """Compare the traces of two or more runs of one program. They may be URLs, which fsspec reads.

    Two folders are two runs of a job of several processes, with a trace for each worker: see `workers`.

    With a tolerance (two traces, recorded with values) numbers count as equal when |a - b| <= atol + rtol * max(|a|,
    |b|), or when they are at most `ulp` floating point numbers apart. Without one bits count.

    Raises Usage for other numbers of traces or such tolerances, what `trace.load` raises, EmptyTrace, SchemeMismatch
    and Unrelated.
    """
    tolerance = Tolerance(rtol, atol, ulp)
    if len(paths) < 2:
        found = f"{len(paths)} trace{'s' if len(paths) != 1 else ''}"
        raise Usage("compare", found=found, expected="two or more", hint="python -m tfbisect compare a.h5 b.h5")
    if tolerance and len(paths) > 2:
        hint = "python -m tfbisect compare --rtol 1e-5 a.h5 b.h5"
        raise Usage("compare with a tolerance", found=f"{len(paths)} traces", expected="two", hint=hint)
    folders = [storage.is_folder(os.fspath(path)) for path in paths]
    if any(folders):
        return _compare_folders(paths, folders, tolerance)
    if len(paths) > 2:
        return compare_many(paths)
    return compare_traces(*map(trace.load, paths), tolerance=tolerance)


def compare_traces(a: Trace, b: Trace, *, tolerance: Tolerance | None = None) -> Comparison:
    """Compare two loaded traces. Raises Usage, EmptyTrace, SchemeMismatch and Unrelated."""
    for each in (a, b) if tolerance else ():
        if is_cheap(each):
            hint = "python -m tfbisect record --values all program.py"
            raise Usage(f"tolerance for {each.path}", found="--ops suspects", expected="every op recorded", hint=hint)
    return compare_within(a, b, tolerance) if tolerance else compare_pair(a, b).comparison


def _compare_folders(paths: Sequence[Path], folders: Sequence[bool], tolerance: Tolerance) -> Comparison:
    """Compare runs of several workers with the first. Raises Usage where a trace or a tolerance stands beside them."""
    hint = "python -m tfbisect compare run_a run_b"
    if not all(folders):
        found = f"a folder, {paths[folders.index(True)]}, beside a trace"
        raise Usage("compare", found=found, expected="two traces or more, or two folders or more", hint=hint)
    if tolerance:
        hint = "python -m tfbisect compare --rtol 1e-5 run_a/worker0.h5 run_b/worker0.h5"
        raise Usage("compare with a tolerance", found="folders", expected="two traces, of one worker", hint=hint)
    names = [os.fspath(path) for path in paths]
    first = _workers(names[0])
    return jobs_together([compare_workers(first, _workers(name), (names[0], name)) for name in names[1:]])


def _workers(folder: str) -> list[Trace]:
    return [trace.load(each) for each in storage.traces_in(folder)]
