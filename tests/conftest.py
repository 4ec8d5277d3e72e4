"""Fixtures for tests of all folders: golden texts, and the command line as a real process."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers import Done, python

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture
def golden() -> Callable[[str, str], None]:
    """Check a text against tests/golden/NAME. TFBISECT_UPDATE_GOLDEN=1 writes the file instead: read the diff then."""

    def check(name: str, text: str) -> None:
        path = GOLDEN / name
        if os.environ.get("TFBISECT_UPDATE_GOLDEN"):
            path.write_text(text, encoding="utf-8", newline="\n")
        assert text == path.read_text(encoding="utf-8"), f"differs from {path}"

    return check


@pytest.fixture
def cli(tmp_path: Path) -> Callable[..., Done]:
    """`python -m tfbisect ARGUMENTS` in a fresh process, in an empty folder (`tmp_path`), with its output captured."""

    def call(*arguments: object, **env: str) -> Done:
        return python("-m", "tfbisect", *arguments, cwd=tmp_path, **env)

    return call
