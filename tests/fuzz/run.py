"""Hostile traces: `python tests/fuzz/run.py --inputs 100000 --seed 1`.

Changes sound traces (`mutations`), loads each and compares it with a sound one through the public API, and looks into
what it says. A verdict or a TfbisectError may come out, within a time and a memory limit, and nothing else: no other
exception, no crash, no other file opened, no process started, no module imported. `--only N` runs one input again, in
this process; `--traces a.h5 b.h5` adds pairs of real traces to those that are written here.

Prints a table of figures and each failure's number. Exit status 1 if there was one.
"""

import argparse
import collections
import contextlib
import os
import resource
import select
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "unit"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import minilang
from fuzz.hdf5 import Original
from fuzz.mutations import KINDS, input_of

import tfbisect
from tfbisect.comparison import compare_traces
from tfbisect.errors import TfbisectError
from tfbisect.reporters import Page, formats, render
from tfbisect.tables import Trace

BATCH = 200  # inputs a child process takes: a crash costs one
SECONDS = 20  # an input may take
MEGABYTES = 1024  # an input may take, beyond what the process has
PROGRAMS = (
    "v := Variable x0; r = read v; d = MatMul x r; s = loop 2 a=d; e = Mul a d; next a e; end; assign v s",
    "def f x w p; h = MatMul x w; y = if p; a = Relu h; give a; else; b = Tanh h; give b; end; end\n"
    "v := Variable; u = RandomUniform q; y = f u t c; z = Sum y; ResourceApplyAdam v z; @1 k = Relu y",
)
FORBIDDEN = (
    "subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "socket.connect", "pickle.find_class",
    "ctypes.dlopen", "shutil.rmtree", "os.remove", "os.rename", "import",
)  # fmt: skip


Pairs = list[tuple[Original, Trace]]


class Task(NamedTuple):
    """Which inputs are made."""

    seed: int
    kinds: tuple[str, ...] = ()  # of mutations; all if empty


def pairs(folder: Path, given: Sequence[str] = ()) -> Pairs:
    """Sound traces to change, each with one to compare it with: of the same run, and of one that differs."""
    files = []
    for number, program in enumerate(PROGRAMS):
        same, differs = folder / f"same{number}.h5", folder / f"differs{number}.h5"
        minilang.record(program, same, values=True, calls=2)
        minilang.record(program, differs, values=True, calls=2, change={"d@1" if number == 0 else "h@0": 1})
        files += [(same, same), (differs, same)]
    files += [(Path(one), Path(two)) for one, two in zip(given[::2], given[1::2], strict=True)]
    return [(Original(one.read_bytes()), tfbisect.load(two)) for one, two in files]


def probe(path: Path, other: Trace, thorough: bool) -> str:
    """What comes out of a file: a verdict, or the code of an error."""
    try:
        trace = tfbisect.load(path)
        result = compare_traces(trace, other)
        if thorough:
            _look_into(trace, result, Path(other.path))
    except TfbisectError as error:
        str(error)
        return error.code
    return str(result.verdict)


def _look_into(trace: Trace, result: Any, other: Path) -> None:
    """All that can be asked of a trace and a comparison."""
    tfbisect.compare(trace.path, trace.path)
    trace.values(range(min(200, len(trace.events))))
    for call in trace.calls["id"][:50].tolist():
        trace.events_of(call), trace.links_of(call)
    for stack in trace.calls["stack"][:50].tolist():
        trace.stack(stack)
    str(trace), trace._repr_html_()
    for format in formats():
        render(result, format, Page())
    with contextlib.suppress(TfbisectError):
        tfbisect.compare(other, trace.path, rtol=1e-6)
    with contextlib.suppress(TfbisectError):
        tfbisect.compare(other, trace.path, other)


class Forbidden(BaseException):
    """A trace made this process do what reading must not do."""


class Limit(BaseException):
    """Time is up."""


def _watch(folder: Path) -> None:
    """From here on this process may read traces and nothing else."""
    fine = (str(folder), os.devnull)

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event == "open" and not isinstance(args[0], int):
            path = os.fsdecode(args[0])
            if not path.startswith(fine) and not path.endswith((".py", ".pyc", ".json", ".css", ".js", ".html")):
                raise Forbidden(f"opened {path}")
        elif event.startswith(FORBIDDEN):
            raise Forbidden(f"{event} {args}")

    sys.addaudithook(hook)


def _limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEGABYTES * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _alarm(*_: object) -> None:
    raise Limit(f"more than {SECONDS} s")


def one(originals: Pairs, task: Task, number: int, folder: Path) -> tuple[str, str]:
    """-> (kind, what came out): "FAILED ..." for what must not."""
    kind, data, other = input_of(originals, task.seed, number, task.kinds)
    path = folder / f"input{os.getpid()}.h5"
    path.write_bytes(data)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        return kind, probe(path, other, thorough=number % 8 == 0)
    except BaseException as error:
        where = [f"{frame.name}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)[-3:]]
        text = " ".join(str(error).split())[:160]
        return kind, f"FAILED {type(error).__name__}: {text} in {' < '.join(reversed(where))}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _child(originals: Pairs, task: Task, numbers: Sequence[int], folder: Path, pipe: int) -> None:
    """Tries inputs one after the other, and says a line of each."""
    _limit_memory()
    _watch(folder)
    signal.signal(signal.SIGALRM, _alarm)
    for number in numbers:
        kind, outcome = one(originals, task, number, folder)
        os.write(pipe, f"{number}\t{kind}\t{outcome}\n".encode("utf-8", "replace"))


def outcomes(
    originals: Pairs, task: Task, inputs: int, folder: Path
) -> Iterator[tuple[int, str, str]]:  # fmt: skip
    """(number, kind, what came out) of all inputs, each tried in a child of this process that has little memory."""
    for start in range(0, inputs, BATCH):
        numbers = list(range(start, min(start + BATCH, inputs)))
        while numbers:
            read, write = os.pipe()
            child = os.fork()
            if child == 0:
                status = 1
                with contextlib.suppress(BaseException):
                    os.close(read)
                    _child(originals, task, numbers, folder, write)
                    status = 0
                os._exit(status)
            os.close(write)
            done, hung = list(_lines(read, SECONDS * 2)), False
            os.close(read)
            if len(done) < len(numbers):
                with contextlib.suppress(ProcessLookupError):
                    hung = os.waitpid(child, os.WNOHANG) == (0, 0) and not time.sleep(0.2)
                    os.kill(child, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                _, status = os.waitpid(child, 0)
            for line in done:
                number, kind, outcome = line.split("\t", 2)
                yield int(number), kind, outcome
            if len(done) < len(numbers):
                number = numbers[len(done)]
                how = "hung" if hung and status == signal.SIGKILL else f"the process died, status {status}"
                yield number, input_of(originals, task.seed, number, task.kinds)[0], f"FAILED {how}"
            numbers = numbers[len(done) + 1 :]


def _lines(pipe: int, seconds: float) -> Iterator[str]:
    """Lines of a pipe until it ends, or until nothing came for so long."""
    rest = b""
    while select.select([pipe], [], [], seconds)[0]:
        data = os.read(pipe, 65536)
        if not data:
            return
        *lines, rest = (rest + data).split(b"\n")
        yield from (line.decode("utf-8", "replace") for line in lines)


def warm(originals: Pairs, folder: Path) -> None:
    """Import all that comparing and reporting need: children may import nothing."""
    "\0".encode("unicode_escape")  # a codec is a module, too
    for original, other in originals:
        path = folder / "warm.h5"
        path.write_bytes(original.data)
        assert probe(path, other, thorough=True) in ("identical", "diverged", "inconclusive")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, help="the number of one input, to be run here")
    parser.add_argument("--traces", nargs="*", default=[], help="pairs of real traces to change, too")
    parser.add_argument("--kinds", nargs="*", default=[], choices=list(KINDS), help="only these mutations")
    options = parser.parse_args()
    task = Task(options.seed, tuple(options.kinds))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        originals = pairs(folder, options.traces)
        if options.only is not None:
            kind, data, other = input_of(originals, task.seed, options.only, task.kinds)
            path = folder / "input.h5"
            path.write_bytes(data)
            print(kind, probe(path, other, thorough=True))
            return 0
        warm(originals, folder)
        started, counts, failed = time.monotonic(), collections.Counter(), []
        for number, kind, outcome in outcomes(originals, task, options.inputs, folder):
            bad = outcome.startswith("FAILED")
            counts[kind, "FAILED" if bad else outcome] += 1
            if bad:
                failed.append(number)
                print(f"input {number} ({kind}): {outcome}", flush=True)
    columns = sorted({outcome for _, outcome in counts})
    print(f"\n{'':10}" + "".join(f"{column:>14}" for column in columns))
    for kind in KINDS:
        print(f"{kind:10}" + "".join(f"{counts[kind, column]:14,}" for column in columns))
    took = time.monotonic() - started
    print(f"\n{options.inputs:,} inputs of seed {options.seed} in {took:,.0f} s: {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
