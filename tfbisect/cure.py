"""Finds by trial the cheapest settings that make a program's runs identical; each trial is fresh, recorded runs.

Reads no trace by itself but for what TensorFlow was set up with: how two traces compare is handed in. Changes nothing
in the program: settings act from outside (`treatments`, `recorder.treatment`).
"""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tfbisect import knowledge, orchestrator, trace, treatments
from tfbisect.checklist import checklist
from tfbisect.errors import CannotRead, TfbisectError, Usage
from tfbisect.model import Comparison, Culprit
from tfbisect.recorder.treatment import SPEC
from tfbisect.remedy import Cure, Plain, Raised, Treatment, Trial, Verdict
from tfbisect.verification import STATE, EndState

Compare = Callable[[Path, Path], Comparison]
Say = Callable[[str], None]

MOST_BASELINE_PAIRS = 6
PLAIN_PAIRS = 2  # untreated plain pairs, until one differs
ALTERNATIVES = 3  # further settings that are tried alone once a cure is found
PATIENCE, SLOWER = 60.0, 20.0  # seconds and times the untreated run: a treated run that takes longer hangs
CULPRITS = 5  # whose causes are asked


@dataclass(frozen=True, slots=True)
class Request:
    """What to cure. `environment_b`: variables of the second run of each pair. `pairs`: how many must be identical."""

    program: Path
    arguments: tuple[str, ...] = ()
    environment_b: Mapping[str, str] = field(default_factory=dict)
    max_runs: int = 30
    pairs: int = 3


@dataclass(frozen=True, slots=True)
class _Run:
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


class _Spent(Exception):
    """No more runs may be made."""


class _Hangs(Exception):
    """A run took far longer than the untreated one and was ended."""


@dataclass(frozen=True, slots=True)
class _Tried:
    """A trial, and the comparison of the pair that decided it (None if a run failed)."""

    trial: Trial
    comparison: Comparison | None
    cured: bool


def find_cure(request: Request, folder: Path, compare: Compare, say: Say) -> Cure:
    """Run the program until two runs differ, then with settings until pairs of runs are identical.

    Raises Usage, ProgramNotFound, and what `compare` raises for untreated runs.
    """
    if request.max_runs < 4:
        raise Usage("--max-runs", found=request.max_runs, expected="4 or more: an untreated and a treated pair")
    if request.pairs < 1:
        raise Usage("--pairs", found=request.pairs, expected="1 or more")
    orchestrator.check_program(request.program)
    return _Search(request, folder, compare, say).run()


class _Search:
    def __init__(self, request: Request, folder: Path, compare: Compare, say: Say) -> None:
        self._request, self._folder, self._compare, self._say = request, folder, compare, say
        self._program = orchestrator.Program(request.program.absolute(), request.arguments)
        self._runs = 0
        self._first: _Run | None = None  # an untreated run
        self._gpu = False
        self._modules: tuple[str, ...] = ()
        self._busiest = ""  # the function that takes most of the program's time
        self._usual: float | None = None  # seconds of an untreated call of it
        self._pairs = request.pairs
        self._tried: list[_Tried] = []
        self._failing: set[str] = set()  # settings under which the program fails
        self._baseline = Trial((), 0, 0)
        self._untreated: Comparison | None = None
        self._equal = treatments.equal_variables(os.environ, request.environment_b)
        self._known = {each.name: each for each in (*treatments.CATALOGUE, *self._equal)}

    def run(self) -> Cure:
        try:
            diverged = self._diverges()
        except _Spent:
            diverged = False
        if not diverged:
            pairs = f"{self._baseline.pairs} pair{'s' if self._baseline.pairs != 1 else ''}"
            return self._result("repeats", (), notes=(f"{pairs} of untreated runs are identical: nothing to cure",))
        cure: tuple[Treatment, ...] = ()
        spent = False
        try:
            if self._everything_helps():
                cure = self._fewer(self._forward())
                self._alternatives(cure)
        except _Spent:
            spent = True
            cure = self._best()
        if not cure:
            return self._result("unfinished" if spent else "not cured", ())
        return self._result("cured", cure, self._plain(cure), spent=spent)

    # --- the search ------------------------------------------------------------------------------------------------

    def _diverges(self) -> bool:
        """Untreated runs until one differs from the first."""
        first = self._record((), "A", None)
        if first.state is None:
            raise CannotRead(
                "the end state of a run", found=f"nothing: it ended with status {first.status}",
                expected="a program that ends by itself",
                hint=f"see whether it runs by itself: python {self._request.program}",
            )  # fmt: skip
        self._first = first
        info = trace.load(first.trace).info
        self._gpu = any("GPU" in str(device) for device in info.get("devices", ()))
        self._modules = tuple(first.report.get("modules", ()))
        calls = first.report.get("calls", {})
        self._busiest = max(calls, key=lambda name: float(calls[name][2]), default="")
        most = max(1, min(MOST_BASELINE_PAIRS, self._request.max_runs // 3))
        runs = [first]
        for number in range(1, most + 1):
            other = self._record((), "B", None)
            runs.append(other)
            self._usual = self._call_seconds(runs)
            comparison = self._compare(first.trace, other.trace)
            same = _same(comparison, first, other)
            self._baseline = Trial((), number - (not same), number, self._step_time(runs))
            if not same:
                self._untreated = comparison
                # what shows in one pair of three is not cured because three pairs are identical
                self._pairs = max(self._request.pairs, 2 * number if number > 1 else 1)
                return True
        return False

    def _everything(self) -> list[Treatment]:
        """All that can be done from outside, cheapest first."""
        assert self._untreated is not None
        asked = self._asked_for(self._untreated)
        names = {each.name for each in asked}
        usual = [each for each in treatments.applicable(self._gpu) if each.name not in names]
        found = sorted((*asked, *usual), key=lambda each: each.cost)
        return [each for each in found if each.name not in self._failing]

    def _everything_helps(self) -> bool:
        """Whether one pair under all settings is identical: if not, none of them can cure alone either.

        Where the program fails under them, nothing is known; what fails under op determinism is tried without it.
        """
        tried = self._try(self._everything(), pairs=1)
        if tried.trial.raised is not None:
            self._failing.add(treatments.OP_DETERMINISM.name)
            tried = self._try(self._everything(), pairs=1)
        return tried.cured or tried.trial.raised is not None

    def _forward(self) -> tuple[Treatment, ...]:
        """Settings that the culprits' causes ask for, added while each one removes the first culprit."""
        assert self._untreated is not None
        chosen: tuple[Treatment, ...] = ()
        current = self._untreated
        while True:
            progress = False
            for treatment in self._asked_for(current):
                if treatment in chosen:
                    continue
                tried = self._try((*chosen, treatment))
                if tried.cured:
                    return (*chosen, treatment)
                if tried.comparison is not None and _first_gone(current, tried.comparison):
                    chosen, current, progress = (*chosen, treatment), tried.comparison, True
                    break
            if not progress:
                return self._from_everything()

    def _asked_for(self, comparison: Comparison) -> tuple[Treatment, ...]:
        asked = treatments.asked_for(_alive(comparison)[:CULPRITS], self._gpu)
        self._known |= {each.name: each for each in asked}
        return (*self._equal, *asked)

    def _from_everything(self) -> tuple[Treatment, ...]:
        """All settings at once; if that cures, the shortest list of cheap ones that does."""
        everything = self._everything()
        if not self._try(everything).cured:
            return ()
        low, high = 0, len(everything)  # the first `high` cure, the first `low` do not
        while high - low > 1:
            middle = (low + high) // 2
            if self._try(everything[:middle]).cured:
                high = middle
            else:
                low = middle
        last = everything[high - 1]
        if high > 1 and self._try((last,)).cured:
            return (last,)
        return tuple(everything[:high])

    def _fewer(self, cure: tuple[Treatment, ...]) -> tuple[Treatment, ...]:
        """The set without what it does not need, the most costly tried first."""
        for treatment in sorted(cure, key=lambda each: -each.cost):
            rest = tuple(each for each in cure if each is not treatment)
            if rest and self._try(rest).cured:
                cure = rest
        return cure

    def _alternatives(self, cure: tuple[Treatment, ...]) -> None:
        """What else the causes ask for, and op determinism, each alone: so that there is something to choose from."""
        assert self._untreated is not None
        if not cure:
            return
        wanted = [treatments.OP_DETERMINISM, *self._asked_for(self._untreated)]
        alone = {tried.trial.settings for tried in self._tried}
        fresh = {each.name: each for each in wanted if (each.name,) not in alone}
        for treatment in list(fresh.values())[:ALTERNATIVES]:
            reserve = 2 * (self._pairs + 1) + PLAIN_PAIRS + 1
            if self._request.max_runs - self._runs < reserve:
                return
            self._try((treatment,))

    def _best(self) -> tuple[Treatment, ...]:
        """The smallest set that has cured so far."""
        cured = [tried.trial.settings for tried in self._tried if tried.cured and tried.trial.pairs >= self._pairs]
        return tuple(self._known[name] for name in min(cured, key=len)) if cured else ()

    # --- a trial -----------------------------------------------------------------------------------------------------

    def _try(self, chosen: Sequence[Treatment], pairs: int = 0) -> _Tried:
        """Pairs of runs under these settings until one differs, or enough are identical. Raises _Spent.

        pairs: how many are enough; 0: as many as a cure needs.
        """
        wanted = pairs or self._pairs
        names = tuple(each.name for each in chosen)
        for known in self._tried:
            if set(known.trial.settings) == set(names) and (not known.cured or known.trial.pairs >= wanted):
                return known
        self._say(f"run {self._runs + 1}: with {', '.join(names)}")
        runs: list[_Run] = []
        same, comparison, raised = 0, None, None
        try:
            runs.append(self._record(chosen, "A", self._patience()))
            raised = self._raised(runs[0])
            while raised is None and same < wanted:
                runs.append(self._record(chosen, "B", self._patience()))
                raised = self._raised(runs[-1])
                if raised is not None:
                    break
                comparison = self._compare(runs[0].trace, runs[-1].trace)
                if not _same(comparison, runs[0], runs[-1]):
                    break
                same += 1
        except _Hangs as hangs:
            raised = Raised(str(hangs))
        except TfbisectError as error:
            raised = Raised(error.message)
        own = dict.fromkeys(text for run in runs for text in self._own(chosen, run))
        seen = same + (raised is None and same < wanted)
        trial = Trial(names, same, seen, self._step_time(runs), raised, tuple(own))
        tried = _Tried(trial, None if raised else comparison, raised is None and same == wanted)
        self._tried.append(tried)
        for run in runs:
            run.trace.unlink(missing_ok=True)
        return tried

    def _patience(self) -> float:
        usual = self._first.seconds if self._first is not None else None
        return PATIENCE + SLOWER * (usual or 0.0)

    def _raised(self, run: _Run) -> Raised | None:
        """How a treated run ended otherwise than the untreated one; None if it did not."""
        assert self._first is not None
        if run.status == self._first.status:
            return None
        known = knowledge.entries_for_error(run.errors)
        lines = [line.strip() for line in run.errors.splitlines() if line.strip()]
        named = [line for line in lines if "determinis" in line.lower() or "Error" in line.split(":")[0]]
        message = (named or lines or ["it ended without a message"])[-1][:300]
        ops = dict.fromkeys(op for entry in known for op in entry.op_types if op in run.errors)
        workaround = known[0].workaround if known else ""
        return Raised(f"exit status {run.status}: {message}", tuple(ops), workaround)

    def _own(self, chosen: Sequence[Treatment], run: _Run) -> list[str]:
        """What the program set itself, so that the treatment's value did not stand."""
        found = [str(text) for text in run.report.get("own", ())]
        actions = {action[0] for each in chosen for action in each.actions}
        try:
            info = trace.load(run.trace).info
        except TfbisectError:
            return found
        flags, threads = info.get("flags", {}), info.get("threads", {})
        if "seed_tensorflow" in actions and flags.get("global_seed") not in (None, int(treatments.SEED)):
            found.append("tf.random.set_seed")
        if "op_determinism" in actions and flags.get("op_determinism") is False:
            found.append("op determinism off")
        for key, variable in (("intra_op", "TF_NUM_INTRAOP_THREADS"), ("inter_op", "TF_NUM_INTEROP_THREADS")):
            wanted = {value for each in chosen for name, value in each.environment if name == variable}
            if wanted and str(threads.get(key, 0)) not in ("0", *(str(value) for value in wanted)):
                found.append(f"{threads[key]} {key.replace('_', '-')} threads")
        return found

    def _call_seconds(self, runs: Sequence[_Run]) -> float | None:
        """How long a call takes: the least of the runs' medians, since other work on the machine only adds to it."""
        calls = [run.report.get("calls", {}).get(self._busiest) for run in runs]
        times = [run.seconds if call is None else float(call[1]) for run, call in zip(runs, calls, strict=True)]
        return min((value for value in times if value is not None), default=None)

    def _step_time(self, runs: Sequence[_Run]) -> float | None:
        times = self._call_seconds(runs)
        return times / self._usual if times and self._usual else None

    # --- a run -------------------------------------------------------------------------------------------------------

    def _record(self, chosen: Sequence[Treatment], side: str, patience: float | None) -> _Run:
        """One recorded run, as the first (A) or second (B) of a pair. Raises _Spent, _Hangs."""
        target = self._folder / f"run{self._runs + 1}.h5"
        return self._start(orchestrator.record_command(self._program, target), target, chosen, side, patience)

    def _plainly(self, chosen: Sequence[Treatment], side: str) -> _Run:
        target = self._folder / f"plain{self._runs + 1}"
        state = str(target.with_suffix(".json"))
        command = [sys.executable, "-m", "tfbisect.recorder.endstate", state, str(self._program.path)]
        return self._start([*command, *self._program.arguments], target, chosen, side, self._patience())

    def _start(
        self, command: Sequence[str], target: Path, chosen: Sequence[Treatment], side: str, patience: float | None
    ) -> _Run:  # fmt: skip
        if self._runs >= self._request.max_runs:
            raise _Spent
        self._runs += 1
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
                done = subprocess.run(command, env=environment, stdout=out, stderr=err, timeout=patience, check=False)
            except subprocess.TimeoutExpired as error:
                raise _Hangs(f"it did not end within {error.timeout:.0f} s") from None
        run = _Run(
            target, _end_state(state, output), done.returncode, errors.read_text(encoding="utf-8", errors="replace"),
            _json(report),
        )  # fmt: skip
        for path in (output, errors, state, report):
            path.unlink(missing_ok=True)
        return run

    # --- the proof and the result ------------------------------------------------------------------------------------

    def _plain(self, cure: tuple[Treatment, ...]) -> Plain | None:
        """The same without the recorder; None if no runs are left for it."""
        untreated, treated, identical, pairs = "", "", 0, 0
        runs: tuple[list[_Run], list[_Run]] = ([], [])
        self._say(f"run {self._runs + 1}: plain runs, without recording")
        try:
            runs[0].append(self._plainly((), "A"))
            while not untreated and len(runs[0]) <= PLAIN_PAIRS:
                runs[0].append(self._plainly((), "B"))
                untreated = _difference(runs[0][0], runs[0][-1]) or ""
            runs[1].append(self._plainly(cure, "A"))
            while not treated and pairs < self._request.pairs:
                runs[1].append(self._plainly(cure, "B"))
                treated = _difference(runs[1][0], runs[1][-1]) or ""
                pairs += 1
                identical += not treated
        except (_Spent, _Hangs):
            if len(runs[0]) < 2:
                return None
        usual, times = map(self._call_seconds, runs)
        return Plain(identical, pairs, untreated, len(runs[0]) - 1, treated, times / usual if times and usual else None)

    def _result(
        self,
        verdict: Verdict,
        cure: tuple[Treatment, ...],
        plain: Plain | None = None,
        notes: tuple[str, ...] = (),
        spent: bool = False,
    ) -> Cure:
        trials = tuple(tried.trial for tried in self._tried)
        culprits = tuple(self._untreated.culprits[:CULPRITS]) if self._untreated is not None else ()
        names = tuple(each.name for each in cure)
        found = [*notes, *(f"{each.name}: {each.note}" for each in cure if each.note)]
        if spent:
            found.append(f"all {self._request.max_runs} runs are used: a smaller or cheaper set may do; see --max-runs")
        last = next((tried.comparison for tried in reversed(self._tried) if tried.comparison is not None), None)
        remaining = () if verdict != "not cured" else tuple(_alive(last or self._untreated)[:CULPRITS])
        if verdict == "not cured" and not remaining:
            remaining = culprits
        advice = () if verdict in ("repeats", "unfinished") else checklist(
            names, trials, culprits, self._gpu, self._modules
        )  # fmt: skip
        program = (str(self._request.program), *self._request.arguments)
        return Cure(
            verdict, program, self._runs, self._baseline, culprits, trials, names, treatments.to_paste(cure), plain,
            remaining, advice, tuple(found),
        )  # fmt: skip


def _alive(comparison: Comparison | None) -> list[Culprit]:
    """The culprits whose difference reaches a result; all of them if none does."""
    culprits = [] if comparison is None else list(comparison.culprits)
    return [culprit for culprit in culprits if not culprit.contained] or culprits


def _same(comparison: Comparison, a: _Run, b: _Run) -> bool:
    """Whether nothing that matters differs: nothing at all, or only what reaches no result.

    Where calls of one run have no partner in the other but nothing that was compared differs, what the runs left
    behind decides.
    """
    if comparison.verdict == "identical":
        return True
    left = a.state is not None and b.state is not None and a.state.difference(b.state) is None
    if comparison.culprits:
        return left and all(culprit.contained for culprit in comparison.culprits)
    return left and not comparison.coverage.undecided and comparison.coverage.compared > 0


def _first_gone(before: Comparison, after: Comparison) -> bool:
    """Whether the first culprit is no culprit any more, and another one is the first now."""
    first = next(iter(_alive(before)), None)
    return first is not None and bool(after.culprits) and _key(first) not in map(_key, after.culprits)


def _key(culprit: Culprit) -> tuple[object, ...]:
    source = culprit.source
    return culprit.op_type, None if source is None else (source.file, source.line)


def _difference(a: _Run, b: _Run) -> str | None:
    if a.state is None or b.state is None:
        return "a run that left no state"
    return a.state.difference(b.state)


def _end_state(path: Path, output: Path) -> EndState | None:
    left = _json(path)
    if not left:
        return None
    data = output.read_bytes()
    rows = tuple((v["name"], v["dtype"], tuple(v["shape"]), v["digest"]) for v in left["variables"])
    return EndState(int(left["status"]), hashlib.sha256(data).hexdigest(), len(data), rows)


def _json(path: Path) -> Mapping[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
