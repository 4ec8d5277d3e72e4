"""Which shapes of an executed graph are certain before it runs.

Asks TensorFlow's own shape inference, by importing the graph into a scratch `tf.Graph`; runs nothing. Public API only.
"""

import ctypes
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import graph_pb2

from tfbisect.recorder import controlflow, executed
from tfbisect.recorder.digest import DT_RESOURCE

Shape = tuple[int, ...]
# Ops whose output's shape is a matter of their inputs' shapes and constants, as their shape functions say.
TRUSTED = frozenset({
    "Placeholder", "Const", "Identity", "StopGradient", "PreventGradient", "Reshape", "Squeeze", "ExpandDims",
    "MatMul", "BatchMatMul", "BatchMatMulV2", "BiasAdd", "BiasAddGrad", "Conv2D", "Conv2DBackpropInput",
    "Conv2DBackpropFilter", "MaxPool", "AvgPool", "MaxPoolGrad", "AvgPoolGrad", "Softmax", "LogSoftmax", "Add",
    "AddV2", "AddN", "Sub", "Mul", "RealDiv", "Div", "DivNoNan", "FloorDiv", "FloorMod", "Neg", "Abs", "Sign",
    "Square", "SquaredDifference", "Sqrt", "SqrtGrad", "Rsqrt", "RsqrtGrad", "Reciprocal", "Pow", "Exp", "Expm1",
    "Log", "Log1p", "Sin", "Cos", "Tan", "Tanh", "TanhGrad", "Sigmoid", "SigmoidGrad", "Relu", "ReluGrad", "Relu6",
    "Relu6Grad", "LeakyRelu", "LeakyReluGrad", "Elu", "EluGrad", "Selu", "SeluGrad", "Softplus", "SoftplusGrad",
    "Erf", "Floor", "Ceil", "Round", "Rint", "Maximum", "Minimum", "Sum", "Mean", "Max", "Min", "Prod", "All",
    "Any", "Cast", "Transpose", "Tile", "Fill", "ZerosLike", "OnesLike", "BroadcastTo", "ConcatV2", "Pack", "Pad",
    "PadV2", "Select", "SelectV2", "Equal", "NotEqual", "Less", "LessEqual", "Greater", "GreaterEqual",
    "LogicalAnd", "LogicalOr", "LogicalNot", "Shape", "Size", "Rank", "L2Loss", "ArgMax", "ArgMin", "OneHot",
})  # fmt: skip


def certain(graph: Any, definition: Any) -> dict[tuple[str, int], Shape]:
    """{(node, slot): shape} of the outputs whose shape follows from the signature of the function.

    TensorFlow's inference is not always right: Svd without vectors and batch norm's reserve spaces come out in other
    shapes than inferred (seen on 2.21), and inside loops it guesses. So a shape counts only for ops of plain arithmetic
    whose inputs all have shapes that count. What the signature leaves open stays out. An empty result says nothing:
    then every shape is asked for as the graph runs.
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
    imported = tf.Graph()
    try:
        with imported.as_default():
            tf.graph_util.import_graph_def(scratch, name="")
        operations = imported.get_operations()
    except Exception:  # a name, an op or a function that an import refuses: nothing is certain then
        # TensorFlow 2.21 may still hold the graph's lock: to delete it, even as Python ends, would wait for ever.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(imported))
        return {}
    outputs = {operation.name: operation.outputs for operation in operations}
    trusted: set[str] = set()
    found = {}
    for node in controlflow.topological(scratch.node):
        sources = [controlflow.base(ref) for ref in node.input if not ref.startswith("^")]
        if node.op in TRUSTED and trusted.issuperset(sources):
            trusted.add(node.name)
            for slot, output in enumerate(outputs.get(node.name, ())):
                if output.shape.is_fully_defined():
                    found[node.name, slot] = tuple(output.shape.as_list())
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
