"""ResNet-50 training: recorded runs compute the plain run's bits and agree with each other in every event."""

import json
import time
from pathlib import Path

import numpy as np
from helpers import python

from tfbisect import trace

PROGRAM = Path(__file__).parent / "resnet50_program.py"
TRAINED_EVENTS = 6 * 3000  # six steps have at least as many


def test_resnet50_recorded_twice_equals_the_plain_run(tmp_path: Path) -> None:
    plain = python(PROGRAM, cwd=tmp_path)
    assert plain.returncode == 0, plain.stderr
    for name in ("a.h5", "b.h5"):
        recorded = python("-m", "tfbisect", "record", "-o", name, PROGRAM, cwd=tmp_path)
        assert recorded.returncode == 0, recorded.stderr
        assert recorded.stdout == plain.stdout
    a, b = trace.load(tmp_path / "a.h5"), trace.load(tmp_path / "b.h5")
    assert a.complete and b.complete and not a.opaque
    assert len(a.events) == len(b.events) >= TRAINED_EVENTS
    assert sorted(a.events["digest"].tolist()) == sorted(b.events["digest"].tolist())
    assert np.array_equal(a.calls["graph"], b.calls["graph"])

    begin = time.perf_counter()
    done = python("-X", "importtime", "-m", "tfbisect", "compare", "a.h5", "b.h5", "--format", "json", cwd=tmp_path)
    seconds = time.perf_counter() - begin
    result = json.loads(done.stdout)
    assert (done.returncode, result["verdict"], result["culprits"]) == (0, "identical", [])
    assert result["coverage"]["compared"] == len(a.events)
    assert "tensorflow" not in done.stderr
    print(f"compare took {seconds:.2f} s")
