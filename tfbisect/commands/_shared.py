"""What commands share: options, files and streams. Files are opened, announced and cleaned up here and nowhere else."""

import argparse
import contextlib
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from tfbisect.choices import ALL, OPAQUE, OPS, XLA
from tfbisect.errors import CannotWrite, OutputExists, TfbisectError, Usage, printable

if TYPE_CHECKING:
    from tfbisect.model import Comparison
    from tfbisect.orchestrator import Outcome
    from tfbisect.reporters import Page

PROGRAM = "python -m tfbisect"
STATUS = {"identical": 0, "diverged": 1, "inconclusive": 2}
ERROR = 2
VALUES_HELP = (
    "which values to keep beside the digests: none, auto (tensors up to 4 KiB), all, or a regular expression that is "
    "searched in `function/node` of graph ops and `OpType at file.py:line` of eager ops (default: auto)"
)


def say(text: str) -> None:
    """One remark for the person at the terminal, on standard error."""
    with contextlib.suppress(BrokenPipeError):
        write(sys.stderr, f"tfbisect: {text}\n")
        sys.stderr.flush()


def write(stream: TextIO, text: str) -> None:
    """Write text to a stream of any encoding: what the encoding lacks is escaped."""
    encoding = stream.encoding or "utf-8"
    stream.write(text.encode(encoding, "backslashreplace").decode(encoding))


def page(stream: TextIO) -> "Page":
    """What the stream can show. rich knows NO_COLOR, FORCE_COLOR, TERM, COLUMNS and old Windows consoles."""
    from rich.console import Console

    from tfbisect.reporters import Page

    console = Console(file=stream)
    colour = console.is_terminal and not console.no_color and console.color_system is not None
    encoding = (stream.encoding or "").lower().replace("_", "-")
    return Page(max(40, console.width), colour and not console.legacy_windows, encoding.startswith("utf"))


def report(
    comparison: "Comparison", format: str | None, output: Path | None, force: bool, quiet: bool = False
) -> int:  # fmt: skip
    """Print a report, or write it to a file and say so (quiet: unless it is of identical runs); -> the exit status."""
    from tfbisect.reporters import Page, guess_format, render

    chosen = format or guess_format(output)
    if output is None:
        write(sys.stdout, render(comparison, chosen, page(sys.stdout)))
    else:
        write_file(output, render(comparison, chosen, Page()), force)
        if not quiet or comparison.verdict != "identical":
            say(f"{comparison.verdict}; the report is in {printable(output)}")
    return STATUS[comparison.verdict]


def write_file(path: Path, text: str, force: bool) -> None:
    """Write a report whole or not at all."""
    try:
        handle, name = tempfile.mkstemp(prefix=path.name + ".", dir=path.parent)
    except OSError as error:
        raise CannotWrite(f"report {path}", found=error.strerror, expected="a folder to write in") from error
    draft = Path(name)
    try:
        with open(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        check_free(path, force)
        mask = os.umask(0)
        os.umask(mask)
        draft.chmod(0o666 & ~mask)
        draft.replace(path)
    except OSError as error:
        raise CannotWrite(f"report {path}", found=error.strerror) from error
    finally:
        draft.unlink(missing_ok=True)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """What the block, or a library in it, writes to standard error is shown only if the block fails."""
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield
        except BaseException:
            os.dup2(kept, 2)
            file.seek(0)
            write(sys.stderr, file.read().decode(errors="replace"))
            raise
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)


@contextlib.contextmanager
def folder_for(given: str | None) -> Iterator[Path]:
    """The folder for traces: the one given, or a temporary one that goes when the command fails."""
    if given is not None:
        folder = Path(given)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CannotWrite(f"folder {folder}", found=error.strerror, expected="a folder to write in") from error
        yield folder
        return
    folder = Path(tempfile.mkdtemp(prefix="tfbisect-"))
    try:
        yield folder
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def settle(folder: Path, outcome: "Outcome", given: bool, quiet: bool = False) -> None:
    """Keep what is worth a second look and say where it is; a temporary folder of equal runs goes."""
    quiet = quiet and outcome.comparison.verdict == "identical"
    if outcome.comparison.verdict == "identical" and not given:
        shutil.rmtree(folder, ignore_errors=True)
        return
    if quiet:
        return
    traces = shlex.join(str(trace) for trace in outcome.traces)
    say(f"the traces are kept; to compare them again: {PROGRAM} compare {traces}")


class Watch:
    """Says what `run` is at, for the progress line: recording, and how far, or comparing."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._comparing = False

    def watched(self, compare: Callable[..., "Comparison"]) -> Callable[..., "Comparison"]:
        """`compare`, known to be going on while it is."""

        def watching(*paths: Path) -> "Comparison":
            self._comparing = True
            try:
                return compare(*paths)
            finally:
                self._comparing = False

        return watching

    def __call__(self) -> str:
        from tfbisect.trace import so_far

        traces = sorted(self._folder.rglob("*.h5"), key=lambda path: path.stat().st_mtime)
        if self._comparing or not traces:
            return "comparing" if self._comparing else "starting"
        try:
            now = so_far(traces[-1])
        except TfbisectError:  # not written yet
            return f"recording {traces[-1].stem}"
        step = f", step {now.step}" if now.step >= 0 else ""
        size = f"{now.bytes / 2**20:,.1f} MB"
        return f"recording {traces[-1].stem}{step}, {now.calls:,} calls, {now.events:,} values, {size}"


def program_of(options: argparse.Namespace) -> list[str]:
    """The program and its arguments; a `--` may stand before the program."""
    words: list[str] = options.program
    return words[words[0] == "--" :]


def check_free(path: Path, force: bool) -> None:
    if path.is_dir():
        raise CannotWrite(f"report {path}", found="a folder", expected="the name of a file")
    if path.exists() and not force:
        raise OutputExists(f"report {path}", found="a file that is there already")


def check_not_input(output: Path, inputs: Sequence[Path]) -> None:
    """Even --force does not write over what the command reads."""
    for path in inputs:
        if output.exists() and path.exists() and output.samefile(path):
            raise Usage(f"output {output}", found="a file that this command reads", hint="choose another name with -o")


def check_values(values: str) -> None:
    if values not in ("none", "auto", "all"):
        regex("--values", values)


def regex(option: str, pattern: str) -> "re.Pattern[str]":
    try:
        return re.compile(pattern)
    except re.error as error:
        raise Usage(f"{option} {pattern}", found=error, expected="a regular expression") from error


def add_recording(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--values", default="auto", metavar="POLICY", help=VALUES_HELP)
    sub.add_argument(
        "--xla",
        choices=XLA,
        default=OPAQUE,
        help="functions that XLA compiles: recorded from outside, or run and recorded op by op without XLA, which is "
        "another program (default: opaque)",
    )
    sub.add_argument(
        "--data",
        action="store_true",
        help="record the functions inside tf.data (map, filter, interleave, ...) too",
    )
    sub.add_argument(
        "--ops",
        choices=OPS,
        default=ALL,
        help="suspects: take no digests of elementwise, exact ops, whose inputs decide their bits. It costs less, and "
        "names an op or one of those above it (default: all)",
    )
    sub.add_argument("--force", action="store_true", help="replace traces that exist")
    add_program(sub)


def add_program(sub: argparse.ArgumentParser) -> None:
    """The program and its arguments, for `program_of`."""
    # One positional for all of it: with a second one, argparse would eat a `--` that is the program's.
    sub.add_argument(
        "program",
        nargs=argparse.PARSER,
        metavar="program.py",
        help="run as python would run it; everything after it is the program's",
    )


def formats() -> tuple[str, ...]:
    from tfbisect.reporters import formats

    return formats()
