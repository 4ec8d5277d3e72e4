"""Shadow: one run in which each pure op executes twice on the same live inputs; where the two differ, it is convicted.

Explains nothing and aligns nothing. Imports neither numpy nor TensorFlow before the program does; how an op gets its
second execution is in `shadow_ops`.
"""

import collections
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfbisect import recorder
from tfbisect.errors import Usage
from tfbisect.recorder.window import PLAIN
from tfbisect.stability import Exempt, Shadow, UnstableOp

if TYPE_CHECKING:
    from tfbisect.tables import Trace

ONCE = "ran once: "  # begins the reason for which an op is exempt


@dataclass(slots=True)
class Count:
    executions: int = 0
    differing: int = 0


@dataclass(slots=True)
class Ledger:
    """Digests of first executions that wait for their second, and the counts of each op.

    counts: {(graph, node, slot)} of graph ops, {(op type, stack, slot)} of eager ones.
    """

    waiting: dict[tuple[int, bytes, int, int, int], int] = field(default_factory=dict)
    counts: dict[tuple[Any, int, int], Count] = field(default_factory=lambda: collections.defaultdict(Count))

    def add(self, key: tuple[Any, int, int], same: bool) -> None:
        count = self.counts[key]
        count.executions += 1
        count.differing += not same


class _Session(recorder._Session):
    """A recording whose functions and eager ops run twice; its trace has graphs and lines only, and is thrown away."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.ledger = Ledger()

    def _start_eager(self) -> None:
        with self._lock:
            if self._eager is None:
                from tfbisect.recorder.shadow_ops import ShadowEager

                self._eager = ShadowEager(self.open())
                self._eager.ledger = self.ledger

    def _start_functions(self, context: Any, plain: Callable[..., Any]) -> None:
        with self._lock:
            if self._functions is None:
                from tfbisect.recorder.shadow_ops import ShadowFunctions

                self._functions = ShadowFunctions(self.open(), context, plain, self._before, False)
                self._functions.ledger = self.ledger

    def session_run(self, session: Any, plain: Callable[..., Any], *args: Any) -> Any:
        if os.getpid() == self._pid and not self.failed:
            try:
                recording = self.open()
                with recording.lock:
                    recording.unseen("Session.run", "Session.run", "v1 sessions run as they are")
            except Exception as error:
                self._give_up(error)
        return plain(session, *args)


def shadow(function: Callable[..., Any], *args: Any, calls: int = 1, **kwargs: Any) -> Shadow:
    """Call `function(*args, **kwargs)` `calls` times with each pure op executed twice; -> what differed.

    What the calls return and change is what it would be without: a training step trains. Raises Usage, and what the
    function raises.
    """
    if calls < 1:
        raise Usage("shadow", found=f"calls={calls}", expected="1 or more")
    with tempfile.TemporaryDirectory(prefix="tfbisect-shadow-") as folder:
        path = Path(folder) / "shadow.h5"
        session = _begin(path, sys.argv, None)
        try:
            for _ in range(calls):
                function(*args, **kwargs)
        finally:
            recorder._finish(session, None)
        return _result(session.ledger, _load(path))


def run_program(program: Path, args: Sequence[str]) -> tuple[Shadow, int]:
    """Run a program as `__main__` in this process, each pure op twice; -> (what differed, its exit status).

    Raises Usage.
    """
    with tempfile.TemporaryDirectory(prefix="tfbisect-shadow-") as folder:
        path = Path(folder) / "shadow.h5"
        session = _begin(path, [str(program), *args], str(program))
        status = 1
        try:
            status = recorder.run_main(program, [str(program), *args])
            for thread in threading.enumerate():
                if thread is not threading.current_thread() and not thread.daemon:
                    thread.join()
        finally:
            recorder._finish(session, status)
        return _result(session.ledger, _load(path)), status


def _load(path: Path) -> "Trace":
    from tfbisect import trace  # loads h5py and numpy: after the program has

    return trace.load(path)


def _begin(path: Path, argv: Sequence[str], program: str | None) -> _Session:
    request = recorder._Request(path, "none", True, "opaque", False, argv, program, PLAIN)
    session = recorder._begin(request, kind=_Session)
    assert isinstance(session, _Session)
    return session


def _result(ledger: Ledger, seen: "Trace") -> Shadow:
    """The counts with the names and lines that the trace has for them."""
    per_op: dict[tuple[Any, int], Count] = collections.defaultdict(Count)
    for (graph, node, _slot), count in ledger.counts.items():
        total = per_op[graph, node]
        total.executions = max(total.executions, count.executions)
        total.differing = max(total.differing, count.differing)
    unstable = [_unstable(seen, graph, node, count) for (graph, node), count in per_op.items() if count.differing]
    unstable.sort(key=lambda op: -op.differing)
    alone: collections.Counter[tuple[str, str]] = collections.Counter()
    for each in seen.opaque:
        if each.reason.startswith(ONCE):
            alone[each.op_type, each.reason.removeprefix(ONCE)] += each.count
    return Shadow(
        unstable=tuple(unstable),
        exempt=tuple(Exempt(op, reason, count) for (op, reason), count in alone.most_common()),
        opaque=tuple(each for each in seen.opaque if not each.reason.startswith(ONCE)),
        ops=len(per_op),
        executions=sum(count.executions for count in per_op.values()),
        problems=seen.problems,
    )


def _unstable(seen: "Trace", graph: Any, node: int, count: Count) -> UnstableOp:
    if isinstance(graph, str):  # an eager op: its type, and the stack in the node's place
        return UnstableOp(graph, graph, "", "", seen.source(node), count.executions, count.differing)
    found = seen.graphs[graph].nodes[node]
    return UnstableOp(
        found.op, found.name, seen.graphs[graph].name, found.device, seen.source(found.stack), count.executions,
        count.differing,
    )  # fmt: skip
