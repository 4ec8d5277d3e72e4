"""Where the bytes of a trace lie: in a file of this machine, or behind any URL that fsspec reads.

Opens and lists; what the bytes mean is nothing to it. Bytes that come over a network are trusted no more than others.
"""

import io
import os
import re
import shlex
import stat
import tempfile
from typing import Any, NamedTuple

from tfbisect.errors import CannotRead, NotATrace, NotFound, TfbisectError, first_line

# `s3://bucket/a.h5`, `simplecache::https://...`; one letter would be a drive of Windows.
_URL = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]+(::|://)")
_VERSION = ("ETag", "etag", "mtime", "LastModified", "last_modified", "updated", "created")
_BLOCK = 4 * 2**20  # bytes that are fetched at once
SUFFIX = ".h5"


class State(NamedTuple):
    """What tells one file from another that has its name, and how many bytes it has."""

    identity: object
    size: int


def is_url(name: str) -> bool:
    """Whether a name is one for fsspec."""
    return _URL.match(name) is not None


def shown(name: str) -> str:
    """A name as it may stand in a report: of a URL without password and signature."""
    return re.sub(r"://[^/@]*@", "://", name).partition("?")[0] if is_url(name) else name


def state(name: str) -> State:
    """Raises NotFound, CannotRead, and NotATrace for what is no file."""
    if is_url(name):
        return _remote_state(name)
    try:
        status = os.stat(name)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotFound(f"trace {name}", found="no such file") from error
    except (OSError, ValueError) as error:
        raise CannotRead(f"trace {name}", found=error) from error
    if not stat.S_ISREG(status.st_mode):
        if stat.S_ISDIR(status.st_mode):
            raise _folder(name)
        raise NotATrace(f"trace {name}", found="a device or pipe", expected="a file")
    return State((status.st_dev, status.st_ino), status.st_size)


def opened(name: str) -> Any:
    """A binary file to read and seek in. Raises OSError, and of a URL NotFound and CannotRead."""
    if not is_url(name):
        return io.FileIO(name)
    files, path = _file_system(name)
    try:
        try:
            file = files.open(path, "rb", block_size=_BLOCK, cache_type="blockcache")
        except TypeError:  # a file system that caches in a way of its own
            file = files.open(path, "rb")
        if getattr(file, "size", None) is not None:
            return file
        copy = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it; a stream cannot be sought in
        with file:
            for piece in iter(lambda: file.read(_BLOCK), b""):
                copy.write(piece)
        copy.seek(0)
        return copy
    except Exception as error:  # each file system raises what its library does
        raise _unreadable(name, error) from error


def size(file: Any) -> int:
    """The bytes of an open file, now: a local one may grow."""
    known = getattr(file, "size", None)
    return int(known) if known is not None else os.fstat(file.fileno()).st_size


def is_folder(name: str) -> bool:
    """Whether a name is that of a folder: the traces of all workers of a run. Raises what `state` raises for URLs."""
    if not is_url(name):
        return os.path.isdir(name)
    if name.endswith(SUFFIX):
        return False
    files, path = _file_system(name)
    try:
        return bool(files.isdir(path))
    except Exception as error:
        raise _unreadable(name, error) from error


def traces_in(folder: str) -> list[str]:
    """The traces in a folder, by name. Raises NotFound if there is none, and CannotRead."""
    try:
        if is_url(folder):
            files, path = _file_system(folder)
            found = [files.unstrip_protocol(each) for each in files.ls(path, detail=False)]
        else:
            found = [os.path.join(folder, each) for each in os.listdir(folder)]
    except Exception as error:
        raise _unreadable(folder, error) from error
    traces = sorted(each for each in found if each.endswith(SUFFIX))
    if not traces:
        raise NotFound(f"folder {folder}", found="no trace in it", expected="a file *.h5 for each worker")
    return traces


def _remote_state(name: str) -> State:
    files, path = _file_system(name)
    try:
        files.invalidate_cache()
        info = files.info(path)
    except Exception as error:
        raise _unreadable(name, error) from error
    if info.get("type") == "directory":
        raise _folder(name)
    return State(tuple(str(info.get(key)) for key in _VERSION), int(info.get("size") or 0))


def _file_system(name: str) -> tuple[Any, str]:
    """(file system, path in it) of a URL. Raises CannotRead."""
    try:
        import fsspec.core
    except ImportError as error:
        hint = "pip install 'tfbisect[remote]'"
        raise CannotRead(f"trace {name}", found="a URL, and no fsspec to read it with", hint=hint) from error
    try:
        files, path = fsspec.core.url_to_fs(name)
    except Exception as error:
        raise _unreadable(name, error) from error
    return files, path


def _folder(name: str) -> NotATrace:
    try:
        hint = f"one of those in it: {shlex.join(traces_in(name))}"
    except TfbisectError:
        hint = None
    return NotATrace(f"trace {name}", found="a folder", expected="a file", hint=hint)


def _unreadable(name: str, error: Exception) -> Exception:
    if isinstance(error, NotFound | CannotRead | NotATrace):
        return error
    if isinstance(error, FileNotFoundError):
        return NotFound(f"trace {name}", found="no such file")
    missing = getattr(error.__cause__, "name", None) if isinstance(error, ImportError) else None
    hint = f"pip install {missing}" if missing else None
    return CannotRead(f"trace {name}", found=first_line(error), hint=hint)
