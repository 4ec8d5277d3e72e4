"""One op of a recorded run again, alone, many times: does the kernel itself give other bits?

Takes the op's node as it was executed and its recorded inputs, and runs them in fresh processes under the run's
settings; the same graph can be handed over as a script. Compares no traces. TensorFlow is loaded on first use, and
only to describe the op: nothing runs in the calling process.
"""

import dataclasses
import os
import platform
import re
import shlex
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tfbisect.errors import CannotWrite, OutputExists, TfbisectError, Usage
from tfbisect.model import Culprit
from tfbisect.provenance import Run
from tfbisect.replayer import executions, settings
from tfbisect.replayer import processes as fresh
from tfbisect.replayer.executions import Execution, Op, Wanted
from tfbisect.replayer.processes import PER_PROCESS
from tfbisect.replayer.result import Replay, ReplayProcess
from tfbisect.replayer.settings import Settings
from tfbisect.steps import Steps
from tfbisect.tables import Trace
from tfbisect.trace import load

if TYPE_CHECKING:
    from tfbisect.replayer.case import Case, Unknown

__all__ = ["MORE_PROCESSES", "NotKept", "Replay", "ReplayProcess", "replay"]

MORE_PROCESSES = 4  # fresh processes after a first one in which all results were equal
LEAST_IN_MORE, SECONDS_IN_MORE = 5, 2.0  # each of them runs the op as often as the first, unless that takes long
TRIED = 200  # executions that are looked through for one whose values were kept
SHOWN = 6


class NotKept(TfbisectError):
    """The trace does not hold the values that a replay needs; the hint is the command that records them."""

    code = "values-not-kept"
    default_hint = "python -m tfbisect record -o values.h5 --values all program.py"


def replay(
    trace: "str | os.PathLike[str] | Trace",
    op: str | Culprit,
    *,
    times: int = 100,
    processes: int = 1 + MORE_PROCESSES,
    call: int | None = None,
    step: int | None = None,
    iteration: Sequence[int] | None = None,
    slot: int | None = None,
    export: "str | os.PathLike[str] | None" = None,
    force: bool = False,
) -> Replay:
    """Run one op of a recorded run alone, on its recorded inputs, `times` times in a fresh process.

    op: `function/node` or a node's name as a report gives it, `OpType at file.py:line` for an eager op, an op type that
    occurs once, or a culprit of a comparison (of which `trace` is run A). call, step, iteration: which execution, as
    reports count them; without them it is the first whose values were kept. slot: look at this output alone. When all
    results are equal, up to `processes` fresh processes run it again, since some choices are made once per process.
    export: write a script that does the same without tfbisect to this file, and its inputs to an .npz file beside it,
    after having run it; `force` replaces files.

    Raises Usage (no such op or execution, several that fit, an op that cannot be run alone), NotKept, OutputExists,
    CannotWrite, and what `tfbisect.load` raises.
    """
    if times < 2:
        raise Usage("times", found=times, expected="2 or more: one result has nothing to be compared with")
    if processes < 1:
        raise Usage("processes", found=processes, expected="1 or more")
    target = None if export is None else _target(Path(export), force)
    run = Run(trace if isinstance(trace, Trace) else load(trace))
    steps = Steps(run)
    wanted = Wanted(call, step, None if iteration is None else tuple(iteration))
    if isinstance(op, Culprit):
        name = _name(op)
        wanted = _filled(wanted, Wanted(op.call, op.step, op.iteration))
    else:
        name = op
    found = executions.find(run, name)
    chosen, case = _first_kept(run, found, executions.executions(run, found, wanted, steps), slot)
    from tfbisect.replayer import script  # needs protobuf, which comes with TensorFlow

    setup = settings.of(run.trace.info, case.device)
    with tempfile.TemporaryDirectory(prefix="tfbisect-replay-") as temporary:
        folder = Path(temporary)
        path = folder / "replay.py"
        path.write_text(script.text(case, setup, "replay.npz", times), encoding="utf-8")
        script.save(case, folder / "replay.npz")
        done = [fresh.run(path, times, case, setup, least=times, seconds=0)]
        while fresh.outcome(done) == fresh.STABLE and len(done) < processes:
            done.append(fresh.run(path, times, case, setup, least=LEAST_IN_MORE, seconds=SECONDS_IN_MORE))
        answer = _answer(run, found, chosen, case, setup, steps, done)
        if target is None:
            return answer
        # Measured where it will not stay, so that nothing is left behind when it fails.
        draft = folder / target.name
        draft.write_text(script.text(case, setup, f"{target.stem}.npz", times), encoding="utf-8")
        script.save(case, folder / f"{target.stem}.npz")
        measured = fresh.run_script(draft, times, setup)
        answer = dataclasses.replace(answer, exported=str(target), measured=measured)
        about = _about(answer)
        _hand_over(draft, script.text(case, setup, f"{target.stem}.npz", times, about), target)
        return answer


def _name(culprit: Culprit) -> str:
    """How `executions.find` knows the op of a culprit."""
    if culprit.function:
        return f"{culprit.function}/{culprit.name}"
    where = f" at {culprit.source.base}:{culprit.source.line}" if culprit.source is not None else ""
    return f"{culprit.op_type}{where}"


def _filled(given: Wanted, culprit: Wanted) -> Wanted:
    """What the caller asked for, and the culprit's own execution where nothing was asked."""
    return Wanted(
        culprit.call if given.call is None else given.call,
        culprit.step if given.step is None else given.step,
        culprit.iteration if given.iteration is None else given.iteration,
    )


def _first_kept(run: Run, op: Op, ran: Sequence[Execution], slot: int | None) -> "tuple[Execution, Case]":
    """The first execution whose values were kept. Raises NotKept, with what the first of all lacks."""
    from tfbisect.replayer import case  # TensorFlow: only once something is there to run

    builder = case.Builder(run)
    first: case.Unknown | None = None
    for each in ran[:TRIED]:
        try:
            return each, builder.build(op, each, slot)
        except case.Unknown as unknown:
            first = first or unknown
    assert first is not None
    raise _not_kept(run, op, first)


def _not_kept(run: Run, op: Op, unknown: "Unknown") -> NotKept:
    """What is missing, and the command that records it."""
    lacking = unknown.missing
    shown = "; ".join(item.what for item in lacking[:SHOWN]) + ("; ..." if len(lacking) > SHOWN else "")
    found = f"no values of {shown}"
    if not all(item.label for item in lacking):  # never kept, whatever is asked for
        hint = f"python -m tfbisect info {shlex.quote(run.trace.path)}"
        return NotKept(f"op {op.label}", found=found, expected="the values of all inputs", hint=hint)
    pattern = "|".join(f"^{re.escape(label)}$".replace("\\ ", " ") for label in unknown.labels)
    info = run.trace.info
    argv = [str(word) for word in info["argv"]] if isinstance(info.get("argv"), list) else []
    if isinstance(info.get("program"), str):
        words = ["python", "-m", "tfbisect", "record", "-o", "values.h5", "--values", pattern, *argv]
        hint = shlex.join(words)
    else:
        hint = f"tfbisect.record('values.h5', values={pattern!r})"
    hint += f" and then python -m tfbisect replay values.h5 {shlex.quote(op.label)}"
    return NotKept(f"op {op.label}", found=found, expected="the values of all inputs", hint=hint)


def _answer(
    run: Run, op: Op, chosen: Execution, case: "Case", setup: Settings, steps: Steps, done: Sequence[fresh.Process]
) -> Replay:
    """The result of a replay, in the terms of a comparison."""
    flow = run.flow(chosen.call)
    node = flow.nodes[chosen.node]
    differences = [process.difference for process in done if process.difference is not None]
    return Replay(
        trace=str(run.trace.path),
        op_type=node.op,
        kernel=case.kernel,
        name=op.label,
        device=case.device.removeprefix("/device:"),
        call=steps.ordinal(chosen.call),
        step=steps.step(chosen.call),
        iteration=run.path(chosen.path),
        source=run.source_of(chosen.call, flow, chosen.node),
        inputs=case.inputs,
        threads=(setup.intra_op, setup.inter_op),
        versions=dict(done[0].versions),
        outcome=fresh.outcome(done),
        processes=tuple(
            ReplayProcess(
                sum(process.counts.values()),
                tuple(sorted(process.counts.items(), key=lambda item: (-item[1], item[0]))),
            )
            for process in done
        ),
        distinct=tuple(fresh.totals(done)),
        difference=max(differences, key=fresh.size, default=None),
        as_recorded=sum(process.matching for process in done) if case.expected else None,
        notes=_notes(run, case, done),
    )


def _notes(run: Run, case: "Case", done: Sequence[fresh.Process]) -> tuple[str, ...]:
    """What is not as it was in the run."""
    found = []
    versions = run.trace.info.get("versions")
    then = versions.get("tensorflow") if isinstance(versions, dict) else None
    now = done[0].versions.get("tensorflow")
    if then is not None and then != now:
        found.append(f"recorded with TensorFlow {then}, replayed with {now}: other kernels may have run")
    if case.expected and not any(process.matching for process in done):
        found.append("no result has the bits that the recorded run computed: something else than these inputs matters")
    return tuple(found)


# --- the script ---------------------------------------------------------------------------------------------------


def _about(answer: Replay) -> tuple[str, ...]:
    """The comments at the head of a script. repr: a name from a trace cannot leave its comment."""
    distinct, runs = answer.measured or (0, 0)
    versions = ", ".join(f"{name} {version!r}" for name, version in answer.versions.items())
    lines = [
        f"{answer.op_type!r} alone, on the inputs that a run gave it: {distinct} of {runs} distinct, as measured",
        f"op {answer.name!r}; {versions}; {platform.system()} {platform.machine()}",
    ]
    if answer.outcome == PER_PROCESS:
        lines.append(f"Equal within a process; {len(answer.processes)} processes gave {len(answer.distinct)} results.")
    lines.append("Needs TensorFlow, NumPy and the .npz file beside it.")
    return tuple(lines)


def _target(path: Path, force: bool) -> Path:
    """Where a script goes. Raises CannotWrite and OutputExists before anything has run."""
    if path.suffix != ".py":
        raise Usage(f"script {path}", found=f"the ending {path.suffix!r}", expected=".py", hint="--export repro.py")
    for each in (path, path.with_suffix(".npz")):
        if each.is_dir():
            raise CannotWrite(f"script {each}", found="a folder", expected="the name of a file")
        if each.exists() and not force:
            raise OutputExists(f"script {each}", found="a file that is there already")
    if not path.absolute().parent.is_dir():
        raise CannotWrite(f"script {path}", found="no such folder", expected="a folder to write in")
    return path


def _hand_over(draft: Path, text: str, target: Path) -> None:
    """Put the finished script and its data where they belong, the data first."""
    try:
        shutil.copyfile(draft.with_suffix(".npz"), target.with_suffix(".npz"))
        target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CannotWrite(f"script {target}", found=error.strerror, expected="a folder to write in") from error
