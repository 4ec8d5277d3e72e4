"""`bisect`: the op at which two runs of a long program part, without recording all of its steps."""

import argparse
import dataclasses
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from tfbisect.choices import ALL
from tfbisect.commands._shared import (
    STATUS,
    add_recording,
    check_values,
    folder_for,
    formats,
    program_of,
    report,
    say,
    settle,
)

if TYPE_CHECKING:
    from tfbisect.longruns import Found

HELP = "find the step, then the op, at which two runs of a long program part"


def add(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument(
        "--times", type=int, default=2, metavar="N",
        help="runs at most that are looked at step by step, until one differs (default: 2)",
    )  # fmt: skip
    parser.add_argument("-o", dest="output", metavar="DIR", help="keep the traces in this folder")
    parser.add_argument("--format", choices=formats(), help="of the report; not terminal: the programs print to stderr")
    add_recording(parser)


def run(options: argparse.Namespace) -> int:
    """Run it; -> the exit status."""
    from tfbisect import comparison, longruns, orchestrator

    check_values(options.values)
    name, *arguments = program_of(options)
    program = orchestrator.Program(
        orchestrator.check_program(Path(name)),
        tuple(arguments),
        options.values,
        options.xla,
        options.data,
        output_to_stderr=options.format not in (None, "terminal"),
        ops=options.ops,
    )
    with folder_for(options.output) as folder:
        found = longruns.search(program, folder, options.times, comparison.compare, say, force=options.force)
        for line in told(found):
            say(line)
        if found.outcome is None:
            if options.output is None:
                shutil.rmtree(folder, ignore_errors=True)
            return STATUS["identical"] if found.span is None else STATUS["inconclusive"]
        outcome = orchestrator.in_full(found.program, found.outcome, folder, comparison.compare, say)
        if options.values != "none":
            again = dataclasses.replace(found.program, ops=ALL)
            outcome = orchestrator.measure(again, outcome, folder, comparison.compare, say)
        if found.moved == len(found.windows):
            note = f"in each of {found.moved} pairs the runs parted outside of the recorded steps"
            warnings = (*outcome.comparison.warnings, note)
            outcome = dataclasses.replace(
                outcome, comparison=dataclasses.replace(outcome.comparison, warnings=warnings)
            )
        status = report(outcome.comparison, options.format, None, False)
        settle(folder, outcome, given=options.output is not None)
    return status


def told(found: "Found") -> list[str]:
    """What a search did, in a few lines."""
    lines = [f"taking the state cost {found.cost:.1%} of the first run's time"]
    if found.span is None:
        lines.append(f"the state is the same after all {found.steps:,} steps in {found.runs} runs")
        return lines
    events = sum(window.events for window in found.windows)
    steps = ", ".join(f"{window.first} to {window.last - 1}" for window in found.windows)
    lines.append(f"recorded op by op: steps {steps} of {found.steps:,}, {events:,} events in all")
    if found.moved:
        lines.append(f"the divergence moved out of the window in {found.moved} of {len(found.windows)} pairs")
    return lines
