"""What can go wrong, with a stable code and the next command to type.

Raises nothing by itself, prints nothing and ends no process: only the command line turns an error into an exit status.
"""


def printable(text: object) -> str:
    """`text` as one line that is safe on a terminal: control, format (bidi) and surrogate characters become escapes.

    File names, op names and anything else read from a trace are untrusted: an escape sequence in them could repaint
    the screen around the answer.
    """
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape", "surrogatepass").decode("ascii")
        for char in str(text)
    )


def first_line(error: Exception) -> str:
    """What somebody else's error says, in one line of at most 200 characters; its type where it says nothing."""
    lines = str(getattr(error, "message", error)).splitlines()
    return lines[0][:200] if lines else type(error).__name__


class TfbisectError(Exception):
    """The base of every error that this package raises on purpose.

    `message` says what, what was found and what was expected; `hint` is the next command to type or step to take.
    """

    code = "error"
    default_hint = "python -m tfbisect --help"

    def __init__(self, what: object, *, found: object = None, expected: object = None, hint: object = None) -> None:
        message = printable(what)
        if found is not None:
            message += f": found {printable(found)}"
        if expected is not None:
            message += f"{',' if found is not None else ':'} expected {printable(expected)}"
        super().__init__(message)
        self.message = message
        self.hint = printable(self.default_hint if hint is None else hint)

    def __str__(self) -> str:
        return f"{self.message} [{self.code}]\nnext: {self.hint}"


class NotFound(TfbisectError):
    """A trace, result or other file that is not there."""

    code = "not-found"
    default_hint = "python -m tfbisect record -o a.h5 program.py"


class CannotRead(TfbisectError):
    """The file is there and cannot be opened: no permission, or an input/output error."""

    code = "cannot-read"
    default_hint = "check who may read the file: ls -l"


class NotATrace(TfbisectError):
    """The file is not HDF5, or is HDF5 that something else wrote."""

    code = "not-a-trace"
    default_hint = "python -m tfbisect record -o a.h5 program.py"


class NotAResult(TfbisectError):
    """The file is not the JSON of a comparison."""

    code = "not-a-result"
    default_hint = "python -m tfbisect compare a.h5 b.h5 -o result.json"


class NewerFormat(TfbisectError):
    """The file was written in a format that this version does not know yet."""

    code = "newer-format"
    default_hint = "pip install --upgrade tfbisect"


class Damaged(TfbisectError):
    """The file is of the right kind, but its contents contradict the format."""

    code = "damaged"
    default_hint = "record the run again: python -m tfbisect record -o a.h5 program.py"


class OutputExists(TfbisectError):
    """The file to write is there already and nobody said to replace it."""

    code = "output-exists"
    default_hint = "choose another name with -o, or repeat the command with --force"


class CannotWrite(TfbisectError):
    """The file to write cannot be made or filled: a missing folder, no permission, a full disk."""

    code = "cannot-write"
    default_hint = "choose another place with -o"


class EmptyTrace(TfbisectError):
    """The trace is sound but holds nothing to compare."""

    code = "empty-trace"
    default_hint = "python -m tfbisect info a.h5"


class Unrelated(TfbisectError):
    """The traces are of different programs: almost nothing in them corresponds."""

    code = "unrelated"
    default_hint = "record the same program twice: python -m tfbisect run program.py"


class SchemeMismatch(TfbisectError):
    """The traces hold digests of different schemes, which say nothing about each other."""

    code = "scheme-mismatch"
    default_hint = "record both runs with the same version of tfbisect: python -m tfbisect run program.py"


class ProgramNotFound(TfbisectError):
    """The program to run is not there, or is no Python file."""

    code = "program-not-found"
    default_hint = "python -m tfbisect run path/to/program.py"


class UnsupportedTensorFlow(TfbisectError):
    """TensorFlow is missing, or is a version whose internals are not known."""

    code = "unsupported-tensorflow"
    default_hint = "install a version that was tried: pip install tensorflow==2.21"


class Usage(TfbisectError):
    """Options or arguments that make no sense, alone or together."""

    code = "usage"
    default_hint = "python -m tfbisect --help"
