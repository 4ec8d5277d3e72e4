"""The vocabulary: what a trace is made of and what a comparison answers, as frozen dataclasses, to and from JSON.

Opens no file and decides nothing: `trace` fills the first half, `bisector` and `comparison` the second.
"""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from tfbisect.checked import (
    Json as Json,
)
from tfbisect.checked import (
    an_object,
    each,
    finite,
    ints,
    json_or_none,
    number,
    one_of,
    optional,
    same,
    step_count,
)
from tfbisect.errors import Damaged, NewerFormat, Usage
from tfbisect.notebook import Card, Shown, comparison_card

COMPARISON_FORMAT = 1
"""The `format` of the JSON of a comparison."""

ENTERING_STATE = "EnteringState"
"""The op type that stands for what came into the recorded steps from before."""

NO_CALL = 2**64 - 1
"""The call id of events that hold for every call of a graph: its constants."""


# ---------------------------------------------------------------------------------------------------------------------
# What a trace is made of
# ---------------------------------------------------------------------------------------------------------------------


class NodeFlag(enum.IntFlag):
    """What is known of an op, for the walk and for the category of a culprit."""

    NONE = 0
    STATEFUL = 1
    RANDOM = 2  # draws random numbers from a stream of its own
    FORWARDER = 4  # its output's bits are its input's, so it has no events: Identity, Reshape, Switch, Merge, Enter...
    OPAQUE = 8  # its outputs could not be recorded
    HOST = 16  # runs Python
    WRITER = 32  # writes a variable
    HOSTVALUE = 64  # not an op: a value that Python handed in, named after the first op that took it
    LAST_ONLY = 128  # writes a variable in a loop, and only the last of its writes has an event
    ENTERING = 256  # not an op: what a variable held, or an op had made, when the recorded steps began
    PASSED = 512  # not recorded, as a cheap recording was asked for: its bits are decided by those of its inputs


class SiteKind(enum.IntEnum):
    """What the events of a site are digests of."""

    OUTPUT = 0  # an output of an op; slot = output slot
    ARG = 1  # an argument of the call; node = the _Arg, slot 0
    CONST = 2  # a constant of the graph
    WRITE = 3  # a variable's bytes after this op wrote it; slot = input position of the variable's handle


class GraphKind(enum.IntEnum):
    """How much of a graph's execution was recorded."""

    EAGER = 0  # one op, run by Python
    TWIN = 1  # the executed graph
    SOURCE = 2  # the source graph of a function inside tf.data; its values are hashed on the host
    OPAQUE = 3  # arguments and results only
    ENTRY = 4  # a variable, iterator or table that was there before recording: one node, no events
    SESSION = 5  # the executed graph of a v1 Session's call; its values are hashed on the host
    WRITTEN = 6  # never called: a function as Python traced it, before TensorFlow optimized it


OP_BY_OP = frozenset({GraphKind.TWIN, GraphKind.SOURCE, GraphKind.SESSION})
"""Graphs of many ops, each with events of its own."""


class CallState(enum.IntEnum):
    """How a call ended."""

    OK = 0
    FAILED = 1


class Edge(NamedTuple):
    """An input of a node: the producer's index in the graph and its output slot (-1: control edge)."""

    src: int
    slot: int


@dataclass(frozen=True, slots=True)
class Source:
    """A line of Python."""

    file: str
    line: int
    function: str = ""
    text: str = ""

    @property
    def base(self) -> str:
        """The last part of the file's path, of either kind: a trace may come from another system."""
        return self.file.replace("\\", "/").rsplit("/", 1)[-1]

    def to_json(self) -> Json:
        return {"file": self.file, "line": self.line, "function": self.function, "text": self.text}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Source":
        return cls(str(data["file"]), int(data["line"]), str(data.get("function", "")), str(data.get("text", "")))


@dataclass(frozen=True, slots=True)
class Node:
    """An op of a graph. Indexes (`forward`, `inputs`) are local to the graph; -1 stands for none."""

    name: str
    op: str
    device: str = ""
    function: str = ""  # the user's function it was written in
    stack: int = 0  # stack id in the trace; 0: unknown
    attrs: int = 0  # digest of the normalized attributes
    index: int = -1  # argument or result number of an _Arg or _Retval
    forward: int = -1  # the forward op that this gradient or optimizer op belongs to
    forward_name: str = ""
    flags: NodeFlag = NodeFlag.NONE
    frame: tuple[str, ...] = ()  # loop frames, outermost first
    inputs: tuple[Edge, ...] = ()  # data inputs in order, then control inputs


@dataclass(frozen=True, slots=True)
class Graph:
    """Something that can run: an executed function, or one eager op with its `_Arg`s and `_Retval`s."""

    id: int
    name: str  # the user's name, without uids
    raw_name: str
    kind: GraphKind
    structure: int  # digest of node names, ops, attributes and edges
    nodes: tuple[Node, ...]
    args: dict[int, int] = field(init=False, repr=False, compare=False)  # argument number -> node
    results: dict[int, int] = field(init=False, repr=False, compare=False)  # result number -> node
    op: int = field(init=False, repr=False, compare=False)  # the op of an EAGER or ENTRY graph; -1 in other graphs

    def __post_init__(self) -> None:
        args: dict[int, int] = {}
        results: dict[int, int] = {}
        op = -1
        for i, node in enumerate(self.nodes):
            if node.op == "_Arg":
                args.setdefault(node.index, i)
            elif node.op == "_Retval":
                results.setdefault(node.index, i)
            elif op < 0 and self.kind in (GraphKind.EAGER, GraphKind.ENTRY):
                op = i
        object.__setattr__(self, "args", dict(sorted(args.items())))
        object.__setattr__(self, "results", dict(sorted(results.items())))
        object.__setattr__(self, "op", op)


# ---------------------------------------------------------------------------------------------------------------------
# What a comparison answers. The JSON keys are a contract: keys may be added, none may change.
# ---------------------------------------------------------------------------------------------------------------------


VERDICTS = ("identical", "diverged", "inconclusive")
CATEGORIES = ("kernel", "rng", "input", "state", "host", "race", "environment", "structure", "unknown")
DIFFERENCE_CLASSES = ("values", "nan_payload", "zero_sign", "shape", "dtype")
CONFIDENCES = ("high", "medium", "low")


@dataclass(frozen=True, slots=True)
class Difference:
    """How two tensors differ, bit by bit. `kind` is `class` in JSON: one of DIFFERENCE_CLASSES."""

    dtype: str
    shape: tuple[int, ...]
    elements: int
    differing: int
    max_ulp: int | None  # floats only; over elements that are numbers or infinite on both sides
    max_abs: float | None  # over elements that are finite on both sides
    max_rel: float | None  # |a - b| / max(|a|, |b|), likewise
    first_index: tuple[int, ...] | None
    kind: str
    basis: str  # what was compared and how
    nonfinite: int = 0  # differing elements that are NaN or infinite on one side at least

    def to_json(self) -> Json:
        return {
            "dtype": self.dtype,
            "shape": list(self.shape),
            "elements": self.elements,
            "differing": self.differing,
            "max_ulp": self.max_ulp,
            "max_abs": finite(self.max_abs),
            "max_rel": finite(self.max_rel),
            "first_index": None if self.first_index is None else list(self.first_index),
            "class": self.kind,
            "basis": self.basis,
            "nonfinite": self.nonfinite,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Difference":
        return cls(
            dtype=str(data["dtype"]),
            shape=ints(data["shape"]),
            elements=int(data["elements"]),
            differing=int(data["differing"]),
            max_ulp=optional(int, data["max_ulp"]),
            max_abs=number(data["max_abs"]),
            max_rel=number(data["max_rel"]),
            first_index=optional(ints, data["first_index"]),
            kind=one_of(DIFFERENCE_CLASSES, data["class"]),
            basis=str(data["basis"]),
            nonfinite=int(data.get("nonfinite", 0)),
        )


@dataclass(frozen=True, slots=True)
class Cause:
    """A likely reason from the knowledge base. `source` is the reference that says so."""

    id: str
    title: str
    confidence: str
    explanation: str
    cure: str
    source: str | None = None

    def to_json(self) -> Json:
        return {
            "id": self.id,
            "title": self.title,
            "confidence": self.confidence,
            "explanation": self.explanation,
            "cure": self.cure,
            "source": self.source,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Cause":
        return cls(
            id=str(data["id"]),
            title=str(data["title"]),
            confidence=one_of(CONFIDENCES, data["confidence"]),
            explanation=str(data["explanation"]),
            cure=str(data["cure"]),
            source=optional(str, data["source"]),
        )


@dataclass(frozen=True, slots=True)
class InputState:
    """An input of a culprit and whether it was bit-equal in both runs."""

    name: str
    op_type: str
    equal: bool

    def to_json(self) -> Json:
        return {"name": self.name, "op_type": self.op_type, "equal": self.equal}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "InputState":
        return cls(str(data["name"]), str(data["op_type"]), bool(data["equal"]))


@dataclass(frozen=True, slots=True)
class Counterpart:
    """Where the culprit is in run B."""

    name: str
    step: int | None
    call: int | None
    iteration: tuple[int, ...]

    def to_json(self) -> Json:
        return {"name": self.name, "step": self.step, "call": self.call, "iteration": list(self.iteration)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Counterpart":
        step, call = optional(int, data["step"]), optional(int, data["call"])
        return cls(str(data["name"]), step, call, ints(data["iteration"]))


@dataclass(frozen=True, slots=True)
class ForwardOp:
    """The forward op that a gradient or optimizer op belongs to, and its line."""

    name: str
    op_type: str | None = None
    source: Source | None = None

    def to_json(self) -> Json:
        return {"name": self.name, "op_type": self.op_type, "source": json_or_none(self.source)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "ForwardOp":
        op_type = optional(str, data.get("op_type"))
        return cls(str(data["name"]), op_type, optional(Source.from_json, data.get("source")))


@dataclass(frozen=True, slots=True)
class Culprit:
    """An event whose inputs are recorded and equal and whose bits differ: one answer, with the evidence for it."""

    op_type: str
    name: str  # the node in the executed graph
    function: str  # the user's function
    slot: int
    thread: int
    device: str
    replica: int | None
    call: int | None  # ordinal among the calls of `function` in run A
    step: int | None
    iteration: tuple[int, ...]
    b: Counterpart | None  # None: it is in run A only
    category: str
    contained: bool
    source: Source | None
    forward_of: ForwardOp | None = None
    inputs: tuple[InputState, ...] = ()
    difference: Difference | None = None
    causes: tuple[Cause, ...] = ()
    downstream: int = 0
    explanation: str = ""  # one sentence of evidence
    last_common: str | None = None  # structure: the last op both runs have
    writers: tuple[str, ...] = ()  # state: the writers in A and in B
    extra: Json = field(default_factory=dict)  # further keys for the JSON

    def to_json(self) -> Json:
        return {
            **self.extra,
            "op_type": self.op_type,
            "name": self.name,
            "function": self.function,
            "slot": self.slot,
            "thread": self.thread,
            "device": self.device,
            "replica": self.replica,
            "call": self.call,
            "step": self.step,
            "iteration": list(self.iteration),
            "b": json_or_none(self.b),
            "category": self.category,
            "contained": self.contained,
            "source": json_or_none(self.source),
            "forward_of": json_or_none(self.forward_of),
            "inputs": [item.to_json() for item in self.inputs],
            "difference": json_or_none(self.difference),
            "causes": [item.to_json() for item in self.causes],
            "downstream": self.downstream,
            "explanation": self.explanation,
            "last_common": self.last_common,
            "writers": list(self.writers),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Culprit":
        culprit = cls(
            op_type=str(data["op_type"]),
            name=str(data["name"]),
            function=str(data["function"]),
            slot=int(data["slot"]),
            thread=int(data["thread"]),
            device=str(data["device"]),
            replica=optional(int, data["replica"]),
            call=optional(int, data["call"]),
            step=optional(int, data["step"]),
            iteration=ints(data["iteration"]),
            b=optional(Counterpart.from_json, data["b"]),
            category=one_of(CATEGORIES, data["category"]),
            contained=bool(data["contained"]),
            source=optional(Source.from_json, data["source"]),
            forward_of=optional(ForwardOp.from_json, data["forward_of"]),
            inputs=each(InputState.from_json, data["inputs"]),
            difference=optional(Difference.from_json, data["difference"]),
            causes=each(Cause.from_json, data["causes"]),
            downstream=int(data["downstream"]),
            explanation=str(data.get("explanation", "")),
            last_common=optional(str, data.get("last_common")),
            writers=each(str, data.get("writers", ())),
        )
        culprit.extra.update({key: value for key, value in data.items() if key not in _CULPRIT_KEYS})
        return culprit


_CULPRIT_KEYS = frozenset(Culprit.__dataclass_fields__) - {"extra"}


COMPILED_BY_XLA = "compiled by XLA as one cluster"


@dataclass(frozen=True, slots=True)
class Opaque:
    """Something that ran and was not seen, and why."""

    name: str
    op_type: str
    reason: str
    count: int = 1
    source: Source | None = None

    @property
    def compiled(self) -> bool:
        """Whether it was not seen because XLA compiles it."""
        return self.reason == COMPILED_BY_XLA

    def to_json(self) -> Json:
        return {
            "name": self.name,
            "op_type": self.op_type,
            "reason": self.reason,
            "count": self.count,
            "source": json_or_none(self.source),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Opaque":
        return cls(
            name=str(data["name"]),
            op_type=str(data["op_type"]),
            reason=str(data["reason"]),
            count=int(data.get("count", 1)),
            source=optional(Source.from_json, data.get("source")),
        )


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much was compared, and what could not be."""

    compared: int = 0
    unmatched: int = 0
    undecided: int = 0
    opaque: tuple[Opaque, ...] = ()

    def to_json(self) -> Json:
        return {
            "compared": self.compared,
            "unmatched": self.unmatched,
            "undecided": self.undecided,
            "opaque": [item.to_json() for item in self.opaque],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Coverage":
        return cls(
            compared=int(data["compared"]),
            unmatched=int(data["unmatched"]),
            undecided=int(data["undecided"]),
            opaque=each(Opaque.from_json, data["opaque"]),
        )


@dataclass(frozen=True, slots=True)
class EnvironmentDifference:
    """A setting that is not the same in all runs; `values` in the order of the runs."""

    key: str
    values: tuple[Any, ...]

    def to_json(self) -> Json:
        return {"key": self.key, "values": list(self.values)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "EnvironmentDifference":
        return cls(str(data["key"]), each(same, data["values"]))


class Columns(Protocol):
    """A table in memory."""

    def columns(self) -> Mapping[str, Sequence[Any]]:
        """{name: one value for each row}"""


@dataclass(frozen=True, slots=True, repr=False)
class Comparison(Shown):
    """The answer: what differed first, where and why, and how much was looked at.

    `extra` has what a page draws: `graph` (the ops around the culprits), `differing` (all ops that differ), `timeline`
    (by step) and `growth` (the first culprit's difference on its way to a result), see `reporters/schema.json`.
    `events` are all differing events, in the process that compared.
    """

    verdict: str
    runs: tuple[Json, ...] = ()
    warnings: tuple[str, ...] = ()
    environment: tuple[EnvironmentDifference, ...] = ()
    coverage: Coverage = Coverage()
    culprits: tuple[Culprit, ...] = ()
    receivers_by_step: tuple[tuple[int | None, int], ...] = ()  # (step, count); None: outside all steps
    format: int = COMPARISON_FORMAT
    extra: Json = field(default_factory=dict)  # further keys for the JSON: what a page draws, `many_runs`, `tolerance`
    events: Columns | None = field(default=None, compare=False, repr=False)

    def __repr__(self) -> str:
        """Short: a notebook keeps it beside what is shown."""
        named = ", ".join(culprit.op_type for culprit in self.culprits[:3]) or "none"
        more = ", ..." if len(self.culprits) > 3 else ""
        return f"<Comparison: {self.verdict}, {self.coverage.compared:,} values compared, culprits: {named}{more}>"

    def to_frame(self) -> Any:
        """The differing events as a pandas DataFrame: a row each, in the order of `calls` and ops of run A.

        Columns: state (culprit, receiver or undecided), op_type, name, function, slot, step, call, iteration, file,
        line, dtype, shape. Raises Usage for a comparison that was read from JSON, which does not hold them, and
        ImportError without pandas.
        """
        import pandas

        if self.events is None:
            raise Usage(
                "to_frame",
                found="one that was read from JSON, or is of many runs",
                expected="a comparison that compare() made of two traces",
                hint='tfbisect.compare("a.h5", "b.h5").to_frame()',
            )
        return pandas.DataFrame(dict(self.events.columns()))

    def _card(self) -> Card:
        return comparison_card(self.to_json())

    def to_json(self) -> Json:
        return {
            **self.extra,
            "format": self.format,
            "verdict": self.verdict,
            "runs": [dict(run) for run in self.runs],
            "warnings": list(self.warnings),
            "environment": [item.to_json() for item in self.environment],
            "coverage": self.coverage.to_json(),
            "culprits": [item.to_json() for item in self.culprits],
            "receivers_by_step": [list(pair) for pair in self.receivers_by_step],
        }

    @classmethod
    def from_json(cls, data: Any) -> "Comparison":
        """The inverse of `to_json`. Raises NewerFormat, and Damaged for anything that is no comparison."""
        try:
            version = int(data["format"])
            if version > COMPARISON_FORMAT:
                raise NewerFormat("result", found=f"format {version}", expected=f"at most {COMPARISON_FORMAT}")
            found = cls(
                verdict=one_of(VERDICTS, data["verdict"]),
                runs=each(an_object, data["runs"]),
                warnings=each(str, data["warnings"]),
                environment=each(EnvironmentDifference.from_json, data["environment"]),
                coverage=Coverage.from_json(data["coverage"]),
                culprits=each(Culprit.from_json, data["culprits"]),
                receivers_by_step=each(step_count, data.get("receivers_by_step", ())),
                format=version,
            )
            found.extra.update({key: value for key, value in data.items() if key not in _COMPARISON_KEYS})
            return found
        except KeyError as error:
            raise Damaged("result", found="no key " + str(error), expected="the JSON of a comparison") from error
        except (TypeError, ValueError, AttributeError, OverflowError) as error:
            raise Damaged("result", found=error, expected="the JSON of a comparison") from error


_COMPARISON_KEYS = frozenset(Comparison.__dataclass_fields__) - {"extra", "events"}
