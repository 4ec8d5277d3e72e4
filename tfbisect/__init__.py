"""tfbisect names the TensorFlow op that diverged first between two runs of the same program.

The public names, each loaded on first use: `import tfbisect` loads neither TensorFlow nor numpy, so that a program that
is recorded imports and configures them itself.
"""

import importlib
from typing import TYPE_CHECKING, Any

from tfbisect.version import __version__

if TYPE_CHECKING:
    from tfbisect.checking import check, check_model
    from tfbisect.comparison import compare
    from tfbisect.errors import TfbisectError
    from tfbisect.model import Comparison
    from tfbisect.recorder import record, step
    from tfbisect.recorder.shadow import shadow
    from tfbisect.replayer import Replay, replay
    from tfbisect.tables import Trace
    from tfbisect.trace import load

__all__ = [
    "Comparison",
    "Replay",
    "TfbisectError",
    "Trace",
    "__version__",
    "check",
    "check_model",
    "compare",
    "load",
    "record",
    "replay",
    "shadow",
    "step",
]

_HOMES = {
    "Comparison": "tfbisect.model",
    "Replay": "tfbisect.replayer",
    "TfbisectError": "tfbisect.errors",
    "Trace": "tfbisect.tables",
    "check": "tfbisect.checking",
    "check_model": "tfbisect.checking",
    "compare": "tfbisect.comparison",
    "load": "tfbisect.trace",
    "record": "tfbisect.recorder",
    "replay": "tfbisect.replayer",
    "shadow": "tfbisect.recorder.shadow",
    "step": "tfbisect.recorder",
}


def __getattr__(name: str) -> Any:
    if name == "keras":  # a module, which imports TensorFlow
        return importlib.import_module("tfbisect.keras")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
