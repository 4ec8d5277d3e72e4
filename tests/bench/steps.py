"""What recording costs: `python tests/bench/steps.py [--only NAME ...] [--rounds 7] [--write]`.

A plain and a recorded process of each program live side by side and run in turns, a few steps each, so that both see
the same machine; one of them always waits. Shown are medians and their ratio. `--peer` adds TensorFlow's own Debugger
V2 (`enable_dump_debug_info`, FULL_TENSOR). `--write` puts the table into RESULTS.md. Needs an otherwise idle machine.
"""

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import numpy as np

from tfbisect import trace

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PROGRAM = HERE / "programs" / "steps.py"
DUMPING = """
import runpy, sys, tensorflow as tf
tf.debugging.experimental.enable_dump_debug_info({folder!r}, tensor_debug_mode="FULL_TENSOR", circular_buffer_size=-1)
sys.argv = {argv!r}
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@dataclass(frozen=True)
class Row:
    """A program, with options of `record` behind it; steps in each turn; the ratio that is to be reached."""

    name: str
    steps: int
    bar: float

    @property
    def program(self) -> str:
        return self.name.split()[0]

    @property
    def options(self) -> list[str]:
        return self.name.split()[1:]


ROWS = [
    Row("resnet50", 1, 1.20), Row("resnet50 --ops suspects", 1, 1.08), Row("conv6", 4, 1.06), Row("mlp", 100, 1.30),
    Row("lstm", 5, 1.25), Row("transformer", 5, 1.25), Row("fit", 1, 1.30), Row("eager", 5, 1.30),
]  # fmt: skip


class Worker:
    """A process of the benchmark that waits for its turns."""

    def __init__(self, command: Sequence[str], folder: Path) -> None:
        env = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
        env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
        self._process = subprocess.Popen(
            [sys.executable, *command], cwd=folder, env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self.first_call = self._seconds()

    def turn(self, steps: int) -> float:
        """Seconds of a step."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{steps}\n")
        self._process.stdin.flush()
        return self._seconds() / steps

    def end(self) -> int:
        """Let it end; -> its peak memory in bytes."""
        assert self._process.stdin is not None
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        peak = next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM"))
        self._process.stdin.write("0\n")
        self._process.stdin.close()
        self._process.wait()
        return peak

    def _seconds(self) -> float:
        assert self._process.stdout is not None
        return float(self._process.stdout.readline())


def measure(row: Row, rounds: int, peer: bool) -> str:
    """A line of the table."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plain = Worker([str(PROGRAM), row.program], folder)
        recorded = Worker(["-m", "tfbisect", "record", *row.options, "-o", "a.h5", str(PROGRAM), row.program], folder)
        times: list[tuple[float, float]] = []
        for turn in range(rounds + 2):
            pair = plain.turn(row.steps), recorded.turn(row.steps)
            if turn >= 2:
                times.append(pair)
        memory = [plain.end(), recorded.end()]
        firsts = recorded.first_call / plain.first_call
        found = trace.load(folder / "a.h5")
        size = (folder / "a.h5").stat().st_size / max(1, len(found.events))
    ratio = statistics.median(two / one for one, two in times)
    dumped = f"{_dumping(row, rounds):.2f}" if peer else "-"
    one, two = (statistics.median(pair[side] for pair in times) * 1e3 for side in (0, 1))
    cells = [f"{one:.2f}", f"{two:.2f}", f"{ratio:.2f}", f"{row.bar:.2f}", f"{firsts:.2f}"]
    cells += [f"{memory[1] / memory[0]:.2f}", f"{size:.0f}", dumped]
    return f"| {row.name} | " + " | ".join(cells) + " |"


def _dumping(row: Row, rounds: int) -> float:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plain = Worker([str(PROGRAM), row.program], folder)
        script = folder / "dumping.py"
        script.write_text(DUMPING.format(folder=str(folder / "dump"), argv=[str(PROGRAM), row.program]))
        dumping = Worker([str(script)], folder)
        times = [(plain.turn(row.steps), dumping.turn(row.steps)) for _ in range(min(rounds, 3))]
        plain.end(), dumping.end()
    return statistics.median(two / one for one, two in times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=[row.name for row in ROWS])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--peer", action="store_true")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    lines = [
        f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, "
        f"NumPy {np.__version__}, TensorFlow {metadata.version('tensorflow')}, medians of {options.rounds} turns",
        "",
        "| program | plain ms | recorded ms | ratio | bar | first call | peak memory | bytes an event | Debugger V2 |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    print("\n".join(lines), flush=True)
    for row in ROWS:
        if options.only is None or row.name in options.only:
            lines.append(measure(row, options.rounds, options.peer))
            print(lines[-1], flush=True)
    if options.write:
        text = "# What recording costs\n\nMade by `python tests/bench/steps.py --write`.\n\n" + "\n".join(lines) + "\n"
        (HERE / "RESULTS.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
