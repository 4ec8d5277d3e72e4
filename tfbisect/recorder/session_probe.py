"""Whether `session_memory` works on this very installation: tried in a process of its own, and remembered.

A wrong guess about how C++ objects lie in memory ends in a crash, which must not be the program's. `usable` asks;
`main` is what the other process runs.
"""

import hashlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tfbisect.recorder import session_memory

SWITCH = "TFBISECT_SESSIONS"
"""Environment variable: `files` forbids the transport in memory."""
TIMEOUT = 120  # seconds
PASSED = "passed"
_RUN = "from tfbisect.recorder import session_probe; session_probe.main()"


def usable(variables: Mapping[str, str] = os.environ) -> str:
    """ "" where debug dumps may stay in memory; else why not."""
    if variables.get(SWITCH) == "files":
        return f"{SWITCH}=files"
    try:
        session_memory.Memory.check()
        key = _installation()
    except (session_memory.Unavailable, OSError) as error:
        return str(error)
    file = _cache(variables)
    known = _remembered(file, key)
    if known is None:
        known = _try()
        if not known.startswith(UNFINISHED):  # a machine that is slow now may be quick the next time
            _remember(file, key, known)
    return known


UNFINISHED = "its self-test did not end"


def _try() -> str:
    if not sys.executable:
        return "there is no Python to try it with"
    env = {
        **os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "CUDA_VISIBLE_DEVICES": "-1",
        "HIP_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3",
    }  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="tfbisect-") as folder:
        try:
            done = subprocess.run(
                [sys.executable, "-c", _RUN], cwd=folder, env=env, capture_output=True, timeout=TIMEOUT, check=False,
                stdin=subprocess.DEVNULL,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"{UNFINISHED}: {type(error).__name__}"
    if done.returncode == 0 and done.stdout.decode("utf-8", "replace").split()[-1:] == [PASSED]:
        return ""
    said = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return f"its self-test ended with status {done.returncode}: {said[-1][:200] if said else 'it said nothing'}"


# ---------------------------------------------------------------------------------------------------------------------
# What is remembered
# ---------------------------------------------------------------------------------------------------------------------


def _installation() -> str:
    """What the answer holds for: these libraries, this Python, this code."""
    parts = [platform.platform(), sys.version, *platform.libc_ver()]
    for library in session_memory.libraries():
        state = os.stat(library)
        parts += [library, str(state.st_size), str(state.st_mtime_ns)]
    for code in (session_memory.__file__, __file__):
        parts.append(hashlib.sha256(Path(code).read_bytes()).hexdigest())
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _cache(variables: Mapping[str, str]) -> Path:
    root = variables.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(root) / "tfbisect" / "sessions.json"


def _remembered(file: Path, key: str) -> str | None:
    try:
        known: Any = json.loads(file.read_text(encoding="utf-8"))[key]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return known if isinstance(known, str) else None


def _remember(file: Path, key: str, answer: str) -> None:
    """Where nothing can be written, the next recording tries again."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=file.parent, encoding="utf-8", delete=False) as new:
            json.dump({key: answer}, new)
        os.replace(new.name, file)
    except OSError:
        pass


# ---------------------------------------------------------------------------------------------------------------------
# The process of its own
# ---------------------------------------------------------------------------------------------------------------------


def main() -> None:
    """Watch tensors of all dtypes and ranks, in threads and loops; print PASSED, and end while a thread still runs."""
    import numpy as np
    import tensorflow as tf
    from tensorflow.core.protobuf import config_pb2

    from tfbisect.recorder import digest

    v1 = tf.compat.v1
    v1.disable_control_flow_v2()
    memory = session_memory.Memory()
    arrays = [np.arange(12).reshape(shape).astype("float32") for shape in ((12,), (3, 4), (1, 3, 1, 2, 2, 1))]
    arrays += [np.array(1.5, "float32"), np.zeros((0, 3), "float32"), np.ones((70000,), "float32")]
    arrays += [np.ones((40000, 1, 1, 1), "float32"), np.ones((3, 1, 1, 1, 1, 1, 2), "float32")]
    for number in sorted(session_memory.DTYPES):
        arrays.append(np.array([[0, 1, 1], [1, 0, 1]]).astype(tf.dtypes.as_dtype(number).as_numpy_dtype))
    with tf.Graph().as_default() as graph:
        feeds = [v1.placeholder(array.dtype, array.shape) for array in arrays]
        outputs = [tf.raw_ops.Snapshot(input=feed) for feed in feeds]
        counted = v1.while_loop(lambda i: i < 5, lambda i: i + 1, [0])
        counter = v1.get_variable("counter", [], initializer=v1.zeros_initializer(), use_resource=False)
        added = tf.identity(v1.assign_add(counter, 1.0))
        slots = tf.raw_ops.Split(axis=0, value=feeds[1], num_split=3)
        targets = [*(output.op.name for output in outputs), counted.op.name, added.op.name, slots[0].op.name]
        initializer = v1.global_variables_initializer()
        config = config_pb2.ConfigProto(device_count={"GPU": 0})
        config.graph_options.rewrite_options.disable_meta_optimizer = True
        session = v1.Session(config=config)
    wanted = [(output.op.name, 0) for output in outputs] + [(slots[0].op.name, slot) for slot in range(3)]
    condition = next(op.name for op in graph.get_operations() if op.type == "LoopCond")
    reference = next(op.name for op in graph.get_operations() if op.type == "AssignAdd")

    def watched() -> tuple[session_memory.Inbox, Any]:
        inbox = memory.inbox({(condition, 0): 8, **dict.fromkeys(wanted, 2**20)})
        options = config_pb2.CallableOptions(feed=[feed.name for feed in feeds], target=targets)
        for node, slot in [*wanted, (condition, 0), (reference, 0)]:
            options.run_options.debug_options.debug_tensor_watch_opts.add(
                node_name=node, output_slot=slot, debug_ops=["DebugIdentity"], debug_urls=[inbox.url]
            )
        return inbox, session._make_callable_from_options(options)

    values = [*arrays, *np.split(arrays[1], 3)]

    def run(inbox: session_memory.Inbox, call: Any) -> None:
        call(*arrays)
        dumps = inbox.collect()
        found = {(dump.node, dump.slot): dump for dump in dumps}
        for key, array in zip(wanted, values, strict=True):
            dump = found[key]
            dtype = tf.dtypes.as_dtype(array.dtype).as_datatype_enum
            expected = dtype, array.shape, array.nbytes, digest.of_array(array)
            assert dump[2:6] == expected, (dump, expected)
            assert bytes(dump.data or b"") == array.tobytes(), dump
        assert [dump.scalar() for dump in dumps if dump.node == condition] == [1] * 5 + [0], dumps
        assert found[reference, 0].shape == () and found[reference, 0].nbytes == 4
        assert len(dumps) == len(wanted) + 7

    errors: list[BaseException] = []

    def work(times: int) -> None:
        try:
            inbox, call = watched()
            for _ in range(times):
                run(inbox, call)
        except BaseException as error:
            errors.append(error)

    session.run(initializer)
    threads = [threading.Thread(target=work, args=(20,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    inbox, call = watched()
    started = threading.Event()

    def forever() -> None:
        while True:
            call(*arrays)
            started.set()

    threading.Thread(target=forever, daemon=True).start()
    started.wait(TIMEOUT)
    print(PASSED, flush=True)
