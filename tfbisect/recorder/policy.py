"""Which values are kept beside their digests: `none`, `auto`, `all` or a regular expression over labels.

Counts what it drops. Stores nothing itself.
"""

import re
from dataclasses import dataclass, field

from tfbisect.errors import Usage

AUTO_TENSOR_BYTES = 4096
AUTO_TRACE_BYTES = 256 * 2**20
LARGEST = 2**30  # a value leaves a twin in one protocol buffer, which must be smaller than 2 GiB


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
        if nbytes is None:
            return "limit"
        if self.policy == "auto":
            return "all" if nbytes <= AUTO_TENSOR_BYTES else ""
        return "all" if nbytes <= LARGEST else "limit"

    def limit(self) -> int:
        """How many bytes of a tensor are worth handing over now; 0 once the budget is spent."""
        if self.policy == "none":
            return 0
        if self.policy != "auto":
            return LARGEST
        return AUTO_TENSOR_BYTES if self.kept_bytes < AUTO_TRACE_BYTES else 0

    def admits(self, nbytes: int) -> bool:
        """Whether a value of `nbytes` is kept now; what is not is counted."""
        if self.policy == "none":
            return False
        if self.too_large(nbytes, "all"):
            self.left_out(1)
            return False
        if self.policy == "auto" and self.kept_bytes + nbytes > AUTO_TRACE_BYTES:
            return self._drop("values beyond 256 MiB a trace")
        self.kept_bytes += nbytes
        return True

    def left_out(self, count: int) -> None:
        """Count values that were too large to be handed over at all."""
        if count:
            self._drop("values over 1 GiB" if self.wants_large else "values over 4 KiB", count)

    def too_large(self, nbytes: int, carried: str) -> bool:
        """Whether a value that would be kept, were it smaller, is not. carried: as `carried` said of its op."""
        if self.policy == "auto":
            return nbytes > AUTO_TENSOR_BYTES
        return bool(carried) and nbytes > LARGEST

    def _drop(self, what: str, count: int = 1) -> bool:
        self.dropped[what] = self.dropped.get(what, 0) + count
        return False
