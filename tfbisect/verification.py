"""Whether recording changed a program: one plain run and one recorded run, and what each left behind.

Records nothing itself and reads no trace. A program that does not repeat by itself is told from one that was changed by
a second plain run.
"""

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from tfbisect.errors import CannotRead
from tfbisect.orchestrator import Program, record_command

STATE = "TFBISECT_END_STATE"


@dataclass(frozen=True, slots=True)
class EndState:
    """What a run left behind: exit status, a digest of its standard output and its length, its variables."""

    status: int
    output: str
    output_bytes: int
    variables: tuple[tuple[str, str, tuple[int, ...], int], ...]  # name, dtype, shape, digest

    @classmethod
    def read(cls, path: Path, status: int, output: str, output_bytes: int) -> "EndState | None":
        """The end state of a run that left its variables in a file; None if it left none."""
        try:
            left: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        rows = tuple((v["name"], v["dtype"], tuple(v["shape"]), v["digest"]) for v in left["variables"])
        return cls(status, output, output_bytes, rows)

    def difference(self, other: "EndState") -> str | None:
        """The first difference, in words; None if there is none."""
        if self.status != other.status:
            return f"exit status {self.status} and {other.status}"
        if len(self.variables) != len(other.variables):
            return f"{len(self.variables)} and {len(other.variables)} variables"
        for mine, theirs in zip(self.variables, other.variables, strict=True):
            if mine != theirs:
                return f"variable {mine[0]} {list(mine[2])}" + ("" if mine[:3] == theirs[:3] else f" and {theirs[0]}")
        if self.output != other.output:
            return f"standard output ({self.output_bytes:,} and {other.output_bytes:,} bytes)"
        return None


@dataclass(frozen=True, slots=True)
class Verified:
    """same: the recorded run left what the plain run left. repeats: two plain runs left the same; None: not asked."""

    same: bool
    repeats: bool | None
    status: int
    text: str


def verify(program: Program, trace: Path, *, force: bool) -> Verified:
    """Run a program plainly, then recorded into `trace`, and compare what they leave behind.

    Its output is shown once, from the recorded run. Raises CannotRead if a run ended without leaving its state (it
    was killed, or called os._exit).
    """
    with tempfile.TemporaryDirectory(prefix="tfbisect-verify-") as folder:
        plain = _run_plainly(program, Path(folder) / "plain.json")
        command = record_command(program, trace) if not force else record_command(program, trace, "--force")
        recorded = _run(command, Path(folder) / "recorded.json", sys.stdout.buffer)
        difference = plain.difference(recorded)
        size = f"{len(plain.variables)} variables and {plain.output_bytes:,} bytes of output"
        if difference is None:
            return Verified(True, None, recorded.status, f"the recorded run left what the plain run left: {size}")
        again = _run_plainly(program, Path(folder) / "again.json")
        alone = plain.difference(again)
    if alone is not None:
        text = f"the program does not repeat by itself, so nothing can be said: two plain runs differ in {alone}"
        return Verified(False, False, recorded.status, text)
    return Verified(False, True, recorded.status, f"recording changed the program: the runs differ in {difference}")


def plain_command(program: Program, state: Path) -> list[str]:
    """The command that runs a program without recording; what it leaves behind is written to `state`."""
    return [sys.executable, "-m", "tfbisect.recorder.endstate", str(state), str(program.path), *program.arguments]


def _run_plainly(program: Program, state: Path) -> EndState:
    return _run(plain_command(program, state), state, None)


def _run(command: list[str], state: Path, show: BinaryIO | None) -> EndState:
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, STATE: str(state)})
    digest, count = hashlib.sha256(), 0
    assert process.stdout is not None
    while chunk := process.stdout.read1(65536):  # type: ignore[attr-defined]
        digest.update(chunk)
        count += len(chunk)
        if show is not None:
            with contextlib.suppress(BrokenPipeError):
                show.write(chunk)
                show.flush()
    status = process.wait()
    found = EndState.read(state, status, digest.hexdigest(), count)
    if found is None:
        raise CannotRead(
            "the end state of a run",
            found=f"nothing: it ended with status {status}",
            expected="a program that ends by itself",
            hint="run it without --verify",
        )
    return found
