"""Python stacks as the trace keeps them: only lines of the user's own program, outermost first.

Knows which files are the user's. Does not know what a stack belongs to.
"""

import linecache
import os
import site
import sys
import sysconfig
import types
from collections.abc import Callable, Iterable, Sequence

from tfbisect.recorder import autograph
from tfbisect.recorder.autograph import GENERATED

Frame = tuple[str, int, str, str]  # file, line, function, text of the line


def _library_folders() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    folders = {paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")}
    folders |= set(site.getsitepackages()) if hasattr(site, "getsitepackages") else set()
    folders.add(site.getusersitepackages())
    return tuple(os.path.join(os.path.realpath(folder), "") for folder in folders if folder)


class UserCode:
    """Tells the user's source files from those of Python, installed packages and tfbisect itself.

    The program being recorded counts as the user's wherever it lies.
    """

    def __init__(self, program: str | None = None) -> None:
        self._program = os.path.realpath(program) if program else None
        own = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(__file__))), "")
        self._libraries = (*_library_folders(), own)
        self._known: dict[str, bool] = {}

    def __call__(self, file: str) -> bool:
        """Whether `file`, as a code object names it, is the user's."""
        known = self._known.get(file)
        if known is None:
            known = self._known[file] = self._decide(file)
        return known

    def _decide(self, file: str) -> bool:
        if not file or file.startswith("<") and not file.startswith("<ipython-input"):
            return False
        if GENERATED in file or "ipykernel_launcher" in file:
            return False
        path = os.path.realpath(file)
        if path == self._program:
            return True
        if os.sep + "site-packages" + os.sep in path or os.sep + "dist-packages" + os.sep in path:
            return False
        return not path.startswith(self._libraries)


class Stacks:
    """Interns Python stacks in the trace; a stack id costs a walk over the frames and one dictionary look-up.

    outermost: the `id` of the frame in which recording began. What called that frame is no part of what was recorded.
    """

    def __init__(self, is_user: UserCode, intern: Callable[[Sequence[Frame]], int], outermost: int = 0) -> None:
        self._is_user = is_user
        self._outermost = outermost
        self._intern = intern
        self._codes: dict[int, types.CodeType | None] = {}  # id(code) -> the code if it is the user's
        self._keep: list[types.CodeType] = []  # so that an id is never given to another code object
        self._ids: dict[tuple[int, ...], int] = {(): 0}
        self._innermost: dict[int, tuple[str, int]] = {}

    def here(self, depth: int) -> int:
        """The stack id of the caller `depth` frames up; 0 when no frame is the user's."""
        codes, key, outermost = self._codes, [], self._outermost
        frame: types.FrameType | None = sys._getframe(depth)
        while frame is not None:
            code = frame.f_code
            number = id(code)
            try:
                user = codes[number]
            except KeyError:
                shown = GENERATED in code.co_filename or self._is_user(code.co_filename)
                user = codes[number] = code if shown else None
                self._keep.append(code)
            if user is not None:
                key.append(number)
                key.append(frame.f_lineno)
            if id(frame) == outermost:
                break
            frame = frame.f_back
        found = self._ids.get(tuple(key))
        if found is None:
            found = self._ids[tuple(key)] = self._interned(list(self._frames(key)))
        return found

    def _interned(self, rows: Sequence[Frame]) -> int:
        if not rows:
            return 0
        stack = self._intern(rows)
        self._innermost[stack] = os.path.basename(rows[-1][0]), rows[-1][1]
        return stack

    def _frames(self, key: Sequence[int]) -> Iterable[Frame]:
        for place in range(len(key) - 2, -1, -2):
            code, line = self._codes[key[place]], key[place + 1]
            assert code is not None
            file, name = code.co_filename, getattr(code, "co_qualname", code.co_name)
            if GENERATED in file:
                origin = autograph.original(file, line)
                if origin is None or not self._is_user(origin[0]):
                    continue
                file, line, name = origin
            yield file, line, name, line_text(file, line)

    def innermost(self, stack: int) -> tuple[str, int] | None:
        """(file name without its folder, line) of a stack's innermost user line."""
        return self._innermost.get(stack)

    def of_frames(self, frames: Iterable[tuple[str, int, str]]) -> int:
        """The stack id of (file, line, function), outermost first; frames that are not the user's are left out."""
        rows = [(file, line, name, line_text(file, line)) for file, line, name in frames if self._is_user(file)]
        return self._interned(rows)


def line_text(file: str, line: int) -> str:
    """The text of a source line, without its indentation; empty when the file is not to be had."""
    return linecache.getline(file, line).strip()[:500]
