"""Runs an exported script in fresh processes, and says whether its results vary, and when."""

import hashlib
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tfbisect.errors import Usage, printable
from tfbisect.model import Difference
from tfbisect.replayer.result import OUTCOMES
from tfbisect.replayer.settings import Settings, process_environment

if TYPE_CHECKING:
    from tfbisect.replayer.case import Case

VARIES, PER_PROCESS, STABLE = OUTCOMES


@dataclass(frozen=True, slots=True)
class Process:
    """What one process computed. counts: {digest of a result: how often}; matching: results equal to the recorded."""

    counts: Mapping[str, int]
    matching: int
    difference: Difference | None  # the largest one from the first result of the first process
    versions: Mapping[str, str]


def outcome(processes: Sequence[Process]) -> str:
    """VARIES: within a process. PER_PROCESS: the same within each, not in all. STABLE: one result everywhere."""
    if any(len(process.counts) > 1 for process in processes):
        return VARIES
    return PER_PROCESS if len({digest for process in processes for digest in process.counts}) > 1 else STABLE


def totals(processes: Sequence[Process]) -> list[tuple[str, int]]:
    """(digest, how often) over all processes, the most frequent first."""
    found: Counter[str] = Counter()
    for process in processes:
        found.update(process.counts)
    return sorted(found.items(), key=lambda item: (-item[1], item[0]))


def run(script: Path, times: int, case: "Case", settings: Settings, *, least: int, seconds: float) -> Process:
    """Run the op of a script in a fresh process: `times` times, but after `least` runs not beyond `seconds`.

    Raises Usage when TensorFlow cannot run it.
    """
    folder = script.parent
    order, answer = folder / "order.json", folder / "answer.json"
    answer.unlink(missing_ok=True)
    expected = {str(index): hashlib.sha256(data).hexdigest() for index, data in case.expected.items()}
    wanted = {
        "script": str(script),
        "first": str(folder / "first.npz"),
        "expected": expected,
        "answer": str(answer),
        "times": times,
        "least": least,
        "seconds": seconds,
    }
    order.write_text(json.dumps(wanted), encoding="utf-8")
    environment = process_environment(settings)
    home = str(Path(__file__).parents[2])
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (home, environment.get("PYTHONPATH"))))
    environment.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    done = _started([sys.executable, "-m", "tfbisect.replayer.worker", str(order)], folder, environment)
    if not answer.exists():
        raise Usage(
            "replay: the process that ran the op",
            found=f"exit status {done.returncode}, and at the end of its messages: {_last(done.stderr)}",
            expected="results",
            hint="export the script and run it by itself: --export repro.py",
        )
    found = json.loads(answer.read_text(encoding="utf-8"))
    if "error" in found:
        raise Usage("replay: TensorFlow cannot run the op here", found=_reason(found["error"]), hint=_hint(case))
    worst = found["difference"]
    return Process(
        found["counts"], found["matching"], Difference.from_json(worst) if worst else None, found["versions"]
    )


def run_script(script: Path, times: int, settings: Settings) -> tuple[int, int]:
    """Run an exported script as its reader will, without this package; -> (distinct results, runs).

    Raises Usage when it fails.
    """
    environment = process_environment(settings)
    for name in settings.environment:
        environment.pop(name, None)  # the script sets them
    environment.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    done = _started([sys.executable, str(script), str(times)], script.parent, environment)
    for line in done.stdout.splitlines():
        words = line.split()
        if len(words) == 4 and words[1] == "of" and words[3] == "distinct":
            return int(words[0]), int(words[2])
    raise Usage(f"script {script}", found=_last(done.stderr), expected="a script that runs")


def size(each: Difference) -> tuple[float, float, int]:
    """Sorts differences by how large they are."""
    return each.max_abs or 0.0, float(each.max_ulp or 0), each.differing


def _started(command: list[str], folder: Path, environment: Mapping[str, str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command,
        cwd=folder,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
    )


def _last(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return printable(lines[-1])[:300] if lines else "nothing"


def _reason(text: str) -> str:
    return printable(" ".join(text.split()))[:400]


def _hint(case: "Case") -> str:
    if case.device and not case.device.startswith("/device:CPU"):
        return f"the op ran on {case.device.removeprefix('/device:')}: replay it on a machine that has one"
    return "replay with the TensorFlow that the run was recorded with: python -m tfbisect info a.h5"
