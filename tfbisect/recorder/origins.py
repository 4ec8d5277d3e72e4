"""From a node of an executed graph back to the function, the node and the Python lines it was written as.

Reads definitions and debug info from TensorFlow's context; builds nothing. Private TensorFlow API used here, tried on
2.16.2, 2.18.1 and 2.21.0: `context.Context.get_function_def / get_graph_debug_info / has_function`.
"""

import dataclasses
import hashlib
import itertools
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tensorflow.python.framework import tensor_util

from tfbisect.model import Edge, Node, NodeFlag
from tfbisect.recorder import digest, executed, ops

# what lowering puts between a call node's name and the names inside the function it calls
_LOWERED = re.compile(r"^(?:Func/)?(?:(?:then|else|body|cond|branch\d+|input|output)/_\d+_?/)*")
_PART = re.compile(r"^(?:Func/)?(then|else|body|cond|branch(\d+))/_\d+")
_OPTIMIZERS = re.compile(r"(?:ArithmeticOptimizer|ConstantFolding|LayoutOptimizer|DependencyOptimizer|Func)[/-]")
_BACKWARD = re.compile(r"Grad(?:WithFixedKsize)?(?=V\d|$)|Backprop(?:Input|Filter)?")
_BRANCHES = ("If", "StatelessIf", "Case", "StatelessCase")  # the first input chooses
_LOOPS = ("While", "StatelessWhile")
MOST_FUSED = 30  # nodes that a search for the main op of a fused one looks at
MOST_WRITTEN = 200_000  # nodes of a function and those that it calls
MOST_FOLDED = 500  # nodes that a search for the origin of a folded constant looks at
_GRADIENT = re.compile(r"^(?P<scope>.*?)(?:gradient_tape|gradients(?:_\d+)?)/(?P<rest>.+)$")

Chain = tuple[tuple[str, str], ...]
"""(function, call node) from the outermost in, and last (function, node): what an executed node stands for."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a node comes from: the user's function, its node there, the stack id, and the forward op's name or ''."""

    function: str
    node: str
    stack: int
    forward: str


@dataclass(slots=True)
class _Function:
    nodes: dict[str, Any]  # name -> NodeDef
    arguments: list[str]
    debug: Any  # GraphDebugInfo or None


class Origins:
    """Looks nodes up by name, through inlined functions and lowered branches and loops."""

    def __init__(self, context: Any, intern: Callable[[Iterable[tuple[str, int, str]]], int]) -> None:
        self._context, self._intern = context, intern
        self._functions: dict[str, _Function | None] = {}
        self._stacks: dict[tuple[str, str], int] = {}
        self._originals: dict[str, str] = {}

    def forget(self) -> None:
        """Drop what was read: functions can be redefined under TensorFlow's feet."""
        self._functions.clear()
        self._stacks.clear()

    def alias(self, originals: dict[str, str]) -> None:
        """Copies of functions: {copy: original}. A copy has no debug info of its own."""
        self._originals.update(originals)

    def of(self, function: str, node: Any, op: str) -> Origin:
        """The origin of a NodeDef of the executed graph of runtime function `function`.

        op: the type of the op that it stands for. A fused op has the name of the last op fused into it.
        """
        chain = self._chain(function, node)
        where, name = (self._main(chain, op) if node.op != op else chain)[-1]
        user = ops.user_name(self._originals.get(where, where))
        return Origin(user, name, self._stack(where, name), self._forward(where, name))

    def _main(self, chain: Chain, op: str) -> Chain:
        """The nearest node of a type among those that went into a node; the node itself if there is none."""
        waiting, done = [chain], set[Chain]()
        while waiting and len(done) < MOST_FUSED:
            here = waiting.pop(0)
            known = self._node(*here[-1])
            if known is None or here in done:
                continue
            if known.op == op:
                return here
            done.add(here)
            waiting += self._sources(here)
        return chain

    def folded(self, function: str, nodes: Sequence[Any]) -> dict[int, list[tuple[str, Origin, Any]]]:
        """The constants of the program that those of an executed graph were folded from, by their place in `nodes`.

        (name, origin, NodeDef) of each. Left out are constants that stand in the program as they are; empty is what
        an optimizer made of nobody knows what.
        """
        chains = {place: self._chain(function, node) for place, node in enumerate(nodes) if node.op == "Const"}
        whole = {place for place, chain in chains.items() if _same_constant(self._node(*chain[-1]), nodes[place])}
        if len(whole) == len(chains):
            return {}
        takers: dict[str, list[Chain]] = {}
        kept = {chains[place] for place in whole}
        for node in nodes:
            if node.op == "Const" or node.op in executed.ARGUMENTS or node.op in executed.RESULTS:
                continue
            chain = self._chain(function, node)
            kept.add(chain)
            for ref in node.input:
                takers.setdefault(ref.partition(":")[0], []).append(chain)
        return {
            place: [self._constant(found) for found in self._made_of(chain, takers.get(nodes[place].name, ()), kept)]
            for place, chain in chains.items()
            if place not in whole
        }

    def _made_of(self, chain: Chain, takers: Iterable[Chain], kept: set[Chain]) -> list[Chain]:
        """The constants that went into a constant: those that its namesake comes from, and those that its takers were
        written with: optimizers also merge what one op is given with what the next one is."""
        known = self._node(*chain[-1])
        waiting = [] if known is None else [chain]
        if known is not None and known.op != "Const":  # of what was rewritten only the constant inputs count
            waiting = [source for source in self._sources(chain) if self._is_constant(source, frozenset())]
        found = self._constants_behind(waiting, set())
        beside = [source for taker in takers if self._node(*taker[-1]) is not None for source in self._sources(taker)]
        found += self._constants_behind(beside, kept)
        return list(dict.fromkeys(found))

    def _constants_behind(self, waiting: list[Chain], kept: set[Chain]) -> list[Chain]:
        """The constants that some nodes come from, not through or among those that were kept."""
        found: list[Chain] = []
        done: set[Chain] = set()
        while waiting and len(done) < MOST_FOLDED:
            here = waiting.pop()
            if here in done or here in kept:
                continue
            done.add(here)
            if self._node(*here[-1]).op == "Const":
                found.append(here)
            else:
                waiting += self._sources(here)
        return found

    def _constant(self, chain: Chain) -> tuple[str, Origin, Any]:
        where, name = chain[-1]
        user = ops.user_name(self._originals.get(where, where))
        path = "/".join([call for _, call in chain[:-1]] + [name])
        return path, Origin(user, name, self._stack(where, name), ""), self._node(where, name)

    def takers(self, function: str) -> dict[str, tuple[str, int]]:
        """{argument: op type and stack of the first op that was written to take it}"""
        known = self._function(function)
        found: dict[str, tuple[str, int]] = {}
        if known is None:
            return found
        for name, node in known.nodes.items():
            for ref in node.input:
                if ref in known.arguments and ref not in found:
                    found[ref] = node.op, self._stack(function, name)
        return found

    def written(self, function: str, attrs: Callable[[Any], int]) -> list[Node]:
        """A function as Python traced it, with the functions that it calls, in the order in which it was written.

        attrs: the digest of a NodeDef's attributes; that of a constant gets its value added. Inputs say what a node
        comes from: an argument of an inner function from all that the call takes, a call from all that it does.
        """
        found: list[Node] = []
        listed: set[str] = set()

        def add(where: str, path: str, given: tuple[Edge, ...]) -> None:
            known = self._function(where)
            if known is None or where in listed:
                return
            listed.add(where)
            user = ops.user_name(self._originals.get(where, where))
            numbers: dict[str, int] = {}
            for name, node in known.nodes.items():
                if len(found) > MOST_WRITTEN:
                    return
                sources = [ref.partition(":")[0] for ref in node.input if not ref.startswith("^")]
                inputs = [(Edge(numbers[source], 0),) if source in numbers else given for source in sources]
                numbers[name] = number = len(found)
                digest_of_attrs = attrs(node)
                if node.op == "Const":
                    value = node.attr["value"].tensor.SerializeToString(deterministic=True)
                    digest_of_attrs = digest.of_text(digest_of_attrs, hashlib.sha256(value).hexdigest())
                taken = tuple(dict.fromkeys(itertools.chain(*inputs)))
                found.append(Node(
                    name=path + name, op=node.op, function=user, stack=self._stack(where, name), attrs=digest_of_attrs,
                    flags=NodeFlag.RANDOM if node.op in ops.RANDOM else NodeFlag.NONE, inputs=taken,
                ))  # fmt: skip
                for callee in executed.callees(node):
                    add(callee, f"{path}{name}/", taken)
                inner = tuple(Edge(place, 0) for place in range(number + 1, len(found)))
                if inner:
                    found[number] = dataclasses.replace(found[number], inputs=taken + inner)

        add(function, "", ())
        return found

    def _sources(self, chain: Chain) -> list[Chain]:
        """The nodes behind the data inputs of a node, through the arguments of the functions it stands in."""
        where, name = chain[-1]
        found = []
        for ref in self._node(where, name).input:
            here, base = chain, ref.partition(":")[0]
            while not ref.startswith("^"):
                if self._node(here[-1][0], base) is not None:
                    found.append((*here[:-1], (here[-1][0], base)))
                    break
                function = self._function(here[-1][0])
                arguments = function.arguments if function is not None else []
                if base not in arguments or len(here) < 2:
                    break
                here = here[:-1]
                call = self._node(*here[-1])
                place = arguments.index(base) + (1 if call.op in _BRANCHES else 0)
                if call.op in _LOOPS or place >= len(call.input):
                    break  # a loop's variable is no constant
                base = call.input[place].partition(":")[0]
        return found

    def _is_constant(self, chain: Chain, above: frozenset[Any]) -> bool:
        """Whether a node's value follows from constants alone."""
        node = self._node(*chain[-1])
        if node.op == "Const":
            return True
        if chain in above or len(above) > MOST_FOLDED or ops.cannot_be_folded(node.op):
            return False
        sources = self._sources(chain)
        data = [ref for ref in node.input if not ref.startswith("^")]
        return len(sources) == len(data) > 0 and all(self._is_constant(s, above | {chain}) for s in sources)

    def _chain(self, function: str, node: Any) -> Chain:
        """What an executed node stands for."""
        chain = self._resolve(function, node.name) or ((function, node.name),)
        if self._node(*chain[-1]) is None:
            info = node.experimental_debug_info
            for func, original in zip(info.original_func_names, info.original_node_names, strict=False):
                if self._node(func, original) is not None:
                    return ((func, original),)
        return chain

    def _function(self, name: str) -> _Function | None:
        if name not in self._functions:
            found = None
            if self._context.has_function(name):
                definition = self._context.get_function_def(name)
                try:
                    debug = self._context.get_graph_debug_info(self._originals.get(name, name))
                except Exception:  # an imported function has none
                    debug = None
                found = _Function(
                    {node.name: node for node in definition.node_def},
                    [arg.name for arg in definition.signature.input_arg], debug,
                )  # fmt: skip
            self._functions[name] = found
        return self._functions[name]

    def _node(self, function: str, name: str) -> Any:
        found = self._function(function)
        return found.nodes.get(name) if found else None

    def _resolve(self, function: str, name: str, depth: int = 0) -> Chain | None:
        """What an executed node's name stands for, see `_chain`; the longest prefix that is a call is entered."""
        found = self._function(function)
        if found is None or depth > 64:
            return None
        if name in found.nodes:
            return ((function, name),)
        plain = _OPTIMIZERS.sub("", name)
        for candidate in (name, plain):
            parts = candidate.split("/")
            for count in range(len(parts) - 1, 0, -1):
                call = found.nodes.get("/".join(parts[:count]))
                if call is None:
                    continue
                inner = _LOWERED.sub("", "/".join(parts[count:]))
                for callee in _entered(call, "/".join(parts[count:])):
                    resolved = self._resolve(callee, inner, depth + 1) if inner else None
                    if resolved:
                        return (function, call.name), *resolved
                return ((function, call.name),)
        # an optimizer's own node is named after the node it was made for: `AddOpsRewrite_add`, `truediv_recip`
        best = max((known for known in found.nodes if plain.endswith(known)), key=len, default=None)
        if best is None:
            named = (known for known in found.nodes if plain.startswith(known) and not plain[len(known)].isalnum())
            best = max(named, key=len, default=None)
        return ((function, best),) if best else None

    def _stack(self, function: str, name: str) -> int:
        key = function, name
        if key not in self._stacks:
            found, stack = self._function(function), 0
            if found is not None and found.debug is not None:
                debug = found.debug
                number = debug.name_to_trace_id.get(name)
                if number is not None:
                    trace = debug.traces_by_id[number]
                    frames = [debug.frames_by_id[frame] for frame in trace.frame_id]
                    stack = self._intern((debug.files[f.file_index], f.line, f.func) for f in frames)
            self._stacks[key] = stack
        return self._stacks[key]

    def _forward(self, function: str, name: str) -> str:
        """The forward op whose gradient an op computes, or ''.

        TensorFlow builds the gradient of an op inside `gradient_tape/<name scope of the forward op>`. There, the
        forward op is the one of the fitting type that shares a tensor with the gradient op, or the only one of that
        type. Where that leaves a choice, nothing is named.
        """
        match, found = _GRADIENT.match(name), self._function(function)
        if not match or found is None or name not in found.nodes:
            return ""
        scope = match["scope"] + match["rest"].rpartition("/")[0]
        gradient = found.nodes[name]
        types = {gradient.op, _BACKWARD.sub("", gradient.op)}
        fitting = [
            node for node in found.nodes.values()
            if node.op in types and node.name != name and not _GRADIENT.match(node.name) and _in_scope(node.name, scope)
        ]  # fmt: skip
        taken = {_tensor(ref) for ref in gradient.input}
        producers = [node for node in fitting if node.name in {tensor.partition(":")[0] for tensor in taken}]
        sharing = [node for node in fitting if taken & {_tensor(ref) for ref in node.input}]
        for candidates in (producers, sharing, fitting):
            if candidates:
                return str(candidates[0].name) if len(candidates) == 1 else ""
        return ""


def _in_scope(name: str, scope: str) -> bool:
    """Whether a node was made in a name scope; tf.gradients scopes are named after the op itself (`MatMul_grad`)."""
    return name.rpartition("/")[0] == scope or re.sub(r"_grad$", "", scope) == name


def _tensor(ref: str) -> str:
    return ref.lstrip("^")


def _entered(call: Any, rest: str) -> list[str]:
    """The functions of a call that a lowered name leads into: of a branch or loop only the part that it names."""
    match = _PART.match(rest)
    functions = executed.callees(call)
    if match is None:
        return functions
    if match[2]:
        branches = [func.name for func in call.attr["branches"].list.func] if "branches" in call.attr else []
        return branches[int(match[2]) :][:1] or functions
    part = {"then": "then_branch", "else": "else_branch"}.get(match[1], match[1])
    return [call.attr[part].func.name] if part in call.attr else functions


def _same_constant(source: Any, node: Any) -> bool:
    """Whether a constant of the executed graph stands in the program as it is."""
    if source is None or source.op != "Const":
        return False
    one, two = source.attr["value"].tensor, node.attr["value"].tensor
    if one == two:
        return True
    if one.dtype != two.dtype or one.tensor_shape != two.tensor_shape:
        return False
    try:
        return bool(tensor_util.MakeNdarray(one).tobytes() == tensor_util.MakeNdarray(two).tobytes())
    except Exception:  # a type that NumPy has none for
        return False
