"""The command line without a recorder: parsing, errors, exit status, files. Bad input goes through real processes."""

import json
import re
import subprocess
import sys
from pathlib import Path

import h5py
import pytest
from helpers import ROOT, write_trace

from tfbisect import cli, comparison, version
from tfbisect.commands import run
from tfbisect.commands._shared import program_of
from tfbisect.model import Comparison, Coverage


@pytest.fixture
def verdict(monkeypatch):
    """Make `compare` answer with a verdict, whatever the traces are."""

    def answer(name):
        monkeypatch.setattr(comparison, "compare", lambda *paths, **_: Comparison(name, coverage=Coverage(5)))

    return answer


@pytest.mark.parametrize("name, status", [("identical", 0), ("diverged", 1), ("inconclusive", 2)])
def test_exit_status_is_the_verdict(verdict, capsys, name, status):
    verdict(name)
    assert cli.main(["compare", "a.h5", "b.h5"]) == status
    out, err = capsys.readouterr()
    assert out.startswith(name.upper()) and err == ""


def test_report_to_a_file(verdict, capsys, tmp_path):
    verdict("identical")
    report = tmp_path / "result.json"
    assert cli.main(["compare", "a.h5", "b.h5", "-o", str(report)]) == 0
    out, err = capsys.readouterr()
    assert out == "" and "result.json" in err
    assert json.loads(report.read_text())["verdict"] == "identical"
    assert list(tmp_path.iterdir()) == [report]

    report.write_text("mine")
    assert cli.main(["compare", "a.h5", "b.h5", "-o", str(report)]) == 2
    assert "--force" in capsys.readouterr().err and report.read_text() == "mine"
    assert cli.main(["compare", "a.h5", "b.h5", "-o", str(report), "--force"]) == 0
    assert json.loads(report.read_text())["verdict"] == "identical"


def test_a_report_never_replaces_what_is_compared(verdict, capsys, tmp_path):
    verdict("identical")
    trace = tmp_path / "a.h5"
    trace.write_text("trace")
    assert cli.main(["compare", str(trace), "b.h5", "-o", str(trace), "--force"]) == 2
    assert "this command reads" in capsys.readouterr().err and trace.read_text() == "trace"


def test_a_report_that_cannot_be_written(verdict, capsys, tmp_path):
    verdict("identical")
    assert cli.main(["compare", "a.h5", "b.h5", "-o", str(tmp_path / "no" / "r.json")]) == 2
    assert "cannot-write" in capsys.readouterr().err
    assert cli.main(["compare", "a.h5", "b.h5", "-o", str(tmp_path), "--force"]) == 2
    assert "a folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    "error, status, said",
    [(KeyboardInterrupt(), 130, ""), (PermissionError(13, "Permission denied", "a.h5"), 2, "Permission denied: a.h5")],
)
def test_interruption_and_system_errors(monkeypatch, capsys, error, status, said):
    def fail(*paths, **_):
        raise error

    monkeypatch.setattr(comparison, "compare", fail)
    assert cli.main(["compare", "a.h5", "b.h5"]) == status
    out, err = capsys.readouterr()
    assert out == "" and said in err and "Traceback" not in err


def test_a_fault_of_our_own_is_not_taken_for_a_divergence(monkeypatch, capsys):
    monkeypatch.setattr(comparison, "compare", lambda *paths, **_: 1 / 0)
    assert cli.main(["compare", "a.h5", "b.h5"]) == 2
    err = capsys.readouterr().err
    assert "internal error" in err and "ZeroDivisionError" in err


@pytest.mark.parametrize(
    "line, said",
    [
        ("", "required: COMMAND"),
        ("nonsense", "invalid choice: 'nonsense'"),
        ("record", "required: program.py"),
        ("record --", "required: program.py"),
        ("compare", "required: TRACE"),
        ("compare a.h5", "found one trace, expected two"),
        ("compare a.h5 b.h5 --format nonsense", "invalid choice: 'nonsense'"),
        ("explain", "found no op type"),
        ("run --times 1 {program}", "found 1, expected 2 or more"),
        ("run --values ( {program}", "expected a regular expression"),
        ("record --values ( {program}", "expected a regular expression"),
        ("record no_such_program.py", "program no_such_program.py: found nothing there"),
        ("run no_such_program.py", "program no_such_program.py: found nothing there"),
        ("record -o {program} --force {program}", "found a file that this command reads"),
    ],
)
def test_wrong_usage_is_one_message_with_the_next_thing_to_type(tmp_path, monkeypatch, capsys, line, said):
    monkeypatch.chdir(tmp_path)
    program = tmp_path / "program.py"
    program.write_text("print('ran')")
    assert cli.main([word.format(program=program) for word in line.split()]) == 2
    out, err = capsys.readouterr()
    assert out == "" and said in err
    message, following = err.splitlines()
    assert message.startswith("tfbisect: ") and following.startswith("  next: ")
    assert program.read_text() == "print('ran')"


@pytest.mark.parametrize("line", ["--help", *(f"{name} --help" for name in ("run", "record", "compare")), "--version"])
def test_help_and_version(capsys, line):
    with pytest.raises(SystemExit) as ended:
        cli.main(line.split())
    assert ended.value.code == 0
    out = capsys.readouterr().out
    assert "usage: python -m tfbisect" in out or out == f"tfbisect {version.__version__}\n"


@pytest.mark.parametrize("tail", [["--values", "all", "-o", "x"], ["--", "-h"], ["-h"], ["--force"], ["a", "--"], []])
@pytest.mark.parametrize("head", [[], ["--"]])
def test_what_follows_the_program_is_the_programs(head, tail):
    options = cli._parser().parse_args(["record", "-o", "a.h5", "--values", "none", *head, "train.py", *tail])
    assert (options.output, options.values, options.force) == ("a.h5", "none", False)
    assert program_of(options) == ["train.py", *tail]


def test_bad_traces_are_named_with_the_next_thing_to_type(cli, tmp_path):
    good = write_trace(tmp_path / "good.h5")
    (tmp_path / "text.h5").write_text("no trace")
    (tmp_path / "empty.h5").touch()
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["weights"] = [1.0, 2.0]
    write_trace(tmp_path / "newer.h5")
    with h5py.File(tmp_path / "newer.h5", "r+") as file:
        file.attrs["tfbisect_format"] = 99
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    for name, said in [
        ("missing.h5", "no such file"),
        (".", "a folder"),
        ("text.h5", "no HDF5 signature"),
        ("empty.h5", "an empty file"),
        ("other.h5", "[not-a-trace]"),
        ("newer.h5", "[newer-format]"),
    ]:
        for command in (["compare", good, name], ["info", name]):
            done = cli(*command)
            assert (done.returncode, done.stdout) == (2, ""), command
            assert said in done.stderr and "next: " in done.stderr, command
            assert "Traceback" not in done.stderr, command
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_compare_real_files(cli, tmp_path):
    a, b = write_trace(tmp_path / "a.h5"), write_trace(tmp_path / "b.h5", result=3)
    same = cli("compare", a, a)
    assert same.returncode == 0 and same.stdout.startswith("IDENTICAL"), same.stderr
    assert "given more than once" in same.stderr
    done = cli("compare", a, b)
    assert done.returncode == 1 and done.stdout.startswith("DIVERGED  first at MatMul, line 4 of train.py"), done.stderr
    assert done.stderr == ""
    data = json.loads(cli("compare", a, b, "--format", "json").stdout)
    assert (data["verdict"], data["culprits"][0]["op_type"]) == ("diverged", "MatMul")


def test_compare_needs_no_tensorflow(cli, tmp_path):
    (tmp_path / "tensorflow.py").write_text("raise SystemExit('TensorFlow was loaded')")
    a, b = write_trace(tmp_path / "a.h5"), write_trace(tmp_path / "b.h5", result=3)
    assert cli("compare", a, b).returncode == 1
    assert cli("info", a).returncode == 0


def test_info(cli, tmp_path):
    trace = write_trace(tmp_path / "a.h5")
    done = cli("info", trace)
    assert done.returncode == 0, done.stderr
    assert "1 call, 2 events" in done.stdout and "train.py" in done.stdout
    done = cli("info", trace, "--ops", "^MatM")
    assert "1 op " in done.stdout and "train.py:4" in done.stdout
    assert "0 ops " in cli("info", trace, "--ops", "nonsense").stdout


def test_explain(cli):
    done = cli("explain", "ResourceScatterSub")
    assert done.returncode == 0 and "enable_op_determinism" in done.stdout
    assert "ResourceScatterSub" in cli("explain", "--list").stdout.splitlines()
    unknown = cli("explain", "NoSuchOp")
    assert (unknown.returncode, unknown.stderr) == (0, "") and "nothing is known" in unknown.stdout


def test_text_for_narrow_encodings_and_no_colour_when_piped(cli, tmp_path):
    a, b = write_trace(tmp_path / "a.h5"), write_trace(tmp_path / "größe.h5", result=3)
    done = cli("compare", a, b, PYTHONIOENCODING="ascii")
    assert done.returncode == 1 and done.stdout.isascii() and "\x1b" not in done.stdout
    assert "\x1b" in cli("compare", a, b, FORCE_COLOR="1", TERM="xterm").stdout
    assert "\x1b" not in cli("compare", a, b, FORCE_COLOR="1", NO_COLOR="1", TERM="xterm").stdout.replace("\x1b[1m", "")


@pytest.mark.skipif(sys.platform == "win32", reason="no shell pipes")
def test_a_reader_that_goes_away_is_no_error(tmp_path):
    trace = write_trace(tmp_path / "a.h5")
    line = f"{sys.executable} -m tfbisect info {trace} | true"
    done = subprocess.run(line, shell=True, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stderr == ""


def test_the_console_script_is_declared():
    assert "tfbisect = tfbisect.cli:run" in (ROOT / "setup.cfg").read_text()


@pytest.mark.parametrize(
    ("words", "report", "traces"),
    [
        ("", None, None), ("-o kept", None, "kept"), ("-o r.json", "r.json", None), ("--traces t", None, "t"),
        ("-o r.json --traces t", "r.json", "t"), ("--format json -o r.out", "r.out", None),
        ("--format json -o kept", None, "kept"), ("--format json -o kept.d/x", None, "kept.d/x"),
    ],
)  # fmt: skip
def test_what_run_writes_and_where(words, report, traces):
    options = cli._parser().parse_args(["run", *words.split(), "a.py"])
    assert run._places(options) == (None if report is None else Path(report), traces)


def test_two_folders_for_the_traces_are_one_too_many(capsys, tmp_path):
    (tmp_path / "a.py").write_text("")
    assert cli.main(["run", "-o", "kept", "--traces", "other", str(tmp_path / "a.py")]) == 2
    assert "expected -o with the name of a report" in capsys.readouterr().err


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_completion_knows_commands_options_and_files(capsys, shell):
    pytest.importorskip("shtab")
    assert cli.main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert "tfbisect" in script and "python -m" not in script.partition("compare")[0]
    assert "compare" in script and "--times" in script and "doctor" in script
    if shell == "bash":
        files = set(re.findall(r"^_shtab_tfbisect_(\w+)_COMPGEN=_shtab_compgen_files$", script, re.MULTILINE))
        assert {"compare_pos_0", "record_pos_0", "record___against", "replay___export", "report_pos_0"} <= files


def test_bash_takes_the_completion(capsys, tmp_path):
    pytest.importorskip("shtab")
    cli.main(["completion", "bash"])
    (tmp_path / "script").write_text(capsys.readouterr().out)
    words = "COMP_WORDS=(tfbisect com); COMP_CWORD=1; _shtab_tfbisect; echo ${COMPREPLY[@]}"
    done = subprocess.run(["bash", "-c", f"source {tmp_path / 'script'}; {words}"], capture_output=True, text=True)
    assert done.stdout.split() == ["compare", "completion"]


def test_completion_without_its_library(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert cli.main(["completion", "bash"]) == 2
    assert "pip install 'tfbisect[completion]'" in capsys.readouterr().err
