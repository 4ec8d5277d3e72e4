"""pytest: does a test compute the same each time, and the same as when its baseline was made?

The fixture `tf_repeatable` runs a callable several times in the test's process; the marker `repeatable` runs a whole
test in fresh processes, each recorded from before the first import of a conftest.py to the end of the test. Does
nothing, and imports nothing but pytest, for tests that use neither.
"""

import contextlib
import glob
import hashlib
import inspect
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

if TYPE_CHECKING:
    from tfbisect.model import Comparison

MARKER = "repeatable"
RUNS = 3
FOLDER = "tfbisect_baselines"  # beside the test file
CHILD = "TFBISECT_PYTEST"  # environment variable of a fresh process: JSON, where its trace and its outcome go
NOTE = "tfbisect"  # the user property that carries a remark to the summary, also from a worker of xdist
WIDTH = 100
MARKER_HELP = (
    f"repeatable(runs={RUNS}, processes=True): run the test several times, record what TensorFlow computes, and fail "
    "with the first op that differs; in fresh processes, or with processes=False in this one from the same state"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("tfbisect").addoption(
        "--tfbisect-update",
        action="store_true",
        help="store what tests marked as repeatable compute, as baselines that later runs are compared with",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER_HELP)


@pytest.fixture
def tf_repeatable(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """`tf_repeatable(fn, *args, runs=3)`: fail with the first op that differs between runs of `fn(*args)`.

    Each run begins from the same state in this process (see `tfbisect.check`); -> the Comparison.
    """

    def repeatable(fn: Callable[..., Any], *args: Any, runs: int = RUNS) -> "Comparison":
        from tfbisect.checking import check
        from tfbisect.errors import EmptyTrace

        try:
            comparison = check(fn, *args, runs=runs)
        except EmptyTrace as error:
            pytest.fail(f"tfbisect: {error}", pytrace=False)
        if comparison.verdict != "identical":
            pytest.fail(_report(comparison), pytrace=False)
        return comparison

    return repeatable


# ---------------------------------------------------------------------------------------------------------------------
# The marker, where the test was asked for
# ---------------------------------------------------------------------------------------------------------------------


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """A marked test runs through us. What `runtest` raises is its outcome, whatever kind of test it is."""
    marker = item.get_closest_marker(MARKER)
    if marker is not None and CHILD not in os.environ:
        item.runtest = lambda: _run(item, marker)  # type: ignore[method-assign]


def _run(item: pytest.Item, marker: pytest.Mark) -> None:
    runs, processes = _options(item, marker)
    from tfbisect.errors import EmptyTrace, TfbisectError

    folder = Path(tempfile.mkdtemp(prefix="tfbisect-"))
    keep = False
    problem = ""
    try:
        comparison, trace = (_in_processes if processes else _in_this_process)(item, folder, runs)
        keep = comparison is not None and comparison.verdict != "identical"
        if comparison is not None and keep:
            _fail(f"{item.name} does not repeat", comparison, sorted(folder.glob("run*.h5")))
        _against_baseline(item, trace, compared=comparison is not None)
    except EmptyTrace:
        problem = f"{item.name} ran no TensorFlow op, so nothing could be compared"
    except TfbisectError as error:
        problem = f"tfbisect: {error}"
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    if problem:
        pytest.fail(problem, pytrace=False)


def _options(item: pytest.Item, marker: pytest.Mark) -> tuple[int, bool]:
    given = {**dict(zip(("runs", "processes"), marker.args, strict=False)), **marker.kwargs}
    if len(marker.args) > 2 or set(given) - {"runs", "processes"}:
        found = ", ".join([*map(repr, marker.args), *(f"{key}={value!r}" for key, value in marker.kwargs.items())])
        text = f"the marker {MARKER} of {item.name}: found {found}, expected runs and processes"
        pytest.fail(f"{text}\nnext: {MARKER_HELP}", pytrace=False)
    runs, processes = given.get("runs", RUNS), given.get("processes", True)
    if not isinstance(runs, int) or runs < (1 if processes else 2):
        least = "1 or more" if processes else "2 or more"
        pytest.fail(f"the marker {MARKER} of {item.name}: runs: found {runs!r}, expected {least}", pytrace=False)
    return runs, bool(processes)


def _in_processes(item: pytest.Item, folder: Path, runs: int) -> tuple["Comparison | None", Path]:
    """Run the test in fresh processes until one differs; -> the comparison that decided, and the first trace."""
    from tfbisect.comparison import compare

    first = folder / "run1.h5"
    comparison = None
    for number in range(1, runs + 1):
        path = folder / f"run{number}.h5"
        _run_once(item, path, f"run {number} of {runs}")
        if number > 1 and (comparison is None or comparison.verdict == "identical"):
            comparison = compare(first, path)
        if comparison is not None and comparison.verdict == "diverged":
            break
    return comparison, first


def _in_this_process(item: pytest.Item, folder: Path, runs: int) -> tuple["Comparison", Path]:
    from tfbisect.checking import check

    if not isinstance(item, pytest.Function) or (item.cls and issubclass(item.cls, unittest.TestCase)):
        pytest.fail(
            f"{item.name}: found {type(item).__name__}, expected a test function\n"
            f"next: leave out processes=False of the marker {MARKER}", pytrace=False,
        )  # fmt: skip
    arguments = {name: item.funcargs[name] for name in inspect.signature(item.obj).parameters if name in item.funcargs}
    return check(_Call(item.obj, arguments), runs=runs, keep=folder), folder / "run1.h5"


class _Call:
    """A test function with its fixtures, to be called without arguments."""

    def __init__(self, function: Callable[..., Any], arguments: dict[str, Any]) -> None:
        self.function, self.arguments = function, arguments

    def __call__(self) -> None:
        self.function(**self.arguments)


def _run_once(item: pytest.Item, trace: Path, which: str) -> None:
    """One run in a fresh process; its outcome is this test's, unless it passed."""
    outcome = trace.with_suffix(".json")
    environment = {**os.environ, CHILD: json.dumps({"trace": str(trace), "outcome": str(outcome)})}
    for name in ("PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT"):
        environment.pop(name, None)
    done = subprocess.run(
        _command(item), cwd=item.config.invocation_params.dir, env=environment, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", errors="replace",
    )  # fmt: skip
    result = json.loads(outcome.read_text(encoding="utf-8")) if outcome.exists() else None
    if result is None:
        text = f"{which} in a fresh process ended with status {done.returncode} before the test did"
        pytest.fail(f"{text}:\n{done.stdout}", pytrace=False)
    if result["outcome"] == "skipped":
        pytest.skip(result["text"])
    if result["outcome"] == "xfailed":
        pytest.xfail(result["text"])
    if result["outcome"] != "passed":
        pytest.fail(f"{which} in a fresh process:\n{result['text']}", pytrace=False)


def _command(item: pytest.Item) -> list[str]:
    """pytest for this one test, under the same ini file, without what selects, distributes and reports."""
    config = item.config
    words = [sys.executable, "-m", "pytest", f"{item.path}::{_inside_file(item)}", "-q", "-m", "", "-k", ""]
    words += ["--rootdir", str(config.rootpath), "--junitxml=", "-p", "no:cacheprovider"]
    words += ["-c", str(config.inipath)] if config.inipath is not None else []
    words += ["-n0"] if config.pluginmanager.has_plugin("xdist") else []
    words += ["--no-cov"] if config.pluginmanager.has_plugin("pytest_cov") else []
    for plugin in config.option.plugins:
        words += ["-p", plugin]
    return words


def _inside_file(item: pytest.Item) -> str:
    """`TestStep::test_loss[float32]`: what stands behind the file in a node id, without what xdist adds to that."""
    outside = (pytest.Session, pytest.Directory, pytest.File)
    return "::".join(node.name for node in item.listchain() if not isinstance(node, outside))


def _against_baseline(item: pytest.Item, trace: Path, compared: bool) -> None:
    """Store a run as the test's baseline, or compare it with that. Fails, and keeps the trace, if they differ."""
    from tfbisect import baseline
    from tfbisect.trace import load

    run = load(trace)
    path = _baseline_path(item, f"tf{baseline.tensorflow_of(run)}-{baseline.device_of(run)}")
    if item.config.getoption("--tfbisect-update"):
        baseline.write(path, baseline.of(run, f"{item.path.name}::{_inside_file(item)}"))
        _note(item, f"baseline written: {path}")
    elif path.exists():
        comparison = baseline.compare_with(baseline.read(path), str(path), run)
        if comparison.verdict != "identical":
            title = (
                f"{item.name} does not compute what its baseline says (run A; if it should: pytest --tfbisect-update)"
            )
            _fail(title, comparison, [_kept(trace)])
    elif not compared:
        text = f"{item.name}: one run and no baseline {path.name}, so nothing was compared"
        pytest.fail(f"{text}\nnext: pytest --tfbisect-update", pytrace=False)
    elif any(path.parent.glob(f"{glob.escape(_stem(item))}.tf*.json")):
        _note(item, f"no baseline for this TensorFlow and device, so none was compared: {path.name} of {item.nodeid}")


def _kept(trace: Path) -> Path:
    """The trace moved to where it is not deleted with its folder."""
    return Path(shutil.move(trace, Path(tempfile.mkdtemp(prefix="tfbisect-kept-")) / trace.name))


def _baseline_path(item: pytest.Item, kind: str) -> Path:
    return item.path.parent / FOLDER / f"{_stem(item)}.{kind}.json"


def _stem(item: pytest.Item) -> str:
    """A file name for a test: `test_model.TestStep.test_loss-float32`; long ones are cut and get a digest."""
    name = _inside_file(item)
    test = re.sub(r"[^\w.-]+", "-", name.replace("::", ".")).strip("-")
    if len(test) > 100:
        test = f"{test[:90]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    return f"{item.path.stem}.{test}"


def _fail(title: str, comparison: "Comparison", traces: Sequence[Path]) -> NoReturn:
    text = f"{title}\n\n{_report(comparison)}\ntraces: {shlex.join(map(str, traces))}"
    pytest.fail(text, pytrace=False)


def _report(comparison: "Comparison") -> str:
    from tfbisect.reporters import Page, render

    unicode = (getattr(sys.stdout, "encoding", "") or "").lower().replace("_", "-").startswith("utf")
    return render(comparison, "terminal", Page(width=WIDTH, unicode=unicode))


def _note(item: pytest.Item, text: str) -> None:
    item.user_properties.append((NOTE, text))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    reports = [report for found in terminalreporter.stats.values() for report in found]
    notes = [
        value
        for report in reports
        for name, value in getattr(report, "user_properties", ())
        if name == NOTE and getattr(report, "when", "") == "call"
    ]
    if notes:
        terminalreporter.section("tfbisect")
        for note in dict.fromkeys(notes):
            terminalreporter.write_line(note)


# ---------------------------------------------------------------------------------------------------------------------
# The fresh process
# ---------------------------------------------------------------------------------------------------------------------


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Start recording before a conftest.py can import TensorFlow."""
    if CHILD in os.environ:
        early_config.pluginmanager.register(_Child(json.loads(os.environ[CHILD])), "tfbisect-child")


class _Child:
    """Records the process up to the end of the test, and tells the outcome of its phases as they were raised."""

    def __init__(self, places: dict[str, str]) -> None:
        from tfbisect.recorder import record

        self._outcome = Path(places["outcome"])
        self._told = False
        self._recording = contextlib.ExitStack()
        self._recording.enter_context(record(places["trace"]))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Generator[None]:
        try:
            return (yield)
        finally:
            self._recording.close()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: "pytest.CallInfo[None]"
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """What was raised, not what `xfail` makes of it: that is for the first process to do."""
        report = yield
        raised = call.excinfo
        if raised is not None and not self._told:
            error = raised.value
            skipped, expected = isinstance(error, pytest.skip.Exception), isinstance(error, pytest.xfail.Exception)
            kind = "skipped" if skipped else "xfailed" if expected else "failed"
            self._tell(kind, str(error) if kind != "failed" else f"{call.when}: {item.repr_failure(raised)}")
        elif call.when == "teardown" and not self._told:
            self._tell("passed", "")
        return report

    def _tell(self, outcome: str, text: str) -> None:
        self._told = True
        draft = self._outcome.with_suffix(".new")
        draft.write_text(json.dumps({"outcome": outcome, "text": text}), encoding="utf-8")
        draft.replace(self._outcome)

    def pytest_unconfigure(self) -> None:
        self._recording.close()
