"""A small language for programs that are recorded without TensorFlow: text -> a real trace file, by the real writer.

    record("w; dense = MatMul x w; loss = Sum dense", "a.h5")
    record("w; dense = MatMul x w; loss = Sum dense", "b.h5", change={"dense": 1})      # dense is the culprit

Statements are separated by `;` or newlines; `#` starts a comment. Line n of the text is line n of "program.py" (in a
text on one line statement n is line n). A text without `def` is the body of a function `f` that the program calls
`calls` times.

In a function:
    w                       declares an argument; names that nobody declared are arguments too, in order of appearance
    y = Op x w:1 ^z a=2     an op; `w:1` is output 1 of w, `^z` a control input, `a=2` an attribute (part of `attrs`)
    y = Const a=2           a constant: its digest is that of its attributes
    v := Variable           a variable (made by an eager VarHandleOp call, before the first call); `v := Variable x0`
                            assigns a host value x0 to it, eagerly; `v := Entry` was there before recording
    y = read v              ReadVariableOp, named y; alone: `read v` is `read_v = read v`
    assign v y              AssignVariableOp, named assign_v (assign_v_1, ...); `name = assign v y` names it
    y = ResourceApplyX v g  any op may take a variable; those of WRITERS write it (and read what was there)
    return y z              the results; else all outputs that nothing consumes
    s = loop 3 a=x b=y      a loop of 3 iterations (or `loop n`, with n a tensor: 3 iterations) over a and b, lowered to
      d = Mul a w           Enter, Merge, Switch, NextIteration and Exit nodes in the frame "s". Outer names become
      next a d              constant Enters. Every loop variable needs a `next`. Results: `s.a`, `s.b`, and `s` for the
    end                     first. Loops nest.
    y = if p                a branch, lowered to Switch and Merge; it takes the first side (see `branch`)
      a = Relu x
      give a
    else
      b = Tanh x
      give b
    end
Accesses of a variable are ordered by control edges within their loop body or branch as automatic control dependencies
do; `op! v y` (a name with `!`) leaves them out.

With `def`:
    def f x w               a function, up to `end`
      ...
    end
    v := Variable           ...once, before everything else
    h = MatMul p q          at top level an eager op; unknown names are host values, new ones in each round
    y = f h w               a call: arguments in order; `y:1` is its result 1
    @1 z = Relu y           on thread 1
The top level runs `calls` times over.

Digests are made up: a hash of op, attributes and the inputs' digests, so a planted change spreads by itself.
Forwarders hand theirs on, reads hand on the state. Values (`values=True`) are 2x3 float32; a change of n moves the
first element by n ulp.
"""

import os
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from minilang_parser import Function, If, Loop, Op, Program, Statement, base, free, program, unused

from tfbisect.model import NO_CALL, Edge, GraphKind, Node, NodeFlag, SiteKind
from tfbisect.passed import is_passed, passed_by
from tfbisect.trace import Trace, TraceWriter, load

FILE = "program.py"
FORWARDERS = {"Identity", "IdentityN", "Reshape", "Enter", "Exit", "Merge", "Switch", "NextIteration", "LoopCond"}
WRITERS = ("Assign", "ResourceApply", "ResourceScatter", "ResourceSparseApply")
STATEFUL = {
    **dict.fromkeys(["RandomUniform", "RandomStandardNormal", "TruncatedNormal", "RandomShuffle"], NodeFlag.RANDOM),
    **dict.fromkeys(["PyFunc", "PyFuncStateless", "EagerPyFunc"], NodeFlag.HOST),
    **dict.fromkeys(["ReadVariableOp", "VarHandleOp", "IteratorGetNext"], NodeFlag.NONE),
}
FLOAT = 1


def flags_of(op: str) -> NodeFlag:
    if op in FORWARDERS:
        return NodeFlag.FORWARDER
    if op.startswith(WRITERS):
        return NodeFlag.WRITER | NodeFlag.STATEFUL
    return STATEFUL[op] | NodeFlag.STATEFUL if op in STATEFUL else NodeFlag.NONE


def data_inputs(node: Node) -> int:
    return sum(edge.slot >= 0 for edge in node.inputs)


def digest(*parts: object) -> int:
    return xxhash.xxh3_64_intdigest(repr(parts).encode())


# -- building graphs --------------------------------------------------------------------------------------------------


class _Scope:
    """Names inside a function, a loop body or one side of a branch."""

    def __init__(self, builder: "_Builder", parent: "_Scope | None", kind: str, name: str, side: int = 0) -> None:
        self.builder, self.parent, self.kind, self.name, self.side = builder, parent, kind, name, side
        self.names: dict[str, Edge] = {}
        self.last_write: dict[str, int] = {}
        self.reads: dict[str, list[int]] = {}
        self.predicate: Edge | None = None
        outer = parent.frame if parent else ()
        self.frame: tuple[str, ...] = (*outer, name) if kind == "loop" else outer

    def find(self, name: str) -> Edge:
        base, _, slot = name.partition(":")
        if base in self.names:
            edge = self.names[base]
            return Edge(edge.src, int(slot)) if slot else edge
        if self.parent is None:
            raise ValueError(f"nobody made {name}")
        outer = self.parent.find(name)
        add = self.builder.add
        if self.kind == "loop":
            edge = Edge(add(f"{self.name}/Enter_{name}", "Enter", (outer,), self.frame, attrs="is_constant"), 0)
        else:
            assert self.predicate is not None
            switch = add(f"{self.name}/{self.side}/Switch_{name}", "Switch", (outer, self.predicate), self.frame)
            edge = Edge(switch, 1 - self.side)
        if not slot:
            self.names[base] = edge
        return edge


class _Builder:
    def __init__(
        self,
        function: Function,
        variables: Collection[str],
        writer: TraceWriter,
        opaque: Collection[str],
        passes: Callable[[str], bool] | None,
    ) -> None:
        self.function, self.writer, self.opaque = function, writer, opaque
        self.nodes: list[Node] = []
        self.handles: set[int] = set()  # nodes whose output is a variable's handle
        self.line, self.text = function.line, ""
        names = {base(name) for name in free(function.body, set(function.args))}
        self.captured = [name for name in variables if name in names]
        scope = _Scope(self, None, "function", function.name)
        for i, name in enumerate([*function.args, *self.captured]):
            scope.names[name] = Edge(self.add(name, "_Arg", (), index=i), 0)
        self.handles = {scope.names[name].src for name in self.captured}
        self.block(function.body, scope)
        results = function.results
        if results is None:
            used = {edge for node in self.nodes for edge in node.inputs}
            results = [
                name
                for name, edge in scope.names.items()
                if edge not in used
                and self.nodes[edge.src].op not in ("_Arg", "Const")
                and "." not in name
                and not self.nodes[edge.src].flags & NodeFlag.WRITER
            ]
        self.results = results
        for i, name in enumerate(results):
            self.add(f"retval_{i}", "_Retval", (scope.find(name),), index=i)
        structure = digest([(n.name, n.op, n.attrs, n.inputs) for n in self.nodes])
        if passes is not None:
            exact = {i for i, n in enumerate(self.nodes) if is_passed(n.op, data_inputs(n), ()) and passes(n.name)}
            for i in passed_by(self.nodes, exact):
                self.nodes[i] = replace(self.nodes[i], flags=self.nodes[i].flags | NodeFlag.PASSED)
        raw = f"__inference_{function.name}_{structure % 1000}"
        self.graph = writer.graph(function.name, raw, GraphKind.TWIN, structure, self.nodes)
        self.sites: dict[tuple[int, int, SiteKind], int] = {}
        rows: list[tuple[int, int, int, int]] = []
        slots: dict[int, int] = {}
        for node in self.nodes:
            for src, slot in node.inputs:
                slots[src] = max(slots.get(src, 0), slot)
        self.slots = slots
        for i, node in enumerate(self.nodes):
            unrecorded = NodeFlag.FORWARDER | NodeFlag.OPAQUE | NodeFlag.PASSED
            if node.op == "_Retval" or node.flags & unrecorded or i in self.handles:
                continue
            if node.flags & NodeFlag.WRITER:
                at = next(k for k, edge in enumerate(node.inputs) if edge.src in self.handles)
                rows.append((i, at, SiteKind.WRITE, FLOAT))
                if i not in slots:
                    continue
            kind = {"_Arg": SiteKind.ARG, "Const": SiteKind.CONST}.get(node.op, SiteKind.OUTPUT)
            rows += [(i, slot, kind, FLOAT) for slot in range(slots.get(i, 0) + 1)]
        first = writer.sites(self.graph, rows)
        for k, (i, slot, kind_number, _) in enumerate(rows):
            self.sites[i, slot, SiteKind(kind_number)] = first + k

    def add(
        self, name: str, op: str, inputs: Sequence[Edge], frame: tuple[str, ...] = (), index: int = -1, attrs: str = ""
    ) -> int:
        unique = unused(name, {node.name for node in self.nodes})
        flags = flags_of(op) | (NodeFlag.OPAQUE if name in self.opaque else NodeFlag.NONE)
        stack = self.writer.stack([(FILE, self.line, self.function.name, self.text)]) if self.text else 0
        self.nodes.append(
            Node(
                name=unique,
                op=op,
                device="/job:localhost/replica:0/task:0/device:CPU:0",
                function=self.function.name,
                stack=stack,
                attrs=digest(attrs),
                index=index,
                flags=flags,
                frame=frame,
                inputs=tuple(inputs),
            )
        )
        number = len(self.nodes) - 1
        if op in ("Enter", "Switch") and inputs[0].src in self.handles:
            self.handles.add(number)
        return number

    def block(self, statements: Sequence[Statement], scope: _Scope) -> None:
        for statement in statements:
            self.line, self.text = statement.line, statement.text
            if isinstance(statement, Op):
                self.op(statement, scope)
            elif isinstance(statement, Loop):
                self.loop(statement, scope)
            else:
                self.branch(statement, scope)

    def op(self, statement: Op, scope: _Scope) -> None:
        inputs = [scope.find(name) for name in statement.inputs]
        controls = [scope.find(name).src for name in statement.controls]
        variables = [name for name, edge in zip(statement.inputs, inputs, strict=True) if edge.src in self.handles]
        writes = bool(flags_of(statement.op) & NodeFlag.WRITER)
        if statement.ordered:
            for name in variables:
                controls += [scope.last_write[name]] if name in scope.last_write else []
                controls += scope.reads.get(name, []) if writes else []
        edges = [*inputs, *(Edge(src, -1) for src in dict.fromkeys(controls))]
        if statement.name in scope.names:
            raise ValueError(f"{statement.name} twice")
        statement.node = self.add(statement.name, statement.op, edges, scope.frame, attrs=statement.attrs)
        scope.names[statement.name] = Edge(statement.node, 0)
        for name in variables if statement.ordered else ():
            if writes:
                scope.last_write[name] = statement.node
                scope.reads[name] = []
            else:
                scope.reads.setdefault(name, []).append(statement.node)

    def loop(self, statement: Loop, scope: _Scope) -> None:
        name = statement.name
        inner = _Scope(self, scope, "loop", name)
        add = self.add
        zero = Edge(add(f"{name}/zero", "Const", (), scope.frame, attrs="0"), 0)
        if statement.trips.isdigit():
            limit = Edge(add(f"{name}/limit", "Const", (), scope.frame, attrs=statement.trips), 0)
        else:
            limit = scope.find(statement.trips)
        limit = Edge(add(f"{name}/Enter_limit", "Enter", (limit,), inner.frame, attrs="is_constant"), 0)
        merges = {}
        for variable, start in [("i", zero), *((left, scope.find(right)) for left, right in statement.variables)]:
            enter = add(f"{name}/Enter_{variable}", "Enter", (start,), inner.frame)
            merges[variable] = add(f"{name}/Merge_{variable}", "Merge", (Edge(enter, 0),), inner.frame)
        less = add(f"{name}/Less", "Less", (Edge(merges["i"], 0), limit), inner.frame)
        condition = Edge(add(f"{name}/LoopCond", "LoopCond", (Edge(less, 0),), inner.frame), 0)
        exits = {}
        for variable, merge in merges.items():
            switch = add(f"{name}/Switch_{variable}", "Switch", (Edge(merge, 0), condition), inner.frame)
            exits[variable] = Edge(add(f"{name}/Exit_{variable}", "Exit", (Edge(switch, 0),), scope.frame), 0)
            inner.names[variable] = Edge(switch, 1)
        one = Edge(add(f"{name}/one", "Const", (), inner.frame, attrs="1"), 0)
        advanced = add(f"{name}/AddV2", "AddV2", (inner.names["i"], one), inner.frame)
        self.block(statement.body, inner)
        ends = {"i": Edge(advanced, 0), **{left: inner.find(right) for left, right in statement.next.items()}}
        for variable, merge in merges.items():
            following = add(f"{name}/Next_{variable}", "NextIteration", (ends[variable],), inner.frame)
            node = self.nodes[merge]
            self.nodes[merge] = replace(node, inputs=(*node.inputs, Edge(following, 0)))
        for variable, _ in statement.variables:
            scope.names[f"{name}.{variable}"] = exits[variable]
        scope.names[name] = exits[statement.variables[0][0]]

    def branch(self, statement: If, scope: _Scope) -> None:
        given = []
        predicate = scope.find(statement.predicate)
        for side, statements in enumerate(statement.sides):
            inner = _Scope(self, scope, "if", statement.name, side)
            inner.predicate = predicate
            self.block(statements, inner)
            given.append(inner.find(statement.give[side]))
        merge = self.add(f"{statement.name}/Merge", "Merge", given, scope.frame)
        scope.names[statement.name] = Edge(merge, 0)


# -- running ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tensor:
    digest: int
    producer: tuple[int, int] | None = None  # call, result
    bytes: bytes = b""


@dataclass
class _Run:
    """One run of a program: what the options say, and the state that lives from call to call."""

    program: Program
    writer: TraceWriter
    change: Mapping[str, int]
    mask: Collection[str]
    branch: Mapping[str, bool]
    trips: Mapping[str, int]
    permute: Mapping[str, Sequence[int]]
    shapes: Mapping[str, Sequence[int]]
    opaque: Collection[str]
    values: bool
    steps: bool
    passes: Callable[[str], bool] | None
    calls_made: int = 0
    round: int = 0
    handles: dict[str, int] = field(default_factory=dict)
    state: dict[str, Tensor] = field(default_factory=dict)
    built: dict[str, _Builder] = field(default_factory=dict)
    eager: dict[Any, tuple[int, int]] = field(default_factory=dict)
    ordinal: Counter[str] = field(default_factory=Counter)
    draws: Counter[str] = field(default_factory=Counter)

    def start(self) -> int:
        self.calls_made += 1
        return self.calls_made - 1

    def salt(self, name: str, slot: int, call: int, path: tuple[int, ...]) -> int:
        """What `change` adds to an output: keys are name, then optionally :slot, @call and /path."""
        at, where = f"@{call}", f"/{','.join(map(str, path))}"
        keys = {name + s + c + p for s in ("", f":{slot}") for c in ("", at) for p in ("", where)}
        return sum(self.change.get(key, 0) for key in keys)

    def make(self, name: str, slot: int, call: int, path: tuple[int, ...], *parts: object) -> Tensor:
        salt = self.salt(name, slot, call, path)
        data = self.data(digest(*parts), salt)
        return Tensor(digest(*parts, salt) if salt else digest(*parts), None, data)

    def data(self, seed: int, ulps: int) -> bytes:
        if not self.values:
            return b""
        floats = np.random.default_rng(seed).standard_normal(6).astype("<f4")
        floats.view("<i4")[0] += ulps
        return floats.tobytes()

    def event(self, call: int, site: int, path: tuple[int, ...], name: str, tensor: Tensor) -> None:
        shape = self.writer.shape(self.shapes.get(name, (2, 3)))
        value = self.writer.value(tensor.bytes) if tensor.bytes else 0
        self.writer.event(call, site, self.writer.iteration(path), shape, tensor.digest, value)

    def draw(self, name: str) -> int:
        number = self.draws[name]
        self.draws[name] += 1
        order = self.permute.get(name, ())
        return order[number] if number < len(order) else number

    def compute(
        self, op: Op, inputs: Sequence[Tensor | str], slots: int, call: int, path: tuple[int, ...]
    ) -> tuple[list[Tensor], Tensor | None]:
        """The outputs of an op and what it wrote. A variable among the inputs is given by its name."""
        tensors = [value for value in inputs if isinstance(value, Tensor)]
        variables = [value for value in inputs if isinstance(value, str)]
        flags = flags_of(op.op)
        if op.op == "ReadVariableOp":
            source = self.state[variables[0]]
        elif flags & NodeFlag.FORWARDER and tensors:
            source = tensors[0]
        else:
            source = None
        if source is not None and not self.salt(op.name, 0, call, path):
            return [replace(source, producer=None)] * slots, None
        seen: list[object] = [value.digest for value in tensors] + [self.state[name].digest for name in variables]
        if op.name in self.mask:
            seen = [op.name]
        if flags & NodeFlag.RANDOM:
            seen.append(self.draw(op.name))
        if not flags & NodeFlag.WRITER:
            return [self.make(op.name, k, call, path, op.op, op.attrs, seen, k) for k in range(slots)], None
        if op.op == "AssignVariableOp" and not self.salt(op.name, 0, call, path) and op.name not in self.mask:
            written = replace(tensors[0], producer=None)
        else:
            written = self.make(op.name, 0, call, path, op.op, op.attrs, seen)
        self.state[variables[0]] = written
        return [self.make(op.name, k, call, path, op.op, op.attrs, seen, k) for k in range(slots)], written

    def host(self, name: str) -> Tensor:
        return self.make(name, 0, self.round, (), "host", name, self.round)

    # the top level

    def caller(self, line: int, text: str) -> int:
        return self.writer.stack([(FILE, line, "<module>", text)])

    def variable(self, name: str, how: str, initial: str | None, line: int) -> None:
        writer, call = self.writer, self.start()
        text = f"{name} = tf.Variable(...)"
        node = Node(name, "VarHandleOp", attrs=digest(name), flags=NodeFlag.STATEFUL)
        if how == "Entry":
            graph = writer.graph(name, name, GraphKind.ENTRY, digest(name), [node])
        else:
            nodes = [replace(node, name="VarHandleOp"), Node("r", "_Retval", index=0, inputs=(Edge(0, 0),))]
            graph = writer.graph("VarHandleOp", "VarHandleOp", GraphKind.EAGER, digest("VarHandleOp", name), nodes)
        writer.call(call, graph, 0, 0, -1, -1, self.caller(line, text))
        self.handles[name] = call
        self.state[name] = self.make(name, 0, 0, (), "state", name)
        if initial is not None:
            self.state[name] = self.host(initial)
            op = Op(f"assign_{name}", "AssignVariableOp", [name, initial], [], "", line, text)
            self.eager_op(op, {name: name, initial: self.state[name]})

    def top(self, statements: Sequence[Op]) -> None:
        made: dict[str, Tensor] = {}
        for statement in statements:
            inputs: dict[str, Tensor | str] = {}
            for name in statement.inputs:
                if name in self.program.variables:
                    inputs[name] = name
                else:
                    inputs[name] = made.setdefault(name, self.host(name))
            if statement.op in self.program.functions:
                results = self.call(self.program.functions[statement.op], statement, inputs)
            else:
                results = self.eager_op(statement, inputs)
            for slot, tensor in enumerate(results):
                made[f"{statement.name}:{slot}"] = tensor
                made.setdefault(statement.name, tensor)

    def link(self, call: int, arg: int, value: Tensor | str) -> None:
        if isinstance(value, str):
            self.writer.link(call, arg, self.handles[value], 0)
        else:
            self.writer.link(call, arg, *(value.producer or (-1, 0)))

    def finish(self, call: int, graph: int, statement: Op) -> None:
        step = self.round if self.steps else -1
        self.writer.call(call, graph, statement.thread, 0, -1, step, self.caller(statement.line, statement.text))

    def eager_op(self, op: Op, inputs: Mapping[str, Tensor | str]) -> list[Tensor]:
        writer, call = self.writer, self.start()
        given = [inputs[name] for name in op.inputs]
        flags, count = flags_of(op.op), len(given)
        if self.passes is not None and is_passed(op.op, count, ()) and not op.thread and self.passes(op.name):
            flags |= NodeFlag.PASSED
        kinds = (flags & NodeFlag.PASSED, *(isinstance(value, str) for value in given))
        if (op.op, op.attrs, kinds) not in self.eager:
            nodes = [Node(f"arg{i}", "_Arg", index=i) for i in range(count)]
            edges = tuple(Edge(i, 0) for i in range(count))
            nodes.append(Node(op.op, op.op, attrs=digest(op.attrs), flags=flags, inputs=edges))
            rows: list[tuple[int, int, int, int]] = [(i, 0, SiteKind.ARG, FLOAT) for i in range(count)]
            if flags & NodeFlag.WRITER:
                rows.append((count, kinds[1:].index(True), SiteKind.WRITE, FLOAT))
            else:
                nodes.append(Node("r", "_Retval", index=0, inputs=(Edge(count, 0),)))
                rows += [(count, 0, SiteKind.OUTPUT, FLOAT)] if not flags & NodeFlag.PASSED else []
            graph = writer.graph(op.op, op.op, GraphKind.EAGER, digest(op.op, op.attrs, kinds[1:]), nodes)
            self.eager[op.op, op.attrs, kinds] = (graph, writer.sites(graph, rows) if rows else 0)
        graph, site = self.eager[op.op, op.attrs, kinds]
        for i, value in enumerate(given):
            self.link(call, i, value)
            if isinstance(value, Tensor) and value.producer is None:
                self.event(call, site + i, (), op.inputs[i], value)
        outputs, written = self.compute(op, given, 1, self.round, ())
        if not flags & NodeFlag.PASSED:
            self.event(call, site + count, (), op.name, written if written is not None else outputs[0])
        self.finish(call, graph, op)
        return [] if written is not None else [replace(outputs[0], producer=(call, 0))]

    def call(self, function: Function, statement: Op, inputs: Mapping[str, Tensor | str]) -> list[Tensor]:
        number, call = self.ordinal[function.name], self.start()
        self.ordinal[function.name] += 1
        if function.name not in self.built:
            built = _Builder(function, self.program.variables, self.writer, self.opaque, self.passes)
            self.built[function.name] = built
            for i, node in enumerate(built.nodes):
                if node.op == "Const":
                    tensor = self.make(node.name, 0, 0, (), "Const", node.attrs)
                    self.event(NO_CALL, built.sites[i, 0, SiteKind.CONST], (), node.name, tensor)
                if node.flags & NodeFlag.OPAQUE:
                    entry = {"kind": "opaque", "name": node.name, "op_type": node.op, "reason": "asked for", "count": 1}
                    self.writer.journal(entry)
        built = self.built[function.name]
        env: dict[str, Tensor | str] = {}
        for i, (name, given) in enumerate(zip(function.args, statement.inputs, strict=True)):
            value = env[name] = inputs[given]
            self.link(call, i, value)
            if isinstance(value, Tensor):
                self.event(call, built.sites[i, 0, SiteKind.ARG], (), given, value)
        for i, name in enumerate(built.captured, len(function.args)):
            env[name] = name
            self.link(call, i, name)
        self.block(built, function.body, env, call, number, ())
        self.finish(call, built.graph, statement)
        return [replace(_look(env, name), producer=(call, i)) for i, name in enumerate(built.results)]

    # in a function

    def block(
        self,
        built: _Builder,
        statements: Sequence[Statement],
        env: dict[str, Tensor | str],
        call: int,
        number: int,
        path: tuple[int, ...],
    ) -> None:
        def event(node: int, slot: int, kind: SiteKind, tensor: Tensor, at: tuple[int, ...]) -> None:
            site = built.sites.get((node, slot, kind))
            if site is not None:
                self.event(call, site, at, built.nodes[node].name, tensor)

        def named(name: str) -> int:
            return next(i for i, node in enumerate(built.nodes) if node.name == name)

        for statement in statements:
            if isinstance(statement, Op):
                node = statement.node
                if statement.op == "Const":
                    env[statement.name] = self.make(statement.name, 0, 0, (), "Const", built.nodes[node].attrs)
                    continue
                slots = 1 + max(slot for i, slot, _ in [*built.sites, (node, 0, None)] if i == node)
                if built.nodes[node].flags & NodeFlag.PASSED:
                    slots = 1 + built.slots.get(node, 0)
                inputs = [env[name] if name in self.handles else _look(env, name) for name in statement.inputs]
                outputs, written = self.compute(statement, inputs, slots, number, path)
                for slot, tensor in enumerate(outputs):
                    event(node, slot, SiteKind.OUTPUT, tensor, path)
                    env[f"{statement.name}:{slot}"] = tensor
                env[statement.name] = outputs[0]
                if written is not None:
                    at = next(i for i, value in enumerate(inputs) if isinstance(value, str))
                    event(node, at, SiteKind.WRITE, written, path)
            elif isinstance(statement, Loop):
                name = statement.name
                limit = int(statement.trips) if statement.trips.isdigit() else 3
                limit = self.trips.get(name, limit)
                carried = {left: _look(env, right) for left, right in statement.variables}
                less, add = named(f"{name}/Less"), named(f"{name}/AddV2")
                for i in range(limit + 1):
                    at = (*path, i)
                    event(less, 0, SiteKind.OUTPUT, self.make(f"{name}/Less", 0, number, at, "Less", i < limit), at)
                    if i == limit:
                        break
                    count = self.make(f"{name}/AddV2", 0, number, at, "count", i)
                    event(add, 0, SiteKind.OUTPUT, count, at)
                    inner = {**env, **carried, "i": count}
                    self.block(built, statement.body, inner, call, number, at)
                    carried = {left: _look(inner, statement.next[left]) for left in carried}
                for left, value in carried.items():
                    env[f"{name}.{left}"] = value
                env[name] = carried[statement.variables[0][0]]
            else:
                side = 0 if self.branch.get(statement.name, True) else 1
                inner = dict(env)
                self.block(built, statement.sides[side], inner, call, number, path)
                env[statement.name] = _look(inner, statement.give[side])


def _look(env: Mapping[str, Tensor | str], name: str) -> Tensor:
    value = env[name] if name in env else env[name.removesuffix(":0")]
    assert isinstance(value, Tensor), f"{name} is a variable"
    return value


def record(
    source: str | Program,
    path: str | os.PathLike[str],
    *,
    change: Mapping[str, int] | None = None,
    mask: Collection[str] = (),
    calls: int = 3,
    branch: Mapping[str, bool] | None = None,
    trips: Mapping[str, int] | None = None,
    permute: Mapping[str, Sequence[int]] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    opaque: Collection[str] = (),
    values: bool = False,
    steps: bool = False,
    info: Mapping[str, Any] | None = None,
    complete: bool = True,
    passes: Callable[[str], bool] | None = None,
) -> Path:
    """Runs a program and records it; returns the path. An existing file is replaced.

    change   output -> salt (ulps, with values). A key is a node's name (or that of a host value, of a constant or of a
             variable: its bytes before anything wrote them), then optionally `:slot`, `@call` (ordinal of the
             function's call; at top level the round) and `/iteration`: "dense@1", "d@0/2", "split:1", "d@0/1,2"
    mask     nodes whose output does not depend on their inputs: they absorb differences
    branch   `if` -> which side it takes;  trips: `loop` -> iterations
    permute  random op -> the order in which its draws arrive
    shapes   node or host value -> the shape of its events (2x3 else)
    opaque   nodes whose outputs are not recorded
    steps    mark each round as a step;  info: merged into the run's info;  complete: write the end
    passes   a cheap recording: of the ops that it need not record it leaves out those whose names this takes
    """
    parsed = program(source) if isinstance(source, str) else source
    with TraceWriter(path, force=True) as writer:
        writer.journal({"kind": "info", "run": {"argv": [FILE], "digest": {"graph": "mini/1", "host": "mini/1"}}})
        writer.journal({"kind": "info", "run": dict(info or {})})
        if passes is not None:
            writer.journal({"kind": "info", "run": {"options": {"ops": "suspects"}}})
        run = _Run(
            program=parsed,
            writer=writer,
            change=change or {},
            mask=mask,
            branch=branch or {},
            trips=trips or {},
            permute=permute or {},
            shapes=shapes or {},
            opaque=opaque,
            values=values,
            steps=steps,
            passes=passes,
        )
        for name, (how, initial, line) in parsed.variables.items():
            run.variable(name, how, initial, line)
        for run.round in range(calls):
            run.top(parsed.main)
            writer.flush()
        if complete:
            writer.journal({"kind": "end", "status": "complete", "exit": 0, "reason": None})
    return Path(path)


def recorded(source: str | Program, path: str | os.PathLike[str], **options: Any) -> Trace:
    """`record`, then `load`."""
    return load(record(source, path, **options))
