"""A planted difference is named with its op, line and iteration, through every construct of TensorFlow.

Each program calls `planted`, a Python kernel that returns its input, and in run B changes one element when the number
it is given is the wanted one. The culprit must be that op, in the line of the call, in that iteration.
"""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tfbisect
from tfbisect import trace
from tfbisect.model import Comparison, Culprit
from tfbisect.provenance import Run
from tfbisect.strangers import strange_writes

HOST = {"PyFunc", "PyFuncStateless", "EagerPyFunc"}
WANTED = 2  # the number at which run B differs
run_b = False


def _kernel(x: np.ndarray, number: np.ndarray) -> np.ndarray:
    if run_b and int(number) == WANTED:
        x = x.copy()
        x.reshape(-1)[0] += 0.25
    return x


def planted(x: tf.Tensor, number: Any) -> tf.Tensor:
    """x, through a Python kernel; the line that the culprit must have is the caller's or the one below."""
    result = tf.numpy_function(_kernel, [x, number], tf.float32, stateful=False)  # the planted line
    return tf.ensure_shape(result, x.shape)


def compared(path: Path, program: Callable[[], Any]) -> Comparison:
    """Two recorded runs of a program, of which the second has the difference planted."""
    global run_b
    try:
        for name in ("a.h5", "b.h5"):
            run_b = name == "b.h5"
            with tfbisect.record(path / name):
                program()
    finally:
        run_b = False
    return tfbisect.compare(path / "a.h5", path / "b.h5")


def named(result: Comparison) -> Culprit:
    """The one culprit, after checking that it is the planted one."""
    assert result.verdict == "diverged"
    (culprit,) = (c for c in result.culprits if not c.contained)
    assert culprit.op_type in HOST, culprit
    assert culprit.source is not None and "the planted line" in culprit.source.text
    assert all(item.equal for item in culprit.inputs)
    return culprit


X = tf.constant(np.random.default_rng(3).standard_normal((4, 4)).astype(np.float32))


def _while_loop() -> Callable[[], Any]:
    @tf.function
    def loop(x: tf.Tensor) -> tf.Tensor:
        for i in tf.range(5):
            x = tf.sin(planted(x, i)) * 1.1
        return x

    return lambda: loop(X)


def _nested_loops() -> Callable[[], Any]:
    @tf.function
    def loops(x: tf.Tensor) -> tf.Tensor:
        for i in tf.range(2):
            for j in tf.range(3):
                x = tf.sin(planted(x, i * 2 + j - 1)) * 1.1  # 2 at i = 1, j = 1
        return x

    return lambda: loops(X)


def _map_fn() -> Callable[[], Any]:
    @tf.function
    def rows(x: tf.Tensor) -> tf.Tensor:
        numbers = tf.range(4)
        return tf.map_fn(lambda r: planted(r[0] * 2.0, r[1]), (x, numbers), fn_output_signature=tf.float32)

    return lambda: rows(X)


def _scan() -> Callable[[], Any]:
    @tf.function
    def scanned(x: tf.Tensor) -> tf.Tensor:
        def step(before: tf.Tensor, row: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
            return planted(before * 0.5 + row[0], row[1])

        return tf.scan(step, (x, tf.range(4)), initializer=tf.zeros([4]))

    return lambda: scanned(X)


def _overlapping_while() -> Callable[[], Any]:
    @tf.function
    def loop(x: tf.Tensor) -> tf.Tensor:
        def body(i: tf.Tensor, out: tf.TensorArray) -> tuple[tf.Tensor, tf.TensorArray]:
            return i + 1, out.write(i, planted(x * tf.cast(i, tf.float32), i))

        start = [0, tf.TensorArray(tf.float32, 6)]
        return tf.while_loop(lambda i, _: i < 6, body, start, parallel_iterations=10)[1].stack()

    return lambda: loop(X)


def _dataset_loop() -> Callable[[], Any]:
    data = tf.data.Dataset.range(5)

    @tf.function
    def loop(data: tf.data.Dataset, x: tf.Tensor) -> tf.Tensor:
        for i in data:
            x = tf.sin(planted(x, i))
        return x

    return lambda: loop(data, X)


def _loop_with_gradient() -> Callable[[], Any]:
    @tf.custom_gradient
    def cell(x: tf.Tensor, i: tf.Tensor) -> tuple[tf.Tensor, Callable[..., Any]]:
        return tf.tanh(x), lambda dy: (planted(dy * (1 - tf.tanh(x) ** 2), i), None)

    @tf.function
    def loss(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = x
            for i in tf.range(5):
                y = cell(y * 1.1, i)
            total = tf.reduce_sum(y)
        return tape.gradient(total, x)

    return lambda: loss(X)


@pytest.mark.parametrize(
    ("make", "iteration"),
    [
        (_while_loop, (2,)), (_nested_loops, (1, 1)), (_map_fn, (2,)), (_scan, (2,)), (_overlapping_while, (2,)),
        (_loop_with_gradient, None),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)  # fmt: skip
def test_loops(tmp_path: Path, make: Callable[[], Callable[[], Any]], iteration: tuple[int, ...] | None) -> None:
    culprit = named(compared(tmp_path, make()))
    assert culprit.iteration
    if iteration is not None:
        assert tuple(culprit.iteration) == iteration


def test_a_loop_over_a_dataset_is_named_as_a_whole_and_said_to_hide_something(tmp_path: Path) -> None:
    result = compared(tmp_path, _dataset_loop())
    (culprit,) = result.culprits
    assert culprit.op_type == "ReduceDataset" and culprit.source is not None
    assert culprit.source.text == "for i in data:"
    assert any("ReduceDataset" in warning for warning in result.warnings), result.warnings


def _cond() -> Callable[[], Any]:
    @tf.function
    def branch(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
        return tf.cond(n > 1, lambda: planted(x, n) * 2.0, lambda: tf.cos(x)) + 1.0

    return lambda: [branch(X, tf.constant(n)) for n in range(4)]


def _switch_case() -> Callable[[], Any]:
    @tf.function
    def branch(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
        return tf.switch_case(n, [lambda: tf.sin(x), lambda: tf.cos(x), lambda: planted(x, n), lambda: x]) + 1.0

    return lambda: [branch(X, tf.constant(n)) for n in range(4)]


def _nested_functions() -> Callable[[], Any]:
    @tf.function
    def inner(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
        return planted(tf.sin(x), n)

    @tf.function
    def outer(x: tf.Tensor) -> tf.Tensor:
        return inner(x, 1) + inner(x * 2.0, 2) + inner(x * 3.0, 3)

    return lambda: outer(X)


def _custom_gradient() -> Callable[[], Any]:
    @tf.custom_gradient
    def op(x: tf.Tensor) -> tuple[tf.Tensor, Callable[..., Any]]:
        return tf.sin(x), lambda dy: planted(dy * tf.cos(x), 2)

    @tf.function
    def gradient(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.reduce_sum(op(x) ** 2)
        return tape.gradient(y, x)

    return lambda: gradient(X)


def _eager_tape() -> Callable[[], Any]:
    @tf.custom_gradient
    def op(x: tf.Tensor) -> tuple[tf.Tensor, Callable[..., Any]]:
        return tf.sin(x), lambda dy: planted(dy * tf.cos(x), 2)

    forward = tf.function(lambda x: tf.reduce_sum(op(x) ** 2))

    def program() -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(X)
            y = forward(X)
        return tape.gradient(y, X) * 2.0

    return program


def _recompute() -> Callable[[], Any]:
    block = tf.recompute_grad(lambda x: tf.sin(planted(x, 2)) * 2.0)

    @tf.function
    def forward(x: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(block(x))

    return lambda: forward(X)


def _higher_order() -> Callable[[], Any]:
    @tf.function
    def second(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                y = tf.reduce_sum(tf.sin(x) ** 3)
            first = inner.gradient(y, x)
        return planted(outer.gradient(first, x), 2) + 1.0

    return lambda: second(X)


def _forward_accumulator() -> Callable[[], Any]:
    @tf.function
    def jvp(x: tf.Tensor) -> tf.Tensor:
        with tf.autodiff.ForwardAccumulator(x, tf.ones_like(x)) as forward:
            y = tf.sin(x) * x
        return planted(forward.jvp(y), 2) * 2.0

    return lambda: jvp(X)


def _eager_loop() -> Callable[[], Any]:
    def program() -> tf.Tensor:
        x = X
        for n in range(4):
            x = tf.sin(tf.ensure_shape(tf.py_function(_eager_kernel, [x, n], tf.float32), x.shape))  # the planted line
        return x

    return program


def _eager_kernel(x: tf.Tensor, n: tf.Tensor) -> np.ndarray:
    return _kernel(x.numpy(), n.numpy())


def _variable_over_steps() -> Callable[[], Any]:
    def program() -> tf.Tensor:
        v = tf.Variable(tf.zeros([4, 4]))

        @tf.function
        def step(n: tf.Tensor) -> None:
            v.assign_add(planted(tf.cos(v + X), n))

        for n in range(4):
            step(tf.constant(n))
        return v + 0.0

    return program


def _threads() -> Callable[[], Any]:
    step = tf.function(lambda x, n: tf.reduce_sum(planted(x, n)))

    def work(numbers: range) -> None:
        for n in numbers:
            step(X, tf.constant(n))

    def program() -> None:
        threads = [threading.Thread(target=work, args=(range(k * 2, k * 2 + 2),)) for k in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return program


def _module_and_saved_model(folder: Path) -> Callable[[], Any]:
    class Module(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = tf.Variable(tf.ones([4, 4]))

        @tf.function(input_signature=[tf.TensorSpec([4, 4]), tf.TensorSpec([], tf.int32)])
        def __call__(self, x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
            return tf.matmul(planted(x, n), self.w)

    module = Module()
    return lambda: [module(X, tf.constant(n)) for n in range(4)]


@pytest.mark.parametrize(
    "make",
    [
        _cond, _switch_case, _nested_functions, _custom_gradient, _eager_tape, _recompute, _higher_order,
        _forward_accumulator, _eager_loop, _variable_over_steps, _threads,
    ],
    ids=lambda make: make.__name__,
)  # fmt: skip
def test_functions_branches_and_gradients(tmp_path: Path, make: Callable[[], Callable[[], Any]]) -> None:
    culprit = named(compared(tmp_path, make()))
    if make in (_cond, _switch_case):
        assert culprit.call == WANTED
    if make is _variable_over_steps:
        assert culprit.step == WANTED


def test_a_module_method(tmp_path: Path) -> None:
    assert named(compared(tmp_path, _module_and_saved_model(tmp_path))).call == WANTED


def _pool(seeds: list[int]) -> Callable[[], Any]:
    step = tf.function(lambda x, n: tf.reduce_sum(planted(tf.sin(x) * 2.0, n)))
    inputs = [tf.constant(np.random.default_rng(n).standard_normal((4, 4)).astype(np.float32)) for n in range(8)]

    def program() -> list[float]:
        waits = np.random.default_rng(seeds.pop())  # who does which piece is another matter in each run

        def work(n: int, wait: float) -> float:
            time.sleep(wait)
            return float(step(inputs[n], tf.constant(n))) + float(tf.reduce_max(inputs[n] * 2.0))

        with ThreadPoolExecutor(3) as pool:
            return list(pool.map(work, range(8), waits.uniform(0, 0.03, 8)))

    return program


def test_work_shared_out_otherwise_among_threads_is_no_difference(tmp_path: Path) -> None:
    program = _pool([1, 2])
    for name in ("a.h5", "b.h5"):
        with tfbisect.record(tmp_path / name):
            program()
    assert tfbisect.compare(tmp_path / "a.h5", tmp_path / "b.h5").verdict == "identical"


def test_a_difference_in_a_pool_of_threads(tmp_path: Path) -> None:
    named(compared(tmp_path, _pool([1, 2])))


def _constant(value: float) -> np.ndarray:
    return np.float32([1.0, 2.0, value + (0.5 if run_b else 0.0)])


def _folded_away() -> Callable[[], Any]:
    @tf.function
    def step(x: tf.Tensor) -> tf.Tensor:
        c = tf.constant(_constant(3.0))  # the planted constant
        return x * tf.tanh(tf.reduce_mean(c))

    return lambda: step(X)


def _folded_in_a_loop() -> Callable[[], Any]:
    @tf.function
    def step(x: tf.Tensor) -> tf.Tensor:
        for _ in tf.range(3):
            c = tf.constant(_constant(3.0))  # the planted constant
            x = x * tf.tanh(tf.reduce_mean(c))
        return x

    return lambda: step(X)


def _folded_in_an_inner_function() -> Callable[[], Any]:
    @tf.function
    def inner(c: tf.Tensor) -> tf.Tensor:
        return tf.tanh(tf.reduce_mean(c))

    @tf.function
    def step(x: tf.Tensor) -> tf.Tensor:
        return x * inner(tf.constant(_constant(3.0)))  # the planted constant

    return lambda: step(X)


def _divisor() -> Callable[[], Any]:
    @tf.function
    def step(x: tf.Tensor) -> tf.Tensor:
        y = tf.sin(x * 1.5)
        return y / float(_constant(3.0)[2])  # the planted constant

    return lambda: step(X)


def _used_and_folded() -> Callable[[], Any]:
    @tf.function
    def step(x: tf.Tensor) -> tf.Tensor:
        c = tf.constant(_constant(3.0))  # the planted constant
        return x * tf.tanh(tf.reduce_mean(c)) + tf.pad(c, [[0, 1]])

    return lambda: step(X)


@pytest.mark.parametrize(
    "make",
    [_folded_away, _folded_in_a_loop, _folded_in_an_inner_function, _divisor, _used_and_folded],
    ids=lambda make: make.__name__,
)
def test_a_constant_is_named_where_the_program_makes_it(
    tmp_path: Path, make: Callable[[], Callable[[], Any]]
) -> None:  # fmt: skip
    def program() -> Any:
        return make()()  # traced anew in each run

    result = compared(tmp_path, program)
    assert result.verdict == "diverged"
    (culprit,) = result.culprits
    assert culprit.op_type == "Const" and culprit.category == "host", culprit
    assert culprit.source is not None and "the planted constant" in culprit.source.text, culprit.source


def test_another_dtype_is_another_structure_not_another_constant(tmp_path: Path) -> None:
    def program() -> Any:
        dtype = tf.bfloat16 if run_b else tf.float32

        @tf.function
        def step(x: tf.Tensor) -> tf.Tensor:
            return tf.cast(tf.cast(x, dtype) * 1.5, tf.float32)

        return step(X)

    result = compared(tmp_path, program)
    assert result.verdict == "diverged"
    assert {c.category for c in result.culprits} == {"structure"}


def test_a_constant_of_a_loop_body_is_named(tmp_path: Path) -> None:
    def program() -> Any:
        value = 1.25 if run_b else 2.0

        @tf.function
        def step(x: tf.Tensor) -> tf.Tensor:
            return tf.map_fn(lambda row: row * tf.constant(value) + row, x)  # the planted constant

        return step(X)

    (culprit,) = compared(tmp_path, program).culprits
    assert (culprit.op_type, culprit.category) == ("Const", "host")
    assert culprit.source is not None and "the planted constant" in culprit.source.text


def test_of_ops_that_one_run_has_more_the_line_that_the_other_lacks_is_named(tmp_path: Path) -> None:
    w, b = tf.constant(np.ones((4, 4), np.float32)), tf.constant(np.ones(4, np.float32))

    def program() -> Any:
        more = run_b

        @tf.function
        def step(x: tf.Tensor) -> tf.Tensor:
            y = tf.nn.bias_add(tf.matmul(tf.sin(x), w), b)
            if more:
                y = y + x  # the planted line
            return tf.reduce_sum(y)

        return step(X)

    culprit = compared(tmp_path, program).culprits[0]
    assert culprit.category == "structure"
    assert culprit.source is not None and "the planted line" in culprit.source.text, culprit


def test_a_constant_of_the_branch_that_was_taken_is_named(tmp_path: Path) -> None:
    def program() -> Any:
        value = 4.0 if run_b else 5.0

        @tf.function
        def step(x: tf.Tensor) -> tf.Tensor:
            def one() -> tf.Tensor:
                return x + tf.constant([3.0, 1.0, 1.0, value])  # the planted constant

            def two() -> tf.Tensor:
                return x * tf.constant([1.0, 2.0, 1.0, 1.0])

            return tf.cond(x[0, 0] > -100.0, one, two)

        return step(X)

    (culprit,) = compared(tmp_path, program).culprits
    assert culprit.source is not None and "the planted constant" in culprit.source.text, culprit.source


def test_a_constant_that_tensorflow_made_of_something_is_not_blamed(tmp_path: Path) -> None:
    def program() -> Any:
        factor = 0.5 if run_b else 0.75

        @tf.function
        def step(x: tf.Tensor) -> tf.Tensor:
            y = x + x  # becomes x * (2 * factor): the constant bears this op's name
            return y * factor

        return step(X)

    result = compared(tmp_path, program)
    assert result.verdict != "identical"
    assert not any("x + x" in c.source.text for c in result.culprits if c.source is not None), result.culprits


def test_what_an_error_left_undone_comes_from_what_the_failed_call_was_given(tmp_path: Path) -> None:
    def program() -> None:
        weights, velocity = tf.Variable(X), tf.Variable(tf.zeros_like(X))
        prepared = tf.function(lambda number: planted(X, number))

        @tf.function
        def step(x: tf.Tensor) -> None:
            tf.debugging.assert_near(x, X)
            velocity.assign(0.5 * velocity + x)
            weights.assign_sub(0.1 * velocity)

        for number in range(4):
            x = prepared(tf.constant(number))
            try:
                step(x)
            except tf.errors.InvalidArgumentError:
                continue

    named(compared(tmp_path, program))


def test_how_many_variables_a_function_made_is_not_named_before_the_op_that_uses_the_other_one(tmp_path: Path) -> None:
    def program() -> None:
        made: dict[str, tf.Variable] = {}
        biased = run_b

        @tf.function
        def net(x: tf.Tensor) -> tf.Tensor:
            if not made:
                made["kernel"] = tf.Variable(X)
                if biased:
                    made["bias"] = tf.Variable(tf.ones([4]))
            y = tf.matmul(x, made["kernel"])
            if biased:
                y = tf.subtract(y, made["bias"])  # in run B only
            return tf.nn.relu(y)

        for _ in range(2):
            change = net(X)
            made["kernel"].assign_sub(0.1 * change)

    result = compared(tmp_path, program)
    first = result.culprits[0]
    assert (first.op_type, first.category) == ("Sub", "structure")
    assert first.source is not None and "in run B only" in first.source.text
    assert not {"Pack", "VarIsInitializedOp"} & {culprit.op_type for culprit in result.culprits}


def test_writes_paired_by_their_line_alone_are_told_by_their_variables(tmp_path: Path) -> None:
    for name, own in (("a.h5", True), ("b.h5", False)):
        with tfbisect.record(tmp_path / name):
            total = tf.Variable(1.0)
            total.assign(0.0)
            if own:
                tf.Variable(7, dtype=tf.int64)
    a, b = (Run(trace.load(tmp_path / name)) for name in ("a.h5", "b.h5"))
    writes_a, writes_b = ([write.call for write in sum(run.writes.values(), [])] for run in (a, b))
    assert (len(writes_a), len(writes_b)) == (3, 2)  # the last one of A is of its own variable
    to_b, to_a = [-1] * len(a.graph_of), [-1] * len(b.graph_of)
    maker = a.links[writes_a[0], 0][0], b.links[writes_b[0], 0][0]  # of the variable that both have
    for one, two in (maker, (writes_a[0], writes_b[0])):
        to_b[one], to_a[two] = two, one
    assert not strange_writes(a, b, to_b, to_a)
    to_b[writes_a[2]], to_a[writes_b[1]] = writes_b[1], writes_a[2]
    assert strange_writes(a, b, to_b, to_a) == [writes_a[2]]
