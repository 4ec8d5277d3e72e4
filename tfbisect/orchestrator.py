"""Runs a program several times in fresh processes, each under the recorder, until two runs differ.

Reads no trace: how two traces compare is handed in. What happens is told to `say`.
"""

import contextlib
import dataclasses
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tfbisect import launcher
from tfbisect.choices import ALL
from tfbisect.errors import CannotWrite, OutputExists, ProgramNotFound, TfbisectError, Usage
from tfbisect.model import Comparison, Culprit

Compare = Callable[..., Comparison]
"""Takes the paths of two traces or more."""

Say = Callable[[str], None]

PAIRS_FOR_VALUES = 3
MAX_INPUTS_KEPT = 50
CLOSING_SECONDS = 10.0
"""How long an interrupted program has to close its trace."""


CLUSTERS = frozenset({"PartitionedCall", "StatefulPartitionedCall", "XlaLaunch", "_XlaRun"})


@dataclass(frozen=True, slots=True)
class Program:
    """What to run and how to record it. Its streams are ours, but standard output may go to standard error, and
    standard error to a file (`log`, shown only if the program fails).
    """

    path: Path
    arguments: tuple[str, ...] = ()
    values: str = "auto"
    xla: str = "opaque"
    data: bool = False
    output_to_stderr: bool = False
    log: Path | None = None
    options: tuple[str, ...] = ()  # further options of `record`
    workers: int = 0  # processes that make one run together; 0: one, and no cluster
    ops: str = ALL


@dataclass(frozen=True, slots=True)
class Outcome:
    """The comparison that decided, the traces it compared, and how many runs it took."""

    comparison: Comparison
    traces: tuple[Path, ...]
    runs: int
    statuses: tuple[int, ...]


def check_program(path: Path) -> Path:
    """The path back if a file is there. Raises ProgramNotFound."""
    if not path.is_file():
        found = "a folder" if path.is_dir() else "nothing there"
        raise ProgramNotFound(f"program {path}", found=found, expected="a Python file")
    return path


def record_command(program: Program, trace: Path, *options: str) -> list[str]:
    """The command that records one run of a program in a fresh process."""
    command = [sys.executable, "-m", "tfbisect", "record", "-o", str(trace), "--values", program.values]
    data = ["--data"] if program.data else []
    ops = [] if program.ops == ALL else ["--ops", program.ops]
    command += ["--xla", program.xla, *data, *ops, *program.options, *options]
    return [*command, str(program.path), *program.arguments]


def record_once(program: Program, trace: Path, say: Say) -> int:
    """Record one run of the program into `trace` in a fresh process; -> its exit status (128 + n: ended by signal n).

    The program's output, its traceback too, passes through untouched. Raises CannotWrite if no trace came of it.
    With `workers` a run is a job of so many processes, and `trace` a folder: worker0.h5, worker1.h5, ...
    """
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    with contextlib.ExitStack() as stack:
        stderr = None if program.log is None else stack.enter_context(program.log.open("wb"))
        stdout = (sys.stderr if stderr is None else stderr).fileno() if program.output_to_stderr else None
        record = _record_job if program.workers else _record_alone
        status, ended = record(program, trace, stdout, None if stderr is None else stderr.fileno())
    if status and program.log is not None:
        sys.stderr.write(program.log.read_text(encoding="utf-8", errors="replace"))
    missing = [each for each in _files(program, trace) if not each.exists()]
    if missing:
        raise CannotWrite(
            f"trace {missing[0]}",
            found=f"nothing: {ended} before anything was written",
            hint=f"see whether it runs by itself: {shlex.join(['python', str(program.path), *program.arguments])}",
        )
    if status:
        say(f"{ended}; what it did up to there is in the trace")
    return status


def _record_alone(program: Program, trace: Path, stdout: int | None, stderr: int | None) -> tuple[int, str]:
    """(exit status, how it ended)"""
    process = subprocess.Popen(record_command(program, trace), stdout=stdout, stderr=stderr)
    try:
        status = process.wait()
    except BaseException:
        _end(process)
        raise
    status = 128 - status if status < 0 else status
    return status, f"the program ended with exit status {status}"


def _record_job(program: Program, folder: Path, stdout: int | None, stderr: int | None) -> tuple[int, str]:
    folder.mkdir(parents=True, exist_ok=True)
    commands = [record_command(program, each) for each in _files(program, folder)]
    ended = launcher.run_job(
        commands,
        sys.stdout.fileno() if stdout is None else stdout,
        sys.stderr.fileno() if stderr is None else stderr,
    )
    if ended.failed < 0:
        return 0, "a worker ended with exit status 0"
    status = ended.statuses[ended.failed]
    return 128 - status if status < 0 else status, f"{launcher.told(ended)}, and the others were ended"


def _run_path(program: Program, folder: Path, name: str) -> Path:
    """Where a run is recorded: a trace, or a folder with one a worker."""
    return folder / (name if program.workers else f"{name}.h5")


def _files(program: Program, path: Path) -> list[Path]:
    """The traces of a run."""
    return [path / f"worker{number}.h5" for number in range(program.workers)] if program.workers else [path]


def _forget(program: Program, path: Path) -> None:
    for each in _files(program, path):
        each.unlink(missing_ok=True)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Let an interrupted program close its trace (Ctrl-C reached it too), then insist."""
    try:
        process.wait(CLOSING_SECONDS)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        process.kill()
        process.wait()


def find_divergence(
    program: Program,
    folder: Path,
    times: int,
    compare: Compare,
    say: Say,
    *,
    force: bool = False,
    every: bool = False,
) -> Outcome:
    """Record run after run until one differs from the first, `times` runs at most; with `every` all of them.

    Comparing with the first run is enough: runs equal to it are equal to each other. The outcome is that of the first
    pair that diverged, else of the first that was inconclusive, else, and always with `every`, of all runs together.
    Raises Usage, ProgramNotFound, OutputExists (without `force`), and what `compare` raises.
    """
    if times < 2:
        raise Usage("--times", found=times, expected="2 or more: one run has nothing to be compared with")
    check_program(program.path)
    traces = [_run_path(program, folder, f"run{number}") for number in range(1, times + 1)]
    for trace in traces:
        there = next((each for each in _files(program, trace) if each.exists()), None)
        if there is not None and not force:
            raise OutputExists(f"trace {there}", found="a file that is there already")
    for trace in traces:
        _forget(program, trace)  # else a run that leaves no trace would be taken for an older one
    undecided: Outcome | None = None
    statuses: list[int] = []
    for number, trace in enumerate(traces, 1):
        say(f"run {number}" + (f" of {times}" if times == 2 or every else f" of at most {times}"))
        statuses.append(record_once(program, trace, say))
        if number == 1 or every:
            continue
        outcome = Outcome(compare(traces[0], trace), (traces[0], trace), number, tuple(statuses))
        if outcome.comparison.verdict == "diverged":
            return outcome
        if outcome.comparison.verdict == "inconclusive" and undecided is None:
            undecided = outcome
    if undecided is None and (every or times > 2):
        return Outcome(compare(*traces), tuple(traces), times, tuple(statuses))
    return undecided or outcome


def measure(program: Program, outcome: Outcome, folder: Path, compare: Compare, say: Say) -> Outcome:
    """The outcome with the size of the first culprit's difference, if its values were not kept.

    Records up to PAIRS_FOR_VALUES further pairs with the values of the culprit and its inputs, and takes the difference
    of a pair in which the same culprit differs again. `basis` says so; if none differs again, a warning does.
    """
    culprits = outcome.comparison.culprits
    if outcome.comparison.verdict != "diverged" or not culprits or not measurable(culprits[0]):
        return outcome
    wanted = culprits[0]
    say(f"the values of {wanted.op_type} were not kept: recording again with them, {PAIRS_FOR_VALUES} pairs at most")
    again = dataclasses.replace(program, values=values_pattern(wanted))
    again_folder = Path(tempfile.mkdtemp(prefix="values-", dir=folder))
    first = _run_path(again, again_folder, "first")
    reason = "it did not differ again"
    try:
        record_once(again, first, say)
        for pair in range(1, PAIRS_FOR_VALUES + 1):
            other = _run_path(again, again_folder, f"second{pair}")
            record_once(again, other, say)
            same = _same_measured(wanted, compare(first, other))
            if same is not None and same.difference is not None:
                say(f"it differs again in pair {pair}: {shlex.join([str(first), str(other)])}")
                basis = f"recorded again with values: pair {pair} of {PAIRS_FOR_VALUES}"
                difference = dataclasses.replace(same.difference, basis=basis)
                extra = {**wanted.extra, "spread": same.extra.get("spread")}
                found = dataclasses.replace(wanted, difference=difference, extra=extra)
                return _with_culprits(outcome, (found, *culprits[1:]))
            _forget(again, other)
    except TfbisectError as error:
        reason = error.message
    shutil.rmtree(again_folder, ignore_errors=True)
    warning = (
        f"{wanted.op_type}: the size of its difference is not known, since its values were not kept; "
        f"recorded again with values in up to {PAIRS_FOR_VALUES} pairs: {reason}"
    )
    return _warned(outcome, warning)


def in_full(program: Program, outcome: Outcome, folder: Path, compare: Compare, say: Say) -> Outcome:
    """The outcome of a second pair in which every op is recorded, where a cheap pair differed.

    Where the runs part may move from pair to pair: what the second one names stands, and a warning says whether it is
    what the first one named, whose comparison is `cheap` in the JSON. Where the second pair does not diverge, or cannot
    be compared, the first one's outcome stays, with a warning.
    """
    if program.ops == ALL or outcome.comparison.verdict == "identical":
        return outcome
    say("the cheap pair differs: recording a second pair in full")
    full = Path(tempfile.mkdtemp(prefix="full-", dir=folder))
    traces = full / "run1.h5", full / "run2.h5"
    again = dataclasses.replace(program, ops=ALL)
    statuses: list[int] = []
    try:
        statuses += [record_once(again, trace, say) for trace in traces]
        found = compare(*traces)
    except TfbisectError as error:
        return _warned(outcome, f"a second pair, recorded in full, could not be compared: {error.message}")
    if found.verdict != "diverged":
        moves = ", and the runs do not differ in every pair" if found.verdict == "identical" else ""
        told = f"a second pair, recorded in full, was {found.verdict} ({shlex.join(map(str, traces))})"
        kept = _warned(outcome, f"{told}: what is said here is of the cheap pair{moves}")
        return dataclasses.replace(kept, runs=outcome.runs + 2)
    told = _told_after_cheap(outcome.comparison, found) + f" ({shlex.join(map(str, outcome.traces))})"
    comparison = dataclasses.replace(
        found, warnings=(told, *found.warnings), extra={**found.extra, "cheap": outcome.comparison.to_json()}
    )
    return Outcome(comparison, traces, outcome.runs + 2, (*outcome.statuses, *statuses))


def _told_after_cheap(cheap: Comparison, found: Comparison) -> str:
    """How what a pair recorded in full names goes with what the cheap pair before it named."""
    begun = "this is a second pair, recorded in full: the cheap pair before it"
    if not cheap.culprits:
        return f"{begun} differed too, and no op could be named"
    before, now = cheap.culprits[0], found.culprits[0]
    line = f" at line {before.source.line}" if before.source is not None else ""
    named = f"{begun} named {before.op_type}{line}"
    above = before.extra.get("unrecorded", ())
    if _identity(before) == _identity(now):
        return f"{named}, the same op"
    if any((each["function"], each["name"]) == (now.function, now.name) for each in above):
        return f"{named} or one of {len(above)} unrecorded ops above it, of which it is one"
    return f"{named}, which is another op: where the runs part moves from pair to pair"


def _warned(outcome: Outcome, warning: str) -> Outcome:
    comparison = dataclasses.replace(outcome.comparison, warnings=(*outcome.comparison.warnings, warning))
    return dataclasses.replace(outcome, comparison=comparison)


def expand(program: Program, outcome: Outcome, folder: Path, compare: Compare, say: Say) -> Outcome:
    """The outcome with what happens inside the function that XLA compiles, if such functions are all that is blamed.

    Records one more pair in which they run op by op without XLA: that is another program, whose bits may differ, or
    agree, for reasons of its own. So its answer stands beside the first one, as `expanded` in the JSON and as a
    warning.
    """
    comparison = outcome.comparison
    if comparison.verdict != "diverged" or program.xla != "opaque" or not _only_clusters(comparison):
        return outcome
    say("what differs is compiled by XLA as one piece: recording a pair op by op without XLA, which is another program")
    inside = Path(tempfile.mkdtemp(prefix="without-xla-", dir=folder))
    again = dataclasses.replace(program, xla="expand")
    traces = [_run_path(again, inside, name) for name in ("first", "second")]
    extra = dict(comparison.extra)
    try:
        for trace in traces:
            record_once(again, trace, say)
        found = compare(*traces)
    except TfbisectError as error:
        told = f"a pair recorded without XLA could not be compared: {error.message}"
    else:
        extra["expanded"] = found.to_json()
        told = _told_without_xla(found) + f"; that is another program ({shlex.join(map(str, traces))})"
    warnings = (*comparison.warnings, told)
    return dataclasses.replace(outcome, comparison=dataclasses.replace(comparison, warnings=warnings, extra=extra))


def _only_clusters(comparison: Comparison) -> bool:
    compiled = {item.name for item in comparison.coverage.opaque if item.compiled}
    live = [culprit for culprit in comparison.culprits if not culprit.contained]
    return bool(live) and all(culprit.op_type in CLUSTERS and culprit.name in compiled for culprit in live)


def _told_without_xla(found: Comparison) -> str:
    if not found.culprits:
        return f"run op by op without XLA, the pair was {found.verdict}"
    first = found.culprits[0]
    line = f" at line {first.source.line} of {Path(first.source.file).name}" if first.source is not None else ""
    return f"run op by op without XLA, {first.op_type} {first.name}{line} differed first ({first.category})"


def measurable(culprit: Culprit) -> bool:
    """Whether keeping values would show how large the difference is: other ops or shapes have no such size."""
    return culprit.difference is None and culprit.category != "structure"


def values_pattern(culprit: Culprit) -> str:
    """A regular expression for `--values`: the culprit and its inputs, as graph nodes, eager ops or host values."""
    op_type = re.escape(culprit.op_type)
    names = [culprit.name, *(item.name for item in culprit.inputs[:MAX_INPUTS_KEPT])]
    nodes = "|".join(re.escape(name) for name in dict.fromkeys(names) if name)
    labels = [f"^{op_type} host value$"]
    if nodes:
        labels.append(f"(?:^|/)(?:{nodes})$")
    if culprit.function:
        labels.append(f"^{re.escape(culprit.function)}/arguments$")
    if culprit.source is not None:
        file = re.escape(culprit.source.base)
        labels.append(rf"^{op_type} at (?:.*[/\\])?{file}:{culprit.source.line}$")
    return "|".join(labels)


def _same_measured(wanted: Culprit, comparison: Comparison) -> Culprit | None:
    for culprit in comparison.culprits:
        if _identity(culprit) == _identity(wanted) and culprit.difference is not None:
            return culprit
    return None


def _identity(culprit: Culprit) -> tuple[object, ...]:
    line = None if culprit.source is None else (culprit.source.file, culprit.source.line)
    return culprit.function, culprit.name, culprit.slot, culprit.op_type, line


def _with_culprits(outcome: Outcome, culprits: Sequence[Culprit]) -> Outcome:
    return dataclasses.replace(outcome, comparison=dataclasses.replace(outcome.comparison, culprits=tuple(culprits)))
