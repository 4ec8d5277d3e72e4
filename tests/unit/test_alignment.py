"""Which call, op and event of one run is which of the other."""

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from graphs import Recorder
from hypothesis import given
from hypothesis import strategies as st
from minilang import record

from tfbisect.alignment import Alignment, pair
from tfbisect.model import CallState, Edge, Graph, GraphKind, Node, NodeFlag, SiteKind
from tfbisect.sequences import align, ranks
from tfbisect.trace import TraceWriter, load


def aligned(tmp_path: Path, one: str, two: str | None = None, calls: tuple[int, int] = (2, 2)) -> Alignment:
    record(one, tmp_path / "a.h5", calls=calls[0])
    record(two or one, tmp_path / "b.h5", calls=calls[1])
    return pair(load(tmp_path / "a.h5"), load(tmp_path / "b.h5"))


def recorded(tmp_path: Path, *programs: object) -> Alignment:
    for name, program in zip("ab", programs, strict=True):
        with Recorder(tmp_path / f"{name}.h5") as recorder:
            program(recorder)  # type: ignore[operator]
    return pair(load(tmp_path / "a.h5"), load(tmp_path / "b.h5"))


def nodes(found: Alignment, name: str = "f") -> dict[str, str]:
    """{name in A: name in B} of the ops of a function."""
    graphs = [next(g for g in run.trace.graphs if g.name == name) for run in (found.a, found.b)]
    pairs = found.nodes(graphs[0].id, graphs[1].id)
    return {
        graphs[0].nodes[one].name: graphs[1].nodes[two].name
        for one, two in enumerate(pairs.to_b)
        if two >= 0 and graphs[0].nodes[one].op not in ("_Arg", "_Retval")
    }


def calls(found: Alignment) -> dict[int, int]:
    return {one: two for one, two in enumerate(found.call_to_b) if two >= 0}


# -- sequences --------------------------------------------------------------------------------------------------------

keys = st.lists(st.integers(0, 3), max_size=9)


def longest_common(a: Sequence[int], b: Sequence[int]) -> int:
    table = np.zeros((len(a) + 1, len(b) + 1), int)
    for (i, x), (j, y) in itertools.product(enumerate(a), enumerate(b)):
        table[i + 1, j + 1] = table[i, j] + 1 if x == y else max(table[i, j + 1], table[i + 1, j])
    return int(table[-1, -1])


@given(keys, keys)
def test_sequences_pair_equal_keys_once_and_as_many_as_there_are(a, b):
    one, two = align(np.asarray(a, np.int64), np.asarray(b, np.int64))
    assert [a[i] for i in one] == [b[j] for j in two]
    assert list(one) == sorted(set(one.tolist()))
    assert len(set(two.tolist())) == len(two)
    assert len(one) == sum(min(a.count(key), b.count(key)) for key in set(a))


@given(keys, keys)
def test_sequences_keep_the_order_of_a_longest_common_subsequence(a, b):
    one, two = align(np.asarray(a, np.int64), np.asarray(b, np.int64))
    best, in_order = 0, []
    for j in two.tolist():  # the longest ascending run of partners
        in_order.append(1 + max((n for k, n in zip(two.tolist(), in_order, strict=False) if k < j), default=0))
        best = max(best, in_order[-1])
    assert best >= longest_common(a, b)
    assert len(one) == len(two)


@pytest.mark.parametrize("extra", range(5))
def test_the_extra_one_among_equal_keys_is_the_one_that_is_least_alike(extra):
    values_a = [10, 11, 12, 13]
    values_b = values_a[:extra] + [99] + values_a[extra:]
    one, two = align(np.zeros(4, np.int64), np.zeros(5, np.int64), lambda i, j: int(values_a[i] == values_b[j]))
    assert [values_b[j] for j in two] == values_a
    assert list(one) == [0, 1, 2, 3]


def test_long_sequences_with_many_edits_are_paired_by_occurrence():
    random = np.random.default_rng(0)
    a, b = random.integers(0, 50, 6000), random.integers(0, 50, 6000)
    one, two = align(a, b)
    assert np.array_equal(a[one], b[two])
    assert len(one) == sum(min(np.count_nonzero(a == key), np.count_nonzero(b == key)) for key in range(50))


@given(keys)
def test_ranks_count_equal_elements_before(a):
    assert ranks(np.asarray(a, np.int64)).tolist() == [a[:i].count(x) for i, x in enumerate(a)]


# -- calls ------------------------------------------------------------------------------------------------------------

PROGRAM = """def f x
  a = Relu x
end

y = f p
z = Tanh y
"""


def test_equal_programs_pair_call_by_call_and_event_by_event(tmp_path):
    found = aligned(tmp_path, PROGRAM)
    assert calls(found) == {i: i for i in range(4)}
    assert found.compared == len(found.a.trace.events)
    assert found.unpaired_calls == ([], [])
    assert found.unpaired_events() == 0


def test_an_extra_op_at_the_start_shifts_nothing(tmp_path):
    found = aligned(tmp_path, PROGRAM, PROGRAM.replace("\n\n", "\nu = Exp p\n"), (2, 2))
    assert calls(found) == {0: 1, 1: 2, 2: 4, 3: 5}
    assert found.unpaired_calls == ([], [0, 3])


def test_another_number_of_steps_leaves_the_tail(tmp_path):
    found = aligned(tmp_path, PROGRAM, calls=(2, 3))
    assert calls(found) == {i: i for i in range(4)}
    assert found.unpaired_calls == ([], [4, 5])


def test_every_pair_of_calls_carries_the_reason_it_was_made(tmp_path):
    found = aligned(tmp_path, PROGRAM, PROGRAM.replace("\n\n", "\nu = Exp p\n"), (2, 2))
    assert {found.reason(call) for call, other in calls(found).items() if other >= 0} == {
        "function and lines, in order"
    }
    found = aligned(tmp_path, PROGRAM, "\n\n\n" + PROGRAM)
    assert found.reason(0) == "function and the text of lines, in order"
    found = aligned(tmp_path, "v := Entry\ndef f x\n r = read v\n y = Add x r\nend\ny = f p\n")
    assert found.reason(0) == "the name of what was there before recording"
    for call, other in enumerate(found.call_to_b):
        assert (other >= 0) == (found.reason(call) != "no partner")


def test_every_pair_of_ops_carries_the_reason_it_was_made(tmp_path):
    found = aligned(tmp_path, PROGRAM)
    assert found.reason(0, 0).endswith("; graphs of equal structure")
    one = "x; w; a = Relu x; m = MatMul a w; s = Sum m; z = Tanh s"
    two = "x; w; b = Relu x; m = MatMul b w; t = Exp m; s = Sum t; z = Tanh s"
    found = aligned(tmp_path, one, two)
    names = {node.name: i for i, node in enumerate(found.a.flow(0).nodes)}
    reasons = {name: found.reason(0, names[name]).partition("; ")[2] for name in "ams"}
    assert reasons == {
        "a": "the op's type, attributes and inputs",
        "m": "the op's type, attributes and inputs, and its name",
        "s": "the op's name, though its attributes or inputs are other ones",
    }


def test_lines_that_moved_are_matched_by_their_text(tmp_path):
    found = aligned(tmp_path, PROGRAM, "\n\n\n" + PROGRAM)
    assert found.by_text
    assert calls(found) == {i: i for i in range(4)}


def test_ops_of_two_threads_are_told_apart_whatever_their_order(tmp_path):
    def program(order: Sequence[int]):
        def run(r: Recorder) -> None:
            for thread in order:
                r.op("Relu", [], 10 + thread, line=3, thread=thread)

        return run

    found = recorded(tmp_path, program([0, 1, 2, 1, 2]), program([0, 2, 2, 1, 1]))
    assert calls(found) == {0: 0, 1: 3, 2: 1, 3: 4, 4: 2}
    assert not found.differs.any()


def test_threads_that_raced_for_their_numbers_are_matched_by_what_they_did(tmp_path):
    def program(first: int, second: int):
        def run(r: Recorder) -> None:
            r.op("Relu", [], 1, line=1)
            for thread, value in ((first, 100), (second, 200)):
                for step in range(3):
                    r.op("Exp", [], value + step, line=3, thread=thread)

        return run

    found = recorded(tmp_path, program(1, 2), program(2, 1))
    assert not found.differs.any()
    assert found.compared == 7


def test_collected_garbage_has_no_place_in_the_order(tmp_path):
    def program(when: int):
        def run(r: Recorder) -> None:
            v = r.variable(1, 5)
            for step in range(4):
                if step == when:
                    r.op("DestroyResourceOp", [v], line=9)
                r.op("Relu", [], step, line=3)

        return run

    found = recorded(tmp_path, program(1), program(3))
    assert not found.differs.any()
    assert found.unpaired_calls == ([], [])


def test_calls_inside_callbacks_that_overlap_are_paired_by_what_they_took(tmp_path):
    def program(order: Sequence[int]):
        def run(r: Recorder) -> None:
            outer = r.new_call()
            for value in order:
                made = r.host("Relu", value, 7, parent=outer, thread=65535)
                r.op("Relu", [made], value + 100, line=7, parent=outer, thread=65535)
            graph, _ = r.function("f", [Node("p", "PyFunc", flags=NodeFlag.HOST)], [])
            r.call(outer, graph, 2)

        return run

    found = recorded(tmp_path, program([1, 2, 3]), program([3, 1, 2]))
    assert not found.differs.any()
    assert found.unpaired_calls == ([], [])


def test_host_values_are_paired_through_the_first_op_that_takes_them(tmp_path):
    def program(extra: bool):
        def run(r: Recorder) -> None:
            x = r.host("Relu", 1, 2)
            if extra:
                r.op("Tanh", [r.host("Tanh", 7, 1)], 8, line=1)
            r.op("Relu", [x], 2, line=2)

        return run

    found = recorded(tmp_path, program(False), program(True))
    assert calls(found) == {0: 0, 1: 3}
    assert found.unpaired_calls == ([], [2])
    assert found.unpaired_events() == 1


# -- ops of functions that are not the same ---------------------------------------------------------------------------


def test_names_that_shifted_are_paired_by_what_the_ops_do(tmp_path):
    one = "a = Relu x; MatMul = MatMul a w; MatMul_1 = MatMul MatMul u; z = Sum MatMul_1"
    two = "a = Relu x; MatMul = MatMul x u; MatMul_1 = MatMul a w; MatMul_2 = MatMul MatMul_1 u; z = Sum MatMul_2"
    found = nodes(aligned(tmp_path, "x; w; u; " + one, "x; w; u; " + two))
    assert found == {"a": "a", "MatMul": "MatMul_1", "MatMul_1": "MatMul_2", "z": "z"}


def test_constants_are_paired_through_the_ops_that_take_them(tmp_path):
    one = "x; c = Const v=5; y = Mul x c; z = Sum y"
    two = "x; c = Const v=3; t = Tanh x; y = Mul t c; c_1 = Const v=5; y_1 = Mul x c_1; z = Sum y_1"
    found = aligned(tmp_path, one, two)
    assert nodes(found) == {"c": "c_1", "y": "y_1", "z": "z"}
    assert not found.differs.any()


def test_a_constant_that_differs_where_all_else_is_the_same_is_paired(tmp_path):
    one = "x; c = Const v=5; y = Mul x c; z = Sum y"
    two = "x; c = Const v=3; y = Mul x c; u = Exp y; z = Sum u"
    assert nodes(aligned(tmp_path, one, two))["c"] == "c"


def test_loops_of_changed_functions_are_paired(tmp_path):
    loop = "s = loop 3 a=x\n  d = Mul a w\n  next a d\nend\n"
    found = nodes(aligned(tmp_path, "x\nw\n" + loop + "z = Sum s", "x\nw\ne = Exp w\n" + loop + "z = Sum s e"))
    assert found["d"] == "d"
    assert found["s/Merge_a"] == "s/Merge_a"


def test_variables_that_are_captured_in_another_order(tmp_path):
    text = "v0 := Variable i0\nv1 := Variable i1\ndef f x\n  A\n  B\n  z = Add m0 m1\n  t = TAIL z\nend\ny = f p\n"
    parts = ["r0 = read v0; m0 = MatMul x r0", "r1 = read v1; m1 = MatMul x r1"]
    one = text.replace("A\n", parts[0] + "\n", 1).replace("B\n", parts[1] + "\n", 1).replace("TAIL", "Sum")
    two = text.replace("A\n", parts[1] + "\n", 1).replace("B\n", parts[0] + "\n", 1).replace("TAIL", "Mean")
    found = nodes(aligned(tmp_path, one, two))
    assert {"r0": "r0", "m0": "m0", "r1": "r1", "m1": "m1", "z": "z"}.items() <= found.items()


def test_values_that_are_captured_in_another_order(tmp_path):
    def program(order: Sequence[int], tail: str):
        def run(r: Recorder) -> None:
            ops = [Node(f"arg{i}", "_Arg", index=i) for i in range(2)]
            ops += [
                Node("m", "MatMul", inputs=(Edge(order[0], 0), Edge(order[1], 0))),
                Node("t", tail, inputs=(Edge(2, 0),)),
                Node("r", "_Retval", index=0, inputs=(Edge(3, 0),)),
            ]
            graph, site = r.function("f", ops, [(0, 0, 1, 1), (1, 0, 1, 1), (2, 0, 0, 1), (3, 0, 0, 1)])
            made, call = {i: r.host("MatMul", 50 + i, 2) for i in (0, 1)}, r.new_call()
            for argument in (0, 1):
                value = order[argument]
                r.writer.link(call, argument, *made[value])
                r.writer.event(call, site + argument, 0, 1, 50 + value)
            r.writer.event(call, site + 2, 0, 1, 7)
            r.writer.event(call, site + 3, 0, 1, 8)
            r.call(call, graph, 2)

        return run

    found = recorded(tmp_path, program([0, 1], "Sum"), program([1, 0], "Mean"))
    assert nodes(found) == {"m": "m"}
    assert not found.differs.any()


def test_graphs_of_equal_structure_need_no_look_at_their_nodes(tmp_path):
    found = aligned(tmp_path, PROGRAM)
    graph: Graph = next(g for g in found.a.trace.graphs if g.kind == GraphKind.TWIN)
    pairs = found.nodes(graph.id, graph.id)
    assert pairs.same
    assert list(pairs.to_b) == list(range(len(graph.nodes)))


def test_other_shapes_and_types_differ_even_with_equal_digests(tmp_path):
    def program(shape: Sequence[int], dtype: int):
        def run(r: Recorder) -> None:
            r.op("Relu", [], 5, line=1, shape=shape, dtype=dtype)

        return run

    for other, dtype in (((3, 2), 1), ((2, 3), 2)):
        found = recorded(tmp_path, program((2, 3), 1), program(other, dtype))
        assert found.differs.tolist() == [True]
    assert not recorded(tmp_path, program((2, 3), 1), program((2, 3), 1)).differs.any()


def test_a_function_traced_anew_is_the_same_function(tmp_path):
    """Case 36: a new function object in one run only."""

    def program(again: bool):
        def run(r: Recorder) -> None:
            ops = [
                Node("x", "_Arg", index=0),
                Node("c", "Const"),
                Node("y", "Mul", inputs=(Edge(0, 0), Edge(1, 0))),
                Node("r", "_Retval", index=0, inputs=(Edge(2, 0),)),
            ]
            sites = [(0, 0, SiteKind.ARG, 1), (1, 0, SiteKind.CONST, 1), (2, 0, SiteKind.OUTPUT, 1)]
            graphs = [r.function("f", ops, sites) for _ in range(2 if again else 1)]
            for _, site in graphs:
                r.writer.event(2**64 - 1, site + 1, 0, 1, 77)
            for step in range(4):
                graph, site = graphs[-1] if step > 1 else graphs[0]
                x, call = r.host("Mul", step, 5), r.new_call()
                r.writer.link(call, 0, *x)
                r.writer.event(call, site, 0, 1, step)
                r.writer.event(call, site + 2, 0, 1, step + 10)
                r.call(call, graph, 5)

        return run

    found = recorded(tmp_path, program(False), program(True))
    assert not found.differs.any()
    assert found.unpaired_calls == ([], [])


def test_the_order_in_which_events_of_a_call_came_tells_nothing(tmp_path: Path) -> None:
    """Of many calls of one function the ones that one run lacks are told by what they made, not by when it arrived."""
    paths = tmp_path / "a.h5", tmp_path / "b.h5"
    for path, calls in zip(paths, (6, 4), strict=True):
        with TraceWriter(path) as writer:
            nodes = [Node(f"n{number}", "Relu") for number in range(3)]
            graph = writer.graph("train", "train", GraphKind.TWIN, 7, nodes)
            site = writer.sites(graph, [(number, 0, SiteKind.OUTPUT, 1) for number in range(3)])
            for call in range(calls):
                # slot 0 always makes the same; it arrives second in run B, and in run A in the last calls only
                arrival = (2, 0, 1) if path is paths[1] else (0, 1, 2) if call < 4 else (1, 0, 2)
                for slot in arrival:
                    writer.event(call, site + slot, 0, 0, 100 * call + slot if slot else 7)
                writer.call(call, graph, 0, CallState.OK, -1, -1, 0)
    assert list(pair(load(paths[0]), load(paths[1])).call_to_b) == [0, 1, 2, 3, -1, -1]
