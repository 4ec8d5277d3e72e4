"""Which shapes of an executed graph are certain before it runs.

Asks TensorFlow's own shape inference, by importing the graph into a scratch `tf.Graph`; runs nothing. Public API only.
"""

from typing import Any

import tensorflow as tf
from tensorflow.core.framework import graph_pb2

from tfbisect.recorder import controlflow, executed
from tfbisect.recorder.digest import DT_RESOURCE

Shape = tuple[int, ...]


def certain(graph: Any, definition: Any) -> dict[tuple[str, int], Shape]:
    """{(node, slot): shape} of the outputs whose shape follows from the signature of the function.

    What the signature leaves open stays out, and so do oneDNN's and fused ops, whose shape functions are not public.
    An empty result says nothing: then every shape is asked for as the graph runs.
    """
    scratch = graph_pb2.GraphDef()
    scratch.CopyFrom(graph)
    handles: dict[str, Any] = {}
    for node in scratch.node:
        node.device = ""
        node.attr.pop("_class", None)
        if node.op in executed.ARGUMENTS:
            index = node.attr["index"].i
            dtype = node.attr["T"].type
            known = definition.arg_attr[index].attr if index in definition.arg_attr else {}
            if dtype == DT_RESOURCE:
                shapes = known["_handle_shapes"].list.shape if "_handle_shapes" in known else []
                handles[node.name] = shapes[0] if shapes else None
                shape = None
            else:
                shapes = known["_output_shapes"].list.shape if "_output_shapes" in known else []
                shape = shapes[0] if shapes else None
            _placeholder(node, dtype, shape)
        elif node.op in executed.RESULTS:
            dtype = node.attr["T"].type
            node.op = "Identity"
            node.attr.clear()
            node.attr["T"].type = dtype
    for node in scratch.node:  # inference knows the shape behind a handle only inside a function
        if node.op == "ReadVariableOp" and handles.get(controlflow.base(node.input[0])) is not None:
            _placeholder(node, node.attr["dtype"].type, handles[controlflow.base(node.input[0])])
    try:
        with tf.Graph().as_default() as imported:
            tf.graph_util.import_graph_def(scratch, name="")
        operations = imported.get_operations()
    except Exception:  # a name, an op or a function that an import refuses: nothing is certain then
        return {}
    found = {}
    for operation in operations:
        if not operation.type.startswith("_"):
            for slot, output in enumerate(operation.outputs):
                if output.shape.is_fully_defined():
                    found[operation.name, slot] = tuple(output.shape.as_list())
    return found


def _placeholder(node: Any, dtype: int, shape: Any) -> None:
    node.op = "Placeholder"
    del node.input[:]
    node.attr.clear()
    node.attr["dtype"].type = dtype
    if shape is not None:
        node.attr["shape"].shape.CopyFrom(shape)
    else:
        node.attr["shape"].shape.unknown_rank = True
