"""The lines of a program around a recorded line, as the file stands now.

A trace holds the text of the lines that ran, and no files. So that nothing else is ever shown, a file is read only if
it is a Python file whose line is still the recorded one.
"""

from pathlib import Path

from tfbisect.model import Json, Source

AROUND = 3
LONGEST = 4 * 2**20  # bytes of a file that is still read
WIDEST = 200  # characters of a line


class Snippets:
    """Reads each file once."""

    def __init__(self) -> None:
        self._files: dict[str, list[str]] = {}

    def around(self, source: Source) -> Json | None:
        """{first: number of the first line, lines: texts}; None if the file is not there or has changed."""
        text = source.text.strip()
        lines = self._lines(source.file) if text else []
        if not 0 < source.line <= len(lines) or lines[source.line - 1].strip() != text:
            return None
        first = max(1, source.line - AROUND)
        return {"first": first, "lines": [line[:WIDEST] for line in lines[first - 1 : source.line + AROUND]]}

    def _lines(self, file: str) -> list[str]:
        if file not in self._files:
            self._files[file] = _read(Path(file))
        return self._files[file]


def _read(path: Path) -> list[str]:
    try:
        if path.suffix != ".py" or not path.is_file() or path.stat().st_size > LONGEST:
            return []
        return path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):  # not there for us, a name that is none, not UTF-8
        return []
