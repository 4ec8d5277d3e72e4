"""`run`: a program recorded in fresh processes, and its runs compared."""

import argparse
import contextlib
import dataclasses
import sys
from pathlib import Path

from tfbisect.choices import ALL
from tfbisect.commands._shared import (
    Watch,
    add_recording,
    check_free,
    check_not_input,
    check_values,
    folder_for,
    formats,
    program_of,
    report,
    say,
    settle,
)
from tfbisect.errors import Usage
from tfbisect.reporters import guess_format

HELP = "record a program in fresh processes, and compare the runs"


def add(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument(
        "--times", type=int, default=2, metavar="N", help="runs at most, until one differs (default: 2)"
    )
    parser.add_argument("--all", action="store_true", help="go on to N runs when one differs, and compare them all")
    parser.add_argument(
        "--workers",
        type=int,
        metavar="N",
        help="a run is a job of N processes on this machine, each with its TF_CONFIG, as MultiWorkerMirroredStrategy "
        "takes it, and a trace of its own",
    )
    parser.add_argument(
        "-o",
        dest="output",
        metavar="FILE",
        help="write the report to a file, such as report.json; another name is a folder for the traces",
    )
    parser.add_argument("--traces", metavar="DIR", help="keep the traces in this folder, also beside a report")
    parser.add_argument(
        "--format",
        choices=formats(),
        help="of the report (default: by the name of FILE, else terminal); printed and not for a terminal, it has "
        "standard output for itself",
    )
    parser.add_argument(
        "--quiet",
        action="store_true",
        help="show nothing of the programs unless they fail, and no remarks on equal runs",
    )
    add_recording(parser)


def run(options: argparse.Namespace) -> int:
    """Run it; -> the exit status."""
    from tfbisect import comparison, orchestrator, progress

    check_values(options.values)
    name, *arguments = program_of(options)
    script = orchestrator.check_program(Path(name))
    if options.workers is not None and options.workers < 2:
        hint = "leave --workers out for a program in one process"
        raise Usage("--workers", found=options.workers, expected="2 or more", hint=hint)
    output, traces = _places(options)
    if output is not None:
        check_not_input(output, [script])
        check_free(output, options.force)
    tell = _silent if options.quiet else say
    with folder_for(traces) as folder:
        program = orchestrator.Program(
            script,
            tuple(arguments),
            options.values,
            options.xla,
            options.data,
            # standard output then holds the report alone, or nothing
            output_to_stderr=options.quiet or (output is None and options.format not in (None, "terminal")),
            log=folder / "output.txt" if options.quiet else None,
            workers=options.workers or 0,
            ops=options.ops,
        )
        watch = Watch(folder)
        compare = watch.watched(comparison.compare)
        with contextlib.nullcontext() if options.quiet else progress.shown(sys.stderr, watch):
            outcome = orchestrator.find_divergence(
                program, folder, options.times, compare, tell, force=options.force, every=options.all
            )
            outcome = orchestrator.in_full(program, outcome, folder, compare, tell)
            program = dataclasses.replace(program, ops=ALL)
            if options.values != "none":
                outcome = orchestrator.measure(program, outcome, folder, compare, tell)
            outcome = orchestrator.expand(program, outcome, folder, compare, tell)
        status = report(outcome.comparison, options.format, output, options.force, options.quiet)
        settle(folder, outcome, given=traces is not None, quiet=options.quiet)
    return status


def _silent(text: str) -> None:
    """A remark that nobody hears."""


def _places(options: argparse.Namespace) -> tuple[Path | None, str | None]:
    """(the file for the report, the folder for the traces); None: standard output, a temporary folder.

    What `-o` names is a report if its name is that of a format, or if a format was given and it looks like a file.
    """
    if options.output is None:
        return None, options.traces
    path = Path(options.output)
    wanted = guess_format(path) != "terminal" or (options.format is not None and path.suffix)
    if wanted and not path.is_dir():
        return path, options.traces
    if options.traces is not None:
        raise Usage(
            f"-o {path} and --traces {options.traces}",
            found="two folders for the traces",
            expected="-o with the name of a report, such as report.json",
        )
    return None, options.output
