"""What a program leaves behind: a digest of every live variable, so that a plain and a recorded run can be compared.

Runs the program plainly when it is started as `python -m tfbisect.recorder.endstate STATE.json program.py [args]`.
Looks at variables only after the program has ended; it hooks nothing.

Private TensorFlow API used here, tried on 2.16.2, 2.18.1 and 2.21.0: `resource_variable_ops.BaseResourceVariable`,
`_unique_id` (its last number counts up, so it orders variables by their making).
"""

import gc
import json
import re
import sys
from pathlib import Path
from typing import Any


def variables() -> list[dict[str, Any]]:
    """Name, dtype, shape and digest of each live variable, in the order of their making; [] without TensorFlow."""
    module = sys.modules.get("tensorflow.python.ops.resource_variable_ops")
    kind = getattr(module, "BaseResourceVariable", None)
    if kind is None:
        return []
    from tfbisect.recorder import digest

    found = []
    for each in gc.get_objects():
        if issubclass(type(each), kind):
            number = re.search(r"(\d+)$", str(getattr(each, "_unique_id", "")))
            try:
                array = each.numpy()
            except Exception:  # not initialized, or a variable of a graph
                continue
            found.append((int(number[1]) if number else -1, str(each.name), array))
    found.sort(key=lambda item: item[:2])
    return [
        {"name": name, "dtype": str(array.dtype), "shape": list(array.shape), "digest": digest.of_array(array)}
        for _, name, array in found
    ]


def write(path: str | Path) -> None:
    """Write the end state to a file."""
    Path(path).write_text(json.dumps({"variables": variables()}), encoding="utf-8")


def _main() -> int:
    from tfbisect.recorder import run_main, treatment

    treatment.install_from_environment()
    state, program, *args = sys.argv[1:]
    status = run_main(Path(program), [program, *args])
    write(state)
    return status


if __name__ == "__main__":
    sys.exit(_main())
