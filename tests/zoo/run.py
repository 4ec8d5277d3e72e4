"""Measures what recording does to the programs of the zoo: `python tests/zoo/run.py [--only NAME] [--load]`.

Each program runs twice plainly and twice recorded, in fresh processes and empty folders. It must repeat; the recorded
runs must print what the plain ones print, byte for byte, which includes digests of all weights and outputs; both
traces must be complete and hold the same events; and `tfbisect compare` must find them identical. `--load` keeps a busy
loop on each core while the recorded runs run. Exit status 1 if a row is bad.
"""

import argparse
import collections
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tfbisect import trace
from tfbisect.model import CallState, SiteKind

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
PROGRAMS = {path.stem: path for path in sorted((HERE / "programs").glob("*.py")) if path.stem != "ending"}
TIMEOUT = 900
NEW_TEXT = re.compile(r"__autograph_generated_file\w+| +\d+|0x[0-9a-f]+|\d+")
WIDTH = 300  # characters of a detail that are shown
SHOWN = 6  # differences of each kind that are listed
# What these ops make or take is a name that is new in each run: a temporary file to save to, a handle as text.
NEW_NAMES = frozenset({
    "StringJoin", "ShardedFilename", "SaveV2", "MergeV2Checkpoints", "RestoreV2", "IteratorToStringHandle",
    "MultiDeviceIteratorToStringHandle",
})  # fmt: skip


@dataclass
class Run:
    """A process that has ended."""

    status: int
    stdout: str
    stderr: str
    seconds: float

    @property
    def said(self) -> set[str]:
        """The lines of standard error that are not tfbisect's, without what differs in every run (times, numbers)."""
        lines = (line for line in self.stderr.splitlines() if not line.startswith("tfbisect:"))
        return {NEW_TEXT.sub("0", line).strip() for line in lines}

    @property
    def announced(self) -> list[str]:
        return [line for line in self.stderr.splitlines() if line.startswith("tfbisect:")]


@dataclass
class Row:
    """What was measured of a program."""

    program: str
    plain: list[Run]
    recorded: list[Run] = field(default_factory=list)
    events: int = 0
    complete: bool = False
    opaque: list[str] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)  # between the events of the two traces
    verdict: str = "none"  # of `tfbisect compare`
    notes: list[str] = field(default_factory=list)  # what else is wrong
    remarks: list[str] = field(default_factory=list)  # what TensorFlow says on standard error only when recorded

    @property
    def repeats(self) -> bool:
        return all(run.status == 0 and run.stdout == self.plain[0].stdout for run in self.plain)

    @property
    def same(self) -> bool:
        """Whether every recorded run printed what the plain one did."""
        return all(run.status == 0 and run.stdout == self.plain[0].stdout for run in self.recorded)

    @property
    def equal(self) -> bool:
        return self.events > 0 and not self.differences

    @property
    def good(self) -> bool:
        fine = self.repeats and self.same and self.equal and self.complete and not self.notes
        return fine and self.verdict == "identical"


def run(program: Path, folder: Path, trace_file: Path | None = None) -> Run:
    """Run a program in a new folder, recorded if `trace_file` is given."""
    folder.mkdir()
    recorder = ["-m", "tfbisect", "record", "-o", trace_file] if trace_file else []
    return _python(folder, *recorder, program)


def _python(folder: Path, *arguments: object) -> Run:
    env = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "1", "CUDA_VISIBLE_DEVICES": "-1", "KERAS_BACKEND": "tensorflow"}
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    command = [sys.executable, *map(str, arguments)]
    start = time.monotonic()
    try:
        done = subprocess.run(
            command, cwd=folder, env=env, capture_output=True, encoding="utf-8", errors="replace", timeout=TIMEOUT
        )
    except subprocess.TimeoutExpired:
        return Run(-1, "", f"no end after {TIMEOUT} s", time.monotonic() - start)
    return Run(done.returncode, done.stdout, done.stderr, time.monotonic() - start)


@contextlib.contextmanager
def busy(processes: int) -> Iterator[None]:
    """Keep this many cores busy."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def examine(program: Path, folder: Path, *, load: bool = False, plain_runs: int = 2) -> Row:
    """Run a program plainly and twice recorded, and compare; `folder` is empty and on return holds both traces."""
    row = Row(program.stem, [run(program, folder / f"plain{number}") for number in range(plain_runs)])
    files = [folder / "a.h5", folder / "b.h5"]
    with busy(os.cpu_count() or 1) if load else contextlib.nullcontext():
        row.recorded = [run(program, folder / f"recorded{file.stem}", file) for file in files]
    for number, done in enumerate([*row.plain, *row.recorded]):
        if done.status != 0:
            kind = "plain" if number < plain_runs else "recorded"
            row.notes.append(f"a {kind} run ended with status {done.status}: {done.stderr[-300:].strip()}")
    for done in row.recorded:
        for text in sorted(done.said.difference(*(run.said for run in row.plain))):
            where = row.notes if "tfbisect" in text else row.remarks
            where.append(f"a recorded run also says: {text[:300]}")
        if len(done.announced) != 1:
            row.notes += [f"tfbisect says: {text}" for text in done.announced]
    if all(file.exists() for file in files):
        _compare(row, *(trace.load(file) for file in files))
        _judge(row, _python(folder, "-m", "tfbisect", "compare", *files, "--format", "json"))
    else:
        row.notes.append("no trace was written")
    return row


def _compare(row: Row, a: trace.Trace, b: trace.Trace) -> None:
    row.events = len(a.events)
    row.complete = a.complete and b.complete
    row.notes += [f"trace: {problem}" for problem in dict.fromkeys(a.problems + b.problems)]
    row.opaque = [f"{item.op_type} {item.name}: {item.reason} ({item.count})" for item in a.opaque]
    ours, theirs = events(a), events(b)
    for which, more in (("the first trace", ours - theirs), ("the second trace", theirs - ours)):
        rows = sorted(more.elements(), key=str)
        row.differences += [f"only in {which}: {_readable(event)}" for event in rows]


def _judge(row: Row, compared: Run) -> None:
    try:
        answer = json.loads(compared.stdout)
    except ValueError:
        row.notes.append(f"compare ended with status {compared.status}: {compared.stderr[-300:].strip()}")
        return
    row.verdict = answer["verdict"]
    if row.verdict != "identical":
        row.notes += [f"compare warns: {text}" for text in answer["warnings"]]
        row.notes += [
            f"compare blames: {culprit['op_type']} {culprit['name']} in {culprit['function']}, {culprit['category']}, "
            f"source {(culprit['source'] or {}).get('line')}: {culprit['explanation']}"
            for culprit in answer["culprits"]
        ]


Event = tuple[str, str, str, int, int, tuple[int, ...], tuple[int, ...] | None, int]


def events(recorded: trace.Trace) -> collections.Counter[Event]:
    """The events of a trace as a multiset of (graph, op, node, site kind, slot, iteration, shape, digest).

    The order of calls is left out: threads, and TensorFlow's own, may come in another one. So are calls that failed:
    which of their other ops still ran is a matter of time.
    """
    sites: dict[int, tuple[str, str, str, int, int] | None] = {}
    result: collections.Counter[Event] = collections.Counter()
    failed = set(recorded.calls["id"][recorded.calls["state"] == CallState.FAILED].tolist())
    for call, site, path, shape, digest, _value in recorded.events.tolist():
        if call in failed:
            continue
        if site not in sites:
            graph_id, node_id, slot, kind, _dtype = recorded.sites[site].tolist()
            graph = recorded.graphs[graph_id]
            node = graph.nodes[node_id]
            sites[site] = None if node.op in NEW_NAMES else (graph.name, node.op, node.name, kind, slot)
        place = sites[site]
        if place is not None:
            result[(*place, recorded.iteration(path), recorded.shape(shape), digest)] += 1
    return result


def _readable(event: Event) -> str:
    graph, op, node, kind, slot, path, shape, digest = event
    return f"{graph}/{node} ({op}) {SiteKind(kind).name} {slot}, iteration {path}, shape {shape}, digest {digest:016x}"


def _word(fine: bool) -> str:
    return "yes" if fine else "NO"


HEADER = f"{'program':<26}{'events':>9}  repeats  untraced=recorded  traces equal  complete  " + (
    "verdict       opaque  plain s  recorded s"
)


def line(row: Row) -> str:
    """The row of the table."""
    plain, recorded = (min(run.seconds for run in runs) for runs in (row.plain, row.recorded))
    return (
        f"{row.program:<26}{row.events:>9,}  {_word(row.repeats):<7}  {_word(row.same):<17}  {_word(row.equal):<12}  "
        f"{_word(row.complete):<8}  {row.verdict:<12}  {len(row.opaque):>6}  {plain:>7.1f}  {recorded:>10.1f}"
    )


def details(row: Row) -> list[str]:
    """What the table has no room for."""
    found = [f"opaque: {item}" for item in row.opaque] + row.notes + row.remarks[:SHOWN]
    for number, other in enumerate([*row.plain[1:], *row.recorded]):
        kind = "plain" if number < len(row.plain) - 1 else "recorded"
        changed = _changed(row.plain[0].stdout, other.stdout)
        found += [f"a {kind} run printed: {text}" for text in changed[:SHOWN]]
    found += row.differences[:SHOWN]
    if len(row.differences) > SHOWN:
        found.append(f"and {len(row.differences) - SHOWN} more events that only one trace has")
    return found


def _changed(ours: str, theirs: str) -> list[str]:
    pairs = zip(ours.splitlines(), theirs.splitlines(), strict=False)
    return [f"{b}  instead of  {a}" for a, b in pairs if a != b] or (["other lines"] if ours != theirs else [])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", action="append", choices=PROGRAMS, metavar="NAME", help="this one; more than once")
    parser.add_argument("--load", action="store_true", help="busy loops on all cores while the recorded runs run")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep folders and traces here")
    options = parser.parse_args(arguments)
    print(HEADER, flush=True)
    bad = []
    with tempfile.TemporaryDirectory() as temporary:
        for name in options.only or PROGRAMS:
            folder = (options.keep or Path(temporary)).absolute() / name
            folder.mkdir(parents=True)
            row = examine(PROGRAMS[name], folder, load=options.load)
            print(line(row), flush=True)
            for text in details(row):
                print(f"    {' '.join(text.split())[:WIDTH]}", flush=True)
            if not row.good:
                bad.append(name)
    print(f"{len(bad)} bad: {', '.join(bad)}" if bad else "all good")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
