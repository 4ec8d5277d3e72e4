"""The command line: parse, call, print, exit. The only place that catches errors.

Exit status: 0 identical (or done), 1 diverged, 2 inconclusive or an error; `record` ends with the program's own.
Each command loads only what it needs, when it runs: `record` shares its process with the program, which must be the
first to import and configure numpy and TensorFlow.
"""

import argparse
import contextlib
import importlib.resources
import os
import re
import shlex
import shutil
import sys
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TextIO

from tfbisect.errors import CannotWrite, OutputExists, TfbisectError, Usage, printable
from tfbisect.version import __version__

if TYPE_CHECKING:
    from tfbisect.model import Comparison
    from tfbisect.orchestrator import Outcome
    from tfbisect.reporters import Page

PROGRAM = "python -m tfbisect"
STATUS = {"identical": 0, "diverged": 1, "inconclusive": 2}
ERROR = 2
INTERRUPTED = 130
BROKEN_PIPE = 141
DEMO_RUNS = 6
VALUES_HELP = (
    "which values to keep beside the digests: none, auto (tensors up to 4 KiB), all, or a regular expression that is "
    "searched in `function/node` of graph ops and `OpType at file.py:line` of eager ops (default: auto)"
)


def run() -> NoReturn:
    """What `python -m tfbisect` and the console script call."""
    sys.exit(main())


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; -> the exit status. Errors become one message on standard error, never a traceback."""
    try:
        options = _parser().parse_args(argv)
        status: int = options.command(options)
        if options.command is not _record:  # a program's own output is Python's to flush
            sys.stdout.flush()
        return status
    except TfbisectError as error:
        _say(f"{error.message} [{error.code}]\n  next: {error.hint}")
        return ERROR
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader went away (`| head`): let nothing be flushed into the closed pipe as the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except OSError as error:
        _say(f"{printable(error.strerror or error)}: {printable(error.filename or 'input or output')} [system]")
        return ERROR
    except Exception:
        # Not Python's own exit status 1: that means "diverged" here.
        _say("internal error, this is a fault of tfbisect; what follows helps to mend it")
        traceback.print_exc()
        return ERROR


# ---------------------------------------------------------------------------------------------------------------------
# Commands: options in, exit status out
# ---------------------------------------------------------------------------------------------------------------------


def _record(options: argparse.Namespace) -> int:
    from tfbisect.orchestrator import check_program
    from tfbisect.recorder import run_program

    name, *arguments = _program(options)
    program = check_program(Path(name))
    output = Path(options.output or f"{program.stem}.h5")
    _check_values(options.values)
    _check_not_input(output, [program])
    if options.verify:
        return _verify(options, program, arguments, output)
    return run_program(output, program, arguments, values=options.values, force=options.force, xla=options.xla)


def _verify(options: argparse.Namespace, program: Path, arguments: list[str], output: Path) -> int:
    from tfbisect import orchestrator, verification

    _check_free(output, options.force)
    what = orchestrator.Program(program, tuple(arguments), options.values, options.xla)
    verified = verification.verify(what, output, force=options.force)
    _say(verified.text)
    return verified.status if verified.same else 1 if verified.repeats else ERROR


def _compare(options: argparse.Namespace) -> int:
    from tfbisect.comparison import compare

    if len(options.traces) < 2:
        raise Usage(
            "compare", found="one trace", expected="two", hint=f"{PROGRAM} compare {shlex.join(options.traces)} b.h5"
        )
    output = Path(options.output) if options.output else None
    if output is not None:
        _check_not_input(output, [Path(trace) for trace in options.traces])
        _check_free(output, options.force)
    return _report(compare(*options.traces), options.format, output, options.force)


def _run(options: argparse.Namespace) -> int:
    from tfbisect import comparison, orchestrator

    _check_values(options.values)
    name, *arguments = _program(options)
    program = orchestrator.Program(
        orchestrator.check_program(Path(name)),
        tuple(arguments),
        options.values,
        options.xla,
        output_to_stderr=options.format not in (None, "terminal"),  # standard output then holds the report alone
    )
    with _folder(options.output) as folder:
        outcome = orchestrator.find_divergence(
            program, folder, options.times, comparison.compare, _say, force=options.force
        )
        if options.values != "none":
            outcome = orchestrator.measure(program, outcome, folder, comparison.compare, _say)
        status = _report(outcome.comparison, options.format, None, False)
        _settle(folder, outcome, given=options.output is not None)
    return status


def _demo(options: argparse.Namespace) -> int:
    from tfbisect import comparison, orchestrator

    with _folder(None) as folder:
        source = importlib.resources.files("tfbisect").joinpath("demo/embedding_sgd.py")
        # A copy of its own, beside the traces: inside the package it would not count as a program of the user's.
        script = folder / "embedding_sgd.py"
        script.write_text(source.read_text(encoding="utf-8"), encoding="utf-8")
        print(
            "A Keras Embedding learns to tell which word comes next in Python's own documentation: plain SGD, two CPU\n"
            "threads, every seed set. The same program, recorded in fresh processes until two runs differ:\n",
            flush=True,
        )
        # TensorFlow's start-up messages go to a file; they are shown if the program fails.
        program = orchestrator.Program(script, log=folder / "messages.txt")
        outcome = orchestrator.find_divergence(program, folder, DEMO_RUNS, comparison.compare, _say)
        outcome = orchestrator.measure(program, outcome, folder, comparison.compare, _say)
        print()
        _report(outcome.comparison, "terminal", None, False)
        _settle(folder, outcome, given=False)
        if outcome.comparison.verdict == "diverged":
            _say(f"to see it cured, add what `change` says to {script} and type: {PROGRAM} run {script}")
            return 0
        _say(f"{outcome.runs} runs without a difference, which is rare here; try again: {PROGRAM} demo")
        return STATUS["inconclusive"]


def _info(options: argparse.Namespace) -> int:
    from tfbisect.reporters.terminal import render_trace
    from tfbisect.trace import load

    pattern = _regex("--ops", options.ops) if options.ops is not None else None
    _write(sys.stdout, render_trace(load(options.trace), pattern, _page(sys.stdout)))
    return 0


def _explain(options: argparse.Namespace) -> int:
    from tfbisect import knowledge

    if options.list:
        _write(sys.stdout, "".join(f"{op_type}\n" for op_type in knowledge.known_op_types()))
        return 0
    if options.op is None:
        raise Usage("explain", found="no op type", expected="one", hint=f"{PROGRAM} explain --list")
    _write(sys.stdout, knowledge.explain(options.op) + "\n")
    return 0


# ---------------------------------------------------------------------------------------------------------------------
# Files and streams: opened, announced and cleaned up here and nowhere else
# ---------------------------------------------------------------------------------------------------------------------


def _say(text: str) -> None:
    """One remark for the person at the terminal, on standard error."""
    with contextlib.suppress(BrokenPipeError):
        _write(sys.stderr, f"tfbisect: {text}\n")
        sys.stderr.flush()


def _write(stream: TextIO, text: str) -> None:
    """Write text to a stream of any encoding: what the encoding lacks is escaped."""
    encoding = stream.encoding or "utf-8"
    stream.write(text.encode(encoding, "backslashreplace").decode(encoding))


def _page(stream: TextIO) -> "Page":
    """What the stream can show. rich knows NO_COLOR, FORCE_COLOR, TERM, COLUMNS and old Windows consoles."""
    from rich.console import Console

    from tfbisect.reporters import Page

    console = Console(file=stream)
    colour = console.is_terminal and not console.no_color and console.color_system is not None
    encoding = (stream.encoding or "").lower().replace("_", "-")
    return Page(max(40, console.width), colour and not console.legacy_windows, encoding.startswith("utf"))


def _report(comparison: "Comparison", format: str | None, output: Path | None, force: bool) -> int:
    from tfbisect.reporters import Page, guess_format, render

    chosen = format or guess_format(output)
    if output is None:
        _write(sys.stdout, render(comparison, chosen, _page(sys.stdout)))
    else:
        _write_file(output, render(comparison, chosen, Page()), force)
        _say(f"{comparison.verdict}; the report is in {printable(output)}")
    return STATUS[comparison.verdict]


def _write_file(path: Path, text: str, force: bool) -> None:
    """Write a report whole or not at all."""
    try:
        handle, name = tempfile.mkstemp(prefix=path.name + ".", dir=path.parent)
    except OSError as error:
        raise CannotWrite(f"report {path}", found=error.strerror, expected="a folder to write in") from error
    draft = Path(name)
    try:
        with open(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        _check_free(path, force)
        mask = os.umask(0)
        os.umask(mask)
        draft.chmod(0o666 & ~mask)
        draft.replace(path)
    except OSError as error:
        raise CannotWrite(f"report {path}", found=error.strerror) from error
    finally:
        draft.unlink(missing_ok=True)


@contextlib.contextmanager
def _folder(given: str | None) -> Iterator[Path]:
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


def _settle(folder: Path, outcome: "Outcome", given: bool) -> None:
    """Keep what is worth a second look and say where it is; a temporary folder of equal runs goes."""
    if outcome.comparison.verdict == "identical" and outcome.runs > 2:
        _say(f"all {outcome.runs} runs are identical; the report is of the first and the last")
    if outcome.comparison.verdict == "identical" and not given:
        shutil.rmtree(folder, ignore_errors=True)
        return
    traces = shlex.join(str(trace) for trace in outcome.traces)
    _say(f"the traces are kept; to compare them again: {PROGRAM} compare {traces}")


# ---------------------------------------------------------------------------------------------------------------------
# Options
# ---------------------------------------------------------------------------------------------------------------------


def _program(options: argparse.Namespace) -> list[str]:
    """The program and its arguments; a `--` may stand before the program."""
    words: list[str] = options.program
    return words[words[0] == "--" :]


def _check_free(path: Path, force: bool) -> None:
    if path.is_dir():
        raise CannotWrite(f"report {path}", found="a folder", expected="the name of a file")
    if path.exists() and not force:
        raise OutputExists(f"report {path}", found="a file that is there already")


def _check_not_input(output: Path, inputs: Sequence[Path]) -> None:
    """Even --force does not write over what the command reads."""
    for path in inputs:
        if output.exists() and path.exists() and output.samefile(path):
            raise Usage(f"output {output}", found="a file that this command reads", hint="choose another name with -o")


def _check_values(values: str) -> None:
    if values not in ("none", "auto", "all"):
        _regex("--values", values)


def _regex(option: str, pattern: str) -> "re.Pattern[str]":
    try:
        return re.compile(pattern)
    except re.error as error:
        raise Usage(f"{option} {pattern}", found=error, expected="a regular expression") from error


class _Parser(argparse.ArgumentParser):
    """Errors in the form of all others: what, and what to type next."""

    def error(self, message: str) -> NoReturn:
        raise Usage(message, hint=f"{self.prog} --help")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog=PROGRAM,
        description="Names the TensorFlow op that diverged first between two runs of the same program.",
        epilog="Exit status: 0 identical, 1 diverged, 2 inconclusive or an error; of record: the program's own.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"tfbisect {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True, parser_class=_Parser)

    def add(name: str, command: object, text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".", allow_abbrev=False)
        sub.set_defaults(command=command)
        return sub

    sub = add("run", _run, "record a program in fresh processes, and compare the runs")
    sub.add_argument("--times", type=int, default=2, metavar="N", help="runs at most, until one differs (default: 2)")
    sub.add_argument("-o", dest="output", metavar="DIR", help="keep the traces in this folder")
    sub.add_argument("--format", choices=_formats(), help="of the report; not terminal: the programs print to stderr")
    _add_recording(sub)

    sub = add("record", _record, "record one run of a program into a trace")
    sub.add_argument("-o", dest="output", metavar="FILE", help="the trace (default: the program's name with .h5)")
    sub.add_argument(
        "--verify",
        action="store_true",
        help="run the program plainly as well, and say whether both runs left the same variables and output (1: not)",
    )
    _add_recording(sub)

    sub = add("compare", _compare, "compare traces: which op diverged first, where and why")
    sub.add_argument("traces", nargs="+", metavar="TRACE", help="two traces of the same program")
    sub.add_argument("--format", choices=_formats(), help="of the report (default: by the name of FILE, else terminal)")
    sub.add_argument("-o", dest="output", metavar="FILE", help="write the report to a file")
    sub.add_argument("--force", action="store_true", help="replace FILE if it exists")

    sub = add("info", _info, "show what a trace holds")
    sub.add_argument("trace", metavar="TRACE")
    sub.add_argument("--ops", metavar="REGEX", help="list the ops whose name or type matches, with lines and counts")

    sub = add("explain", _explain, "say what is known about an op: why it may differ, and the cure")
    sub.add_argument("op", nargs="?", metavar="OP_TYPE", help="for example ResourceScatterSub")
    sub.add_argument("--list", action="store_true", help="list what is known")

    add("demo", _demo, "find a real divergence in a small Keras program (under a minute)")
    return parser


def _add_recording(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--values", default="auto", metavar="POLICY", help=VALUES_HELP)
    sub.add_argument(
        "--xla",
        choices=("opaque", "expand"),
        default="opaque",
        help="functions that XLA compiles: recorded from outside, or run and recorded op by op without XLA, which is "
        "another program (default: opaque)",
    )
    sub.add_argument("--force", action="store_true", help="replace traces that exist")
    # One positional for all of it: with a second one, argparse would eat a `--` that is the program's.
    sub.add_argument(
        "program",
        nargs=argparse.PARSER,
        metavar="program.py",
        help="run as python would run it; everything after it is the program's",
    )


def _formats() -> tuple[str, ...]:
    from tfbisect.reporters import formats

    return formats()
