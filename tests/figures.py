"""The figures of robustness, each by the test or campaign that has it: `python tests/figures.py [--quick] [--seed 1]`.

Prints a line for each: what came out, the bar, whether it is met, the time and the command that finds it again. The
whole takes hours on two cores and wants an idle machine. `--quick` tries the commands with small numbers, those only
that the test suite does not run anyway. `--only NAME ...` chooses. Exit status 1 if a bar is not met.
"""

import argparse
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import versions

ROOT = Path(__file__).resolve().parent.parent
Reading = tuple[str, bool]  # the figure, and whether it meets the bar
KILLED, SURVIVAL, HOSTILE = "tests/e2e/test_killed.py", "tests/tf/test_survival.py", "tests/unit/test_hostile.py"


class Figure(NamedTuple):
    """A figure. command, quick: arguments for Python; quick is () where the suite runs the same."""

    name: str
    what: str
    bar: str
    read: Callable[[str], Reading]
    command: tuple[str, ...]
    quick: tuple[str, ...] = ()


def passed(said: str) -> Reading:
    """Of pytest's last line."""
    counts = {word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|errors?|skipped)", said)}
    total, good = sum(counts.values()), counts.get("passed", 0)
    skipped = f", {counts['skipped']} skipped" if "skipped" in counts else ""
    return f"{good} of {total}{skipped}", good > 0 and good + counts.get("skipped", 0) == total


def flips(said: str) -> Reading:
    return " | ".join(said.splitlines()), bool(said) and "WRONG" not in said


def last(said: str) -> str:
    return said.strip().splitlines()[-1] if said.strip() else "nothing was printed"


def fuzzed(said: str) -> Reading:
    return last(said), last(said).endswith(": 0 failed")


def table(said: str) -> dict[str, int]:
    """The table that tests/campaign/run.py prints."""
    return {name.strip(): int(number) for name, number in re.findall(r"^([A-Za-z ]+?) +(\d+)\b", said, re.MULTILINE)}


def named(said: str) -> Reading:
    counts = table(said)
    found = {label: counts.get(label, 0) for label in ("right", "masked", "fine", "undecided", "missed", "WRONG")}
    bad = found["WRONG"] + counts.get("false alarm", 0) + counts.get("broken", 0)
    rest = {label: counts.get(label, 0) for label in ("extra", "contained extra", "false alarm", "broken", "invalid")}
    shown = {label: number for label, number in (found | rest).items() if number or label in ("right", "WRONG")}
    return ", ".join(f"{label} {number}" for label, number in shown.items()), "programs" in counts and not bad


def alarms(said: str) -> Reading:
    counts = table(said)
    bad = sum(counts.get(label, 0) for label in ("false alarm", "broken", "undecided"))
    return f"{counts.get('fine', 0)} pairs identical, {counts.get('false alarm', 0)} diverged, {bad} bad in all", (
        counts.get("fine", 0) > 0 and not bad
    )


def zoo(said: str) -> Reading:
    programs = len(re.findall(r"^\w+ +[\d,]+  (?:yes|NO)", said, re.MULTILINE))
    return f"{programs} programs, {last(said)}", last(said) == "all good"


def tried(said: str) -> Reading:
    """Of the list that tests/versions.py prints of README.md's table."""
    results = dict(re.findall(r"^(2\.\d+/3\.\d+) +([^,]+)", said, re.MULTILINE))
    works = [pair for pair, result in results.items() if result == versions.WORKS]
    untried = sum(result == versions.NOT_TRIED for result in results.values())
    bad = len(results) - len(works) - untried
    ends = {versions.pairs()[0], versions.pairs()[-1]} <= set(works)
    return f"{len(works)} of {len(results)} pairs work, {bad} fail, {untried} not tried", ends and not bad


def tests(*chosen: str, slow: bool = False) -> tuple[str, ...]:
    return ("-m", "pytest", "-q", "-p", "no:cacheprovider", *(("-m", "slow or not slow") if slow else ()), *chosen)


def figures(seed: int) -> list[Figure]:
    campaign, fuzz = "tests/campaign/run.py", "tests/fuzz/run.py"
    end = ("--seed", str(seed))
    return [
        Figure(
            "kills", "SIGKILL at 30 random moments: Keras, ResNet-50; signals, fork, spawn, daemon threads", "all",
            passed, tests(KILLED, slow=True),
        ),
        Figure(
            "disk", "a disk that fills up, a folder that cannot be written or goes, two writers, a reader meanwhile",
            "all", passed,
            tests(f"{KILLED}::test_a_file_size_limit_is_a_full_disk", HOSTILE, SURVIVAL, "tests/unit/test_bad_input.py",
                  "-k", "disk or read_only or folder_that or another_writer or replaced or reader_while"),
        ),
        Figure(
            "truncation", "cut at every 1 % (an ended trace, a killed one)", "all", passed,
            tests(f"{HOSTILE}::test_cut_at_every_percent_it_is_incomplete_or_an_error"),
        ),
        Figure(
            "flips", "one flipped bit: found out, harmless or less, never another culprit", "0 wrong", flips,
            ("tests/fuzz/flips.py", "--flips", "1000", *end), ("tests/fuzz/flips.py", "--flips", "40", *end),
        ),
        Figure(
            "faults", "a fault at every hook; every private name of TensorFlow missing; what the program does itself",
            "all", passed, tests(SURVIVAL, "tests/tf/test_private.py"),
        ),
        Figure(
            "files", "hostile files: tables, links, bombs, names in reporters and scripts", "all", passed,
            tests("tests/unit/test_trace_damage.py", HOSTILE, "tests/unit/test_bad_input.py",
                  "tests/unit/test_reporters.py"),
        ),
        Figure(
            "fuzz", "inputs made by changing sound traces", "0 failed", fuzzed,
            (fuzz, "--inputs", "100000", *end), (fuzz, "--inputs", "60", *end),
        ),
        Figure(
            "names", "generated programs with planted faults", "0 wrong", named,
            (campaign, "--programs", "300", *end), (campaign, "--programs", "2", *end),
        ),
        Figure(
            "alarms", "generated programs without a fault, recorded in pairs", "0 diverged", alarms,
            (campaign, "--repeatable", "--programs", "240", *end), (campaign, "--repeatable", "--programs", "2", *end),
        ),
        Figure(
            "zoo", "recorded programs print what plain ones do, and agree", "0 bad", zoo,
            ("tests/zoo/run.py",), ("tests/zoo/run.py", "--only", "eager_loop"),
        ),
        Figure(
            "versions", "TensorFlow and Python, by the table in README.md", "the ends work, none fails",
            tried, ("tests/versions.py", "--list"), ("tests/versions.py", "--list"),
        ),
    ]  # fmt: skip


def measured(figure: Figure, command: Sequence[str]) -> bool:
    """Run it and print its line; what a command that fails said follows."""
    begin = time.monotonic()
    done = subprocess.run(
        [sys.executable, *command], cwd=ROOT, capture_output=True, encoding="utf-8", errors="replace", check=False
    )
    found, met = figure.read(done.stdout)
    met = met and done.returncode == 0
    word = "met" if met else "NOT MET"
    print(f"{figure.name:<11}{found}  ({figure.what})")
    took = time.monotonic() - begin
    print(f"{'':11}bar: {figure.bar}: {word}, {took:.0f} s: python {shlex.join(command)}", flush=True)
    if not met:
        print(done.stdout[-2000:] + done.stderr[-2000:], flush=True)
    return met


def main(arguments: Sequence[str] | None = None) -> int:
    names = [figure.name for figure in figures(1)]
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="small numbers, and nothing that the test suite runs")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="+", choices=names, metavar="NAME", default=names, help=", ".join(names))
    options = parser.parse_args(arguments)
    met = True
    for figure in figures(options.seed):
        command = figure.quick if options.quick else figure.command
        if figure.name in options.only and command:
            met &= measured(figure, command)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
