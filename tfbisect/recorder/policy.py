"""Which values are kept beside their digests: `none`, `auto`, `all` or a regular expression over labels.

Counts what it drops. Stores nothing itself.
"""

import re
from dataclasses import dataclass, field

from tfbisect.errors import Usage

AUTO_TENSOR_BYTES = 4096
AUTO_TRACE_BYTES = 256 * 2**20
TOO_LARGE = "values over 4 KiB"
NO_LIMIT = 2**31 - 1  # a StridedSlice inside a twin takes an int32


def pattern(policy: str) -> "re.Pattern[str]":
    """The regular expression of a policy. Raises Usage when it is none."""
    try:
        return re.compile(policy)
    except re.error as error:
        raise Usage(f"values {policy}", found=error, expected="none, auto, all or a regular expression") from error


@dataclass(slots=True)
class ValuePolicy:
    """`policy`: "none"; "auto": tensors up to 4 KiB, 256 MiB a trace, earliest first; "all"; else a regular expression.

    The expression is searched in labels: `function/node` for an op of a function, `OpType at file.py:line` for an eager
    op. Raises Usage when it is none.
    """

    policy: str = "auto"
    kept_bytes: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    _pattern: "re.Pattern[str] | None" = None

    def __post_init__(self) -> None:
        if self.policy not in ("none", "auto", "all"):
            self._pattern = pattern(self.policy)

    def wants(self, label: str) -> bool:
        """Whether values of this op may be kept at all."""
        if self._pattern is not None:
            return self._pattern.search(label) is not None
        return self.policy != "none"

    @property
    def wants_large(self) -> bool:
        """Whether tensors of any size are kept."""
        return self.policy not in ("none", "auto")

    def carried(self, label: str, nbytes: int | None) -> str:
        """How the bytes of an op's value travel from a twin: "" not at all, "limit" up to `limit()`, "all".

        nbytes: the size of the value; None when it is not known before it runs.
        """
        if not self.wants(label):
            return ""
        if self.policy != "auto":
            return "limit" if nbytes is None else "all"
        if nbytes is None:
            return "limit"
        return "all" if nbytes <= AUTO_TENSOR_BYTES else ""

    def limit(self) -> int:
        """How many bytes of a tensor are worth handing over now; 0 once the budget is spent."""
        if self.policy == "none":
            return 0
        if self.policy != "auto":
            return NO_LIMIT
        return AUTO_TENSOR_BYTES if self.kept_bytes < AUTO_TRACE_BYTES else 0

    def admits(self, nbytes: int) -> bool:
        """Whether a value of `nbytes` is kept now; what is not is counted."""
        if self.policy == "none":
            return False
        if self.policy == "auto":
            if nbytes > AUTO_TENSOR_BYTES:
                return self._drop(TOO_LARGE)
            if self.kept_bytes + nbytes > AUTO_TRACE_BYTES:
                return self._drop("values beyond 256 MiB a trace")
        self.kept_bytes += nbytes
        return True

    def left_out(self, count: int) -> None:
        """Count values that were too large to be handed over at all."""
        if self.policy == "auto" and count:
            self.dropped[TOO_LARGE] = self.dropped.get(TOO_LARGE, 0) + count

    def _drop(self, what: str) -> bool:
        self.dropped[what] = self.dropped.get(what, 0) + 1
        return False
