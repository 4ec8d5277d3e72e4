"""The variable behind a resource's handle, as the handle data says; runs nothing.

Private TensorFlow API used here, tried on 2.16.2, 2.18.1 and 2.21.0: `EagerTensor._handle_data`.
"""

from collections.abc import Sequence
from typing import Any

from tfbisect.recorder.digest import DT_RESOURCE


def dtype_of(handle: Any) -> int:
    """The DataType of the variable behind a handle; 0 if it is no variable's."""
    data = getattr(handle, "_handle_data", None)
    return int(data.shape_and_type[0].dtype) if data is not None and data.is_set else 0


def variables_of(inputs: Sequence[Any]) -> dict[int, int]:
    """{argument number: DataType} of the arguments that are handles of variables."""
    found = {}
    for index, tensor in enumerate(inputs):
        if tensor.dtype.as_datatype_enum == DT_RESOURCE:
            dtype = dtype_of(tensor)
            if dtype:
                found[index] = dtype
    return found
