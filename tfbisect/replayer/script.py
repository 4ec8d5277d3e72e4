"""A case as a short script with its data beside it: for a bug report, and for the replay itself.

The script needs TensorFlow and NumPy, nothing of this package. All text that comes from a trace goes in through `repr`.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf import text_format

from tfbisect.replayer.case import Case
from tfbisect.replayer.settings import Settings
from tfbisect.tables import dtype_name

_BODY = """
def run():
    session.run(INIT, FEED)
    return session.run(FETCH, FEED)


def digest(results):
    found = hashlib.sha256()
    for result in map(np.asarray, results):
        found.update(repr((result.dtype.name, result.shape)).encode())
        found.update(repr(result.tolist()).encode() if result.dtype.hasobject else result.tobytes())
    return found.hexdigest()[:16]


if __name__ == "__main__":
    times = int(sys.argv[1]) if len(sys.argv) > 1 else {times}
    found = collections.Counter(digest(run()) for _ in range(times))
    for name, count in found.most_common():
        print(count, "times", name)
    print(len(found), "of", times, "distinct")
    print("TensorFlow", tf.__version__, "NumPy", np.__version__, "Python", sys.version.split()[0])
"""


def text(case: Case, settings: Settings, data: str, times: int, about: Sequence[str] = ()) -> str:
    """The script. data: the name of the .npz file beside it; times: how often it runs the op; about: comments."""
    lines = [f"# {_one_line(line)}" for line in about]
    lines += ["import collections, hashlib, os, sys  # noqa: E401", ""]
    if settings.environment:
        lines += [f"os.environ.update({dict(settings.environment)!r})"]
    lines += ["import numpy as np", "import tensorflow as tf", "from google.protobuf import text_format", ""]
    if settings.op_determinism:
        lines += ["tf.config.experimental.enable_op_determinism()"]
    if not settings.tensor_float_32:
        lines += ["tf.config.experimental.enable_tensor_float_32_execution(False)"]
    lines += ["NODES = ["]
    lines += [f"    {f'node {{ {_as_text(node)} }}'!r}," for node in case.nodes]
    lines += ["]"]
    lines += [f"with np.load(os.path.join(os.path.dirname(os.path.abspath(__file__)), {data!r})) as file:"]
    lines += ["    data = dict(file)"]
    lines += ["FEED = {", *(f"    {f'{name}:0'!r}: {_loaded(name, case)}," for name in case.feeds), "}"]
    lines += [f"INIT, FETCH = {list(case.init)!r}, {list(case.fetch)!r}"]
    lines += [f"CONFIG = {_config(settings)!r}", ""]
    lines += ["with tf.Graph().as_default() as graph:"]
    parse = "text_format.Parse('\\n'.join(NODES), tf.compat.v1.GraphDef())"
    lines += [f"    tf.graph_util.import_graph_def({parse}, name='')"]
    lines += ["config = text_format.Parse(CONFIG, tf.compat.v1.ConfigProto())"]
    lines += ["session = tf.compat.v1.Session(graph=graph, config=config)", ""]
    return "\n".join(lines) + _BODY.format(times=int(times))


def save(case: Case, path: Path) -> None:
    """The arrays of a case as an .npz file; types that NumPy alone does not know as unsigned integers."""
    np.savez(path, **{name: _plain(array) for name, (_dtype, array) in case.feeds.items()})  # type: ignore[arg-type]


def _plain(array: np.ndarray) -> np.ndarray:
    native = array.astype(array.dtype.newbyteorder("="), copy=False)
    return native if native.dtype.kind in "biufc" else native.view(f"u{native.dtype.itemsize}")


def _loaded(name: str, case: Case) -> str:
    """The expression for an array as TensorFlow wants it."""
    number, array = case.feeds[name]
    plain = _plain(array)
    wanted = dtype_name(number)
    if plain.dtype.name == wanted:
        return f"data[{name!r}]"
    return f"data[{name!r}].view(tf.as_dtype({wanted!r}).as_numpy_dtype)"


def _config(settings: Settings) -> str:
    parts = [
        f"intra_op_parallelism_threads: {settings.intra_op}",
        f"inter_op_parallelism_threads: {settings.inter_op}",
        # the node is what was executed: nothing is left to optimize
        "graph_options { optimizer_options { opt_level: L0 } rewrite_options { disable_meta_optimizer: true } }",
    ]
    if settings.cpus > 1:
        parts.append(f"device_count {{ key: 'CPU' value: {settings.cpus} }}")
    return " ".join(parts)


def _as_text(node: Any) -> str:
    return str(text_format.MessageToString(node, as_one_line=True))


def _one_line(line: str) -> str:
    """A comment ends with its line: nothing in it may begin another one."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in line)
