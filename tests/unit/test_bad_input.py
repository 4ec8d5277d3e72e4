"""Traces that do not belong together, or are not whole: a clear sentence, and never a wrong name."""

from pathlib import Path

import pytest
from graphs import FLOAT, INT32, Recorder
from minilang import record

from tfbisect import cli, errors
from tfbisect.comparison import compare
from tfbisect.trace import load

TEXT = "w; dense = MatMul x w; loss = Sum dense"


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    return [tmp_path / name for name in ("a.h5", "b.h5")]


def failure(capsys, *arguments) -> str:
    """What the command line says: one message, exit status 2, no traceback."""
    assert cli.main(["compare", *map(str, arguments)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and "Traceback" not in err and "\n  next: " in err
    return err


def test_another_program(paths, capsys):
    record(TEXT, paths[0])
    record("def g x\n a = Exp x\nend\n\n\n\ny = g p\n", paths[1], info={"argv": ["other.py"]})
    text = failure(capsys, *paths)
    assert "program.py and other.py" in text and "two runs of one program" in text
    assert "0 of 3 calls" in failure(capsys, *paths, paths[0])  # also among many


def test_another_program_of_the_same_name_is_inconclusive(paths):
    record(TEXT, paths[0])
    record("def g x\n a = Exp x\nend\n\n\n\ny = g p\n", paths[1])
    result = compare(*paths)
    assert (result.verdict, result.culprits, result.coverage.compared) == ("inconclusive", (), 0)
    assert any("are these traces of one program?" in warning for warning in result.warnings)


def test_an_edited_program_is_said_to_be_edited(paths):
    record("def f x\n a = Relu x\nend\ny = f p\nz = Tanh y", paths[0])
    record("def f x\n a = Relu x\nend\ny = f p\nt = Tanh y", paths[1])
    [warning] = compare(*paths).warnings
    assert warning == "the program was edited between the runs: line 5 is z = Tanh y and t = Tanh y"


def test_other_digest_schemes(paths, capsys):
    record(TEXT, paths[0])
    record(TEXT, paths[1], info={"digest": {"graph": "portable/1", "host": "portable/1"}})
    text = failure(capsys, *paths)
    assert "portable/1" in text and "mini/1" in text and "one scheme" in text
    failure(capsys, *paths, "--rtol", "1e-3")
    failure(capsys, paths[0], paths[0], paths[1])


def test_another_dtype_at_the_same_op_is_structure_and_not_a_kernel_that_varies(paths):
    for path, dtype in zip(paths, (FLOAT, INT32), strict=True):
        with Recorder(path) as r:
            value = r.host("Cast", 1, line=1)
            made = r.op("Cast", [value], 5, line=2, dtype=dtype)
            r.op("Sum", [made], 6 + dtype, line=3)
    result = compare(*paths)
    [culprit] = result.culprits
    assert (result.verdict, culprit.op_type, culprit.category) == ("diverged", "Cast", "structure")


def test_no_trace_at_all(paths, capsys, tmp_path):
    record(TEXT, paths[0])
    assert "not-found" in failure(capsys, paths[0], tmp_path / "none.h5")
    paths[1].write_text("not a trace")
    assert "not-a-trace" in failure(capsys, *paths)
    with Recorder(paths[1]):
        pass
    assert "no recorded op" in failure(capsys, *paths)


ROUNDS, FIRST = 16, 6


def long_run(path: Path, differs: bool) -> list[bytes]:
    """Some rounds, each flushed; from round FIRST on `Relu` gives another output. -> the file after each of them."""
    files = []
    with Recorder(path) as r:
        for number in range(ROUNDS):
            off = 10_000 * (differs and number >= FIRST)
            made = r.op("Relu", [r.host("Relu", 1000 + number, line=1)], 5000 + number + off, line=2)
            r.op("Sum", [made], 100 + number + off, line=3)
            r.writer.flush()
            files.append(path.read_bytes())
    return files


def test_a_run_that_was_killed_in_any_round_names_the_op_or_none(paths):
    long_run(paths[0], False)
    for number, data in enumerate(long_run(paths[1], True)):
        paths[1].write_bytes(data)
        result = compare(*paths)
        found = [(culprit.op_type, culprit.call) for culprit in result.culprits]
        assert found == ([("Relu", FIRST)] if number >= FIRST else [])
        assert result.verdict == ("diverged" if number >= FIRST else "inconclusive")


def test_a_file_that_was_cut_is_an_error_with_a_sentence_or_names_the_op(paths):
    long_run(paths[0], False)
    whole = long_run(paths[1], True)[-1]
    for size in range(1, len(whole), len(whole) // 20):
        paths[1].write_bytes(whole[:size])
        try:
            result = compare(*paths)
        except errors.TfbisectError as error:
            assert error.message and error.hint
        else:
            assert [culprit.op_type for culprit in result.culprits] in ([], ["Relu"]) and result.verdict != "identical"


def test_a_run_that_was_killed_is_compared_as_far_as_it_goes(paths):
    record(TEXT, paths[0], calls=4)
    record(TEXT, paths[1], calls=2, complete=False)
    result = compare(*paths)
    assert (result.verdict, result.culprits) == ("inconclusive", ())
    assert not load(paths[1]).complete
    assert any("no end" in warning for warning in result.warnings)
    record(TEXT, paths[1], calls=2, complete=False, change={"dense@1": 1})
    result = compare(*paths)
    assert [(culprit.name, culprit.call) for culprit in result.culprits] == [("dense", 1)]


def test_values_cut_short_leave_a_tolerance_open(paths):
    record(TEXT, paths[0], values=True)
    record(TEXT, paths[1], change={"dense@1": 1})
    assert compare(*paths, rtol=1e-3).verdict == "inconclusive"
