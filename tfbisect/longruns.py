"""Finds the step of a long run where two runs part, and then the op, without recording all steps op by op.

First pass: runs that keep digests of the state between steps only. Second pass: a pair of runs in which the steps
around the difference are recorded op by op. A divergence may move from pair to pair: then the window follows it, wider.
How two traces compare is handed in; what happens is told to `say`.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tfbisect.errors import OutputExists, Usage
from tfbisect.model import ENTERING_STATE, Comparison
from tfbisect.orchestrator import Compare, Outcome, Program, Say, check_program, record_once
from tfbisect.tables import Trace
from tfbisect.trace import load

PASSES = 6  # pairs of runs at most, each with another window
WIDEST = 200  # steps of a window


@dataclass(frozen=True, slots=True)
class Span:
    """The steps in which two runs parted: from `first` to `last`, both included. what: which state differed."""

    first: int
    last: int
    what: str = ""


@dataclass(frozen=True, slots=True)
class Window:
    """The steps that a pair of runs recorded op by op, without `last`, and what came of it.

    result: "found"; "earlier": the runs differed before the window; "later": they did not differ up to its end.
    """

    first: int
    last: int
    result: str
    events: int


@dataclass(frozen=True, slots=True)
class Found:
    """What a search found. outcome: the pair that was recorded op by op last; None if no state differed.

    program: the program with the options of that pair. steps: how many steps the first run had. runs: of the first
    pass. cost: the share of the first run's time that taking its state took.
    """

    outcome: Outcome | None
    program: Program
    span: Span | None
    windows: tuple[Window, ...]
    steps: int
    runs: int
    cost: float

    @property
    def moved(self) -> int:
        """In how many pairs the runs parted outside of the window."""
        return sum(window.result != "found" for window in self.windows)


def search(
    program: Program, folder: Path, times: int, compare: Compare, say: Say, *, force: bool = False
) -> Found:  # fmt: skip
    """Find the op at which runs of a long program part. times: runs of the first pass at most.

    Raises Usage where the program shows no steps, ProgramNotFound, OutputExists (without `force`), and what `compare`
    raises.
    """
    if times < 2:
        raise Usage("--times", found=times, expected="2 or more: one run has nothing to be compared with")
    check_program(program.path)
    if not force:
        for there in sorted([*folder.glob("state*.h5"), *folder.glob("steps*.h5")]):
            raise OutputExists(f"trace {there}", found="a file that is there already")
    first, span, runs = _first_pass(program, folder, times, say)
    cost = first.state_cost or {"seconds": 0.0, "of": 1.0}
    found = Found(None, program, span, (), _steps(first), runs, cost["seconds"] / (cost["of"] or 1.0))
    if span is None:
        return found
    window = max(span.first - 1, 0), span.last + 2
    for number in range(1, PASSES + 1):
        recorder = dataclasses.replace(program, options=("--steps", f"{window[0]}:{window[1]}", "--then-stop"))
        say(f"pair {number}: steps {window[0]} to {window[1] - 1} are recorded op by op")
        traces = folder / f"steps{number}a.h5", folder / f"steps{number}b.h5"
        statuses = [_record(recorder, traces[0], say, "--state")]
        statuses.append(_record(recorder, traces[1], say, "--state", "--against", str(traces[0]), "--stop-at-first"))
        one, two = (load(trace) for trace in traces)
        entered = before(one, two, window[0])
        comparison = None
        if entered is None:
            comparison = compare(*traces)
            result = _result(comparison)
        else:
            result = "earlier"
        done = Window(*window, result, len(one.events) + len(two.events))
        if comparison is not None:
            outcome = Outcome(comparison, traces, runs + 2 * number, tuple(statuses))
            found = dataclasses.replace(found, outcome=outcome, program=recorder)
        found = dataclasses.replace(found, windows=(*found.windows, done))
        if result == "found":
            return found
        window = _next_window(window, entered, result)
        say(f"the runs of this pair part {result}: the divergence moves from run to run")
    return found


def _first_pass(program: Program, folder: Path, times: int, say: Say) -> tuple[Trace, Span | None, int]:
    """Runs with digests of the state only, until one differs from the first; -> (the first, where, how many runs)."""
    states = dataclasses.replace(program, options=("--steps", "none", "--state"), values="none")
    paths = [folder / f"state{number}.h5" for number in range(1, times + 1)]
    say(f"run 1 of at most {times}: only the state after steps is looked at")
    _record(states, paths[0], say)
    first, span = load(paths[0]), None
    missing = ""
    if _steps(first) == 0:
        missing = "no steps: no variable is written more than once"
    elif not any(state["variables"] or state["results"] for state in first.states):
        missing = "steps that leave nothing to compare: no variable, no result of a function, nothing fetched"
    if missing:
        raise Usage(
            f"program {program.path}", found=missing,
            expected="Keras training, a function that writes variables, or tfbisect.step() at the start of each step",
            hint=f"python -m tfbisect run {program.path}",
        )  # fmt: skip
    for number in range(2, times + 1):
        say(f"run {number} of at most {times}, compared with the first")
        _record(states, paths[number - 1], say, "--against", str(paths[0]), "--then-stop", "--stop-at-first")
        span = parted(first, load(paths[number - 1]))
        if span is not None:
            where = f"step {span.first}" if span.first == span.last else f"steps {span.first} to {span.last}"
            say(f"the state of run {number} differs from that of run 1 in {where}: {span.what}")
            return first, span, number
    return first, None, times


def _record(program: Program, trace: Path, say: Say, *options: str) -> int:
    trace.unlink(missing_ok=True)  # else a run that leaves no trace would be taken for an older one
    return record_once(dataclasses.replace(program, options=(*program.options, *options)), trace, say)


def _steps(trace: Trace) -> int:
    return max((state["step"] for state in trace.states), default=-1) + 1


def parted(a: Trace, b: Trace) -> Span | None:
    """The steps in which the states of two runs parted; None if they did not.

    Both took the state after the same steps, not after each: the steps since the last equal one are all in question.
    """
    others = {state["at"]: state for state in b.states}
    last_equal = -1
    for state in a.states:
        other = others.get(state["at"])
        if other is None:
            continue
        if other["step"] != state["step"]:
            return Span(max(last_equal, 0), max(state["step"], other["step"], 0), "another number of steps")
        if (state["variables"], state["results"]) != (other["variables"], other["results"]):
            first = min(last_equal + 1, max(state["step"], 0))
            return Span(first, max(state["step"], 0), _what(a, state["variables"], other["variables"]))
        last_equal = state["step"]
    if a.end is not None and b.end is not None and a.states and b.states:
        ends = a.states[-1]["step"], b.states[-1]["step"]
        if ends[0] != ends[1]:
            return Span(max(last_equal, 0), min(ends) + 1, f"one run has {ends[0] + 1} steps, the other {ends[1] + 1}")
    return None


def before(a: Trace, b: Trace, first: int) -> Span | None:
    """Where two runs parted, if that was before step `first`."""
    span = parted(a, b)
    return span if span is not None and span.last < first else None


def _what(trace: Trace, one: Sequence[tuple[int, int]], two: Sequence[tuple[int, int]]) -> str:
    """The variables that differ, by name."""
    mine = dict(one)
    numbers = [number for number, value in two if mine.get(number) != value]
    if not numbers:
        return "what the step's functions gave"
    names = [trace.variable_names.get(number) or f"variable {number}" for number in numbers[:3]]
    return ", ".join(names) + (f" and {len(numbers) - 3} more variables" if len(numbers) > 3 else "")


def _result(comparison: Comparison) -> str:
    if any(culprit.op_type == ENTERING_STATE for culprit in comparison.culprits):
        return "earlier"
    return "found" if comparison.culprits else "later"


def _next_window(window: tuple[int, int], entered: Span | None, result: str) -> tuple[int, int]:
    """A window twice as wide, and around where this pair parted, if that is known."""
    first, last = window
    width = last - first
    if entered is not None:
        first = max(min(first, entered.first - 1), 0)
    elif result == "earlier":
        first = max(first - width, 0)
    else:
        first, last = max(first - width // 2, 0), last + (width + 1) // 2
    return first, min(last, first + WIDEST)
