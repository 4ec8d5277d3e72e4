"""Which variables a function may write, told from its definition."""

import pytest
import tensorflow as tf
from tensorflow.python.eager import context

from tfbisect.recorder.function import variables_of
from tfbisect.recorder.writers import written_arguments


def written(function: "tf.types.experimental.GenericFunction", *args: object) -> set[int]:
    """The places, in the order of making, of the variables of a traced function that it may write."""
    concrete = function.get_concrete_function(*args)
    inputs = [*concrete.captured_inputs]
    definition = concrete.function_def
    context.context().add_function_def(definition)
    offset = len(definition.signature.input_arg) - len(inputs)
    variables = {index + offset for index in variables_of(inputs)}
    return {index - offset for index in written_arguments(context.context(), definition, variables)}


@pytest.fixture
def v() -> tf.Variable:
    return tf.Variable(1.0)


def test_reads_are_no_writes(v: tf.Variable) -> None:
    w = tf.Variable(2.0)

    @tf.function
    def f() -> tf.Tensor:
        w.assign(v + 1.0)
        return v * 2.0

    names = [v.handle is each for each in f.get_concrete_function().captured_inputs]
    assert written(f) == {names.index(False)}


def test_writes_in_branches_loops_and_called_functions_count(v: tf.Variable) -> None:
    @tf.function
    def inner() -> None:
        v.assign_add(1.0)

    @tf.function
    def called(x: tf.Tensor) -> tf.Tensor:
        inner()
        return x

    @tf.function
    def branch(x: tf.Tensor) -> tf.Tensor:
        if x > 0:
            v.assign(x)
        return x

    @tf.function
    def loop(x: tf.Tensor) -> tf.Tensor:
        for _ in tf.range(3):
            v.scatter_update(tf.IndexedSlices(x, 0)) if v.shape.rank else v.assign_sub(x)
        return x

    @tf.function
    def reads(x: tf.Tensor) -> tf.Tensor:
        if x > 0:
            x = x + v
        return x

    x = tf.constant(1.0)
    assert written(called, x) == written(branch, x) == written(loop, x) == {0}
    assert written(reads, x) == set()
