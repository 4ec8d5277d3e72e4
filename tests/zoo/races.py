"""Does recording make a racy program repeatable? `python tests/zoo/races.py [--only NAME] [--runs 6]`.

Each program of `races/` is not repeatable. It runs in fresh processes, plainly and recorded in turns, and prints a
digest of its outcome. Shown side by side: how many pairs of plain runs differ, and how many pairs of recorded runs.
"""

import argparse
import itertools
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
PROGRAMS = {path.stem: path for path in sorted((HERE / "races").glob("*.py"))}


def outcome(program: Path, trace: Path | None) -> str:
    """What the program prints, recorded if `trace` is given."""
    recorder = ["-m", "tfbisect", "record", "--force", "-o", str(trace)] if trace is not None else []
    env = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1", "PYTHONHASHSEED": "0"}
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    done = subprocess.run(
        [sys.executable, *recorder, str(program)], env=env, capture_output=True, text=True, check=True
    )  # fmt: skip
    return done.stdout.strip()


def differing(outcomes: list[str]) -> tuple[int, int]:
    """(pairs that differ, pairs)"""
    pairs = list(itertools.combinations(outcomes, 2))
    return sum(one != two for one, two in pairs), len(pairs)


def measure(program: Path, runs: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """(pairs that differ, pairs) of plain and of recorded runs."""
    plain, recorded = [], []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(runs):
            plain.append(outcome(program, None))
            recorded.append(outcome(program, Path(folder) / "a.h5"))
    return differing(plain), differing(recorded)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=PROGRAMS, nargs="+")
    parser.add_argument("--runs", type=int, default=6)
    options = parser.parse_args()
    print(f"{'program':26}{'plain pairs differ':>22}{'recorded pairs differ':>24}")
    silenced = []
    for name in options.only or PROGRAMS:
        plain, recorded = measure(PROGRAMS[name], options.runs)
        print(f"{name:26}{f'{plain[0]} of {plain[1]}':>22}{f'{recorded[0]} of {recorded[1]}':>24}", flush=True)
        if plain[0] and not recorded[0]:
            silenced.append(name)
    if silenced:
        print("made repeatable by being recorded: " + ", ".join(silenced))
    return bool(silenced)


if __name__ == "__main__":
    sys.exit(main())
