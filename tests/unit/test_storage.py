"""Traces behind URLs: the same answers and the same checks as from a file, and one clear message where it cannot be."""

import functools
import http.server
import shutil
import threading
from pathlib import Path

import pytest
from helpers import python, write_trace

from tfbisect import compare, load, storage
from tfbisect.errors import CannotRead, Damaged, NotATrace, NotFound

fsspec = pytest.importorskip("fsspec", reason="no fsspec: pip install -e '.[test]'")


@pytest.fixture
def memory():
    """fsspec's file system in memory, empty."""
    files = fsspec.filesystem("memory")
    files.store.clear()
    files.pseudo_dirs[:] = [""]
    yield files
    files.store.clear()


def put(files, path: Path, name: str) -> str:
    files.pipe_file(f"/{name}", path.read_bytes())
    return f"memory://{name}"


def test_a_url_gives_what_the_file_gives(memory, tmp_path):
    a, b = write_trace(tmp_path / "a.h5"), write_trace(tmp_path / "b.h5", result=3)
    urls = put(memory, a, "runs/a.h5"), put(memory, b, "runs/b.h5")
    local, remote = compare(a, b), compare(*urls)
    assert (remote.verdict, remote.culprits) == (local.verdict, local.culprits) != ("identical", ())
    assert [run["path"] for run in remote.runs] == list(urls)


def test_kept_values_are_read_when_they_are_asked_for(memory, tmp_path):
    from minilang import record

    record("w; dense = MatMul x w; loss = Sum dense", tmp_path / "a.h5", values=True)
    url = put(memory, tmp_path / "a.h5", "a.h5")
    trace, local = load(url), load(tmp_path / "a.h5")
    rows = range(len(local.events))
    for one, two in zip(trace.values(rows), local.values(rows), strict=True):
        assert (one is None and two is None) or one.tobytes() == two.tobytes()
    put(memory, write_trace(tmp_path / "b.h5"), "a.h5")
    with pytest.raises(Damaged, match="another file than the one that was loaded"):
        trace.values(rows)


def test_folders_behind_urls_are_jobs(memory, tmp_path):
    for name in ("a", "b"):
        put(memory, write_trace(tmp_path / f"{name}.h5"), f"{name}/worker0.h5")
    result = compare("memory://a", "memory://b")
    assert (result.verdict, [run["path"] for run in result.runs]) == ("identical", ["memory://a", "memory://b"])


def test_bytes_from_elsewhere_are_not_trusted_more(memory, tmp_path):
    path = write_trace(tmp_path / "a.h5")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    memory.pipe_file("/none.h5", b"no HDF5")
    memory.pipe_file("/cut.h5", path.read_bytes()[:300])
    with pytest.raises(NotATrace, match="no HDF5 signature"):
        load("memory://none.h5")
    with pytest.raises(Damaged):
        load("memory://cut.h5")
    with pytest.raises(NotFound, match="no such file"):
        load("memory://nothing.h5")
    put(memory, path, "folder/worker0.h5")
    with pytest.raises(NotATrace, match="found a folder") as caught:
        load("memory://folder")
    assert "folder/worker0.h5" in caught.value.hint


def test_what_fsspec_lacks_is_said(tmp_path):
    with pytest.raises(CannotRead, match="nosuch"):
        load("nosuch://bucket/a.h5")
    if not any(name.startswith("s3fs") for name in map(str, Path(fsspec.__file__).parent.parent.glob("s3fs"))):
        with pytest.raises(CannotRead, match="(?i)install s3fs") as caught:
            load("s3://bucket/a.h5")
        assert caught.value.hint == "pip install s3fs"


def test_without_fsspec_a_message_says_what_to_type(tmp_path):
    program = "import sys; sys.modules['fsspec'] = None; from tfbisect.cli import main; sys.exit(main(sys.argv[1:]))"
    done = python("-c", program, "info", "s3://bucket/a.h5", cwd=tmp_path)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "a URL, and no fsspec to read it with" in done.stderr
    assert "pip install 'tfbisect[remote]'" in done.stderr


def test_local_files_need_no_fsspec(tmp_path):
    write_trace(tmp_path / "a.h5")
    code = "import sys, tfbisect; tfbisect.compare('a.h5', 'a.h5'); sys.exit('fsspec' in sys.modules)"
    assert python("-c", code, cwd=tmp_path).returncode == 0


class _Quiet(http.server.SimpleHTTPRequestHandler):
    """A server that knows no ranges, as Python's own is."""

    def log_message(self, *_):
        pass


def test_a_plain_web_server_will_do(tmp_path):
    pytest.importorskip("aiohttp")
    a, b = write_trace(tmp_path / "a.h5"), write_trace(tmp_path / "b.h5", result=3)
    handler = functools.partial(_Quiet, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        base = f"http://127.0.0.1:{server.server_address[1]}"
        remote = compare(f"{base}/a.h5", f"{base}/b.h5")
        with pytest.raises(NotFound):
            load(f"{base}/c.h5")
        server.shutdown()
    assert remote.culprits == compare(a, b).culprits


def test_reports_hold_no_passwords():
    assert storage.shown("https://ada:secret@host/a.h5?signature=abc") == "https://host/a.h5"
    assert storage.shown("a?b@c.h5") == "a?b@c.h5"


def test_a_drive_is_no_url(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copy(write_trace(tmp_path / "a.h5"), tmp_path / "c:a.h5")
    assert len(load("c:a.h5").calls) == 1
