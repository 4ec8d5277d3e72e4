"""How long `compare` takes, and how much memory, on two traces of many events. Prints figures; no test.

    python tests/bench/compare_bench.py --events 20000000 [--differ all|one|none]

The traces are made by the real writer: a function of 200 ops that is called over and over and keeps a variable. With
`one` a value differs and dies out, with `all` every value behind it differs, call after call.
"""

import argparse
import resource
import tempfile
import time
from pathlib import Path

import numpy as np

from tfbisect.comparison import compare
from tfbisect.model import Edge, GraphKind, Node, NodeFlag, SiteKind
from tfbisect.trace import TraceWriter

OPS = 200
FLOAT, RESOURCE = 1, 20


def write(path: Path, calls: int, differ: str) -> None:
    """A trace of `calls` calls; `differ` is "none" for the first of two."""
    with TraceWriter(path, force=True) as writer:
        writer.journal(
            {"kind": "info", "run": {"argv": ["bench.py"], "digest": {"graph": "bench/1", "host": "bench/1"}}}
        )
        stack = writer.stack([("bench.py", 1, "<module>", "train_step(x)")])
        handle = Node("VarHandleOp", "VarHandleOp", flags=NodeFlag.STATEFUL, stack=stack)
        made = writer.graph("VarHandleOp", "VarHandleOp", GraphKind.EAGER, 1, [
            handle, Node("r", "_Retval", index=0, inputs=(Edge(0, 0),)),
        ])  # fmt: skip
        writer.call(0, made, 0, 0, -1, -1, stack)
        nodes = [Node("x", "_Arg", index=0), Node("v", "_Arg", index=1)]
        nodes.append(Node("read", "ReadVariableOp", flags=NodeFlag.STATEFUL, inputs=(Edge(1, 0),), stack=stack))
        for number in range(OPS):
            inputs = (Edge(len(nodes) - 1, 0), Edge(0 if number % 3 else 2, 0))
            nodes.append(Node(f"op{number}", "AddV2", inputs=inputs, stack=stack))
        last = len(nodes) - 1
        flags = NodeFlag.WRITER | NodeFlag.STATEFUL
        write_inputs = (Edge(1, 0), Edge(last, 0), Edge(2, -1))
        nodes.append(Node("write", "AssignVariableOp", flags=flags, inputs=write_inputs, stack=stack))
        nodes.append(Node("result", "_Retval", index=0, inputs=(Edge(last, 0),)))
        graph = writer.graph("train_step", "__inference_train_step_1", GraphKind.TWIN, 2, nodes)
        rows = [(0, 0, SiteKind.ARG, FLOAT), (2, 0, SiteKind.OUTPUT, FLOAT)]
        rows += [(3 + number, 0, SiteKind.OUTPUT, FLOAT) for number in range(OPS)]
        rows += [(last + 1, 0, SiteKind.WRITE, FLOAT)]
        first = writer.sites(graph, rows)
        shape = writer.shape([2])
        base = np.arange(len(rows), dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        written = np.uint64(7)
        for call in range(1, calls + 1):
            digests = base + np.uint64(call * 31)
            digests[1] = written  # what the last call wrote
            if differ == "all":
                digests[50 if call == 1 else 1 :] += np.uint64(1)
                digests[1] = written
            elif differ == "one" and call == 1:
                digests[50] += np.uint64(1)
            written = digests[-1] = digests[-2]
            writer.events(call, first + np.arange(len(rows)), 0, shape, digests)
            writer.link(call, 0, -1, 0)
            writer.link(call, 1, 0, 0)
            writer.call(call, graph, 0, 0, -1, -1, stack)
            if not call % 1000:
                writer.flush()
        writer.journal({"kind": "end", "status": "complete", "exit": 0, "reason": None})


def main() -> None:
    """Make the traces, compare them, print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--events", type=int, default=1_000_000, help="of each trace")
    parser.add_argument("--differ", choices=("none", "one", "all"), default="one")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / name for name in ("a.h5", "b.h5")]
        for path, differ in zip(paths, ("none", options.differ), strict=True):
            write(path, max(1, options.events // (OPS + 3)), differ)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        start = time.perf_counter()
        result = compare(*paths)
        seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    first = result.culprits[0].name if result.culprits else "no culprit"
    print(f"{options.events:,} events, differ {options.differ}: {result.verdict}, {first}")
    print(f"{seconds:.1f} s, {peak / 2**20:.2f} GiB at most (before: {before / 2**20:.2f} GiB)")


if __name__ == "__main__":
    main()
