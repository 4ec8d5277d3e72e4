"""Generated TensorFlow programs with planted faults: never a wrong name. `tests/campaign/run.py` runs hundreds."""

import subprocess
import sys
from pathlib import Path

import pytest
from helpers import ROOT


def figures(programs: int, seed: int, folder: Path, timeout: float, *options: str) -> dict[str, int]:
    """Runs a campaign in a process of its own -> {label: programs}; fails if it says that something is bad."""
    command = [sys.executable, ROOT / "tests/campaign/run.py", "--programs", programs, "--seed", seed, "--keep", folder]
    command += options
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    table = [line.rsplit(None, 1) for line in done.stdout.splitlines()]
    return {row[0].strip(): int(row[1]) for row in table if len(row) == 2 and row[1].isdigit()}


@pytest.mark.parametrize(("programs", "seed"), [(25, 1), pytest.param(300, 2, marks=pytest.mark.slow)])
def test_no_program_gets_a_wrong_name(programs: int, seed: int, tmp_path: Path) -> None:
    counts = figures(programs, seed, tmp_path, timeout=30 * programs)
    assert counts["WRONG"] == counts["false alarm"] == counts["broken"] == 0
    assert counts["invalid"] + counts["unrepeatable"] <= programs // 8
    assert counts["right"] >= (counts["undecided"] + counts["missed"] + counts["extra"]), counts


@pytest.mark.parametrize(("programs", "seed"), [(6, 3), pytest.param(240, 4, marks=pytest.mark.slow)])
def test_programs_without_a_fault_are_identical_in_two_processes(programs: int, seed: int, tmp_path: Path) -> None:
    counts = figures(programs, seed, tmp_path, 30 * programs, "--repeatable")
    assert counts["false alarm"] == counts["broken"] == counts["undecided"] == 0
    assert counts["fine"] + counts["invalid"] + counts["unrepeatable"] == programs
    assert counts["fine"] >= programs * 3 // 4, counts
