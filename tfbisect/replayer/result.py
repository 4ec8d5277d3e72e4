"""What a replay found, as a frozen dataclass, to and from JSON, and as text for people."""

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tfbisect.checked import ints, json_or_none, one_of, optional
from tfbisect.errors import Damaged, NewerFormat, printable
from tfbisect.model import Difference, Json, Source
from tfbisect.notebook import Bar, Card, Code, Facts, Grid, Shown

REPLAY_FORMAT = 1
OUTCOMES = ("varies", "per_process", "stable")
_TITLES = {
    "varies": "varies in isolation",
    "per_process": "fixed within a process, several across processes",
    "stable": "stable in isolation",
}
_MEANINGS = {
    "varies": "The kernel itself gives other bits for the same inputs: the op is convicted, and no schedule, no "
    "neighbour and no earlier op is needed for it.",
    "per_process": "Each process settles for one result and repeats it; other processes settle for another. That is "
    "what a choice looks like that is made once per process: an algorithm chosen by timing, a plan or a seed.",
    "stable": "With these inputs and settings the kernel alone repeats. A difference in the program then comes from "
    "around it: what ran beside it, which buffers it was given, or inputs that were not the ones compared. Or it is "
    "rare: try more runs.",
}
SHOWN = 5


@dataclass(frozen=True, slots=True)
class ReplayProcess:
    """What one process computed: (digest of a result, how often), the most frequent first."""

    runs: int
    results: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Replay(Shown):
    """One op, run by itself on its recorded inputs.

    `outcome`: "varies" (within a process), "per_process" (equal within each process, not across them) or "stable".
    `distinct`: (digest, how often) over all processes. `difference`: the largest one from the first result; None when
    all are equal. `as_recorded`: how many runs gave the bits that the recorded run computed; None if it kept none.
    `call`, `step` and `iteration` say which execution it was, as in a comparison. `kernel`: the op that was executed.
    """

    trace: str
    op_type: str
    kernel: str
    name: str
    device: str
    call: int | None
    step: int | None
    iteration: tuple[int, ...]
    source: Source | None
    inputs: tuple[str, ...]
    threads: tuple[int, int]  # intra-op, inter-op; 0: as many as there are cores
    versions: Mapping[str, str]
    outcome: str
    processes: tuple[ReplayProcess, ...]
    distinct: tuple[tuple[str, int], ...]
    difference: Difference | None
    as_recorded: int | None
    notes: tuple[str, ...] = ()
    exported: str | None = None
    measured: tuple[int, int] | None = None  # distinct results and runs of the exported script, run by itself
    format: int = REPLAY_FORMAT

    @property
    def times(self) -> int:
        """How often the op ran, in all processes together."""
        return sum(process.runs for process in self.processes)

    @property
    def meaning(self) -> str:
        """What the outcome says, in words."""
        return _MEANINGS[self.outcome]

    def to_json(self) -> Json:
        return {
            "format": self.format,
            "trace": self.trace,
            "op_type": self.op_type,
            "kernel": self.kernel,
            "name": self.name,
            "device": self.device,
            "call": self.call,
            "step": self.step,
            "iteration": list(self.iteration),
            "source": json_or_none(self.source),
            "inputs": list(self.inputs),
            "threads": list(self.threads),
            "versions": dict(self.versions),
            "outcome": self.outcome,
            "meaning": self.meaning,
            "processes": [{"runs": p.runs, "results": [list(pair) for pair in p.results]} for p in self.processes],
            "distinct": [list(pair) for pair in self.distinct],
            "difference": json_or_none(self.difference),
            "as_recorded": self.as_recorded,
            "notes": list(self.notes),
            "exported": self.exported,
            "measured": list(self.measured) if self.measured else None,
        }

    @classmethod
    def from_json(cls, data: Any) -> "Replay":
        """The inverse of `to_json`. Raises NewerFormat, and Damaged for anything that is no replay."""
        try:
            version = int(data["format"])
            if version > REPLAY_FORMAT:
                raise NewerFormat("replay", found=f"format {version}", expected=f"at most {REPLAY_FORMAT}")
            measured = data["measured"]
            return cls(
                trace=str(data["trace"]),
                op_type=str(data["op_type"]),
                kernel=str(data["kernel"]),
                name=str(data["name"]),
                device=str(data["device"]),
                call=optional(int, data["call"]),
                step=optional(int, data["step"]),
                iteration=ints(data["iteration"]),
                source=optional(Source.from_json, data["source"]),
                inputs=tuple(str(item) for item in data["inputs"]),
                threads=(int(data["threads"][0]), int(data["threads"][1])),
                versions={str(key): str(value) for key, value in data["versions"].items()},
                outcome=one_of(OUTCOMES, data["outcome"]),
                processes=tuple(ReplayProcess(int(p["runs"]), _pairs(p["results"])) for p in data["processes"]),
                distinct=_pairs(data["distinct"]),
                difference=optional(Difference.from_json, data["difference"]),
                as_recorded=optional(int, data["as_recorded"]),
                notes=tuple(str(note) for note in data["notes"]),
                exported=optional(str, data["exported"]),
                measured=(int(measured[0]), int(measured[1])) if measured else None,
                format=version,
            )
        except KeyError as error:
            raise Damaged("replay", found=f"no key {error}", expected="the JSON of a replay") from error
        except (TypeError, ValueError, AttributeError, IndexError) as error:
            raise Damaged("replay", found=error, expected="the JSON of a replay") from error

    def _card(self) -> Card:
        return _card(self)

    def __str__(self) -> str:
        """The report for a terminal, without control characters."""
        return "\n".join(printable(line) for line in _lines(self)) + "\n"


def _card(replay: Replay) -> Card:
    rows: list[tuple[str, object]] = [("op", replay.name), ("executed as", replay.kernel)]
    if replay.source is not None:
        rows.append(("line", Code(replay.source.text.strip() or f"{replay.source.file}:{replay.source.line}")))
    rows += [
        ("execution", _when(replay)),
        ("inputs", ", ".join(replay.inputs) or "none"),
        ("settings", _threads(replay)),
    ]
    if replay.difference is not None:
        rows.append(("largest", _size(replay.difference)))
    rows += [("note", note) for note in replay.notes]
    rows += [("script", replay.exported)] * (replay.exported is not None)
    results = [(digest, Bar(count, count / max(1, replay.times))) for digest, count in replay.distinct]
    title = f"{len(replay.distinct)} distinct results in {replay.times} runs of {len(replay.processes)} processes"
    table = Grid(title, ("digest", "times"), results)
    word = "identical" if replay.outcome == "stable" else "diverged"
    return Card(word, f"{replay.op_type}: {_TITLES[replay.outcome]}. {replay.meaning}", [Facts(rows), table])


def _pairs(rows: Any) -> tuple[tuple[str, int], ...]:
    return tuple((str(digest), int(count)) for digest, count in rows)


def _lines(replay: Replay) -> list[str]:
    many = "1 process" if len(replay.processes) == 1 else f"{len(replay.processes)} processes"
    lines = [
        f"{replay.op_type}: {_TITLES[replay.outcome]}",
        f"  op         {replay.name}" + (f" (executed as {replay.kernel})" if replay.kernel != replay.op_type else ""),
    ]
    if replay.source is not None:
        lines.append(f"  line       {replay.source.file}:{replay.source.line}  {replay.source.text}".rstrip())
    lines += [
        f"  execution  {_when(replay)}",
        f"  inputs     {', '.join(replay.inputs) or 'none'}",
        f"  settings   {_threads(replay)}, {replay.device or 'any device'}, "
        f"TensorFlow {replay.versions.get('tensorflow', '?')}",
        f"  results    {len(replay.distinct)} distinct in {replay.times} runs ({many})",
    ]
    lines += [f"             {digest}  {_times(count)}" for digest, count in replay.distinct[:SHOWN]]
    if len(replay.distinct) > SHOWN:
        lines.append(f"             and {len(replay.distinct) - SHOWN} more")
    if replay.outcome == "per_process":
        for number, process in enumerate(replay.processes, 1):
            lines.append(f"             process {number}: {process.results[0][0]}, {_times(process.runs)}")
    if replay.difference is not None:
        lines.append(f"  largest    {_size(replay.difference)}")
    if replay.as_recorded is not None:
        lines.append(f"  recorded   {replay.as_recorded} of {replay.times} runs gave the bits of the recorded run")
    lines += [f"  note       {note}" for note in replay.notes]
    lines += textwrap.wrap(f"means      {replay.meaning}", 100, initial_indent="  ", subsequent_indent=" " * 13)
    if replay.exported is not None:
        distinct, runs = replay.measured or (0, 0)
        lines.append(f"  script     {replay.exported}: run by itself, {distinct} of {runs} distinct")
    return lines


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _when(replay: Replay) -> str:
    parts = [f"{word} {value}" for word, value in (("step", replay.step), ("call", replay.call)) if value is not None]
    if replay.iteration:
        parts.append(f"iteration {', '.join(map(str, replay.iteration))}")
    return ", ".join(parts) or "the only one"


def _threads(replay: Replay) -> str:
    intra, inter = ("one a core" if not number else str(number) for number in replay.threads)
    return f"intra-op threads: {intra}, inter-op threads: {inter}"


def _size(each: Difference) -> str:
    text = f"{each.differing} of {each.elements} elements differ from the first result"
    if each.max_abs is not None:
        text += f", at most by {each.max_abs:.3g}"
    if each.max_ulp is not None:
        text += f" ({each.max_ulp} ulp)"
    return text
