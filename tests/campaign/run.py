"""A campaign of generated TensorFlow programs: `python tests/campaign/run.py --programs 300 --seed 1`.

Each program is random but repeatable, and has no, one or two planted faults that act in run B only (`writer`,
`faults`). It runs once plainly as A and then recorded as A and as B; the recorded A must give the plain one's bits, and
the comparison must name what was planted, or nothing, and never anything else. `--only SEED` runs one program again.
`--repeatable` plants nothing and records each program in two processes, as users do: the pairs must be identical.

Prints a table of figures and each bad program's seed; the sources of these stay in the folder `--keep`. Exit status 1
if a culprit ranked first was not planted, if a program without fault was not identical, or if recording broke it.
"""

import argparse
import collections
import contextlib
import gc
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from campaign.faults import Verdict, judge, text
from campaign.writer import HOSTS, Writer

CHUNK = 40  # programs a process runs: a crash loses one of them, and TensorFlow keeps what it once compiled
REPEATS = 8  # further plain runs before recording is blamed for other results
BAD = ("WRONG", "false alarm", "broken")
UNCLEAR = ("undecided", "missed", "extra", "contained extra")
LABELS = ("right", "masked", "fine", *UNCLEAR, *BAD, "unrepeatable", "invalid")


def bits(value: Any) -> str:
    """A result's exact bytes, in short."""
    import numpy as np

    array = np.asarray(value)
    return f"{array.dtype}{array.shape}{hashlib.sha256(array.tobytes()).hexdigest()[:16]}"


class Program:
    """A written program that can run, again and again, as A or B."""

    def __init__(self, seed: int, folder: Path, faults: int | None = None) -> None:
        self.writer = Writer(seed, faults)
        self.file = folder / f"program{seed}.py"
        self.file.write_text(self.writer.source)
        self._code = compile(self.writer.source, str(self.file), "exec")

    def run(self, run: str, trace: Path | None = None) -> tuple[list[str], list[Any]]:
        """-> (its results, the moments at which a planted host function acted)"""
        import tensorflow as tf

        import tfbisect

        tf.keras.backend.clear_session()
        space: dict[str, Any] = {"RUN": run, "__name__": "program", "__file__": str(self.file)}
        outside = self.writer.outside
        exec(self._code, space)
        if outside:
            space["setup"]()
        with tfbisect.record(trace, force=True) if trace else contextlib.nullcontext():
            if not outside:
                space["setup"]()
            space["main"]()
        return [bits(value) for value in space["OUT"]], space["HITS"]


def try_program(seed: int, folder: Path, faults: int | None = None, keep: bool = False) -> Verdict:
    """Write, run and compare one program."""
    import tfbisect

    program = Program(seed, folder, faults)
    a, b = folder / f"a{seed}.h5", folder / f"b{seed}.h5"
    try:
        plain, _ = program.run("A")
    except Exception:
        return Verdict("invalid", traceback.format_exc()[-400:])
    try:
        # One line of code for both: calls are paired by their Python stack, this one included.
        (recorded, _), (other, hits) = (program.run(run, trace) for run, trace in (("A", a), ("B", b)))
        if recorded != plain:
            repeats = all(program.run("A")[0] == plain for _ in range(REPEATS))
            return Verdict("broken" if repeats else "unrepeatable", "recording changed the results")
        for each in (a, b):
            trace = tfbisect.load(each)
            if not trace.complete:
                return Verdict("broken", f"the trace is incomplete: {trace.problems}")
        comparison = tfbisect.compare(a, b)
    except Exception:
        return Verdict("broken", traceback.format_exc()[-600:])
    finally:
        if not keep:
            a.unlink(missing_ok=True)
            b.unlink(missing_ok=True)
    planted = [site for site in program.writer.planted if site.b not in HOSTS or hits]
    if not planted and program.writer.planted and other != plain:
        return Verdict("unrepeatable", "no fault ran, other results")
    changed = other != plain or bool(hits)
    verdict = judge(comparison, planted, program.file.name, {f.name: f for f in program.writer.functions}, changed)
    if keep:
        print(text(comparison), *comparison.warnings, sep="\n")
    if verdict.label in (*BAD, *UNCLEAR) or verdict.imprecise:
        sites = "; ".join(f"{s.kind} line {sorted(s.lines)[:3]} moment {s.moment} path {s.path}" for s in planted)
        verdict.note = f"planted {sites or 'nothing'}; {text(comparison)}"
    return verdict


def work(first: int, last: int, folder: Path, report: Callable[[dict[str, Any]], None]) -> None:
    """Try the programs of these seeds in this process."""
    for seed in range(first, last):
        report({"start": seed})
        begin = time.monotonic()
        verdict = try_program(seed, folder)
        gc.collect()
        report({
            "seed": seed, "label": verdict.label, "note": verdict.note, "imprecise": verdict.imprecise,
            "seconds": time.monotonic() - begin,
        })  # fmt: skip


def record(first: int, last: int, folder: Path, report: Callable[[dict[str, Any]], None]) -> None:
    """Run the programs of these seeds, without a fault, plainly and recorded, in this process."""
    for seed in range(first, last):
        report({"start": seed})
        begin, row = time.monotonic(), {"seed": seed}
        try:
            program = Program(seed, folder, faults=0)
            row["plain"], _ = program.run("A")
            row["recorded"], _ = program.run("A", folder / f"{os.getpid()}-{seed}.h5")
            row["trace"] = str(folder / f"{os.getpid()}-{seed}.h5")
        except Exception:
            row |= {"label": "broken" if "plain" in row else "invalid", "note": traceback.format_exc()[-400:]}
        gc.collect()
        report(row | {"seconds": time.monotonic() - begin})


def child(folder: Path, *arguments: object) -> Iterator[dict[str, Any]]:
    """What a process of its own reports of its programs; if it dies, the program it was at is a broken one."""
    command = [sys.executable, __file__, *map(str, arguments), "--keep", str(folder)]
    env = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1", "PYTHONWARNINGS": "ignore"}
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors,  # a pipe that is not read fills
        subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=errors, encoding="utf-8") as process,
    ):
        assert process.stdout is not None
        started = int(str(arguments[1]))
        for line in process.stdout:
            if not line.startswith("{"):
                continue
            row = json.loads(line)
            if "start" in row:
                started = row["start"]
            else:
                yield {"imprecise": [], "note": "", **row}
                started = row["seed"] + 1
        process.wait()
        errors.seek(0)
        error = errors.read()
    if process.returncode != 0:
        note = f"the process died with status {process.returncode}: {error[-300:]}"
        yield {"seed": started, "label": "broken", "note": note, "imprecise": [], "seconds": 0.0}


def covered(option: str, first: int, last: int, folder: Path) -> Iterator[dict[str, Any]]:
    """The rows of all programs of a chunk: what is left of it after a process died goes to another one."""
    while first < last:
        for row in child(folder, option, first, last):
            yield row
            first = row["seed"] + 1


def chunks(seed: int, programs: int) -> Iterator[tuple[int, int]]:
    """(first, last) of what one process runs."""
    end = seed * 100_000 + programs
    return ((first, min(first + CHUNK, end)) for first in range(seed * 100_000, end, CHUNK))


def campaign(seed: int, programs: int, folder: Path) -> Iterator[dict[str, Any]]:
    """Try programs in fresh processes of `CHUNK` each."""
    for first, last in chunks(seed, programs):
        yield from covered("--work", first, last, folder)


def repeatable(seed: int, programs: int, folder: Path) -> Iterator[dict[str, Any]]:
    """Record programs without a fault in pairs: the run A of each in one process, its run B in another."""
    for first, last in chunks(seed, programs):
        for a, b in zip(*(covered("--record", first, last, folder) for _ in "AB"), strict=True):
            yield {**a, **judge_pair(a, b), "seconds": a["seconds"] + b["seconds"]}


def judge_pair(a: dict[str, Any], b: dict[str, Any]) -> dict[str, str]:
    """-> the label and note of two recordings of one program."""
    import tfbisect

    traces = [Path(row["trace"]) for row in (a, b) if "trace" in row]
    try:
        for row in (a, b):
            if "label" in row:
                return {"label": row["label"], "note": row["note"]}
        if a["plain"] != b["plain"]:
            return {"label": "unrepeatable", "note": "the plain runs differ"}
        if a["recorded"] != a["plain"] or b["recorded"] != b["plain"]:
            return {"label": "broken", "note": "recording changed the results"}
        comparison = tfbisect.compare(*traces)
    except Exception:
        return {"label": "broken", "note": traceback.format_exc()[-600:]}
    finally:
        for trace in traces:
            trace.unlink(missing_ok=True)
    label = {"identical": "fine", "diverged": "false alarm"}.get(comparison.verdict, "undecided")
    return {"label": label, "note": text(comparison)}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--programs", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, metavar="SEED", help="one program, by the seed that the table shows")
    parser.add_argument("--repeatable", action="store_true", help="plant nothing: only pairs of equal runs")
    parser.add_argument("--work", type=int, nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--record", type=int, nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="where the sources of bad programs stay")
    options = parser.parse_args(arguments)
    folder = options.keep or Path(tempfile.mkdtemp(prefix="campaign"))
    folder.mkdir(parents=True, exist_ok=True)
    if options.only is not None:
        verdict = try_program(options.only, folder, keep=True)
        print(verdict.label, verdict.note, *verdict.imprecise, sep="\n")
        return int(verdict.label in BAD)
    for task, seeds in ((work, options.work), (record, options.record)):
        if seeds:
            task(*seeds, folder, lambda row: print(json.dumps(row), flush=True))
            return 0
    counts: collections.Counter[str] = collections.Counter()
    loose, seconds = 0, 0.0
    for row in (repeatable if options.repeatable else campaign)(options.seed, options.programs, folder):
        counts[row["label"]] += 1
        loose += bool(row["imprecise"])
        seconds += row["seconds"]
        bad = row["label"] in (*BAD, *UNCLEAR, "unrepeatable", "invalid")
        if bad or row["imprecise"]:
            print(f"{row['seed']} {row['label']}: {'; '.join(row['imprecise'])} {row['note']}", flush=True)
        else:
            (folder / f"program{row['seed']}.py").unlink(missing_ok=True)
    for label in LABELS:
        print(f"{label:<16}{counts[label]:>6}")
    print(f"{'programs':<16}{counts.total():>6}   {loose} right but not precise, {seconds:.0f} s")
    if any(folder.iterdir()):
        print(f"sources of bad programs: {folder}")
    elif options.keep is None:
        folder.rmdir()
    return int(any(counts[label] for label in BAD))


if __name__ == "__main__":
    sys.exit(main())
