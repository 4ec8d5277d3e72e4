"""What went into an event: the recorded events of the same run that its op took.

Looks at one run and one hop; whether anything was equal is decided elsewhere.
"""

from typing import NamedTuple

from tfbisect.model import NodeFlag, SiteKind
from tfbisect.provenance import Kind, Ref, Run, Terminal

LIMIT = 20_000  # events that one value may be made of
_PASSED = int(NodeFlag.PASSED)


class Above(NamedTuple):
    """The events that went into an event, in the order of the inputs; whether that is all that went into it."""

    rows: list[int]
    complete: bool


def leaves(run: Run, start: Terminal, passed: list[Ref] | None = None) -> list[int] | None:
    """The events that a value is made of, through forwarders and choices; None if some are not known, or too many.

    passed: takes the ops that a cheap recording passed by. Without it their values are not known.
    """
    rows, seen, stack = [], {start}, [start]
    while stack:
        terminal = stack.pop()
        if terminal.kind == Kind.EVENT:
            rows.append(terminal.row)
        elif terminal.kind == Kind.UNKNOWN or len(seen) > LIMIT:
            return None
        elif terminal.kind == Kind.FORWARD:
            if run.flow(terminal.ref.call).flags[terminal.ref.node] & _PASSED:
                if passed is None:
                    return None
                passed.append(terminal.ref)
            parts = run.parts(terminal.ref)
            for ref in reversed(parts.values + parts.choosers):
                end = run.terminal(ref)
                if end not in seen:
                    seen.add(end)
                    stack.append(end)
    return rows


def above(run: Run, row: int, passed: list[Ref] | None = None) -> Above:
    """What went into an event: its inputs, the last write of a variable it reads, what the caller made of an argument.

    Constants and values that Python handed in have nothing above them and are complete. passed: takes the ops between
    that a cheap recording passed by.
    """
    passed = [] if passed is None else passed
    flow, node, _slot, kind = run.node_of(row)
    call, path = run.event_call[row], run.event_path[row]
    rows: list[int] = []
    complete = True
    refs: list[Ref | None] = []
    if kind == SiteKind.ARG:
        refs = [] if run.host_value(row) else [run.argument(call, flow.nodes[node].index)]
    elif kind != SiteKind.CONST:
        refs = [run.input_ref(call, flow, node, edge, path) for edge in flow.data_inputs(node)]
    for ref in refs:
        terminal = run.terminal(ref) if ref is not None else None
        if terminal is None:
            complete = False
        elif terminal.kind == Kind.HANDLE:
            if run.reads_state(flow.nodes[node]):
                write = run.state(Ref(call, node, 0, path), run.handle(terminal))
                if write is not None:
                    complete &= write.row >= 0
                    rows += [write.row] if write.row >= 0 else []
        else:
            found = leaves(run, terminal, passed)
            complete &= found is not None
            rows += found or []
    return Above(rows, complete)
