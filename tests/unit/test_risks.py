"""What can vary in one recorded run, without a second one and without TensorFlow."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfbisect import definition
from tfbisect.model import CallState, Edge, GraphKind, Node, NodeFlag, SiteKind
from tfbisect.reporters import Page
from tfbisect.reporters._risks import render_risks
from tfbisect.risks import Risk, risks
from tfbisect.trace import TraceWriter, load

FLOAT, INT32 = 1, 3
CPU, GPU = "/device:CPU:0", "/device:GPU:0"
TWO_THREADS = {"threads": {"intra_op": 2}, "machine": {"cores": 2}}


def attribute(name: str, number: int) -> bytes:
    """A NodeDef's bytes for one integer attribute below 128."""
    value = bytes([0x18, number])
    entry = bytes([0x0A, len(name)]) + name.encode() + bytes([0x12, len(value)]) + value
    return bytes([0x2A, len(entry)]) + entry


def trace(
    path: Path, op: str, *, device: str = CPU, dtype: int = FLOAT, info: object = None, made: bytes = b""
) -> Path:
    """A function with one op, called twice."""
    with TraceWriter(path) as writer:
        stack = writer.stack([("train.py", 9, "step", "w.scatter_sub(rows)")])
        nodes = [
            Node("x", "_Arg", index=0),
            Node("while/enter", "Enter", flags=NodeFlag.FORWARDER, frame=("while",), inputs=(Edge(0, 0),)),
            Node("part/op", op, device, "step", stack, inputs=(Edge(0, 0),)),
        ]
        graph = writer.graph("step", "__inference_step_1", GraphKind.TWIN, 1, nodes)
        writer.graph("never", "never", GraphKind.TWIN, 1, [Node("op", op, device)])
        site = writer.sites(graph, [(2, 0, SiteKind.OUTPUT, dtype)])
        writer.definition(graph, 2, made)
        for call in range(2):
            writer.event(call, site, 0, 1, 5)
            writer.call(call, graph, 0, CallState.OK, -1, -1, 0)
        writer.journal({"kind": "info", "run": info or TWO_THREADS})
        writer.journal({"kind": "opaque", "name": "c", "op_type": "XlaRun", "reason": "compiled", "count": 2})
        writer.journal({"kind": "end", "status": "complete", "exit": 0, "reason": None})
    return path


def found(path: Path, op: str, **options: object) -> tuple[Risk, ...]:
    return risks(load(trace(path / "a.h5", op, **options)))  # type: ignore[arg-type]


def test_a_risky_op_comes_with_line_reason_cure_and_source(tmp_path: Path) -> None:
    (risk,) = found(tmp_path, "ResourceScatterSub")
    (op,) = risk.ops
    assert (op.op_type, op.name, op.runs) == ("ResourceScatterSub", "step/part/op", 2)
    assert op.source is not None and (op.source.file, op.source.line) == ("train.py", 9)
    assert "threads" in risk.why and "1024 updates" in risk.condition and risk.source
    assert risk.cure == "tf.config.experimental.enable_op_determinism()"


@pytest.mark.parametrize(
    ("op", "options", "risky"),
    [
        ("MatMul", {}, False),
        ("ResourceScatterSub", {"info": {"threads": {"intra_op": 1}}}, False),
        ("ResourceScatterSub", {"info": {"flags": {"op_determinism": True}}}, False),
        ("ResourceScatterSub", {"dtype": INT32}, False),  # sums of integers are exact in any order
        ("ResourceScatterSub", {"device": GPU}, True),
        ("Bincount", {"info": {"flags": {"op_determinism": True}}}, True),  # which op determinism leaves in
        ("RandomUniform", {"info": {"flags": {"op_determinism": False}}}, True),
        ("RandomUniform", {"info": {"flags": {"global_seed": 1}}, "made": attribute("seed", 7)}, False),
        ("NoSuchOp", {}, False),
    ],
)
def test_device_settings_dtype_and_attributes_count(
    op: str, options: dict[str, object], risky: bool, tmp_path: Path
) -> None:
    assert bool(found(tmp_path, op, **options)) == risky


def test_the_text_names_what_was_not_seen(tmp_path: Path) -> None:
    read = load(trace(tmp_path / "a.h5", "ResourceScatterSub"))
    text = render_risks(risks(read), read, Page(100))
    assert "1 op known to vary on this device with these settings" in text
    assert "train.py:9" in text and "ran 2x" in text and "1 thing ran unseen" in text
    assert "No op of this trace is known to vary" in render_risks((), read, Page(100))


def test_the_command_needs_no_tensorflow(cli, tmp_path):  # type: ignore[no-untyped-def]
    trace(tmp_path / "a.h5", "ResourceScatterSub")
    (tmp_path / "tensorflow.py").write_text("raise SystemExit('TensorFlow was imported')")
    done = cli("info", "a.h5", "--risks", PYTHONSAFEPATH="")
    assert done.returncode == 0 and "ResourceScatterSub" in done.stdout, done.stderr
    assert cli("info", "a.h5", "--risks", "--ops", "x").returncode == 2


# --- NodeDefs without TensorFlow --------------------------------------------------------------------------------------


@given(st.binary(max_size=200))
def test_no_bytes_break_the_reader(data: bytes) -> None:
    made = definition.parse(data)
    assert isinstance(made.attrs, dict)


def test_what_is_not_there_is_empty() -> None:
    assert definition.parse(None) == definition.Definition()
    assert definition.parse(attribute("seed", 7)).attrs == {"seed": 7}
