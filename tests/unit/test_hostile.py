"""Traces from strangers and from bad disks: a short run of what `tests/fuzz` does at length."""

import os
import random
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import minilang
import pytest
from fuzz import flips, run
from fuzz.mutations import KINDS, input_of
from helpers import ROOT

import tfbisect
from tfbisect import schema
from tfbisect.errors import Damaged, TfbisectError
from tfbisect.trace import TraceWriter, load

TEXT = run.PROGRAMS[0]
NOBODY = 65534  # a user who owns nothing


def test_hostile_files_give_a_verdict_or_an_error():
    done = subprocess.run(
        [sys.executable, "tests/fuzz/run.py", "--inputs", "120", "--seed", "7"], cwd=ROOT, capture_output=True,
        text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "120 inputs of seed 7" in done.stdout


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    return run.pairs(tmp_path_factory.mktemp("sound"))


@pytest.mark.parametrize("kind", KINDS)
def test_a_mutation_changes_the_file_and_is_the_same_each_time(kind, originals):
    sound = {original.data for original, _ in originals}
    made = [input_of(originals, 1, number, [kind])[1] for number in range(4)]
    again = [input_of(originals, 1, number, [kind])[1] for number in range(4)]
    assert set(made) - sound
    assert list(map(len, made)) == list(map(len, again))  # HDF5 notes the time in files that are made anew


def test_the_fuzz_notices_a_reader_that_fails(originals, tmp_path, monkeypatch):
    """An exception of another kind, a crash and endless work are all failures."""
    run.warm(originals, tmp_path)
    monkeypatch.setattr(run, "SECONDS", 1)

    def broken(path, other, thorough):
        number = int(path.stat().st_size) % 3
        if number == 0:
            raise ValueError("planted")
        if number == 1:
            os.kill(os.getpid(), signal.SIGSEGV)
        while True:
            pass

    monkeypatch.setattr(run, "probe", broken)
    made = [(number, kind, outcome) for number, kind, outcome in run.outcomes(originals, run.Task(1), 4, tmp_path)]
    assert [number for number, *_ in made] == [0, 1, 2, 3]
    assert all(outcome.startswith("FAILED") for *_, outcome in made)


def test_one_flipped_bit_is_found_out_or_harmless(tmp_path):
    for path, other in flips.written(tmp_path):
        counts = flips.flips(path, other, 30, 3, tmp_path)
        assert set(counts) <= set(flips.FINE) and counts["found out"] and counts["the same answer"]


@pytest.mark.parametrize("complete", [True, False])
def test_cut_at_every_percent_it_is_incomplete_or_an_error(tmp_path, complete):
    a = minilang.recorded(TEXT, tmp_path / "a.h5")
    whole = minilang.record(TEXT, tmp_path / "b.h5", change={"d@1": 1}, complete=complete).read_bytes()
    cut = tmp_path / "cut.h5"
    for percent in range(100):
        cut.write_bytes(whole[: len(whole) * percent // 100])
        try:
            trace = load(cut)
            verdict, names, _ = flips.answer(trace, a)
        except TfbisectError as error:
            assert error.message and error.hint
        else:
            assert not trace.complete and verdict != "identical"
            assert all("name='d'" in name for name in names)


def test_a_read_only_folder_is_an_error():
    with tempfile.TemporaryDirectory() as name:  # pytest's own folders are closed to all others
        folder, user = Path(name), os.geteuid()
        folder.chmod(stat.S_IRUSR | stat.S_IXUSR | stat.S_IROTH | stat.S_IXOTH)
        try:
            if user == 0:  # root may write anywhere
                os.seteuid(NOBODY)
            with pytest.raises(TfbisectError, match="cannot-write"):
                TraceWriter(folder / "a.h5")
        finally:
            os.seteuid(user)


def test_long_texts_are_cut_and_stay_apart(tmp_path):
    path, long = tmp_path / "a.h5", "é" * 60_000
    with TraceWriter(path) as writer:
        numbers = [writer.string(text) for text in (long, long + "a", long, "short")]
    trace = load(path)
    texts = [trace.string(number) for number in numbers]
    assert numbers[0] == numbers[2] != numbers[1] and texts[0] != texts[1] and texts[3] == "short"
    assert texts[0].startswith("ééé") and "120000 bytes" in texts[0]
    assert all(len(text.encode()) <= schema.MAX_STRING_BYTES for text in texts)


@pytest.mark.parametrize("name", ["_strings", "_frames", "_trie", "_shapes", "_paths", "_values", "_node_counts"])
def test_a_writer_that_was_interrupted_ends_at_its_last_commit(tmp_path, name):
    """A number was given out and an exception of a signal handler came before its row."""
    writer = TraceWriter(tmp_path / "a.h5")
    writer.string("before")
    writer.flush()
    numbered = getattr(writer, name)
    if isinstance(numbered, dict):
        numbered["lost"] = len(numbered)
    else:
        numbered.append(1)
    writer.string("after")
    with pytest.raises(tfbisect.errors.CannotWrite, match="interrupted"):
        writer.flush()
    writer.close()
    trace = load(tmp_path / "a.h5")
    assert not trace.complete and trace.string(1) == "before" and len(trace._tables["string_ends"]) == 2


def test_an_interrupt_in_the_middle_of_a_flush_leaves_the_last_commit(tmp_path, monkeypatch):
    for moment in range(1, 6):
        writer = TraceWriter(tmp_path / f"{moment}.h5")
        writer.string("before")
        writer.flush()
        left, plain = [moment], writer._extend

        def extend(*args, left=left, plain=plain):
            left[0] -= 1
            if not left[0]:
                raise KeyboardInterrupt
            plain(*args)

        monkeypatch.setattr(writer, "_extend", extend)
        writer.stack([("after.py", 1, "f", "text")])
        writer.shape([random.Random(1).randrange(9)])
        with pytest.raises(KeyboardInterrupt):
            writer.flush()
        writer.string("later")
        writer.close()
        trace = load(tmp_path / f"{moment}.h5")
        assert not trace.complete and len(trace._tables["string_ends"]) == 2


def test_tables_that_lead_out_of_the_file_are_refused_unread(originals, tmp_path):
    """External links, external bytes, virtual tables, bombs: refused by what they declare."""
    seen = set()
    for number in range(25):
        _, data, _ = input_of(originals, 5, number, ["elsewhere"])
        path = tmp_path / "input.h5"
        path.write_bytes(data)
        with pytest.raises(Damaged, match="table |rows of ") as caught:
            load(path)
        seen.add(str(caught.value).split("found ")[1].split(",")[0].split(" ")[-1])
    assert {"link", "layout"} <= seen
