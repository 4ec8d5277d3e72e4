"""Digests of the state between steps: of the variables that were written, and of what the step's functions gave.

This is the first pass of a search in a long run, so it must cost next to nothing: a step's state is taken only while
all that was taken so far cost at most `SHARE` of the time, and a little more at the beginning, so that short runs are
looked at too. A second run takes it at the same steps.
"""

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tfbisect.recorder import digest
from tfbisect.recorder.entering import Entering, Variable
from tfbisect.recorder.recording import Recording, array_of

SHARE = 0.01  # of the time since the first step began
BEGINNING, BEGINNING_TIME = 0.25, 10.0  # seconds that may be spent beside it, most of them within the first of these
FLUSH_SECONDS = 10.0  # a flush takes milliseconds: what came after the last one is lost if the process is killed
WITHOUT_BYTES = (digest.DT_RESOURCE, digest.DT_VARIANT)

State = Mapping[str, Any]
"""One line of the journal, of kind "state": `at` counts the changes of step, `step` is the last that ended, `variables`
holds number and digest of each variable written since the line before, `results` digests of function results."""


class StateKeeper:
    """Writes the state after steps into the journal. other: the finished run's states, to follow and compare with."""

    def __init__(self, recording: Recording, entering: Entering, other: Sequence[State] | None) -> None:
        self._recording, self._entering = recording, entering
        self._other = None if other is None else {int(line["at"]): line for line in other}
        self._written: dict[int, Variable] = {}
        self._named: set[int] = set()
        self._results: list[int] = []
        self._at = 0  # changes of step so far
        self._step = -1
        self._began: float | None = None
        self._spent, self._cheapest = 0.0, float("inf")
        self._taking = self._is_next()
        self._flushed = time.perf_counter()

    def called(self, written: Iterable[Any], results: Iterable[Any]) -> None:
        """A function has run that may have written the variables with these handles; results: of an outermost one."""
        self.wrote(written)
        if self._taking:
            before = time.perf_counter()
            with self._recording.muted():
                for tensor in results:
                    if tensor.dtype.as_datatype_enum not in WITHOUT_BYTES:
                        array = array_of(tensor)
                        self._results.append(0 if array is None else digest.of_array(array))
            self._spent += time.perf_counter() - before

    def fetched(self, values: Iterable[Any]) -> None:
        """A v1 Session gave these arrays to the program: what it holds itself is not looked at."""
        if self._taking:
            before = time.perf_counter()
            arrays = (np.asarray(value) for value in values if value is not None)
            self._results += [digest.of_array(array) for array in arrays]
            self._spent += time.perf_counter() - before

    def wrote(self, handles: Iterable[Any]) -> None:
        """The variables with these handles were written."""
        for handle in handles:
            variable = self._entering.register(handle)
            if variable is not None:
                self._written[variable.number] = variable

    def step_changed(self, step: int) -> str | None:
        """A step has ended, `step` begins; -> what differs from the other run, in words, or None."""
        before = time.perf_counter()
        if self._began is None:
            self._began = before
        different = self._take() if self._taking else None
        self._at += 1
        self._step = step if step >= 0 else self._step  # behind the last step still counts as that step
        now = time.perf_counter()
        if self._taking:
            self._cheapest = min(self._cheapest, now - before)
        self._spent += now - before
        self._taking = self._is_next()
        return different

    def finish(self) -> None:
        """The last step has ended. Whether its results were to be taken was told before anyone knew it was the last."""
        self._results = []
        self._take()
        elapsed = time.perf_counter() - (self._began or time.perf_counter())
        cost = {"kind": "state_cost", "seconds": self._spent, "of": elapsed, "steps": self._at}
        with self._recording.lock:
            self._recording.writer.journal(cost)

    def _is_next(self) -> bool:
        if self._other is not None:
            return self._at in self._other
        if self._began is None or self._at <= 1:
            return True
        elapsed = time.perf_counter() - self._began
        allowed = SHARE * elapsed + BEGINNING * (1.0 - math.exp(-elapsed / BEGINNING_TIME))
        return self._spent + self._cheapest <= allowed

    def _take(self) -> str | None:
        line: dict[str, Any] = {"kind": "state", "at": self._at, "step": self._step, "results": self._results}
        line["variables"] = found = []
        with self._recording.muted():
            for number in sorted(self._written):
                array = self._entering.read(self._written[number])
                if array is not None:
                    found.append((number, digest.of_array(array)))
        with self._recording.lock:
            for number in self._written.keys() - self._named:
                name = self._written[number].name
                self._recording.writer.journal({"kind": "variable", "number": number, "name": name})
            self._named |= self._written.keys()
            self._recording.writer.journal(line)
            now = time.perf_counter()
            if now - self._flushed > FLUSH_SECONDS:
                self._flushed = now
                self._recording.flush()
        self._written, self._results = {}, []
        other = (self._other or {}).get(self._at)
        return None if other is None else difference(other, line)


def difference(one: State, two: State) -> str | None:
    """What differs in the state of two runs after a step, in words; None if nothing does."""
    if one["variables"] == two["variables"] and one["results"] == two["results"]:
        return None
    where = f"after step {two['step']}" if two["step"] >= 0 else "before the first step"
    values = dict(one["variables"])
    numbers = [number for number, value in two["variables"] if values.get(number) != value]
    count = len(numbers) or 1
    what = f"{count} variable{'s' if count > 1 else ''}" if numbers else "a result"
    return f"{where} the state differs ({what})"
