"""What is told of a culprit: its op, line, moment, evidence, size, likely causes.

Decides nothing: `bisector` named it.
"""

import re
from collections.abc import Mapping
from typing import Any

from tfbisect import definition, knowledge
from tfbisect.bisector import Findings, Suspect
from tfbisect.categories import Categories, in_other_thread, of_finding
from tfbisect.equality import Finding
from tfbisect.flow import Flow
from tfbisect.metrics import difference, spread
from tfbisect.model import (
    Cause,
    Counterpart,
    Culprit,
    Difference,
    ForwardOp,
    GraphKind,
    InputState,
    Json,
    Node,
    NodeFlag,
    Opaque,
    SiteKind,
    Source,
)
from tfbisect.provenance import Kind, Ref, Run, Terminal, Write
from tfbisect.seeds import pair_of_seeds, shift
from tfbisect.snippets import Snippets
from tfbisect.steps import Steps
from tfbisect.tables import Array, dtype_name
from tfbisect.upstream import above, leaves

_REPLICA = re.compile(r"(?:^|/)replica_(\d+)(?:/|$)")
DOWNSTREAM = 3  # culprits whose followers are all counted; of the others up to AT_LEAST
AT_LEAST = 1000
ILLUSTRATED = 20  # culprits that are told of with code and pictures
FRAMES = 6  # of a stack


def shown(run: Run, row: int) -> tuple[str, str, Source | None]:
    """(name, op type, line) that an event is shown with: an argument is shown as the first op that takes it."""
    flow, index, _slot, kind = run.node_of(row)
    call = run.event_call[row]
    if kind == SiteKind.ARG:
        todo, seen = [index], {index}
        for at in todo:
            for consumer in flow.consumers[at]:
                op = flow.nodes[consumer]
                if op.flags & NodeFlag.FORWARDER:
                    todo += [consumer] if consumer not in seen else []
                    seen.add(consumer)
                elif op.op != "_Retval":
                    return op.name, op.op, run.source_of(call, flow, consumer)
    if call < 0:  # a constant
        call = run.first_calls[flow.graph.id]
    return flow.nodes[index].name, flow.nodes[index].op, run.source_of(call, flow, index)


class Portraits:
    """Makes `Culprit`s. environment: {RunInfo key: values in A and B} that differ; info: run A's, flattened."""

    def __init__(self, findings: Findings, environment: Mapping[str, tuple[Any, Any]], info: Mapping[str, Any]) -> None:
        self._findings, self._environment, self._info = findings, environment, info
        self._equality = findings.equality
        self._alignment = findings.equality.alignment
        self._runs = (self._alignment.a, self._alignment.b)
        self.steps = (Steps(self._runs[0]), Steps(self._runs[1]))
        self._categories = Categories(findings.equality, findings.effects, environment)
        self._snippets = Snippets()

    def culprit(self, suspect: Suspect, rank: int) -> Culprit:
        """All that is told of the culprit that comes `rank`-th."""
        run, side = self._runs[suspect.side], suspect.side
        flow, index, slot, kind = run.node_of(suspect.row)
        node, call = flow.nodes[index], self._call(suspect)
        name, op_type, source = shown(run, suspect.row)
        category = self._category(suspect, node)
        values = self._values(suspect)
        size = difference(*values) if values is not None else None
        inputs = self._inputs(suspect)
        if suspect.change is not None:
            name, op_type, source = self._as_written(suspect, source)
            inputs, values, size = (), None, size if kind == SiteKind.CONST and name == node.name else None
        elif suspect.finding is not None and suspect.finding.what == "edge" and kind == SiteKind.ARG:
            source = run.trace.source(int(run.trace.calls["stack"][call])) or source  # the caller gave it another value
        eager = flow.graph.kind in (GraphKind.EAGER, GraphKind.ENTRY)
        extra: dict[str, Any] = {"repeats": suspect.repeats} if suspect.repeats > 1 else {}
        if kind == SiteKind.WRITE:
            extra["writes"] = True
        if suspect.change is not None:
            extra |= {"only_in": "ab"[suspect.change.side]} if suspect.change.what == "extra" else {}
        elif suspect.number < 0:
            extra["only_in"] = "b" if side else "a"
        if side == 0 and call >= 0:
            extra["paired_by"] = self._alignment.reason(call, index)
        kernel = run.trace.executed.get((flow.graph.id, index))
        if kernel is not None and op_type == node.op:
            extra["executed"] = kernel
        if rank < ILLUSTRATED:
            extra["code"] = {"ab"[at]: self._code(at, where) for at, where in self._sides(suspect)}
            extra["spread"] = spread(*values) if values is not None else None
        if unrecorded := self._unrecorded(suspect):
            extra["unrecorded"] = unrecorded
        seeds, seed_shift = self._seeds(suspect)
        if seeds is not None:
            extra["seeds"] = [{"graph": graph, "op": op} for graph, op in seeds]
        dtype = dtype_name(run.dtype(suspect.row))
        attrs = definition.parse(run.trace.definition(flow.graph.id, index)).attrs
        if (hidden := run.trace.outside(flow.graph.id)) is not None:
            attrs = {**attrs, "_XlaMustCompile": hidden.compiled}
        if seeds is not None:
            attrs |= dict(zip(("seed", "seed2"), seeds[0], strict=True))
        return Culprit(
            op_type=op_type,
            name=name,
            function="" if eager else flow.graph.name,
            slot=slot,
            thread=int(run.trace.calls["thread"][call]),
            device=node.device,
            replica=int(found[1]) if (found := _REPLICA.search(node.name)) else None,
            call=self.steps[side].ordinal(call),
            step=self.steps[side].step(call),
            iteration=run.path(run.event_path[suspect.row]),
            b=self._counterpart(suspect),
            category=category,
            contained=suspect.contained,
            source=source,
            forward_of=_forward(run, flow, node),
            inputs=inputs,
            difference=size,
            causes=self._causes(node, op_type, category, dtype, attrs, inputs, size, seed_shift),
            downstream=self._downstream(suspect, rank),
            explanation=self._explanation(suspect, inputs, category) + _between(len(unrecorded)),
            last_common=self._last_common(suspect) if category == "structure" else None,
            writers=self._writers(suspect),
            extra=extra,
        )

    def _call(self, suspect: Suspect) -> int:
        run = self._runs[suspect.side]
        call, graph = run.event_call[suspect.row], run.node_of(suspect.row)[0].graph
        hidden = suspect.change is not None and graph.kind == GraphKind.OPAQUE  # unseen from the first call on
        return call if call >= 0 and not hidden else run.first_calls[graph.id]

    def _as_written(self, suspect: Suspect, executed: Source | None) -> tuple[str, str, Source | None]:
        """(name, op type, line) of the first thing that a function has otherwise as it was written."""
        change = suspect.change
        assert change is not None
        run = self._runs[change.side]
        node = run.trace.graphs[change.graph].nodes[change.node]
        call = self._call(suspect)
        if change.side != suspect.side:
            partners = self._alignment.call_to_a if suspect.side else self._alignment.call_to_b
            call = partners[call]
        return node.name, node.op, run.source_of_stack(call, run.flow(call), node.stack) or executed

    def _category(self, suspect: Suspect, node: Node) -> str:
        finding = suspect.finding
        if suspect.change is not None:
            return self._categories.of_change(suspect.change)
        if finding is None:
            return self._categories.of_event(suspect.number, suspect.entry)
        if finding.what == "host":
            return self._categories.of_host_value(None, finding.row)
        if finding.what == "state" and self._raced(suspect, finding):
            return "race"
        if finding.what == "extra" and self._outside(suspect) is not None:
            return "unknown"
        if finding.what == "attrs" and self._categories.set_up_differently and not node.flags & NodeFlag.RANDOM:
            return "environment"  # as where oneDNN rewrites what Eigen computes as it stands
        return of_finding(finding, node)

    def _outside(self, suspect: Suspect) -> Opaque | None:
        """Why the op is a function of which only one run's ops were recorded; XLA is a difference of the programs."""
        run = self._runs[suspect.side]
        hidden = run.trace.outside(run.node_of(suspect.row)[0].graph.id)
        return None if hidden is None or hidden.compiled else hidden

    def _raced(self, suspect: Suspect, finding: Finding) -> bool:
        """Whether one of the writes that a read saw stands in a thread that may overtake it."""
        calls = [self._call(suspect)] * 2
        if suspect.number >= 0:
            calls[1] = self._runs[1].event_call[self._equality.pairs[suspect.number][1]]
        elif suspect.side:
            return False
        return any(
            write is not None and call >= 0 and in_other_thread(run, call, write.call)
            for run, call, write in zip(self._runs, calls, finding.writers, strict=True)
        )

    def _counterpart(self, suspect: Suspect) -> Counterpart | None:
        if suspect.number < 0 and suspect.side == 0:
            return None
        run = self._runs[1]
        row = suspect.row if suspect.number < 0 else self._equality.pairs[suspect.number][1]
        flow, index, _slot, _kind = run.node_of(row)
        call = run.event_call[row]
        if call < 0:
            call = run.first_calls[flow.graph.id]
        iteration = run.path(run.event_path[row])
        return Counterpart(flow.nodes[index].name, self.steps[1].step(call), self.steps[1].ordinal(call), iteration)

    # -- evidence ----------------------------------------------------------------------------------------------------

    def _inputs(self, suspect: Suspect) -> tuple[InputState, ...]:
        if suspect.number < 0:
            return ()
        row, other = self._equality.pairs[suspect.number]
        a, b = self._runs
        flow, index, _slot, kind = a.node_of(row)
        if kind in (SiteKind.ARG, SiteKind.CONST):
            return ()
        flow_b, index_b, _slot_b, _kind_b = b.node_of(other)
        found = []
        pairs = zip(flow.data_inputs(index), flow_b.data_inputs(index_b), strict=False)
        for edge_a, edge_b in pairs:
            ref_a = a.input_ref(a.event_call[row], flow, index, edge_a, a.event_path[row])
            ref_b = b.input_ref(b.event_call[other], flow_b, index_b, edge_b, b.event_path[other])
            terminal = a.terminal(ref_a)
            equal = self._equality.compare(ref_a, ref_b).status < 2
            passed: list[Ref] = []
            rows = leaves(a, terminal, passed)
            if passed and rows is not None:
                found += [_recorded_input(a, row, equal) for row in dict.fromkeys(rows)]
                continue
            node = a.flow(terminal.ref.call).nodes[terminal.ref.node]
            found.append(InputState(_input_name(a, terminal, node), node.op, equal))
        return tuple(found)

    def _unrecorded(self, suspect: Suspect) -> list[Json]:
        """The ops that a cheap recording passed by between a culprit and what is recorded above it, nearest first."""
        run = self._runs[suspect.side]
        passed: list[Ref] = []
        above(run, suspect.row, passed)
        found = {}
        for ref in passed:
            flow = run.flow(ref.call)
            node, source = flow.nodes[ref.node], run.source_of(ref.call, flow, ref.node)
            function = "" if flow.graph.kind == GraphKind.EAGER else flow.graph.name
            found[function, node.name, source] = {
                "name": node.name,
                "op_type": node.op,
                "function": function,
                "source": source.to_json() if source is not None else None,
            }
        return list(found.values())

    def _sides(self, suspect: Suspect) -> list[tuple[int, int]]:
        """(run, event) of a culprit in the runs that have it."""
        if suspect.number < 0:
            return [(suspect.side, suspect.row)]
        return list(enumerate(self._equality.pairs[suspect.number]))

    def _code(self, side: int, row: int) -> list[Json]:
        """The user's lines that led to an op, innermost first, with what stands around them."""
        run = self._runs[side]
        flow, index, _slot, _kind = run.node_of(row)
        call = run.event_call[row]
        source = shown(run, row)[2]
        stacks = [flow.nodes[index].stack, int(run.trace.calls["stack"][call]) if call >= 0 else 0]
        found = next((s for s in map(run.trace.stack, stacks) if s and s[-1] == source), (source,) if source else ())
        frames = list(reversed(found))[:FRAMES]
        return [{**frame.to_json(), "around": self._snippets.around(frame)} for frame in frames]

    def _values(self, suspect: Suspect) -> tuple[Array, Array] | None:
        if suspect.number < 0:
            return None
        row, other = self._equality.pairs[suspect.number]
        if suspect.finding is not None and suspect.finding.what == "host" and suspect.finding.other >= 0:
            row, other = suspect.finding.row, suspect.finding.other
        one, two = self._runs[0].trace.value(row), self._runs[1].trace.value(other)
        return (one, two) if one is not None and two is not None else None

    def _explanation(self, suspect: Suspect, inputs: tuple[InputState, ...], category: str) -> str:
        finding = suspect.finding
        if suspect.change is not None:
            return {
                "extra": f"only run {'B' if suspect.change.side else 'A'} has it in this function, and a differing "
                "value was made there",
                "attrs": "its attributes are not the same in both runs, in a function that made a differing value",
                "constant": "a constant of the function differs: Python made it when the function was traced",
                "edge": "it takes other values than in the other run",
            }[suspect.change.what]
        if finding is not None and finding.what == "extra" and (hidden := self._outside(suspect)) is not None:
            return (
                f"its results differ; it was recorded from outside in run {'B' if suspect.side else 'A'} "
                f"({hidden.reason}), so which of its ops began is not known"
            )
        if finding is not None and finding.what != "host":
            return {
                "extra": f"only run {'B' if suspect.side else 'A'} {self._alone(suspect)}, and a differing value was "
                "made with it",
                "edge": "it takes other values than in the other run, though those are equal in both runs",
                "circle": "it ran before what it comes from in one run, and behind it in the other",
                "attrs": "its attributes or its number of inputs are not the same in both runs",
                "state": "the writes that it sees are not the same in both runs",
                "order": "the last write that it sees is another one, though both runs did the same writes",
            }[finding.what]
        flow, node, _slot, kind = self._runs[0].node_of(suspect.row)
        if kind == SiteKind.CONST:
            return "a constant of the graph differs: Python made it when the function was traced"
        if finding is not None or self._runs[0].host_value(suspect.row):
            if category == "structure" and self._categories.permuted(suspect.row):
                return "it takes the same values of Python's as in the other run, but as other arguments"
            if category == "structure":
                return "a value that Python handed in has another shape or dtype"
            return "a value that Python handed in differs, and nothing that an op computed differed before"
        if suspect.entry and flow.pure_read(node):
            return "what the variable held differed before anything recorded wrote it"
        if suspect.entry:
            return "nothing recorded wrote the variable before, so what it held is not known to be equal"
        if category == "structure":
            return "its inputs are bit-identical and the shape of its output is not the same"
        equal = sum(item.equal for item in inputs)
        return f"{equal} of {len(inputs)} inputs bit-identical" if inputs else "it has no inputs that were recorded"

    def _alone(self, suspect: Suspect) -> str:
        """What only one run did: it executed an op, or made a whole call."""
        run, call = self._runs[suspect.side], self._call(suspect)
        partners = self._alignment.call_to_a if suspect.side else self._alignment.call_to_b
        source = run.trace.source(int(run.trace.calls["stack"][call]))
        if partners[call] >= 0 or source is None or run.flow(call).graph.kind == GraphKind.EAGER:
            return "executed it"
        return f"made this call of {run.flow(call).graph.name}, in line {source.line}"

    def _last_common(self, suspect: Suspect) -> str | None:
        """The last op before it that both runs have."""
        if suspect.change is not None:
            written = self._runs[suspect.change.side].trace.graphs[suspect.change.graph].nodes
            earlier = reversed(written[: suspect.change.node])
            return next((node.name for node in earlier if node.op not in ("Const", "Placeholder")), None)
        run, side = self._runs[suspect.side], suspect.side
        flow, index, _slot, _kind = run.node_of(suspect.row)
        call = self._call(suspect)
        partners = self._alignment.call_to_a if side else self._alignment.call_to_b
        if flow.graph.kind == GraphKind.EAGER or partners[call] < 0:
            for before in range(call - 1, -1, -1):
                if partners[before] >= 0 and run.trace.calls["thread"][before] == run.trace.calls["thread"][call]:
                    return run.flow(before).graph.name
            return None
        other = self._runs[1 - side].graph_of[partners[call]]
        pairs = self._alignment.nodes(*((other, flow.graph.id) if side else (flow.graph.id, other)))
        to_other = pairs.to_a if side else pairs.to_b
        above = [edge.src for edge in flow.nodes[index].inputs if edge.slot >= 0]
        place = flow.position[index]
        for number in sorted(above, key=lambda n: -flow.position[n]) + flow.order[place - 1 :: -1] * (place > 0):
            if number != index and to_other[number] >= 0 and flow.nodes[number].op not in ("_Arg", "Const"):
                return flow.nodes[number].name
        return None

    def _writers(self, suspect: Suspect) -> tuple[str, ...]:
        finding = suspect.finding
        if finding is None or finding.what not in ("state", "order"):
            return ()
        return tuple(_writer(run, write) for run, write in zip(self._runs, finding.writers, strict=True))

    def _seeds(self, suspect: Suspect) -> tuple[tuple[tuple[int, int], tuple[int, int]] | None, str]:
        """What `pair_of_seeds` and `shift` say of an op that both runs have."""
        if suspect.number < 0:
            return None, ""
        row, other = self._equality.pairs[suspect.number]
        flow_a, node_a, *_ = self._runs[0].node_of(row)
        flow_b, node_b, *_ = self._runs[1].node_of(other)
        a, b = self._runs[0].trace, self._runs[1].trace
        places = (flow_a.graph.id, node_a), (flow_b.graph.id, node_b)
        return pair_of_seeds(a, places[0], b, places[1]), shift(a, places[0], b, places[1])

    def _causes(
        self,
        node: Node,
        op_type: str,
        category: str,
        dtype: str,
        attrs: Mapping[str, object],
        inputs: tuple[InputState, ...],
        size: Difference | None,
        seed_shift: str,
    ) -> tuple[Cause, ...]:
        evidence = knowledge.Evidence(
            op_type=op_type,
            category=category,
            device=node.device,
            dtype=dtype,
            flags=int(node.flags),
            environment=dict(self._environment),
            inputs=tuple(item.op_type for item in inputs),
            attrs=attrs,
            in_loop=bool(node.frame),
            info=dict(self._info),
            difference=size,
            seed_shift=seed_shift,
        )
        return knowledge.causes_for(evidence)

    def _downstream(self, suspect: Suspect, rank: int) -> int:
        if suspect.number < 0:
            return 0
        effects = self._findings.effects
        return effects.downstream(suspect.number) if rank < DOWNSTREAM else len(effects.near(suspect.number, AT_LEAST))


def _between(count: int) -> str:
    """What the explanation of a culprit adds where ops above it were not recorded."""
    if not count:
        return ""
    ops = "1 op" if count == 1 else f"{count} ops"
    return f"; {ops} above it, between these and it, {'was' if count == 1 else 'were'} not recorded and may be to blame"


def _recorded_input(run: Run, row: int, equal: bool) -> InputState:
    """A recorded value that went into an op through others that were not recorded."""
    flow, index, slot, _kind = run.node_of(row)
    node = flow.nodes[index]
    terminal = Terminal(Kind.EVENT, row, Ref(run.event_call[row], index, slot, run.event_path[row]))
    name = _input_name(run, terminal, node) if run.event_call[row] >= 0 else node.name
    return InputState(name, node.op, equal)


def _forward(run: Run, flow: Flow, node: Node) -> ForwardOp | None:
    if 0 <= node.forward < len(flow.nodes):
        forward = flow.nodes[node.forward]
        return ForwardOp(forward.name, forward.op, run.trace.source(forward.stack))
    return ForwardOp(node.forward_name) if node.forward_name else None


def _input_name(run: Run, terminal: Terminal, node: Node) -> str:
    """A name that tells inputs apart: an eager op's is its type, so its line is added."""
    if run.flow(terminal.ref.call).graph.kind != GraphKind.EAGER or terminal.kind == Kind.UNKNOWN:
        return node.name
    source = run.source_of(terminal.ref.call, run.flow(terminal.ref.call), terminal.ref.node)
    return f"{node.name} (line {source.line})" if source is not None else node.name


def _writer(run: Run, write: Write | None) -> str:
    """A writer as text: op, line."""
    if write is None:
        return "nothing recorded wrote it"
    flow = run.flow(write.call)
    node = flow.nodes[write.node]
    source = run.source_of(write.call, flow, write.node)
    where = f" at line {source.line}: {source.text}" if source is not None else ""
    name = node.name if node.name == node.op else f"{node.op} {node.name}"
    return name + where
