"""Every kind of element: integers down to int4, bfloat16, float8, complex, bool, quantized, strings, and odd shapes."""

import numpy as np
import tensorflow as tf
from ending import show

FLOATS = [tf.float64, tf.float32, tf.float16, tf.bfloat16, tf.complex64, tf.complex128]
INTEGERS = [tf.int8, tf.int16, tf.int32, tf.int64, tf.uint8, tf.uint16, tf.uint32, tf.uint64]
EIGHTS = [tf.dtypes.experimental.float8_e5m2, tf.dtypes.experimental.float8_e4m3fn]
FOURS = [tf.dtypes.experimental.int4, tf.dtypes.experimental.uint4]
variables = [tf.Variable(tf.cast([1, 2, 3], dtype)) for dtype in FLOATS + INTEGERS]
flag = tf.Variable(False)
text = tf.Variable("before")


@tf.function
def numbers(x):
    results = []
    for variable in variables:
        y = tf.cast(x, variable.dtype)
        results += [y * y + variable, tf.reduce_sum(y), tf.concat([y, y], 0)]
        variable.assign_add(y)
    return results


@tf.function
def narrow(x):
    eights = [tf.cast(x * 0.3, dtype) for dtype in EIGHTS]
    fours = [tf.cast(tf.cast(x, tf.int8), dtype) for dtype in FOURS]
    back = [tf.cast(value, tf.float32) for value in eights] + [tf.cast(value, tf.int32) for value in fours]
    return back, eights


@tf.function
def others(x):
    flag.assign(tf.logical_not(flag))
    text.assign(tf.strings.join([text, "+"]))
    words = tf.strings.split(tf.strings.join(["one two", "", "ünï 3"]))
    quantized = tf.quantization.quantize(x, -3.0, 3.0, tf.quint8)
    signed = tf.quantization.quantize(x, -3.0, 3.0, tf.qint32)
    back = tf.quantization.dequantize(quantized.output, quantized.output_min, quantized.output_max)
    spectrum = tf.signal.rfft(x)
    return [
        x > 1.0, tf.reduce_all(x > 0.0), words, tf.strings.length(words), back, tf.bitcast(signed.output, tf.int32),
        spectrum, tf.math.angle(spectrum), tf.signal.irfft(spectrum), tf.zeros([0, 3]), tf.zeros([2, 0], tf.string),
        tf.constant(7), tf.reduce_max(tf.zeros([0, 3]), axis=1), tf.where(x > 1.0), tf.unique(tf.cast(x, tf.int32)),
        tf.strings.as_string(x, precision=3), tf.io.encode_base64(words),
        tf.bitwise.bitwise_xor(tf.cast(x, tf.int32), 5),
        tf.constant([float("nan"), float("-inf"), -0.0]) * x, tf.quantization.fake_quant_with_min_max_args(x),
    ]  # fmt: skip


losses, outputs = [], []
for number in range(5):
    x = tf.constant([1.0, 2.0, 3.0]) + tf.cast(number, tf.float32)
    outputs += [numbers(x), narrow(x), others(x)]
    losses.append(tf.reduce_sum(variables[1]))
eager = [tf.cast(x, dtype) for dtype in FLOATS + INTEGERS + EIGHTS]
eager += [tf.cast(tf.constant([1, 2]), dtype) + tf.cast(1, dtype) for dtype in FLOATS + INTEGERS]
eager += [tf.constant(-0.0), tf.constant(0.0), tf.constant(True), tf.constant([], tf.string), np.float64(0.1) + x]
show(losses, variables=[*variables, flag, text], outputs=outputs, eager=eager)
