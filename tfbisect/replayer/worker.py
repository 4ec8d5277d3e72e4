"""Runs an exported script's op in a fresh process and says what came out, as JSON on a file.

`python -m tfbisect.replayer.worker ORDER` where ORDER is a JSON file of `replayer.processes`. Nothing here but running
and counting: what it means is decided in the process that asked.
"""

import hashlib
import json
import runpy
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from tfbisect.metrics import difference
from tfbisect.model import Difference
from tfbisect.replayer.processes import size

MOST_COMPARED = 200  # distinct results that are compared with the first, number by number


def main(order_path: str) -> None:
    """order: `script`, `first` (an .npz file: read if it is there, else written), `expected`, `answer`, and how often:
    `times`, but after `least` runs not beyond `seconds`.
    """
    order = json.loads(Path(order_path).read_text(encoding="utf-8"))
    answer: dict[str, Any]
    try:
        script = runpy.run_path(order["script"], run_name="tfbisect_replay")
        answer = _run(script, order)
    except Exception as error:  # TensorFlow refuses the op, or has no such device
        answer = {"error": f"{type(error).__name__}: {error}"}
    Path(order["answer"]).write_text(json.dumps(answer), encoding="utf-8")


def _run(script: dict[str, Any], order: dict[str, Any]) -> dict[str, Any]:
    first: list[Any] | None = None
    counts: dict[str, int] = {}
    matching: dict[str, bool] = {}
    worst: Difference | None = None
    end = time.monotonic() + order["seconds"]
    for number in range(order["times"]):
        if number >= order["least"] and time.monotonic() > end:
            break
        results = [np.asarray(result) for result in script["run"]()]
        digest = script["digest"](results)
        counts[digest] = counts.get(digest, 0) + 1
        if counts[digest] > 1:
            continue
        matching[digest] = _matches(results, order["expected"])
        if first is None:
            first = _reference(results, Path(order["first"]))
        if len(counts) <= MOST_COMPARED:
            for a, b in zip(first, results, strict=True):
                worst = _worse(worst, difference(a, b))
    tf = script["tf"]
    return {
        "counts": counts,
        "matching": sum(counts[digest] for digest, same in matching.items() if same),
        "difference": worst.to_json() if worst is not None else None,
        "versions": {"tensorflow": tf.__version__, "numpy": np.__version__, "python": sys.version.split()[0]},
    }


def _reference(results: list[Any], path: Path) -> list[Any]:
    """The results that all are compared with: the first of the first process."""
    if any(result.dtype.hasobject for result in results):  # strings: each process keeps its own
        return results
    if path.exists():
        with np.load(path, allow_pickle=False) as file:
            return [file[f"r{i}"].view(result.dtype) for i, result in enumerate(results)]
    numeric = [result.view(f"V{result.dtype.itemsize}") if _special(result) else result for result in results]
    np.savez(path, **{f"r{i}": result for i, result in enumerate(numeric)})
    return results


def _special(array: Any) -> bool:
    """Whether the type is one that NumPy alone does not know."""
    return bool(array.dtype.kind not in "biufc")


def _matches(results: list[Any], expected: dict[str, str]) -> bool:
    """Whether the results that the recorded run kept are these, bit for bit. False when it kept none."""
    found = {index: hashlib.sha256(results[int(index)].tobytes()).hexdigest() for index in expected}
    return bool(expected) and found == expected


def _worse(a: Difference | None, b: Difference) -> Difference | None:
    if not b.differing:
        return a
    return b if a is None or size(b) > size(a) else a


if __name__ == "__main__":
    main(sys.argv[1])
