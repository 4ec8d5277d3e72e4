"""`demo`: a real divergence found in a program that comes with the package."""

import argparse
import importlib.resources

from tfbisect.commands._shared import PROGRAM, STATUS, folder_for, report, say, settle

HELP = "find a real divergence in a small Keras program (under a minute)"
DEMO_RUNS = 6


def add(parser: argparse.ArgumentParser) -> None:
    """The command has no options."""


def run(options: argparse.Namespace) -> int:
    """Run it; -> the exit status."""
    from tfbisect import comparison, orchestrator

    with folder_for(None) as folder:
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
        outcome = orchestrator.find_divergence(program, folder, DEMO_RUNS, comparison.compare, say)
        outcome = orchestrator.measure(program, outcome, folder, comparison.compare, say)
        print()
        report(outcome.comparison, "terminal", None, False)
        settle(folder, outcome, given=False)
        if outcome.comparison.verdict == "diverged":
            say(f"to see it cured, add what `change` says to {script} and type: {PROGRAM} run {script}")
            return 0
        say(f"{outcome.runs} runs without a difference, which is rare here; try again: {PROGRAM} demo")
        return STATUS["inconclusive"]
