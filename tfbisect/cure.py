"""Finds by trial the cheapest settings that make a program's runs identical; each trial is fresh, recorded runs.

Reads no trace by itself but for what TensorFlow was set up with: how two traces compare is handed in. Changes nothing
in the program: settings act from outside (`treatments`, `recorder.treatment`).
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tfbisect import knowledge, orchestrator, trace, treatments
from tfbisect.checklist import checklist
from tfbisect.errors import CannotRead, TfbisectError, Usage
from tfbisect.model import Comparison, Culprit
from tfbisect.orchestrator import Compare, Say
from tfbisect.remedy import Cure, Plain, Raised, Treatment, Trial, Verdict
from tfbisect.trials import Hangs, Request, Run, Runner, Spent, difference, same

MOST_BASELINE_PAIRS = 6
PLAIN_PAIRS = 2  # untreated plain pairs, until one differs
ALTERNATIVES = 3  # further settings that are tried alone once a cure is found
CULPRITS = 5  # whose causes are asked
HIDDEN = (
    "recorded, the runs are identical; run plainly, they are not: recording hides this difference, and settings were "
    "judged by the variables and the output that plain runs left"
)


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
        self._request, self._compare, self._say = request, compare, say
        self._runner = Runner(request, folder)
        self._first: Run | None = None  # an untreated run
        self._gpu = False
        self._modules: tuple[str, ...] = ()
        self._busiest = ""  # the function that takes most of the program's time
        self._usual: float | None = None  # seconds of an untreated call of it
        self._pairs = request.pairs
        self._tried: list[_Tried] = []
        self._failing: set[str] = set()  # settings under which the program fails
        self._plain_only = False  # recorded runs are identical, plain ones are not: judged by what those leave
        self._baseline = Trial((), 0, 0)
        self._untreated: Comparison | None = None
        self._equal = treatments.equal_variables(os.environ, request.environment_b)
        self._known = {each.name: each for each in (*treatments.CATALOGUE, *self._equal)}

    def run(self) -> Cure:
        try:
            diverged = self._diverges()
        except Spent:
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
        except Spent:
            spent = True
            cure = self._best()
        if not cure:
            return self._result("unfinished" if spent else "not cured", ())
        return self._result("cured", cure, self._plain(cure), spent=spent)

    # --- the search ------------------------------------------------------------------------------------------------

    def _diverges(self) -> bool:
        """Untreated runs until one differs from the first."""
        first = self._runner.record((), "A")
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
            other = self._runner.record((), "B")
            runs.append(other)
            self._usual = self._call_seconds(runs)
            comparison = self._compare(first.trace, other.trace)
            identical = same(comparison, first, other)
            self._baseline = Trial((), number - (not identical), number, self._step_time(runs))
            if not identical:
                self._untreated = comparison
                # what shows in one pair of three is not cured because three pairs are identical
                self._pairs = max(self._request.pairs, 2 * number if number > 1 else 1)
                return True
        return self._differs_plainly()

    def _differs_plainly(self) -> bool:
        """Whether plain runs differ where recorded ones do not: recording can hide a race."""
        first = self._runner.plainly((), "A")
        for number in range(1, PLAIN_PAIRS + 1):
            if difference(first, self._runner.plainly((), "B")) is not None:
                self._plain_only = True
                self._baseline = Trial((), number - 1, number, 1.0)
                self._usual = self._call_seconds([first])
                return True
        return False

    def _everything(self) -> list[Treatment]:
        """All that can be done from outside, cheapest first."""
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
        chosen: tuple[Treatment, ...] = ()
        current = self._untreated
        while current is not None:
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
                break
        return self._from_everything()

    def _asked_for(self, comparison: Comparison | None) -> tuple[Treatment, ...]:
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
        if not cure:
            return
        wanted = [treatments.OP_DETERMINISM, *self._asked_for(self._untreated)]
        alone = {tried.trial.settings for tried in self._tried}
        fresh = {each.name: each for each in wanted if (each.name,) not in alone}
        for treatment in list(fresh.values())[:ALTERNATIVES]:
            reserve = 2 * (self._pairs + 1) + PLAIN_PAIRS + 1
            if self._runner.left < reserve:
                return
            self._try((treatment,))

    def _best(self) -> tuple[Treatment, ...]:
        """The smallest set that has cured so far."""
        cured = [tried.trial.settings for tried in self._tried if tried.cured and tried.trial.pairs >= self._pairs]
        return tuple(self._known[name] for name in min(cured, key=len)) if cured else ()

    # --- a trial -----------------------------------------------------------------------------------------------------

    def _try(self, chosen: Sequence[Treatment], pairs: int = 0) -> _Tried:
        """Pairs of runs under these settings until one differs, or enough are identical. Raises Spent.

        pairs: how many are enough; 0: as many as a cure needs.
        """
        wanted, start = pairs or self._pairs, self._runner.plainly if self._plain_only else self._runner.record
        names = tuple(each.name for each in chosen)
        for known in self._tried:
            if set(known.trial.settings) == set(names) and (not known.cured or known.trial.pairs >= wanted):
                return known
        self._say(f"run {self._runner.count + 1}: with {', '.join(names)}")
        runs: list[Run] = []
        equal, comparison, raised = 0, None, None
        try:
            runs.append(start(chosen, "A"))
            raised = self._raised(runs[0])
            while raised is None and equal < wanted:
                runs.append(start(chosen, "B"))
                raised = self._raised(runs[-1])
                if raised is not None:
                    break
                if self._plain_only:
                    identical = difference(runs[0], runs[-1]) is None
                else:
                    comparison = self._compare(runs[0].trace, runs[-1].trace)
                    identical = same(comparison, runs[0], runs[-1])
                if not identical:
                    break
                equal += 1
        except Hangs as hangs:
            raised = Raised(str(hangs))
        except TfbisectError as error:
            raised = Raised(error.message)
        own = dict.fromkeys(text for run in runs for text in self._own(chosen, run))
        seen = equal + (raised is None and equal < wanted)
        trial = Trial(names, equal, seen, self._step_time(runs), raised, tuple(own))
        tried = _Tried(trial, None if raised else comparison, raised is None and equal == wanted)
        self._tried.append(tried)
        for run in runs:
            run.trace.unlink(missing_ok=True)
        return tried

    def _raised(self, run: Run) -> Raised | None:
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

    def _own(self, chosen: Sequence[Treatment], run: Run) -> list[str]:
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

    def _call_seconds(self, runs: Sequence[Run]) -> float | None:
        """How long a call takes: the least of the runs' medians, since other work on the machine only adds to it."""
        calls = [run.report.get("calls", {}).get(self._busiest) for run in runs]
        times = [run.seconds if call is None else float(call[1]) for run, call in zip(runs, calls, strict=True)]
        return min((value for value in times if value is not None), default=None)

    def _step_time(self, runs: Sequence[Run]) -> float | None:
        times = self._call_seconds(runs)
        return times / self._usual if times and self._usual else None

    # --- the proof and the result ------------------------------------------------------------------------------------

    def _plain(self, cure: tuple[Treatment, ...]) -> Plain | None:
        """The same without the recorder; None if no runs are left for it."""
        untreated, treated, identical, pairs = "", "", 0, 0
        runs: tuple[list[Run], list[Run]] = ([], [])
        self._say(f"run {self._runner.count + 1}: plain runs, without recording")
        try:
            runs[0].append(self._runner.plainly((), "A"))
            while not untreated and len(runs[0]) <= PLAIN_PAIRS:
                runs[0].append(self._runner.plainly((), "B"))
                untreated = difference(runs[0][0], runs[0][-1]) or ""
            runs[1].append(self._runner.plainly(cure, "A"))
            while not treated and pairs < self._request.pairs:
                runs[1].append(self._runner.plainly(cure, "B"))
                treated = difference(runs[1][0], runs[1][-1]) or ""
                pairs += 1
                identical += not treated
        except (Spent, Hangs):
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
        if self._plain_only:
            found.append(HIDDEN)
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
            verdict, program, self._runner.count, self._baseline, culprits, trials, names, treatments.to_paste(cure),
            plain, remaining, advice, tuple(found),
        )  # fmt: skip


def _alive(comparison: Comparison | None) -> list[Culprit]:
    """The culprits whose difference reaches a result; all of them if none does."""
    culprits = [] if comparison is None else list(comparison.culprits)
    return [culprit for culprit in culprits if not culprit.contained] or culprits


def _first_gone(before: Comparison, after: Comparison) -> bool:
    """Whether the first culprit is no culprit any more, and another one is the first now."""
    first = next(iter(_alive(before)), None)
    return first is not None and bool(after.culprits) and _key(first) not in map(_key, after.culprits)


def _key(culprit: Culprit) -> tuple[object, ...]:
    source = culprit.source
    return culprit.op_type, None if source is None else (source.file, source.line)
