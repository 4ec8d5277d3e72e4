"""The runs that a search for a cure makes: fresh processes under settings from outside, and what each leaves behind.

Chooses no settings. `same` says whether two recorded runs differ in anything that matters.
"""

import hashlib
import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tfbisect import orchestrator
from tfbisect.model import Comparison
from tfbisect.recorder.treatment import SPEC
from tfbisect.remedy import Treatment
from tfbisect.verification import STATE, EndState, plain_command

PATIENCE, SLOWER = 60.0, 20.0  # seconds and times the first run: a run that takes longer hangs


@dataclass(frozen=True, slots=True)
class Request:
    """What to cure. `environment_b`: variables of the second run of each pair. `pairs`: how many must be identical."""

    program: Path
    arguments: tuple[str, ...] = ()
    environment_b: Mapping[str, str] = field(default_factory=dict)
    max_runs: int = 30
    pairs: int = 3


@dataclass(frozen=True, slots=True)
class Run:
    """One run and what it left. `report`: what `recorder.treatment` wrote as it ended."""

    trace: Path
    state: EndState | None
    status: int
    errors: str
    report: Mapping[str, Any]

    @property
    def seconds(self) -> float | None:
        value = self.report.get("seconds")
        return None if value is None else float(value)


class Spent(Exception):
    """No more runs may be made."""


class Hangs(Exception):
    """A run took far longer than the untreated one and was ended."""


class Runner:
    """Makes runs, `request.max_runs` at most."""

    def __init__(self, request: Request, folder: Path) -> None:
        self._request, self._folder = request, folder
        self._program = orchestrator.Program(request.program.absolute(), request.arguments)
        self._first: Run | None = None
        self.count = 0

    @property
    def left(self) -> int:
        return self._request.max_runs - self.count

    def _patience(self) -> float | None:
        """Seconds that a run may take; None before it is known how long the program takes."""
        return None if self._first is None else PATIENCE + SLOWER * (self._first.seconds or 0.0)

    def record(self, chosen: Sequence[Treatment], side: str) -> Run:
        """One recorded run, as the first (A) or second (B) of a pair. Raises Spent, Hangs."""
        target = self._folder / f"run{self.count + 1}.h5"
        return self._start(orchestrator.record_command(self._program, target), target, chosen, side)

    def plainly(self, chosen: Sequence[Treatment], side: str) -> Run:
        target = self._folder / f"plain{self.count + 1}"
        return self._start(plain_command(self._program, target.with_suffix(".json")), target, chosen, side)

    def _start(self, command: Sequence[str], target: Path, chosen: Sequence[Treatment], side: str) -> Run:
        if self.count >= self._request.max_runs:
            raise Spent
        self.count += 1
        state, report = target.with_suffix(".json"), target.with_suffix(".report")
        environment = {**os.environ, **(self._request.environment_b if side == "B" else {})}
        changed = {name: value for each in chosen for name, value in each.environment}
        for name, value in changed.items():
            if value is None:
                environment.pop(name, None)
            else:
                environment[name] = value
        actions = dict.fromkeys(action for each in chosen for action in each.actions)
        spec = {"actions": list(actions), "environment": changed, "report": str(report.absolute())}
        environment |= {STATE: str(state.absolute()), SPEC: json.dumps(spec)}
        output, errors = target.with_suffix(".out"), target.with_suffix(".err")
        with output.open("wb") as out, errors.open("wb") as err:
            try:
                done = subprocess.run(
                    command, env=environment, stdout=out, stderr=err, timeout=self._patience(), check=False
                )
            except subprocess.TimeoutExpired as error:
                raise Hangs(f"it did not end within {error.timeout:.0f} s") from None
        printed = output.read_bytes()
        left = EndState.read(state, done.returncode, hashlib.sha256(printed).hexdigest(), len(printed))
        run = Run(target, left, done.returncode, errors.read_text(encoding="utf-8", errors="replace"), _json(report))
        for path in (output, errors, state, report):
            path.unlink(missing_ok=True)
        self._first = self._first or run
        return run


def same(comparison: Comparison, a: Run, b: Run) -> bool:
    """Whether nothing that matters differs: nothing at all, or only what reaches no result.

    Where calls of one run have no partner in the other but nothing that was compared differs, what the runs left
    behind decides.
    """
    if comparison.verdict == "identical":
        return True
    left = difference(a, b) is None
    if comparison.culprits:
        return left and all(culprit.contained for culprit in comparison.culprits)
    return left and not comparison.coverage.undecided and comparison.coverage.compared > 0


def difference(a: Run, b: Run) -> str | None:
    """The first difference in what two runs left, in words; None if there is none."""
    if a.state is None or b.state is None:
        return "a run that left no state"
    return a.state.difference(b.state)


def _json(path: Path) -> Mapping[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
