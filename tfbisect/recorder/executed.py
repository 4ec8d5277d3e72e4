"""The graph TensorFlow really executes for a function: placed, inlined, lowered, fused, without running a kernel.

Knows nothing of taps or traces. Private TensorFlow API used here, tried on 2.16.2, 2.18.1 and 2.21.0:
`context.Context.get_function_def / add_function_def / remove_function / enable_graph_collection /
disable_graph_collection / export_run_metadata`, `execute.execute_with_cancellation`, `execute.quick_execute`,
`cancellation.CancellationManager`.
"""

import collections
import itertools
import re
from collections.abc import Callable, Sequence
from typing import Any

from google.protobuf.message import DecodeError
from tensorflow.core.framework import function_pb2, graph_pb2
from tensorflow.python.eager import cancellation, execute
from tensorflow.python.framework import errors

from tfbisect.errors import first_line
from tfbisect.model import COMPILED_BY_XLA
from tfbisect.recorder import private
from tfbisect.recorder.controlflow import base

SENDS, RECEIVES = ("_Send", "_HostSend"), ("_Recv", "_HostRecv")
ARGUMENTS, RESULTS = ("_Arg", "_DeviceArg"), ("_Retval", "_DeviceRetval")
_PARTITIONER_NAME = re.compile(r"(/_\d+)$")
_OPTIMIZER_NAMES = ("ArithmeticOptimizer/", "ConstantFolding/", "LayoutOptimizer", "Func/", "_")
MOST_BYTES = 100 * 2**20
_COMPILED = "_XlaMustCompile"
_MARK = "tfbisect_nothing"
_fresh = itertools.count()


class NotToBeHad(Exception):
    """The executed graph could not be taken; the text says why."""


def must_not_be_probed(context: Any, definition: Any) -> str | None:
    """Why this function's graph cannot be asked for; None when it can.

    XLA ignores the cancellation and runs the function (seen on 2.16 to 2.21). TensorFlow hands the graph out as one
    protocol buffer that holds the constants several times and ends at 2 GiB.
    """
    if definition.attr[_COMPILED].b:
        return COMPILED_BY_XLA
    size = sum(each.ByteSize() for each in library(context, definition).values())
    if size > MOST_BYTES:
        return f"its constants take {size / 2**20:.0f} MiB, above {MOST_BYTES / 2**20:.0f} MiB"
    return None


def library(context: Any, definition: Any) -> dict[str, Any]:
    """{name: FunctionDef} of a function and all functions that it calls, at any depth."""
    found: dict[str, Any] = {}
    waiting = [definition]
    while waiting:
        each = waiting.pop()
        if each.signature.name in found:
            continue
        found[each.signature.name] = each
        for node in each.node_def:
            for name in callees(node):
                if name not in found and context.has_function(name):
                    waiting.append(context.get_function_def(name))
    return found


def is_compiled(context: Any, definition: Any) -> bool:
    """Whether XLA compiles a function or one that it calls."""
    return any(
        each.attr[_COMPILED].b or any(node.attr[_COMPILED].b for node in each.node_def if _COMPILED in node.attr)
        for each in library(context, definition).values()
    )


def without_xla(context: Any, definition: Any) -> tuple[Any, dict[str, str]]:
    """A registered copy of a function that XLA does not compile; -> (its FunctionDef, {copied name: original name})."""
    functions = library(context, definition)
    number = next(_fresh)
    copied = {name: f"{name}__plain{number}" for name in functions}
    for name, each in functions.items():
        copy = function_pb2.FunctionDef()
        copy.CopyFrom(each)
        copy.signature.name = copied[name]
        if copy.attr.pop(_COMPILED, None) is not None:
            copy.attr.pop("_noinline", None)  # jit_compile=True sets both
        for node in copy.node_def:
            node.attr.pop(_COMPILED, None)
            for value in node.attr.values():
                if value.HasField("func"):
                    value.func.name = copied.get(value.func.name, value.func.name)
                elif value.HasField("list"):
                    for func in value.list.func:
                        func.name = copied.get(func.name, func.name)
        context.add_function_def(copy)
    original = {copy: name for name, copy in copied.items()}
    return context.get_function_def(copied[definition.signature.name]), original


def callees(node: Any) -> list[str]:
    """The functions that a NodeDef's attributes name."""
    names = []
    for key in sorted(node.attr):
        value = node.attr[key]
        if value.HasField("func"):
            names.append(value.func.name)
        elif value.HasField("list"):
            names += [func.name for func in value.list.func]
    return names


def executed_graph(
    context: Any, name: str, inputs: Sequence[Any], num_outputs: int, attrs: tuple[Any, ...], tries: int = 3
) -> Any:
    """The joined partition graphs of function `name` called with `inputs`, as one GraphDef.

    A renamed copy is instantiated with a cancellation manager that is already cancelled: TensorFlow optimizes the
    function, hands out its graphs and stops before the first kernel. The new name matters: what ran before is cached
    and not collected again. The caller holds the lock that keeps other instantiations away; since functions of
    tf.data are instantiated by threads no lock reaches, the graph must also prove that it is this function's.

    Raises NotToBeHad.
    """
    if missing := private.lacking(private.Part.FUNCTIONS):
        raise NotToBeHad(private.sentence(missing))
    definition = context.get_function_def(name)
    reason = must_not_be_probed(context, definition)
    if reason:
        raise NotToBeHad(reason)
    for _ in range(tries):
        for candidate in _collected(context, definition, inputs, num_outputs, attrs):
            graph = joined(candidate)
            if _belongs(graph, definition):
                return without_partitioner_loops(graph)
    raise NotToBeHad("TensorFlow did not hand out the optimized graph")


def _collected(
    context: Any, definition: Any, inputs: Sequence[Any], num_outputs: int, attrs: tuple[Any, ...]
) -> list[list[Any]]:
    """The partition graphs of every function instantiated while a copy of `definition` was."""
    probe = function_pb2.FunctionDef()
    probe.CopyFrom(definition)
    probe.signature.name = f"{definition.signature.name}__probe{next(_fresh)}"
    flush = function_pb2.FunctionDef()
    flush.signature.name = f"tfbisect_flush{next(_fresh)}"
    flush.node_def.add(name=_MARK, op="NoOp")
    context.add_function_def(probe)
    context.add_function_def(flush)
    cancelled = cancellation.CancellationManager()
    cancelled.start_cancel()
    context.enable_graph_collection()
    try:
        try:
            execute.execute_with_cancellation(
                probe.signature.name, num_outputs=num_outputs, inputs=list(inputs), attrs=attrs, ctx=context,
                cancellation_manager=cancelled,
            )  # fmt: skip
        except errors.CancelledError:
            pass
        else:
            raise NotToBeHad("the function ran although it was cancelled")
        # the collected graphs surface with the next function that runs to its end
        execute.quick_execute(flush.signature.name, num_outputs=0, inputs=[], attrs=attrs, ctx=context)
        graphs = context.export_run_metadata().function_graphs
    except errors.OpError as error:
        raise NotToBeHad(f"TensorFlow could not instantiate it: {first_line(error)}") from error
    except DecodeError as error:
        raise NotToBeHad("its graph is too large to be handed out") from error
    finally:
        context.disable_graph_collection()
        context.remove_function(probe.signature.name)
        context.remove_function(flush.signature.name)
    return [[part for part in graph.partition_graphs if all(n.name != _MARK for n in part.node)] for graph in graphs]


def _belongs(graph: Any, definition: Any) -> bool:
    """Whether the graph has the arguments, the results and the names of this function."""
    arguments = {node.attr["index"].i for node in graph.node if node.op in ARGUMENTS}
    results = {node.attr["index"].i for node in graph.node if node.op in RESULTS}
    signature = definition.signature
    if not arguments <= set(range(len(signature.input_arg))) or results != set(range(len(signature.output_arg))):
        return False
    dtypes = {node.attr["index"].i: node.attr["T"].type for node in graph.node if node.op in ARGUMENTS}
    if any(signature.input_arg[index].type not in (0, dtype) for index, dtype in dtypes.items()):
        return False
    known = {node.name for node in definition.node_def} | {arg.name for arg in signature.input_arg}
    names = [n.name for n in graph.node if n.op not in RESULTS and not n.name.startswith(_OPTIMIZER_NAMES)]
    ours = sum(1 for name in names if name in known or any(part in known for part in _prefixes(name)))
    return bool(graph.node) and 2 * ours >= len(names)


def _prefixes(name: str) -> list[str]:
    parts = name.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts))]


def joined(partitions: Sequence[Any]) -> Any:
    """One graph from the per-device partitions: what a _Recv receives is taken from where its _Send gets it.

    The partitions are what runs: oneDNN's rewrite comes after `post_optimization_graph` was taken, and it declines
    nodes that have taps.
    """
    sends = {node.attr["tensor_name"].s: node.input[0] for part in partitions for node in part.node if node.op in SENDS}
    received = {
        node.name: sends[node.attr["tensor_name"].s]
        for part in partitions
        for node in part.node
        if node.op in RECEIVES and node.attr["tensor_name"].s in sends
    }

    def origin(ref: str) -> str:
        control = "^" if ref.startswith("^") else ""
        while base(ref) in received:
            source = received[base(ref)]
            ref = control + (base(source) if control else source)
        return ref

    graph = graph_pb2.GraphDef()
    for node in (node for part in partitions for node in part.node):
        if node.op in SENDS or node.name in received:
            continue
        copy = graph.node.add()
        copy.CopyFrom(node)
        controls = list(dict.fromkeys(ref for ref in map(origin, node.input) if ref.startswith("^")))
        del copy.input[:]
        copy.input.extend([origin(ref) for ref in node.input if not ref.startswith("^")] + controls)
    return graph


def without_partitioner_loops(graph: Any) -> Any:
    """The joined graph without the partitioner's own control loops, and with names it cannot make again.

    A loop over several devices gets a `_cloop...` Enter/Merge/Switch/NextIteration for each further device. Kept, the
    twin fails with "Node '_cloop...' is not unique" (seen on 2.16 to 2.21), as the partitioner adds them once more.
    It names what it makes `<node>/_<number>`.
    """
    feeds: dict[str, set[str]] = collections.defaultdict(set)
    for node in graph.node:
        for ref in node.input:
            feeds[base(ref)].add(node.name)
    made = {node.name for node in graph.node if node.name.startswith("_cloop")}
    made |= {node.name for node in graph.node if node.op == "Const" and feeds[node.name] and feeds[node.name] <= made}
    rename: Callable[[str], str] = lambda name: _PARTITIONER_NAME.sub(r"\1_", name)  # noqa: E731
    result = graph_pb2.GraphDef()
    for node in graph.node:
        if node.name in made:
            continue
        copy = result.node.add()
        copy.CopyFrom(node)
        copy.name = rename(node.name)
        del copy.input[:]
        for ref in node.input:
            if base(ref) not in made:
                name, colon, output = ref.partition(":")
                copy.input.append(rename(name) + colon + output)
    return result
