"""Lint and types are tests like any other."""

import subprocess
import sys

import pytest
from helpers import ROOT


@pytest.mark.parametrize("command", ["ruff check tfbisect tests", "mypy --strict"])
def test_clean(command):
    words = [sys.executable, "-m", *command.split()]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
