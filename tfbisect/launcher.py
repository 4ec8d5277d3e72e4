"""Starts the processes of one job on this machine, passes their output on line by line, and ends all when one fails.

Knows no recorder: what each process runs is handed in.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Sequence
from typing import IO, NamedTuple

HOST = "127.0.0.1"
GRACE_SECONDS = 10.0
"""How long the others have to end by themselves once one has failed, and again after SIGTERM."""
_LOOK_SECONDS = 0.05


class Ended(NamedTuple):
    """How a job ended. statuses: of its workers, -n for those that signal n ended; failed: the first worker that did
    not end with status 0, or -1."""

    statuses: tuple[int, ...]
    failed: int


def cluster(workers: int) -> list[str]:
    """The TF_CONFIG of each worker of a cluster on this machine, on ports that are free now."""
    with contextlib.ExitStack() as stack:
        found = [stack.enter_context(socket.socket()) for _ in range(workers)]
        for each in found:
            each.bind((HOST, 0))
        hosts = [f"{HOST}:{each.getsockname()[1]}" for each in found]
    tasks = ({"type": "worker", "index": index} for index in range(workers))
    return [json.dumps({"cluster": {"worker": hosts}, "task": task}) for task in tasks]


def run_job(commands: Sequence[Sequence[str]], stdout: int, stderr: int) -> Ended:
    """Run a command for each worker, with its TF_CONFIG; -> once all have ended.

    stdout, stderr: descriptors that all lines of the workers go to, behind the worker's name. When a worker fails, the
    others are ended after a while: they would wait for it in the next collective op.
    """
    lock = threading.Lock()
    pumps: list[threading.Thread] = []
    started: list[subprocess.Popen[bytes]] = []
    try:
        for number, (command, config) in enumerate(zip(commands, cluster(len(commands)), strict=True)):
            # Lines come as they are printed, not when a pipe's buffer is full.
            variables = {"PYTHONUNBUFFERED": "1", **os.environ, "TF_CONFIG": config}
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=variables)
            started.append(process)
            for pipe, target in ((process.stdout, stdout), (process.stderr, stderr)):
                assert pipe is not None
                pump = threading.Thread(
                    target=_pass_on, args=(pipe, target, f"[{number}] ".encode(), lock), daemon=True
                )
                pump.start()
                pumps.append(pump)
        failed = _wait(started)
    except BaseException:
        _end(started, ask=False)  # an interrupt reached them too
        raise
    for pump in pumps:
        pump.join(GRACE_SECONDS)  # a process that a worker started can hold its pipes
    return Ended(tuple(process.returncode for process in started), failed)


def told(ended: Ended) -> str:
    """What to say of a job in which a worker failed, as the beginning of a sentence."""
    status = ended.statuses[ended.failed]
    if status < 0:
        with contextlib.suppress(ValueError):
            return f"worker {ended.failed} was ended by {signal.Signals(-status).name}"
        return f"worker {ended.failed} was ended by signal {-status}"
    return f"worker {ended.failed} ended with exit status {status}"


def _wait(started: Sequence["subprocess.Popen[bytes]"]) -> int:
    """Wait for all, or end them after one has failed; -> the one, or -1."""
    while True:
        states = [process.poll() for process in started]
        failed = next((number for number, state in enumerate(states) if state), -1)
        if failed >= 0:
            _end(started, ask=True)
            return failed
        if None not in states:
            return -1
        time.sleep(_LOOK_SECONDS)


def _end(started: Sequence["subprocess.Popen[bytes]"], ask: bool) -> None:
    """Let processes end by themselves, ask those that did not, and then insist."""
    for how in ("wait", "terminate", "kill") if ask else ("wait", "kill"):
        for process in started:
            if process.poll() is None and how != "wait":
                process.terminate() if how == "terminate" else process.kill()
        until = time.monotonic() + GRACE_SECONDS
        for process in started:
            with contextlib.suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
                process.wait(max(0.0, until - time.monotonic()))


def _pass_on(pipe: IO[bytes], target: int, name: bytes, lock: threading.Lock) -> None:
    with pipe:
        for line in pipe:
            data = name + line + (b"" if line.endswith(b"\n") else b"\n")
            with lock, contextlib.suppress(OSError):  # nobody reads on; the worker shall not notice
                while data:
                    data = data[os.write(target, data) :]
