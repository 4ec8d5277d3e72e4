"""The progress line: there for people at a terminal, and for nothing and nobody else."""

import io
import os
import pty
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from helpers import ROOT
from minilang import record

from tfbisect import progress, trace


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [({"TERM": "xterm"}, True), ({"TERM": "dumb"}, False), ({}, False), ({"TERM": "xterm", "CI": "true"}, False)],
)
def test_only_a_terminal_with_somebody_at_it(environment, wanted):
    assert progress.visible(Terminal(), environment) is wanted
    assert progress.visible(io.StringIO(), environment) is False


def test_the_line_is_drawn_and_given_back(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setattr(progress, "DELAY", 0.0)
    monkeypatch.setattr(progress, "PERIOD", 0.01)
    stream, seen = Terminal(), threading.Event()

    def describe():
        seen.set()
        return "counting \x1b[31m sheep"

    with progress.shown(stream, describe):
        assert seen.wait(10)
        time.sleep(0.05)
    text = stream.getvalue()
    assert r"tfbisect: counting \x1b[31m sheep, 0 s" in text
    assert text.index("\x1b[r") > text.index("sheep")  # the whole screen scrolls again
    assert "tfbisect-progress" not in {thread.name for thread in threading.enumerate()}


def test_an_error_in_the_description_harms_nothing(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setattr(progress, "DELAY", 0.0)
    with progress.shown(Terminal(), lambda: 1 // 0):
        time.sleep(0.05)


def test_how_far_a_recording_is(tmp_path: Path):
    record("a = MatMul x y", tmp_path / "a.h5")
    loaded = trace.load(tmp_path / "a.h5")
    now = trace.so_far(tmp_path / "a.h5")
    assert (now.events, now.calls) == (len(loaded.events), len(loaded.calls))
    assert now.bytes == (tmp_path / "a.h5").stat().st_size


@pytest.mark.parametrize("ci", [False, True])
def test_compare_on_a_real_terminal(tmp_path: Path, ci: bool):
    for name in ("a.h5", "b.h5"):
        record("a = MatMul x y", tmp_path / name)
    code = (
        "import sys, time; from tfbisect import progress, cli, comparison; progress.DELAY = 0.0\n"
        "plain = comparison.compare\n"
        "def slow(*paths, **options):\n  time.sleep(0.3); return plain(*paths, **options)\n"
        "comparison.compare = slow\n"
        "sys.exit(cli.main(['compare', 'a.h5', 'b.h5']))"
    )
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "PYTHONPATH": str(ROOT)}
    environment.pop("CI", None)
    environment |= {"CI": "true"} if ci else {}
    command = [sys.executable, "-c", code]
    process = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=theirs)
    output, _ = process.communicate(timeout=120)
    os.close(theirs)
    try:
        said = os.read(ours, 65536)
    except OSError:  # nothing was written before the other end closed
        said = b""
    os.close(ours)
    assert process.returncode == 0 and output.startswith(b"IDENTICAL")
    assert (b"comparing 2 traces" in said) is not ci
