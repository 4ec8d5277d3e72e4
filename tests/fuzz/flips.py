"""One flipped bit: `python tests/fuzz/flips.py --flips 1000 --seed 1`.

Flips one bit of a sound trace, compares it with the other run, and tells whether the answer is what it was. A flip may
be found out (an error, or a trace that says what it lacks), or change nothing; another culprit is a failure. The same
for a trace whose process was killed: there less may be found, but nothing else. `--traces a.h5 b.h5` takes real ones.
"""

import argparse
import collections
import random
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "unit"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import minilang

import tfbisect
from tfbisect.comparison import compare_traces
from tfbisect.errors import TfbisectError
from tfbisect.tables import Trace

PROGRAM = "v := Variable x0; r = read v; d = MatMul x r; s = loop 2 a=d; e = Mul a d; next a e; end; assign v s"
FINE = ("found out", "the same answer", "less, and said so")


def answer(trace: Trace, other: Trace) -> tuple[object, ...]:
    """What two runs' comparison says: the verdict and each culprit with all that is told of it."""
    result = compare_traces(trace, other)
    return result.verdict, tuple(str(culprit) for culprit in result.culprits), trace.problems


def outcome(path: Path, other: Trace, wanted: tuple[object, ...]) -> str:
    """What became of one flip: one of FINE, or what is wrong."""
    try:
        trace = tfbisect.load(path)
        found = answer(trace, other)
        trace.values(range(len(trace.events)))
    except TfbisectError:
        return FINE[0]
    if found == wanted:
        return FINE[1]
    if not trace.complete and trace.problems and found[0] != "identical" and set(found[1]) <= set(wanted[1]):  # type: ignore[arg-type]
        return FINE[2]
    return f"WRONG: {found}"


def flips(path: Path, other: Trace, count: int, seed: int, folder: Path) -> collections.Counter[str]:
    """-> how often each outcome was seen."""
    data, draw = path.read_bytes(), random.Random(seed)
    used = [place for place, byte in enumerate(data) if byte]  # most of a small file is room for more rows
    wanted, counts = answer(tfbisect.load(path), other), collections.Counter[str]()
    for number in range(count):
        place = draw.choice(used) if number % 2 else draw.randrange(len(data))
        changed = bytearray(data)
        changed[place] ^= 1 << draw.randrange(8)
        flipped = folder / "flipped.h5"
        flipped.write_bytes(changed)
        counts[outcome(flipped, other, wanted)] += 1
    return counts


def written(folder: Path) -> list[tuple[Path, Trace]]:
    """Traces to flip bits of, with the other run: one that ended, and one that was killed."""
    a = minilang.recorded(PROGRAM, folder / "a.h5", values=True)
    ended = minilang.record(PROGRAM, folder / "ended.h5", values=True, change={"d@1": 1})
    minilang.record(PROGRAM, folder / "later.h5", values=True, change={"d@1": 1}, complete=False)
    return [(ended, a), (folder / "later.h5", a)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--flips", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--traces", nargs=2, help="a trace to flip bits of, and the other run")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        todo = written(folder)
        if options.traces:
            todo = [(Path(options.traces[0]), tfbisect.load(options.traces[1]))]
        total = collections.Counter[str]()
        for path, other in todo:
            counts = flips(path, other, options.flips, options.seed, folder)
            print(f"{path.name}: " + ", ".join(f"{what} {count:,}" for what, count in sorted(counts.items())))
            total += counts
    return 1 if set(total) - set(FINE) else 0


if __name__ == "__main__":
    sys.exit(main())
