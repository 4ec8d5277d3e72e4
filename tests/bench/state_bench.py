"""What the first pass of `bisect` costs on ResNet-50: plain runs and runs that take the state after steps, in turn.

    python tests/bench/state_bench.py [--steps 40] [--rounds 3]

Prints the time of a step (the median of all but the first two) of each run, how many states were taken and the share of
the time that they took by the recorder's own account. Needs an idle machine.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from tfbisect.trace import load

ROOT = Path(__file__).parents[2]
PROGRAM = (ROOT / "tests" / "e2e" / "resnet50_program.py").read_text(encoding="utf-8")


def program(steps: int) -> str:
    """ResNet-50 with a clock around each step."""
    loop = f"import time\nfor _ in range({steps}):\n    begin = time.perf_counter()\n    float(step())\n"
    return re.sub(r"for _ in range\(6\):\n.*\n", loop + "    print('step', time.perf_counter() - begin)\n", PROGRAM)


def seconds(command: list[str], folder: Path) -> float:
    """The median time of a step."""
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    times = [float(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("step ")]
    return statistics.median(times[2:])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "train.py").write_text(program(options.steps), encoding="utf-8")
        record = ["-m", "tfbisect", "record", "--force", "--steps", "none", "--state", "-o", "a.h5", "train.py"]
        for _ in range(options.rounds):
            plain, watched = seconds(["train.py"], folder), seconds(record, folder)
            trace = load(folder / "a.h5")
            cost = trace.state_cost or {"seconds": 0.0, "of": 1.0}
            share = cost["seconds"] / cost["of"]
            taken = sum(state["step"] >= 0 for state in trace.states)
            print(
                f"plain {plain:.3f} s a step, watched {watched:.3f} s ({watched / plain - 1:+.1%}); "
                f"{taken} of {options.steps} states taken, {share:.2%} of the time"
            )


if __name__ == "__main__":
    main()
