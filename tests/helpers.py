"""Helpers for tests of all folders: fresh processes and small traces."""

import os
import subprocess
import sys
from pathlib import Path

from tfbisect.model import CallState, Edge, GraphKind, Node, SiteKind
from tfbisect.trace import TraceWriter

ROOT = Path(__file__).parent.parent
TIMEOUT = 180

Done = subprocess.CompletedProcess[str]


def python(*arguments: object, cwd: Path, timeout: float = TIMEOUT, **env: str) -> Done:
    """`python ARGUMENTS` with its output captured as UTF-8 text, at 80 columns and without TensorFlow's chatter."""
    merged = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONIOENCODING": "utf-8", "COLUMNS": "80"}
    merged["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    for name in ("NO_COLOR", "FORCE_COLOR"):
        merged.pop(name, None)
    merged.update(env)
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(
        command, cwd=cwd, env=merged, capture_output=True, encoding="utf-8", errors="replace", timeout=timeout
    )


def write_trace(path: Path, *, argument: int = 1, result: int = 2, program: str = "train.py") -> Path:
    """A trace of one eager op, `MatMul` in line 4 of train.py, with these digests of its argument and its result."""
    with TraceWriter(path) as writer:
        stack = writer.stack([("/home/ada/train.py", 4, "<module>", "y = tf.matmul(x, x)")])
        nodes = [
            Node("x", "_Arg", index=0),
            Node("MatMul", "MatMul", "/device:CPU:0", stack=stack, inputs=(Edge(0, 0), Edge(0, 0))),
            Node("result", "_Retval", index=0, inputs=(Edge(1, 0),)),
        ]
        graph = writer.graph("MatMul", "MatMul", GraphKind.EAGER, 7, nodes)
        site = writer.sites(graph, [(0, 0, SiteKind.ARG, 1), (1, 0, SiteKind.OUTPUT, 1)])
        shape = writer.shape([2, 2])
        writer.link(0, 0, -1, 0)
        writer.event(0, site, 0, shape, argument)
        writer.event(0, site + 1, 0, shape, result)
        writer.call(0, graph, 0, CallState.OK, -1, -1, stack)
        digest = {"graph": "farmhash64/1", "host": "xxh3_64/1"}
        writer.journal({"kind": "info", "run": {"argv": [program], "digest": digest}})
        writer.journal({"kind": "end", "status": "complete", "exit": 0, "reason": None})
    return path
