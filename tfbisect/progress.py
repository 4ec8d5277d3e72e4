"""What long work is at, on the last line of a terminal.

Quiet everywhere else: in CI, in pipes and files, and on terminals that cannot keep a line. What a recorded program
prints passes by above the line, untouched: the terminal is told to scroll only what lies above it (DECSTBM).
"""

import contextlib
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TextIO

from tfbisect.errors import printable

DELAY = 1.0  # seconds before anything is shown: short work needs no progress
PERIOD = 0.5
_SAVE, _RESTORE, _CLEAR = "\x1b7", "\x1b8", "\x1b[2K"


def visible(stream: TextIO, environment: Mapping[str, str]) -> bool:
    """Whether a stream is a terminal that can keep a line at its bottom, with somebody to look at it."""
    capable = environment.get("TERM", "") not in ("", "dumb") and os.name != "nt"
    return capable and not environment.get("CI") and stream.isatty()


@contextlib.contextmanager
def shown(stream: TextIO, describe: Callable[[], str]) -> Iterator[None]:
    """Show what `describe` says, and for how long it has been going on, while the block runs.

    An error in `describe` ends the showing and nothing else.
    """
    if not visible(stream, os.environ):
        yield
        return
    line = _Line(stream)
    done = threading.Event()
    thread = threading.Thread(target=_run, args=(line, describe, done), name="tfbisect-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        line.remove()


def _run(line: "_Line", describe: Callable[[], str], done: threading.Event) -> None:
    begin = time.monotonic()
    wait = DELAY
    with contextlib.suppress(Exception):
        while not done.wait(wait):
            line.draw(f"tfbisect: {describe()}, {time.monotonic() - begin:.0f} s")
            wait = PERIOD


class _Line:
    """The last line of a terminal, kept out of what scrolls."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._height = 0  # of the terminal for which the line was set apart; 0: it is not

    def draw(self, text: str) -> None:
        """Show a text, cut to the terminal's width."""
        width, height = shutil.get_terminal_size()
        if height < 3:
            return
        parts = []
        if self._height != height:
            # A new line first, so that the cursor does not stand on the line that is taken.
            parts.append(f"\n{_SAVE}\x1b[1;{height - 1}r{_RESTORE}\x1b[1A")
            self._height = height
        parts.append(f"{_SAVE}\x1b[{height};1H{_CLEAR}{printable(text)[: width - 1]}{_RESTORE}")
        self._write("".join(parts))

    def remove(self) -> None:
        """Give the line back."""
        if self._height:
            self._write(f"{_SAVE}\x1b[r\x1b[{self._height};1H{_CLEAR}{_RESTORE}")
            self._height = 0

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # the terminal is gone
            self._stream.write(text)
            self._stream.flush()
