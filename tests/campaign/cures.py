"""Cures of a folder of cases: `python tests/campaign/cures.py --cases DIR [--only SUBSTRING] [--max-runs 20]`.

A case is a folder with `program.py` and `case.yaml`: `env_a` and `env_b`, how its two runs are started, and `expect`,
with the op types and categories that may be named. Runs `cure` on each and prints: the case, the cause named and
whether it is right, the cure, in how many pairs it makes the runs identical, and that untreated they differ. A case
that nothing from outside can cure is right when the result says so and names the line to change.
"""

import argparse
import collections
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml


def cure(program: Path, spec: dict[str, Any], max_runs: int) -> tuple[dict[str, Any], str]:
    """-> (the result as JSON, standard error)"""
    env = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **{key: str(value) for key, value in spec["env_a"].items()}}
    command = [sys.executable, "-m", "tfbisect", "cure", "--format", "json", "--max-runs", str(max_runs)]
    for name, value in spec["env_b"].items():
        command += ["--env-b", f"{name}={value}"]
    done = subprocess.run([*command, str(program)], env=env, capture_output=True, encoding="utf-8", check=False)
    return (json.loads(done.stdout) if done.stdout.startswith("{") else {}), done.stderr


def named(culprit: dict[str, Any], expect: dict[str, Any]) -> bool:
    """Whether a culprit is of a kind that the case expects: its op type, or its category."""
    ops = {expect["culprit_op_type"], *expect.get("also_acceptable_op_types", [])}
    categories = {expect["category"], *expect.get("also_acceptable_categories", [])}
    return culprit["op_type"] in ops or culprit["category"] in categories


def row(case: str, result: dict[str, Any], expect: dict[str, Any]) -> tuple[str, str]:
    """-> (kind of outcome, one line)"""
    if not result:
        return "broken", f"{case:28} broken"
    culprit = (result["culprits"] or [None])[0]
    cause = (culprit["causes"] or [{}])[0].get("id", "") if culprit else ""
    right = bool(culprit) and named(culprit, expect)
    untreated = result["untreated"]
    differs = untreated["identical"] < untreated["pairs"]
    proof = [t for t in result["trials"] if result["minimal"] and set(t["settings"]) == set(result["minimal"])]
    pairs = f"{proof[0]['identical']} of {proof[0]['pairs']}" if proof else "-"
    plain = result["plain"]
    plainly = "-" if plain is None else f"{plain['identical']} of {plain['pairs']}"
    kind = result["verdict"] if right and differs else "wrong cause" if differs else "repeats"
    what = " + ".join(result["minimal"]) or result["verdict"]
    where = f"{culprit['op_type']} [{culprit['category']}, {cause}]" if culprit else "no culprit"
    text = f"{case:28} {kind:11} {where:58} {what:42} recorded {pairs:7} plain {plainly:7}"
    return kind, f"{text} untreated {'diverges' if differs else 'repeats'}; {result['runs']} runs"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cases", type=Path, required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("--max-runs", type=int, default=20)
    options = parser.parse_args(arguments)
    counts: collections.Counter[str] = collections.Counter()
    for file in sorted(options.cases.glob("*/case.yaml")):
        if options.only not in file.parent.name:
            continue
        spec = yaml.safe_load(file.read_text(encoding="utf-8"))
        begin = time.monotonic()
        result, errors = cure((file.parent / "program.py").resolve(), spec, options.max_runs)
        kind, text = row(file.parent.name, result, spec["expect"])
        counts[kind] += 1
        print(f"{text}; {time.monotonic() - begin:.0f} s", flush=True)
        if not result:
            print("    " + "\n    ".join(errors.strip().splitlines()[-3:]), flush=True)
    print(", ".join(f"{kind} {count}" for kind, count in sorted(counts.items())))
    return int(counts["broken"] + counts["wrong cause"] > 0)


if __name__ == "__main__":
    sys.exit(main())
