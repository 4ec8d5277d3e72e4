"""The vocabulary survives JSON, and errors are safe to print."""

import dataclasses
import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfbisect import errors, model
from tfbisect.errors import Damaged, NewerFormat, TfbisectError, printable
from tfbisect.model import (
    Cause,
    Comparison,
    Counterpart,
    Coverage,
    Culprit,
    Difference,
    Edge,
    EnvironmentDifference,
    ForwardOp,
    Graph,
    GraphKind,
    InputState,
    Node,
    Opaque,
    Source,
)

texts = st.text(max_size=8)
numbers = st.integers(0, 2**40)
maybe = st.none()
floats = st.floats(allow_nan=False)
paths = st.lists(st.integers(0, 9), max_size=3).map(tuple)
sources = st.builds(Source, texts, numbers, texts, texts)
differences = st.builds(
    Difference,
    dtype=texts,
    shape=paths,
    elements=numbers,
    differing=numbers,
    max_ulp=maybe | st.integers(0, 2**64),
    max_abs=maybe | floats,
    max_rel=maybe | floats | st.integers(0, 5),
    first_index=maybe | paths,
    kind=st.sampled_from(model.DIFFERENCE_CLASSES),
    basis=texts,
    nonfinite=numbers,
)
causes = st.builds(Cause, texts, texts, st.sampled_from(model.CONFIDENCES), texts, texts, maybe | texts)
culprits = st.builds(
    Culprit,
    op_type=texts,
    name=texts,
    function=texts,
    slot=numbers,
    thread=numbers,
    device=texts,
    replica=maybe | numbers,
    call=maybe | numbers,
    step=maybe | numbers,
    iteration=paths,
    b=maybe | st.builds(Counterpart, texts, maybe | numbers, maybe | numbers, paths),
    category=st.sampled_from(model.CATEGORIES),
    contained=st.booleans(),
    source=maybe | sources,
    forward_of=maybe | st.builds(ForwardOp, texts, maybe | texts, maybe | sources),
    inputs=st.lists(st.builds(InputState, texts, texts, st.booleans()), max_size=2).map(tuple),
    difference=maybe | differences,
    causes=st.lists(causes, max_size=2).map(tuple),
    downstream=numbers,
    explanation=texts,
    last_common=maybe | texts,
    writers=st.lists(texts, max_size=2).map(tuple),
    extra=st.dictionaries(st.just("unheard of"), texts),
)
comparisons = st.builds(
    Comparison,
    verdict=st.sampled_from(model.VERDICTS),
    runs=st.lists(st.dictionaries(texts, texts, max_size=2), max_size=2).map(tuple),
    warnings=st.lists(texts, max_size=2).map(tuple),
    environment=st.lists(
        st.builds(EnvironmentDifference, texts, st.lists(maybe | texts, max_size=2).map(tuple)), max_size=2
    ).map(tuple),
    coverage=st.builds(
        Coverage,
        numbers,
        numbers,
        numbers,
        st.lists(st.builds(Opaque, texts, texts, texts, numbers, maybe | sources), max_size=2).map(tuple),
    ),
    culprits=st.lists(culprits, max_size=2).map(tuple),
    receivers_by_step=st.lists(st.tuples(maybe | numbers, numbers), max_size=2).map(tuple),
)

CULPRIT = Culprit("MatMul", "m", "f", 0, 0, "CPU", None, 0, None, (), None, "kernel", False, None)


@given(comparisons)
def test_comparison_survives_json(comparison):
    text = json.dumps(comparison.to_json(), allow_nan=False)
    assert Comparison.from_json(json.loads(text)) == comparison


def test_json_has_the_keys_others_rely_on():
    def words(text):
        return set(text.split())

    culprit = dataclasses.replace(
        CULPRIT,
        b=Counterpart("m", None, 0, ()),
        difference=Difference("float32", (2,), 2, 1, 1, 0.5, 0.5, (0,), "values", "bits"),
    )
    data = Comparison("diverged", culprits=(culprit,)).to_json()
    assert words("format verdict runs warnings environment coverage culprits") <= set(data)
    assert words("compared unmatched undecided opaque") <= set(data["coverage"])
    data = data["culprits"][0]
    assert words("op_type name function slot thread device replica call step iteration b category") <= set(data)
    assert words("contained source forward_of inputs difference causes downstream last_common") <= set(data)
    assert words("name step call iteration") == set(data["b"])
    assert words("dtype shape elements differing max_ulp max_abs max_rel first_index class basis") <= set(
        data["difference"]
    )


def test_infinity_is_valid_json():
    data = Difference("float32", (), 1, 1, None, float("inf"), None, (), "values", "bits").to_json()
    json.dumps(data, allow_nan=False)
    assert Difference.from_json(data).max_abs == float("inf")


@pytest.mark.parametrize(
    "data",
    [
        None,
        3,
        [],
        {},
        {"format": "one"},
        {"format": None},
        Comparison("diverged").to_json() | {"verdict": "maybe"},
        Comparison("diverged").to_json() | {"culprits": {}},
        Comparison("diverged").to_json() | {"culprits": [3]},
        Comparison("diverged").to_json() | {"warnings": "no list"},
        Comparison("diverged").to_json() | {"runs": [1]},
        Comparison("diverged").to_json() | {"receivers_by_step": [[1]]},
        Comparison("diverged", culprits=(CULPRIT,)).to_json() | {"culprits": [CULPRIT.to_json() | {"category": "x"}]},
        Comparison("diverged", culprits=(CULPRIT,)).to_json() | {"culprits": [CULPRIT.to_json() | {"slot": []}]},
    ],
)
def test_what_is_no_comparison_is_damaged(data):
    with pytest.raises(Damaged):
        Comparison.from_json(data)


def test_newer_result_is_named():
    with pytest.raises(NewerFormat, match="found format 99, expected at most 1"):
        Comparison.from_json({"format": 99})


def test_graph_knows_its_arguments_results_and_op():
    nodes = (
        Node("b", "_Arg", index=1),
        Node("a", "_Arg", index=0),
        Node("MatMul", "MatMul", inputs=(Edge(1, 0), Edge(0, 0))),
        Node("r", "_Retval", index=0, inputs=(Edge(2, 0),)),
    )
    eager = Graph(0, "MatMul", "MatMul", GraphKind.EAGER, 0, nodes)
    assert (eager.args, eager.results, eager.op) == ({0: 1, 1: 0}, {0: 3}, 2)
    assert Graph(0, "f", "f", GraphKind.TWIN, 0, nodes).op == -1


@given(st.text())
def test_printable_is_one_safe_line(text):
    shown = printable(text)
    assert shown.isprintable()
    assert not text.isprintable() or shown == text


def test_printable_escapes_what_repaints_a_terminal():
    assert printable("a\x1b[2Jb\n\u202ec\ud800") == "a\\x1b[2Jb\\n\\u202ec\\ud800"


def test_errors_say_what_was_found_and_what_to_type():
    error = errors.NotATrace("trace a.h5", found="a \x1b[31mfolder", expected="a file", hint="ls")
    assert error.message == "trace a.h5: found a \\x1b[31mfolder, expected a file"
    assert str(error) == "trace a.h5: found a \\x1b[31mfolder, expected a file [not-a-trace]\nnext: ls"
    assert pickle.loads(pickle.dumps(error)).hint == "ls"


def test_every_error_has_a_code_and_a_hint_of_its_own_kind():
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, TfbisectError)]
    assert len({kind.code for kind in kinds}) == len(kinds)
    assert all(kind("x").hint for kind in kinds)
