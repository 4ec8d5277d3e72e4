"""Who is to blame: programs in the mini-language, recorded twice, one of them with a planted change."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from graphs import BOOL, INT32, INT64, STRING, VARIANT, Recorder
from minilang import record

from tfbisect.comparison import compare
from tfbisect.model import COMPILED_BY_XLA, Comparison, Edge, GraphKind, Node, NodeFlag, Opaque, SiteKind

Options = Mapping[str, Any]
Find = Callable[..., Comparison]


@pytest.fixture
def find(tmp_path: Path) -> Find:
    """Records a text with options `a`, the same text (or `other`) with options `b`, and compares."""

    def run(text: str, b: Options | None = None, a: Options | None = None, other: str | None = None) -> Comparison:
        record(text, tmp_path / "a.h5", **(a or {}))
        record(other or text, tmp_path / "b.h5", **(b or {}))
        return compare(tmp_path / "a.h5", tmp_path / "b.h5")

    return run


@pytest.fixture
def two(tmp_path: Path) -> Find:
    """Records what a function writes with a Recorder, for runs "a" and "b", and compares."""

    def run(program: Callable[[Recorder, str], None], **info: Mapping[str, Any]) -> Comparison:
        for name in ("a", "b"):
            with Recorder(tmp_path / f"{name}.h5", **info.get(name, {})) as recorder:
                program(recorder, name)
        return compare(tmp_path / "a.h5", tmp_path / "b.h5")

    return run


def named(comparison: Comparison, contained: bool | None = None) -> list[str]:
    return [c.name for c in comparison.culprits if contained is None or c.contained == contained]


CHAIN = """w
dense = MatMul x w
act = Relu dense
loss = Sum act
"""


# -- the rule ---------------------------------------------------------------------------------------------------------


def test_equal_runs_are_identical(find):
    result = find(CHAIN)
    assert result.verdict == "identical"
    assert (result.culprits, result.coverage.undecided, result.coverage.unmatched) == ((), 0, 0)
    assert result.coverage.compared == 15  # x, w, dense, act, loss in three calls


def test_the_op_with_equal_inputs_and_other_bits_is_the_culprit_and_what_takes_it_receives(find):
    result = find(CHAIN, {"change": {"dense@1": 1}})
    assert result.verdict == "diverged"
    [culprit] = result.culprits
    assert (culprit.op_type, culprit.name, culprit.slot, culprit.call) == ("MatMul", "dense", 0, 1)
    assert (culprit.source.line, culprit.function, culprit.category) == (2, "f", "kernel")
    assert [(item.name, item.equal) for item in culprit.inputs] == [("x", True), ("w", True)]
    assert culprit.downstream == 2
    assert result.receivers_by_step == ((None, 2),)
    assert not culprit.contained


def test_a_culprit_behind_a_fan_in(find):
    result = find("a = Relu x; b = Tanh x; c = Exp x; s = AddN a b c; loss = Sum s", {"change": {"b@0": 1}})
    assert named(result) == ["b"]
    assert result.culprits[0].downstream == 2


def test_an_op_that_takes_a_difference_twice_is_no_culprit(find):
    assert named(find("d = Relu x; s = Mul d d; z = Sum s", {"change": {"d": 1, "s": 5}})) == ["d"]


def test_two_culprits_in_one_step_are_both_named_in_order(find):
    result = find("a = Relu x; b = Tanh x; s = Add a b", {"change": {"a@0": 1, "b@0": 1}})
    assert named(result) == ["a", "b"]


def test_a_culprit_of_many_calls_is_named_once_with_the_first(find):
    [culprit] = find("a = Relu x; s = Sum a", {"change": {"a": 1}}).culprits
    assert culprit.call == 0
    assert culprit.extra["repeats"] == 3


def test_a_difference_that_cancels_is_contained_and_ranked_last(find):
    text = "a = Relu x; b = Sign a; c = Tanh x; s = Add b c"
    result = find(text, {"change": {"a@0": 1, "c@1": 1}, "mask": ["b"]}, {"mask": ["b"]})
    assert [(c.name, c.contained) for c in result.culprits] == [("c", False), ("a", True)]


def test_the_second_output_is_told_apart(find):
    result = find("s = Split x; a = Relu s:0; b = Relu s:1", {"change": {"s:1": 1}})
    assert [(c.name, c.slot) for c in result.culprits] == [("s", 1)]


def test_forwarders_are_never_culprits(find):
    result = find("a = Relu x; b = Identity a; c = Reshape b y; z = Sum c", {"change": {"a": 1}})
    assert named(result) == ["a"]


def test_a_difference_in_the_operand_of_a_reshape_is_an_input_of_what_follows(find):
    result = find("n = Shape y; c = Reshape x n; z = Sum c", {"change": {"n@0": 1, "z@0": 1}})
    assert named(result) == ["n"]


# -- variables --------------------------------------------------------------------------------------------------------

TRAIN = """v := Variable x0
r = read v
grad = MatMul x r
assign v grad
"""


def test_a_difference_walks_through_a_variable_into_later_calls(find):
    result = find(TRAIN, {"change": {"grad@1": 1}})
    assert named(result) == ["grad"]
    assert [(c.step, c.call) for c in result.culprits] == [(1, 1)]
    assert result.receivers_by_step == ((1, 1), (2, 3))


def test_state_that_differed_before_anything_wrote_it(find):
    result = find(TRAIN.replace(" x0", ""), {"change": {"v": 1}})
    [culprit] = result.culprits
    assert (culprit.op_type, culprit.category, culprit.call) == ("ReadVariableOp", "state", 0)


def test_state_of_an_entry(find):
    result = find(TRAIN.replace("Variable x0", "Entry"), {"change": {"v": 1}})
    assert [(c.op_type, c.category) for c in result.culprits] == [("ReadVariableOp", "state")]


def test_a_scatter_write_is_a_culprit_by_what_it_left_in_the_variable(find):
    text = "v := Variable x0; r = read v; g = MatMul x r; u = ResourceScatterSub v g; q = read v; z = Sum q"
    result = find(text, {"change": {"u@1": 1}})
    [culprit] = result.culprits
    assert (culprit.op_type, culprit.category, culprit.call) == ("ResourceScatterSub", "kernel", 1)
    assert culprit.extra["writes"] is True


def test_overwritten_initial_weights_are_contained(find):
    text = """
    def init w
      a = Relu w
      assign v a
    end
    def train x
      r = read v
      z = MatMul x r
      assign v z
    end
    v := Variable x0
    y = Tanh y0
    i = init y0
    s = Fill y0
    c = AssignVariableOp v s
    t = train x1
    """
    result = find(text, {"change": {"a": 1, "z@1": 1}, "calls": 2}, {"calls": 2})
    assert [(c.name, c.contained) for c in result.culprits] == [("z", False), ("a", True)]


def test_a_read_that_sees_another_write_is_the_culprit_and_both_writers_are_named(two):
    def program(r: Recorder, run: str) -> None:
        old = r.variable(1, 10)
        new = r.variable(2, 99) if run == "b" else old
        r.op("ReadVariableOp", [new], 99 if run == "b" else 10, line=3)

    result = two(program)
    [culprit] = result.culprits
    assert (culprit.op_type, culprit.category, culprit.source.line) == ("ReadVariableOp", "state", 3)
    assert culprit.writers == ("AssignVariableOp at line 1: line 1", "AssignVariableOp at line 2: line 2")


def test_writes_of_the_same_bits_by_other_ops_are_equal_state(two):
    def program(r: Recorder, run: str) -> None:
        v = r.variable(1, 10)
        if run == "b":
            r.op("AssignVariableOp", [v, r.host("AssignVariableOp", 10, 2)], line=2, writes=0, written=10)
        read = r.op("ReadVariableOp", [v], 10, line=3)
        r.op("MatMul", [read, read], 7 if run == "a" else 8, line=4)

    result = two(program)
    assert [(c.op_type, c.category) for c in result.culprits] == [("MatMul", "kernel")]


def test_rows_written_before_count_behind_a_write_of_other_rows(two):
    def program(r: Recorder, run: str) -> None:
        v = r.variable(1, 10)
        r.op("ResourceScatterSub", [v], line=2, writes=0, written=20 if run == "a" else 21)
        r.op("ResourceScatterSub", [v], line=3, writes=0, written=30)
        r.op("ReadVariableOp", [v], 40 if run == "a" else 41, line=4)

    result = two(program)
    assert [(c.op_type, c.source.line) for c in result.culprits] == [("ResourceScatterSub", 2)]
    assert not result.culprits[0].contained


def test_unordered_writes_are_a_race(find):
    text = "v := Variable x0; a = Relu x; b = Tanh x; assign! v a; assign! v b; "
    result = find(text, {"change": {"assign_v_1@1": 1}})
    assert [(c.name, c.category) for c in result.culprits] == [("assign_v_1", "race")]


def test_a_read_that_nothing_orders_with_a_write_is_a_race(find):
    text = "v := Variable x0; r = read! v; a = Relu x; assign! v a; z = Sum r"
    result = find(text, {"change": {"r@1": 1}})
    assert [(c.name, c.category) for c in result.culprits] == [("r", "race")]


def test_threads_that_share_a_variable_take_turns_in_another_order(two):
    def program(r: Recorder, run: str) -> None:
        v = r.variable(1, 10)
        r.op("Relu", [], 1, line=2, thread=1)
        r.op("Relu", [], 1, line=3, thread=2)
        for thread in (1, 2) if run == "a" else (2, 1):
            first = r.host("AssignAddVariableOp", thread, 3 + thread, thread=thread)
            left = {("a", 1): 11, ("a", 2): 13, ("b", 2): 12, ("b", 1): 14}[run, thread]
            r.op("AssignAddVariableOp", [v, first], line=3 + thread, writes=0, written=left, thread=thread)
        r.op("ReadVariableOp", [v], 13 if run == "a" else 14, line=9)

    result = two(program)
    assert {(c.op_type, c.category) for c in result.culprits} == {("AssignAddVariableOp", "race")}
    assert result.coverage.undecided == 0


def test_variables_of_a_session_are_known_by_name(two):
    """A v1 graph makes its handles anew in each run of the session."""

    def program(r: Recorder, run: str) -> None:
        def graph(name: str, *ops: Node) -> tuple[int, int]:
            return r.function(name, [Node("weights", "VarHandleOp"), *ops], [(1, 0, SiteKind.OUTPUT, 1)])

        read = graph("run", Node("read", "ReadVariableOp", inputs=(Edge(0, 0),), flags=NodeFlag.STATEFUL))
        writer = Node("assign", "AssignVariableOp", inputs=(Edge(0, 0), Edge(1, 0)), flags=NodeFlag.WRITER)
        nodes = [Node("weights", "VarHandleOp"), Node("value", "MatMul"), writer]
        write = r.function("init", nodes, [(1, 0, SiteKind.OUTPUT, 1), (2, 0, SiteKind.WRITE, 1)])
        k = 0 if run == "a" else 1
        for (number, site), digests in ((write, [5 + k, 5 + k]), (read, [5 + k])):
            call = r.new_call()
            for i, digest in enumerate(digests):
                r.writer.event(call, site + i, 0, 1, digest)
            r.call(call, number, 4)

    assert named(two(program)) == ["value"]


def test_reference_variables_carry_a_difference_from_run_to_run(two):
    def program(r: Recorder, run: str) -> None:
        nodes = [
            Node("weights", "VariableV2", flags=NodeFlag.STATEFUL),
            Node("read", "Identity", inputs=(Edge(0, 0),)),
            Node("grad", "MatMul", inputs=(Edge(1, 0),)),
            Node("update", "ApplyGradientDescent", inputs=(Edge(0, 0), Edge(2, 0)), flags=NodeFlag.WRITER),
        ]
        graph, site = r.function("run", nodes, [(1, 0, 0, 1), (2, 0, 0, 1), (3, 0, SiteKind.WRITE, 1)])
        for step in range(3):
            k = 1000 if run == "b" and step else 0
            late = 1000 if run == "b" and step > 1 else 0
            call = r.new_call()
            for i, digest in enumerate((10 + step + late, 20 + step + k, 11 + step + k)):
                r.writer.event(call, site + i, 0, 1, digest)
            r.call(call, graph, 4)

    assert [(c.name, c.step) for c in two(program).culprits] == [("grad", 1)]


# -- what Python hands in ---------------------------------------------------------------------------------------------


def test_a_host_array_is_reported_as_the_first_op_that_takes_it(find):
    [culprit] = find(CHAIN, {"change": {"w@0": 1}}).culprits
    assert (culprit.op_type, culprit.source.line, culprit.category) == ("MatMul", 2, "input")


def test_a_host_scalar(two):
    def program(r: Recorder, run: str) -> None:
        x = r.host("Mul", 1, 1, shape=(4,))
        rate = r.host("Mul", 2 if run == "a" else 3, 1)
        r.op("Sum", [r.op("Mul", [x, rate], 4 if run == "a" else 5, line=1)], 6 if run == "a" else 7, line=2)

    [culprit] = two(program).culprits
    assert (culprit.op_type, culprit.category, culprit.source.line, culprit.call) == ("Mul", "host", 1, 0)


def test_values_that_a_function_takes_as_other_arguments(two):
    """A set, iterated in another order: the graph is the same, what was captured is not."""

    def program(r: Recorder, run: str) -> None:
        nodes = [Node(f"x{i}", "_Arg", index=i) for i in range(2)]
        nodes += [Node(f"m{i}", "MatMul", inputs=(Edge(i, 0),)) for i in range(2)]
        nodes += [Node(f"r{i}", "_Retval", index=i, inputs=(Edge(2 + i, 0),)) for i in range(2)]
        graph, site = r.function("f", nodes, [(0, 0, 1, 1), (1, 0, 1, 1), (2, 0, 0, 1), (3, 0, 0, 1)])
        order = [50, 60] if run == "a" else [60, 50]
        made, call = [r.host("MatMul", digest, 3, shape=(4,)) for digest in order], r.new_call()
        for i, digest in enumerate(order):
            r.writer.link(call, i, *made[i])
            r.writer.event(call, site + i, 0, 1, digest)
            r.writer.event(call, site + 2 + i, 0, 1, digest + 100)
        r.call(call, graph, 3)

    result = two(program)
    assert [(c.op_type, c.category) for c in result.culprits] == [("MatMul", "structure")]
    assert "as other arguments" in result.culprits[0].explanation


def test_seeds_that_are_attributes(two):
    def program(r: Recorder, run: str) -> None:
        r.op("RandomUniform", [], 10 if run == "a" else 11, line=1, attrs=1 if run == "a" else 2, flags=NodeFlag.RANDOM)

    assert [(c.op_type, c.category) for c in two(program).culprits] == [("RandomUniform", "rng")]


def test_an_integer_that_seeds_a_generator(two):
    def program(r: Recorder, run: str) -> None:
        k = 0 if run == "a" else 1
        seed = r.op("Cast", [r.host("Cast", 10 + k, 5, INT32, (2,))], 20 + k, line=5, dtype=INT64)
        r.op("StatelessRandomUniformV2", [seed], 30 + k, line=6)

    assert [(c.op_type, c.category) for c in two(program).culprits] == [("Cast", "rng")]


def test_a_constant_of_the_graph(find):
    [culprit] = find("c = Const a=1; y = Mul x c", {"change": {"c": 1}}).culprits
    assert (culprit.op_type, culprit.category, culprit.source.line) == ("Const", "host", 1)


def test_a_host_value_after_a_computed_difference_is_undecided_and_the_likely_origin_named(find):
    text = """
    def step x
      y = MatMul x x
    end
    a = step p
    b = Relu q
    """
    result = find(text, {"change": {"y@0": 1, "q@1": 1}, "calls": 2}, {"calls": 2})
    assert named(result) == ["y"]
    assert result.coverage.undecided == 1
    assert any("undecided: Relu" in w and "likely origin: MatMul y at line 3" in w for w in result.warnings)


def test_only_undecided_differences_are_inconclusive(find):
    text = "y = Opaque x; z = Relu y"
    result = find(text, {"change": {"y": 1}, "opaque": ["y"]}, {"opaque": ["y"]})
    assert (result.verdict, result.culprits) == ("inconclusive", ())
    assert result.coverage.undecided == 3
    assert [item.name for item in result.coverage.opaque] == ["y"]


def test_a_value_that_python_took_from_an_op_unchanged_is_that_ops(two):
    def program(r: Recorder, run: str) -> None:
        k = 0 if run == "a" else 1
        y = r.op("MatMul", [r.host("MatMul", 1, 1)], 20 + k, line=1)
        r.op("Relu", [y], 30, line=2)
        r.op("Tanh", [r.host("Tanh", 20 + k, 3)], 40 + k, line=3)

    result = two(program)
    assert named(result) == ["MatMul"]
    assert result.coverage.undecided == 0
    assert not result.culprits[0].contained


def test_two_arrays_that_python_made_are_two_culprits(two):
    def program(r: Recorder, run: str) -> None:
        k = 0 if run == "a" else 1
        x, y = r.host("MatMul", 1 + k, 1, shape=(2, 2)), r.host("MatMul", 5 + k, 1, shape=(2, 3))
        r.op("MatMul", [x, y], 9 + k, line=1)
        r.op("Relu", [r.host("Relu", 7 + k, 2)], 8 + k, line=2)

    result = two(program)
    assert [(c.op_type, c.extra.get("repeats")) for c in result.culprits] == [("MatMul", 2)]
    assert result.coverage.undecided == 1  # Relu's came after the product, which Python may have read


def test_a_value_of_pythons_that_other_ops_took_first(two):
    """TensorFlow's cache of eager scalars hands out the tensor of an earlier line."""

    def program(r: Recorder, run: str) -> None:
        zero = r.host("Mul", 11, 1) if run == "b" else r.host("Mul", 10, 3)
        if run == "b":
            r.op("Mul", [zero, zero], 12, line=1)
        x = r.host("Mul", 1, 3, shape=(4,))
        r.op("Atan2", [r.op("Mul", [x, zero], 20 if run == "a" else 21, line=3)], 30 if run == "a" else 31, line=4)

    result = two(program)
    assert [(c.op_type, c.category, c.source.line, c.call) for c in result.culprits] == [("Mul", "host", 3, 0)]


# -- branches and loops -----------------------------------------------------------------------------------------------

BRANCH = """
p = Less x w
y = if p
  a = Relu x
  give a
else
  b = Tanh x
  give b
end
z = Sum y
"""


def test_a_flipped_branch_is_blamed_on_what_made_the_predicate(find):
    result = find(BRANCH, {"change": {"p": 1}, "branch": {"y": False}, "calls": 1}, {"calls": 1})
    assert named(result) == ["p"]
    assert (result.coverage.undecided, result.coverage.unmatched) == (0, 2)
    assert not result.culprits[0].contained


def test_a_branch_flipped_by_nothing_is_undecided(find):
    result = find(BRANCH, {"branch": {"y": False}})
    assert (result.verdict, named(result)) == ("inconclusive", [])


def test_a_variable_written_in_one_branch_only(find):
    text = """
    v := Variable x0
    p = Less x w
    y = if p
      a = Relu x
      assign v a
      c = Exp a ^assign_v
      give c
    else
      b = Tanh x
      give b
    end
    r = read v ^y
    z = Sum r
    """
    result = find(text, {"change": {"p": 1}, "branch": {"y": False}, "calls": 1}, {"calls": 1})
    assert named(result) == ["p"]
    assert result.coverage.undecided == 0


def test_nested_branches(find):
    text = """
    p = Less x w
    q = Less w x
    y = if p
      s = if q
        a = Relu x
        give a
      else
        b = Tanh x
        give b
      end
      t = Exp s
      give t
    else
      u = Sin x
      give u
    end
    z = Sum y
    """
    result = find(text, {"change": {"q": 1}, "branch": {"s": False}, "calls": 1}, {"calls": 1})
    assert named(result) == ["q"]
    assert result.coverage.undecided == 0
    assert named(find(text, {"change": {"b@1": 1}, "branch": {"s": False}}, {"branch": {"s": False}})) == ["b"]


LOOP = """
s = loop 3 a=x b=y
  d = Mul a w
  next a d
  next b b
end
z = Sum s.a
q = Sum s.b
"""


def test_the_iteration_of_a_loop_is_named(find):
    [culprit] = find(LOOP, {"change": {"d@1/2": 1}}).culprits
    assert (culprit.name, culprit.call, culprit.iteration, culprit.source.line) == ("d", 1, (2,), 3)
    assert culprit.b.iteration == (2,)
    assert culprit.downstream == 1


def test_the_first_iteration_that_differs_is_the_culprit_and_later_ones_receive(find):
    [culprit] = find(LOOP, {"change": {"d@0": 1}}).culprits
    assert (culprit.iteration, culprit.extra.get("repeats")) == ((0,), None)


def test_a_value_that_a_loop_only_carries(find):
    assert named(find(LOOP, {"change": {"y@0": 1}})) == ["q"]


def test_a_host_value_that_enters_a_loop_is_shown_as_the_op_inside(find):
    assert named(find(LOOP, {"change": {"w@0": 1}})) == ["d"]


def test_other_numbers_of_iterations_are_blamed_on_the_condition(find):
    text = "\nn = Size x\ns = loop n a=x\n  d = Mul a w\n  next a d\nend\nz = Sum s\n"
    result = find(text, {"change": {"n": 1}, "trips": {"s": 5}, "calls": 1}, {"calls": 1})
    assert named(result) == ["n"]
    assert result.coverage.undecided == 0
    assert not result.culprits[0].contained


def test_nested_loops(find):
    text = """
    s = loop 2 a=x
      t = loop 3 c=a
        d = Mul c w
        next c d
      end
      e = Exp t
      next a e
    end
    z = Sum s
    """
    [culprit] = find(text, {"change": {"d@2/1,1": 1}}).culprits
    assert (culprit.name, culprit.call, culprit.iteration) == ("d", 2, (1, 1))
    [culprit] = find(text, {"change": {"e@2/0": 1}}).culprits
    assert (culprit.name, culprit.iteration) == ("e", (0,))


def test_a_variable_read_and_written_in_a_loop(find):
    text = """
    v := Variable x0
    s = loop 3 a=x
      r = read v
      d = Mul a r
      assign v d
      next a d
    end
    z = Sum s
    """
    [culprit] = find(text, {"change": {"d@1/1": 1}}).culprits
    assert (culprit.name, culprit.call, culprit.iteration) == ("d", 1, (1,))


def test_draws_in_another_order_are_a_race(find):
    text = "\ns = loop 4 a=x\n  e = RandomUniform w\n  d = Add a e\n  next a d\nend\nz = Sum s\n"
    result = find(text, {"permute": {"e": [1, 0, 3, 2]}, "calls": 1}, {"calls": 1})
    assert [(c.name, c.category, c.iteration) for c in result.culprits] == [("e", "race", (0,))]


def test_other_draws_are_a_matter_of_seeds(find):
    result = find("e = RandomUniform n; z = Sum e", {"change": {"e": 1}})
    assert [(c.name, c.category) for c in result.culprits] == [("e", "rng")]


# -- what was not seen ------------------------------------------------------------------------------------------------


def test_an_op_behind_something_unseen_is_not_blamed(find):
    result = find("y = XlaLaunch x; z = Relu y; q = Sum z", {"change": {"y": 1}, "opaque": ["y"]}, {"opaque": ["y"]})
    assert named(result) == []
    assert any("undecided: Relu z" in warning for warning in result.warnings)


def test_a_culprit_beside_something_unseen_is_still_named(find):
    text = "y = XlaLaunch x; z = Relu y; q = Sum w"
    result = find(text, {"change": {"q@0": 1}, "opaque": ["y"]}, {"opaque": ["y"]})
    assert (result.verdict, named(result)) == ("diverged", ["q"])


def test_a_call_with_a_hidden_inside_is_named_and_said_to_hide(two):
    def program(r: Recorder, run: str) -> None:
        nodes = [
            Node("x", "_Arg", index=0),
            Node("f", "PartitionedCall", flags=NodeFlag.OPAQUE | NodeFlag.STATEFUL, inputs=(Edge(0, 0),)),
            Node("r", "_Retval", index=0, inputs=(Edge(1, 0),)),
        ]
        sites = [(0, 0, SiteKind.ARG, 1), (1, 0, SiteKind.OUTPUT, 1)]
        graph, site = r.function("f", nodes, sites, kind=GraphKind.OPAQUE)
        x, call = r.host("f", 1, 3), r.new_call()
        r.writer.link(call, 0, *x)
        r.writer.event(call, site, 0, 1, 1)
        r.writer.event(call, site + 1, 0, 1, 5 if run == "a" else 6)
        r.call(call, graph, 3)

    result = two(program)
    assert [(c.op_type, c.function, c.call) for c in result.culprits] == [("PartitionedCall", "f", 0)]
    assert any("hides what ran inside" in warning for warning in result.warnings)


def _recorded_from_outside_in_b(reason: str, kept: tuple[bytes, bytes] | None = None) -> Find:
    """f(x), recorded op by op in A and from outside in B; Cos takes its result, of which no two digests compare."""

    def program(r: Recorder, run: str) -> None:
        outside = run == "b"
        op = Node("f", "PartitionedCall", flags=NodeFlag.OPAQUE) if outside else Node("m", "MatMul")
        op = replace(op, inputs=(Edge(0, 0),), stack=r.stack(2, "y = m(x)"))
        nodes = [Node("x", "_Arg", index=0), op, Node("r", "_Retval", index=0, inputs=(Edge(1, 0),))]
        sites = [(0, 0, SiteKind.ARG, 1), (1, 0, SiteKind.OUTPUT, 1)]
        graph, site = r.function("f", nodes, sites, kind=GraphKind.OPAQUE if outside else GraphKind.TWIN)
        if outside:
            r.writer.journal({"kind": "opaque", **Opaque("f", "PartitionedCall", reason).to_json()})
        x, call = r.host("f", 1, 3), r.new_call()
        r.writer.link(call, 0, *x)
        r.writer.event(call, site, 0, 1, 1)
        value = r.writer.value(kept[outside]) if kept else 0
        r.writer.event(call, site + 1, 0, r.writer.shape([2]), 500 if outside else 6, value)
        r.call(call, graph, 3)
        r.op("Cos", [(call, 0)], 80 if outside else 7, line=4)

    return program


def test_what_was_recorded_in_other_ways_and_cannot_be_compared_is_not_blamed(two):
    result = two(_recorded_from_outside_in_b("it draws random numbers and may have run before recording began"))
    assert (named(result), result.verdict) == ([], "inconclusive")
    assert any("undecided: Cos" in warning for warning in result.warnings)


def test_what_was_recorded_in_other_ways_is_compared_by_its_values(two):
    reason = "it draws random numbers and may have run before recording began"
    equal = two(_recorded_from_outside_in_b(reason, (b"\0" * 8, b"\0" * 8)))
    assert [(c.op_type, c.category) for c in equal.culprits] == [("Cos", "kernel")]
    other = two(_recorded_from_outside_in_b(reason, (b"\0" * 8, b"\1" * 8)))
    assert [(c.op_type, c.category) for c in other.culprits] == [("PartitionedCall", "unknown")]
    assert not any(cause.id == "xla-compiled" for cause in other.culprits[0].causes)
    assert "was recorded from outside in run B" in other.culprits[0].explanation
    assert not any("was edited" in warning for result in (equal, other) for warning in result.warnings)


def test_what_xla_compiled_in_one_run_only_is_a_difference_of_the_set_up(two):
    result = two(_recorded_from_outside_in_b(COMPILED_BY_XLA))
    assert [(c.op_type, c.category) for c in result.culprits] == [("PartitionedCall", "environment")]
    assert result.culprits[0].causes[0].id == "xla-compiled"


def test_a_python_callback_is_not_blamed_for_an_op_that_ran_inside_it(two):
    def program(r: Recorder, run: str) -> None:
        k = 0 if run == "a" else 1
        x = r.host("EagerPyFunc", 1, 2)
        outer = r.new_call()
        r.op("MatMul", [r.host("MatMul", 9, 7, parent=outer)], 20 + k, line=7, parent=outer)
        nodes = [
            Node("arg0", "_Arg", index=0),
            Node("EagerPyFunc", "EagerPyFunc", flags=NodeFlag.HOST | NodeFlag.STATEFUL, inputs=(Edge(0, 0),)),
            Node("result0", "_Retval", index=0, inputs=(Edge(1, 0),)),
        ]
        graph, site = r.function("EagerPyFunc", nodes, [(1, 0, SiteKind.OUTPUT, 1)], kind=GraphKind.EAGER)
        r.writer.link(outer, 0, *x)
        r.writer.event(outer, site, 0, 1, 30 + k)
        r.call(outer, graph, 2)

    assert [(c.op_type, c.source.line) for c in two(program).culprits] == [("MatMul", 7)]


# -- structure --------------------------------------------------------------------------------------------------------


def test_an_extra_eager_op_that_nothing_uses_is_only_counted(find):
    text = "def f x\n a = Relu x\nend\ny = f p\nz = Tanh q\n"
    result = find(text, other=text + "u = Exp p\n")
    assert (result.verdict, result.culprits) == ("inconclusive", ())
    assert "Exp at line 6" in result.warnings[0]


def test_an_extra_op_does_not_shift_the_calls_after_it(find):
    text = "def f x\n a = Relu x\nend\n\ny = f p\nz = Tanh y\nq = Sum z\n"
    other = text.replace("\n\n", "\nu = Exp p\n")
    assert named(find(text, {"change": {"z@1": 1}}, other=other)) == ["Tanh"]


def test_an_extra_op_whose_value_a_differing_event_uses_is_a_structural_culprit(find):
    text = "def f x\n a = Relu x\nend\n\ny = f p\nz = Tanh y\n"
    other = text.replace("\n\n", "\nu = Exp p\n").replace("f p", "f u")
    result = find(text, other=other)
    [culprit] = result.culprits
    assert (culprit.op_type, culprit.category, culprit.source.line) == ("Exp", "structure", 4)
    assert culprit.extra["only_in"] == "b"


def test_a_changed_graph_is_blamed_at_its_first_extra_op(find):
    result = find("a = Relu x; b = Exp a; z = Sum b", other="a = Relu x; c = Sin a; b = Exp c; z = Sum b")
    [culprit] = result.culprits
    assert (culprit.op_type, culprit.category, culprit.last_common) == ("Sin", "structure", "a")


def test_an_op_of_other_attributes(find):
    result = find("a = Relu x; b = Conv2D a w p=1; z = Sum b", other="a = Relu x; b = Conv2D a w p=2; z = Sum b")
    assert [(c.name, c.category) for c in result.culprits] == [("b", "structure")]


def test_features_in_another_order(find):
    """Case 32: the same ops on the same columns, but names, columns and variables are wired otherwise."""
    text = """
    v0 := Variable i0
    v1 := Variable i1
    def f x y
      s = StridedSlice FIRST
      w = read v0
      m = MatMul s w
      a = Asinh m
      s_1 = StridedSlice SECOND
      w_1 = read v1
      m_1 = MatMul s_1 w_1
      c = ConcatV2 a m_1
      t = Sum c
    end
    q = f p1 p2
    """
    one = text.replace("FIRST", "x").replace("SECOND", "y")
    result = find(one, other=text.replace("FIRST", "y").replace("SECOND", "x"))
    assert {(c.op_type, c.category) for c in result.culprits} == {("MatMul", "structure")}
    assert result.culprits[0].call == 0


def test_inputs_of_other_shapes(find):
    text = "i := Entry; b = IteratorGetNext i; y = MatMul b w"
    shapes = {"b": (24, 4), "y": (24, 4)}
    result = find(text, {"shapes": {"b": (1, 4), "y": (1, 4)}, "change": {"b": 1}}, {"shapes": shapes})
    assert [(c.op_type, c.category) for c in result.culprits] == [("IteratorGetNext", "structure")]


def test_another_number_of_steps_is_inconclusive_and_said(find):
    result = find(TRAIN, {"calls": 5})
    assert (result.verdict, result.culprits) == ("inconclusive", ())
    assert result.warnings[0].startswith("0 calls in run A and 2 in run B have no partner")


def test_another_number_of_steps_after_a_difference(find):
    result = find(TRAIN, {"calls": 5, "change": {"grad@1": 1}})
    assert named(result) == ["grad"]


def test_ops_that_python_chose_after_a_difference_are_not_blamed(two):
    """Where Python may have branched on a differing value, other ops are its consequence."""

    def program(r: Recorder, run: str) -> None:
        k = 0 if run == "a" else 1
        v = r.variable(1, 10)
        r.op("MatMul", [r.host("MatMul", 1, 2)], 20 + k, line=2)
        if run == "b":
            r.op("AssignVariableOp", [v, r.host("AssignVariableOp", 99, 3)], line=3, writes=0, written=99)
        r.op("Relu", [r.op("ReadVariableOp", [v], 10 if run == "a" else 99, line=4)], 5 + k, line=5)

    result = two(program)
    assert named(result) == ["MatMul"]
    assert result.coverage.undecided == 1


def test_one_function_hidden_in_one_run_is_named_not_what_stood_in_its_place(two):
    """Case 18: compiled as a whole in one run, so its ops are gone."""

    def program(r: Recorder, run: str) -> None:
        v = r.variable(1, 10)
        nodes = [Node("x", "_Arg", index=0), Node("v", "_Arg", index=1)]
        if run == "a":
            nodes += [
                Node("read", "ReadVariableOp", inputs=(Edge(1, 0),), flags=NodeFlag.STATEFUL),
                Node("mul", "Mul", inputs=(Edge(0, 0), Edge(2, 0))),
                Node("sub", "AssignSubVariableOp", inputs=(Edge(1, 0), Edge(3, 0)), flags=NodeFlag.WRITER),
            ]
            sites = [(0, 0, 1, 1), (2, 0, 0, 1), (3, 0, 0, 1), (4, 0, 3, 1)]
        else:
            flags = NodeFlag.OPAQUE | NodeFlag.WRITER
            nodes.append(Node("call", "StatefulPartitionedCall", inputs=(Edge(0, 0), Edge(1, 0)), flags=flags))
            sites = [(0, 0, 1, 1), (2, 1, 3, 1)]
        graph, site = r.function("step", nodes, sites)
        for step in range(2):
            x, call = r.host("Mul", 1 + step, 5), r.new_call()
            r.writer.link(call, 0, *x)
            r.writer.link(call, 1, *v)
            digests = [1 + step, 10 + step, 20 + step, 30 + step] if run == "a" else [1 + step, 40 + step]
            for i, digest in enumerate(digests):
                r.writer.event(call, site + i, 0, 1, digest)
            r.call(call, graph, 5)

    result = two(program)
    assert [(c.op_type, c.category, c.step) for c in result.culprits] == [("StatefulPartitionedCall", "environment", 0)]


# -- order, threads, replicas, calls ----------------------------------------------------------------------------------


def test_functions_of_other_numbers_are_the_same_and_nested_names_are_told(find):
    text = "def f x\n a = Relu x\nend\ndef g x\n b = Tanh x\nend\ny = f p\nz = g y\n"
    result = find(text, {"change": {"b@1": 1}})
    assert [(c.name, c.function, c.call, c.source.line) for c in result.culprits] == [("b", "g", 1, 5)]


def test_a_difference_walks_through_results_and_eager_ops(find):
    text = "def f x\n a = Relu x\nend\ny = f p\nh = Exp y\nz = f h\n"
    result = find(text, {"change": {"a@0": 1}, "calls": 1}, {"calls": 1})
    assert [(c.name, c.call, c.downstream) for c in result.culprits] == [("a", 0, 3)]


def test_threads_are_told_apart(find):
    text = "def f x\n a = Relu x\nend\n@1 y = f p\n@2 z = f q\n"
    result = find(text, {"change": {"a@1": 1}, "calls": 1}, {"calls": 1})
    assert [(c.name, c.thread, c.call) for c in result.culprits] == [("a", 2, 1)]


def test_what_other_replicas_reduce_is_an_input(two):
    def program(r: Recorder, run: str) -> None:
        k = 0 if run == "a" else 1
        ints = [("size", 2), ("group", 1), ("instance", 7)]
        nodes = [Node("x0", "_Arg", index=0), Node("x1", "_Arg", index=1)]
        nodes += [Node(name, "Const") for name, _ in ints]
        nodes += [
            Node("grad", "PyFunc", "/device:CPU:0", inputs=(Edge(0, 0),)),
            Node("replica_1/grad", "PyFunc", "/device:CPU:1", inputs=(Edge(1, 0),)),
            Node("all", "CollectiveReduceV2", inputs=(Edge(5, 0), Edge(2, 0), Edge(3, 0), Edge(4, 0))),
            Node("replica_1/all", "CollectiveReduceV2", inputs=(Edge(6, 0), Edge(2, 0), Edge(3, 0), Edge(4, 0))),
            Node("r", "_Retval", index=0, inputs=(Edge(7, 0),)),
        ]
        sites = [(0, 0, 1, 1), (1, 0, 1, 1), *((i, 0, 0, 1) for i in (5, 6, 7, 8)), *((i, 0, 2, 3) for i in (2, 3, 4))]
        graph, site = r.function("step", nodes, sites)
        for i, (_, number) in enumerate(ints):
            r.writer.event(2**64 - 1, site + 6 + i, 0, 1, number)
        made, call = [r.host("PyFunc", i, 3) for i in (1, 2)], r.new_call()
        for i in (0, 1):
            r.writer.link(call, i, *made[i])
        for i, digest in enumerate([1, 2, 10, 20 + k, 30 + k, 30 + k]):
            r.writer.event(call, site + i, 0, 1, digest)
        r.call(call, graph, 3)

    [culprit] = two(program).culprits
    assert (culprit.name, culprit.replica, culprit.device) == ("replica_1/grad", 1, "/device:CPU:1")


def test_steps_of_eager_code(find):
    text = "v := Variable x0\nr = ReadVariableOp v\ny = MatMul r p\nu = AssignVariableOp v y\nz = Sum y\n"
    text = "def unused x\n a = Relu x\nend\n" + text
    result = find(text, {"change": {"y@2": 1}})
    assert [(c.op_type, c.step, c.call) for c in result.culprits] == [("MatMul", 2, 2)]
    result = find(text, {"change": {"z@1": 1}})
    assert [(c.op_type, c.step, c.call) for c in result.culprits] == [("Sum", 1, 1)]


def test_marked_steps_win(find):
    result = find(TRAIN, {"change": {"grad@1": 1}, "steps": True}, {"steps": True})
    assert [c.step for c in result.culprits] == [1]


# -- data sets and files ----------------------------------------------------------------------------------------------


def dataset(r: Recorder, elements: list[int], array: int = 1, name: int = 5, batch: str = "BatchDatasetV2") -> None:
    x = r.host("TensorSliceDataset", array, 1, shape=(9, 9))
    data = r.op("TensorSliceDataset", [x], line=1, handle=True, flags=NodeFlag.OPAQUE)
    data = r.op(batch, [data, r.host(batch, name, 1, INT64)], line=1, handle=True)
    iterator = r.op("AnonymousIteratorV3", [], line=2, handle=True, flags=NodeFlag.STATEFUL)
    r.op("MakeIterator", [data, iterator], line=2)
    for element in elements:
        r.op(
            "Sum",
            [r.op("IteratorGetNext", [iterator], element, line=2, flags=NodeFlag.STATEFUL)],
            element + 500,
            line=3,
        )


def test_an_element_that_differs_is_input(two):
    result = two(lambda r, run: dataset(r, [10, 11] if run == "a" else [10, 12]))
    assert [(c.op_type, c.category, c.call) for c in result.culprits] == [("IteratorGetNext", "input", 1)]


@pytest.mark.parametrize(("batch", "category"), [("ParallelBatchDataset", "race"), ("BatchDatasetV2", "input")])
def test_elements_in_another_order_are_a_race_only_where_something_runs_in_parallel(two, batch, category):
    result = two(lambda r, run: dataset(r, [10, 11, 12] if run == "a" else [11, 12, 10], batch=batch))
    assert [(c.op_type, c.category, c.call) for c in result.culprits] == [("IteratorGetNext", category, 0)]


def test_a_data_set_made_of_another_array_is_blamed_on_the_array(two):
    result = two(lambda r, run: dataset(r, [10, 11] if run == "a" else [20, 21], array=1 if run == "a" else 2))
    assert [(c.op_type, c.category) for c in result.culprits] == [("TensorSliceDataset", "input")]
    assert not result.culprits[0].contained


def test_a_derived_digest_that_differs_by_itself_is_nobodys_fault(two):
    def program(r: Recorder, run: str) -> None:
        x = r.host("RangeDataset", 1, 1)
        data = r.op("RangeDataset", [x], 50 if run == "a" else 51, line=1, dtype=VARIANT)
        iterator = r.op("AnonymousIteratorV3", [], line=2, handle=True)
        r.op("MakeIterator", [data, iterator], line=2)
        r.op("IteratorGetNext", [iterator], 60, line=3)

    assert two(program).verdict == "identical"


def save(r: Recorder, folder: int, bits: int = 10, also: str = "") -> None:
    v = r.variable(1, 10)
    name = r.op("StringJoin", [r.host("StringJoin", folder, 2, STRING)], folder + 100, line=2, dtype=STRING)
    shard = r.op("ShardedFilename", [name], folder + 200, line=2, dtype=STRING)
    r.op("SaveV2", [shard, r.op("ReadVariableOp", [v], 10, line=2)], line=2, flags=NodeFlag.STATEFUL)
    read = r.op("RestoreV2", [shard], bits, line=3, flags=NodeFlag.STATEFUL)
    r.op("AssignVariableOp", [v, read], line=3, writes=0, written=bits)
    if also:
        r.op(also, [name], folder + 300, line=4)


def test_names_of_files_never_make_a_verdict(two):
    result = two(lambda r, run: save(r, 1000 if run == "a" else 2000))
    assert (result.verdict, result.culprits) == ("identical", ())
    assert any("names of files" in warning for warning in result.warnings)


def test_a_name_that_reaches_a_value_counts(two):
    result = two(lambda r, run: save(r, 1000 if run == "a" else 2000, also="StringToHashBucketFast"))
    assert [(c.op_type, c.category) for c in result.culprits] == [("StringJoin", "host")]


def test_names_of_files_do_not_make_later_values_undecided(two):
    def program(r: Recorder, run: str) -> None:
        k = 0 if run == "a" else 1
        save(r, 1000 + 1000 * k)
        r.op("Relu", [r.host("Relu", 70 + k, 9, shape=(3,))], 80 + k, line=9)

    assert [(c.op_type, c.category) for c in two(program).culprits] == [("Relu", "input")]


# -- environment ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "category"), [("TF_NUM_INTRAOP_THREADS", "environment"), ("PYTHONHASHSEED", "kernel"), ("HOME", "kernel")]
)
def test_a_pure_op_under_another_set_up(find, key, category):
    sides = [{"info": {"environment": {key: value}}} for value in ("1", "2")]
    result = find(CHAIN, {"change": {"dense": 1}, **sides[1]}, sides[0])
    assert [c.category for c in result.culprits] == [category]
    assert [(item.key, item.values) for item in result.environment] == [(f"environment.{key}", ("1", "2"))]


def test_another_set_up_does_not_explain_random_or_python_ops(find):
    sides = [{"info": {"threads": {"intra_op": value}}} for value in (1, 2)]
    for op, category in (("RandomUniform", "rng"), ("PyFunc", "host"), ("MatMul", "environment")):
        result = find(f"y = {op} x; z = Sum y", {"change": {"y": 1}, **sides[1]}, sides[0])
        assert [c.category for c in result.culprits] == [category]


def test_bool_predicates_decide_which_side_of_a_merge_is_alive(two, tmp_path):
    """A branch that hands an argument through has no event of its own: the kept predicate tells."""

    def program(r: Recorder, run: str) -> None:
        nodes = [
            Node("p", "_Arg", index=0),
            Node("x", "_Arg", index=1),
            Node("y", "_Arg", index=2),
            Node("sx", "Switch", inputs=(Edge(1, 0), Edge(0, 0)), flags=NodeFlag.FORWARDER),
            Node("sy", "Switch", inputs=(Edge(2, 0), Edge(0, 0)), flags=NodeFlag.FORWARDER),
            Node("m", "Merge", inputs=(Edge(3, 0), Edge(4, 1)), flags=NodeFlag.FORWARDER),
            Node("z", "Relu", inputs=(Edge(5, 0),)),
            Node("r", "_Retval", index=0, inputs=(Edge(6, 0),)),
        ]
        graph, site = r.function("f", nodes, [(0, 0, 1, BOOL), (1, 0, 1, 1), (2, 0, 1, 1), (6, 0, 0, 1)])
        k = 0 if run == "a" else 1
        made, call = [r.host("Relu", digest, 1) for digest in (1, 10 + k, 20)], r.new_call()
        for i, one in enumerate(made):
            r.writer.link(call, i, *one)
        kept = r.writer.value(b"\x01")
        for i, (digest, value) in enumerate([(1, kept), (10 + k, 0), (20, 0), (30 + k, 0)]):
            r.writer.event(call, site + i, 0, 1, digest, value)
        r.call(call, graph, 2)

    result = two(program)  # the first side is dead, so z took equal values
    assert [(c.name, c.contained) for c in result.culprits] == [("z", False), ("Relu", True)]
