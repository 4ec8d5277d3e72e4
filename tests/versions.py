"""Tries the supported versions: `python tests/versions.py [--only 2.16/3.10 ...] [--keep FOLDER]`.

For each pair of TensorFlow and Python, one after the other: a new virtual environment outside the checkout, the package
with its test extra and that TensorFlow, and the tests of `SELECTION`. Writes what came out into the table of README.md;
rows of pairs that are not asked for stay as they are. A pair takes about five minutes and 2 GB, which are given back
unless `--keep` names a folder; environments that are there are used again. `--list` only shows what the table says of
each pair and the interpreter found. Exit status 1 if tests failed.
"""

import argparse
import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
BEGIN, END = "<!-- tests/versions.py: begin -->", "<!-- tests/versions.py: end -->"
# TensorFlow -> the Pythons of 3.10 and newer that it has wheels for (the files of each release on PyPI).
WHEELS = {
    "2.16": ("3.10", "3.11", "3.12"),
    "2.17": ("3.10", "3.11", "3.12"),
    "2.18": ("3.10", "3.11", "3.12"),
    "2.19": ("3.10", "3.11", "3.12"),
    "2.20": ("3.10", "3.11", "3.12", "3.13"),
    "2.21": ("3.10", "3.11", "3.12", "3.13"),
}
# Eager ops, functions, loops, v1 Sessions, Keras, tf.data; who is blamed; what fails or is missing; `doctor`, the demo.
SELECTION = (
    "tests/tf/test_eager.py",
    "tests/tf/test_functions.py",
    "tests/tf/test_sessions.py",
    "tests/tf/test_keras.py",
    "tests/tf/test_data.py",
    "tests/tf/test_named.py",
    "tests/tf/test_private.py",
    "tests/tf/test_survival.py",
    "--deselect=tests/tf/test_survival.py::test_an_interrupt_at_any_line_leaves_names_as_they_were",  # takes a minute
    "tests/e2e/test_zoo.py::test_recording_changes_nothing[while_loops]",
    "tests/e2e/test_workflow.py::test_the_doctor_examines_this_installation",
    "tests/e2e/test_demo.py",
)
COLUMNS = ("TensorFlow", "Python", "Keras", "NumPy", "result", "tests passed", "on")
WORKS, NOT_TRIED = "works", "not tried"
MINUTES = 20  # a pair's tests may take
ASK = """
import importlib.metadata as metadata, platform
print(metadata.version("tensorflow"), platform.python_version(), metadata.version("keras"), metadata.version("numpy"))
"""


class Row(NamedTuple):
    """A line of the table. The first two are whole versions where the pair was tried, else those of `WHEELS`."""

    tensorflow: str
    python: str
    keras: str = ""
    numpy: str = ""
    result: str = NOT_TRIED
    passed: str = ""
    day: str = ""

    @property
    def pair(self) -> str:
        return "/".join(".".join(version.split(".")[:2]) for version in (self.tensorflow, self.python))

    def __str__(self) -> str:
        return f"| {' | '.join(self)} |"


def pairs() -> list[str]:
    return [f"{tensorflow}/{python}" for tensorflow, pythons in WHEELS.items() for python in pythons]


def interpreter(version: str) -> str | None:
    """A Python of this minor version: on the PATH, of pyenv or of uv."""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    known = [shutil.which(f"python{version}"), *map(str, sorted(root.glob(f"versions/{version}.*/bin/python")))]
    if shutil.which("uv"):
        found = subprocess.run(["uv", "python", "find", version], capture_output=True, text=True, check=False)
        known.append(found.stdout.strip())
    for path in filter(None, known):
        with contextlib.suppress(OSError):  # a shim may stand for a version that is not installed
            ask = [path, "-c", "import ssl, sys, venv; print('%d.%d' % sys.version_info[:2])"]
            if subprocess.run(ask, capture_output=True, text=True, check=False).stdout.strip() == version:
                return path
    return None


def rows(text: str) -> dict[str, Row]:
    """{pair: its row in the table of README.md}"""
    table = text.partition(BEGIN)[2].partition(END)[0]
    cells = [re.split(r" *\| *", line.strip())[1:-1] for line in table.splitlines() if re.match(r"\| 2", line)]
    return {row.pair: row for row in (Row(*each) for each in cells)}


def with_rows(text: str, known: dict[str, Row]) -> str:
    """README.md with this table; what was never tried says so."""
    if BEGIN not in text or END not in text:
        raise SystemExit(f"README.md has no {BEGIN} ... {END}")
    lines = [str(known.get(pair, Row(*pair.split("/")))) for pair in pairs()]
    head = [f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
    before, _, rest = text.partition(BEGIN)
    return "\n".join([f"{before}{BEGIN}", *head, *lines, f"{END}{rest.partition(END)[2]}"])


def _quiet(command: Sequence[object], **env: str) -> subprocess.CompletedProcess[str]:
    """Run a command of the new environment in the checkout: nothing of this process's Python reaches it."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "VIRTUAL_ENV"))}
    return subprocess.run(
        list(map(str, command)), cwd=ROOT, env={**inherited, **env}, capture_output=True, encoding="utf-8",
        errors="replace", timeout=MINUTES * 60, check=False,
    )  # fmt: skip


def _installed(tensorflow: str, base: str, folder: Path) -> tuple[Path, str]:
    """-> (the environment's Python, "" or why it could not be made)"""
    python = folder / "bin" / "python"
    steps: list[list[object]] = [[python, "-m", "pip", "install", "-q", "-e", ".[test]", f"tensorflow=={tensorflow}.*"]]
    if not python.exists():
        steps.insert(0, [base, "-m", "venv", folder])
    for step in steps:
        done = _quiet(step)
        if done.returncode:
            said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or [done.stderr[-200:]]
            return python, said[-1].strip()
    return python, ""


@contextlib.contextmanager
def _environment(pair: str, keep: Path | None) -> Iterator[Path]:
    if keep is not None:
        yield keep.resolve() / f"tensorflow-{pair.replace('/', '-python-')}"
        return
    with tempfile.TemporaryDirectory(prefix="tfbisect-versions-") as folder:
        yield Path(folder) / "venv"


def tried(pair: str, keep: Path | None, tests: Sequence[str]) -> Row:
    """Make the environment and run the tests there. What fails is printed."""
    tensorflow, minor = pair.split("/")
    base = interpreter(minor)
    if base is None:
        print(f"{pair}: no Python {minor} here: give one on the PATH, by pyenv or by uv", flush=True)
        return Row(tensorflow, minor)
    day = time.strftime("%Y-%m-%d")
    with _environment(pair, keep) as folder:
        python, problem = _installed(tensorflow, base, folder)
        if problem:
            print(f"{pair}: {problem}", flush=True)
            return Row(tensorflow, minor, result="not installed", day=day)
        versions = _quiet([python, "-c", ASK]).stdout.split()
        report = folder / "tests.xml"
        report.unlink(missing_ok=True)
        try:
            done = _quiet([python, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", *tests])
            said = done.stdout + done.stderr
        except subprocess.TimeoutExpired:
            said = f"no end after {MINUTES} minutes"
        if not report.exists():
            print(said[-3000:], flush=True)
            return Row(*versions, "no tests ran", "0", day)
        result, passed = outcome(report)
    if result != WORKS:
        print(said[-6000:], flush=True)
    return Row(*versions, result, passed, day)


def outcome(report: Path) -> tuple[str, str]:
    """(result, tests passed) of a JUnit report of pytest."""
    suite = ElementTree.parse(report).getroot().find("testsuite")
    assert suite is not None
    total, bad, skipped = (
        sum(int(suite.get(name, 0)) for name in names) for names in (("tests",), ("failures", "errors"), ("skipped",))
    )
    result = f"{bad} failed" if bad else WORKS if total > skipped else "no tests ran"
    return result, f"{total - bad - skipped}" + (f", {skipped} skipped" if skipped else "")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", nargs="+", choices=pairs(), metavar="2.16/3.10", help="only these pairs")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="where environments stay, to be used again")
    parser.add_argument("--tests", nargs="+", default=list(SELECTION), help="other tests; the table stays as it is")
    parser.add_argument("--list", action="store_true", help="show the pairs, results and interpreters")
    options = parser.parse_args(arguments)
    chosen = options.only or pairs()
    if options.list:
        known = rows(README.read_text(encoding="utf-8"))
        found = {minor: interpreter(minor) for minor in sorted({pair.split("/")[1] for pair in chosen})}
        for pair in chosen:
            result = known[pair].result if pair in known else NOT_TRIED
            print(f"{pair:12}{result}, {found[pair.split('/')[1]] or 'no such Python here'}")
        return 0
    if options.keep is not None and options.keep.resolve().is_relative_to(ROOT):
        parser.error("--keep: the folder must lie outside the checkout")
    bad = 0
    for pair in chosen:
        begin = time.monotonic()
        row = tried(pair, options.keep, options.tests)
        bad += row.result not in (WORKS, NOT_TRIED)
        print(f"{row} {time.monotonic() - begin:.0f} s", flush=True)
        if options.tests == list(SELECTION) and row.result != NOT_TRIED:
            text = README.read_text(encoding="utf-8")
            README.write_text(with_rows(text, rows(text) | {pair: row}), encoding="utf-8")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
