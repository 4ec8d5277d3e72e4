"""`compare` against `h5diff` on the same recorded tensors. Prints figures; no test.

    python tests/bench/h5diff_bench.py [--tensors 20000] [--elements 128] [--rounds 5]

`compare` gets two traces with all values kept, `h5diff` two plain HDF5 files with one dataset a tensor, as values are
commonly stored. The bytes are the same; one tensor of the second run differs in one bit. Both are whole processes,
start-up included, in turn. `h5diff` reads all bytes and `compare` the digests, so the larger the tensors the larger is
the ratio. Needs `h5diff` (Debian and Ubuntu: the package hdf5-tools).
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import h5py
import numpy as np
import xxhash

from tfbisect.model import Edge, GraphKind, Node, NodeFlag, SiteKind
from tfbisect.trace import TraceWriter

ROOT = Path(__file__).parents[2]
OPS = 200  # tensors of a call
FLOAT = 1


def tensors(count: int, elements: int, changed: int) -> Iterator[np.ndarray]:
    """Random float32 tensors, of which one is changed; -1: none is."""
    random = np.random.default_rng(0)
    for number in range(count):
        made = random.standard_normal(elements, np.float32)
        if number == changed:
            made.view(np.uint32)[0] ^= 1
        yield made


def write_trace(path: Path, values: Iterator[np.ndarray], count: int) -> None:
    """A function of OPS ops that is called until there are no tensors left."""
    with TraceWriter(path, force=True) as writer:
        writer.journal(
            {"kind": "info", "run": {"argv": ["bench.py"], "digest": {"graph": "bench/1", "host": "bench/1"}}}
        )
        stack = writer.stack([("bench.py", 1, "<module>", "step()")])
        nodes = [Node("op0", "RandomUniform", flags=NodeFlag.STATEFUL | NodeFlag.RANDOM, stack=stack)]
        nodes += [Node(f"op{n}", "Relu", inputs=(Edge(n - 1, 0),), stack=stack) for n in range(1, OPS)]
        graph = writer.graph("step", "__inference_step_1", GraphKind.TWIN, 2, nodes)
        first = writer.sites(graph, [(number, 0, SiteKind.OUTPUT, FLOAT) for number in range(OPS)])
        for number, value in enumerate(values):
            data = value.tobytes()
            call, op = divmod(number, OPS)
            shape = writer.shape(value.shape)
            writer.event(call, first + op, 0, shape, xxhash.xxh3_64_intdigest(data), writer.value(data))
            if op == OPS - 1 or number == count - 1:
                writer.call(call, graph, 0, 0, -1, -1, stack)
        writer.journal({"kind": "end", "status": "complete", "exit": 0, "reason": None})


def write_plain(path: Path, values: Iterator[np.ndarray]) -> None:
    """A dataset for each tensor, in a group for each call."""
    with h5py.File(path, "w", libver="latest") as file:
        for number, value in enumerate(values):
            call, op = divmod(number, OPS)
            file[f"call{call}/op{op}"] = value


def seconds(command: Sequence[str]) -> float:
    """The time of a process that says that two files differ."""
    start = time.perf_counter()
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, check=False)
    taken = time.perf_counter() - start
    if done.returncode != 1:
        raise SystemExit(f"{command[0]} ended with {done.returncode}: {done.stderr.decode()[-500:]}")
    return taken


def main() -> None:
    """Write the files, compare them in turn, print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tensors", type=int, default=20_000)
    parser.add_argument("--elements", type=int, default=128, help="float32 numbers of a tensor")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    h5diff = shutil.which("h5diff")
    if h5diff is None:
        raise SystemExit("h5diff is not installed: apt install hdf5-tools")
    times: dict[str, list[float]] = {"compare": [], "h5diff": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for letter, changed in (("a", -1), ("b", options.tensors // 2)):
            made = options.tensors, options.elements, changed
            write_trace(folder / f"trace_{letter}.h5", tensors(*made), options.tensors)
            write_plain(folder / f"plain_{letter}.h5", tensors(*made))
        commands = {
            "compare": [sys.executable, "-m", "tfbisect", "compare", *(f"{folder}/trace_{x}.h5" for x in "ab")],
            "h5diff": [h5diff, "-q", *(f"{folder}/plain_{x}.h5" for x in "ab")],
        }
        for _ in range(options.rounds):
            for what, command in commands.items():
                times[what].append(seconds(command))
    medians = {what: statistics.median(taken) for what, taken in times.items()}
    print(f"{options.tensors:,} tensors of {options.elements} float32, one differs; medians of {options.rounds}")
    print(", ".join(f"{what} {median:.2f} s" for what, median in medians.items()), end="; ")
    print(f"{medians['h5diff'] / medians['compare']:.1f} times as fast")


if __name__ == "__main__":
    main()
