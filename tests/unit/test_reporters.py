"""The texts that a comparison becomes: golden for their look, properties for what must hold of every text."""

import base64
import dataclasses
import hashlib
import json
import re
import unicodedata
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfbisect import reporters
from tfbisect.errors import Usage
from tfbisect.model import (
    CATEGORIES,
    Cause,
    Comparison,
    Counterpart,
    Coverage,
    Culprit,
    Difference,
    EnvironmentDifference,
    ForwardOp,
    InputState,
    Opaque,
    Source,
)
from tfbisect.reporters import Page, formats, guess_format, render

SOURCE = Source("/home/ada/project/train.py", 31, "train_step", "    optimizer.apply(gradients, variables)")

CULPRIT = Culprit(
    op_type="ResourceScatterSub",
    name="sgd/ResourceScatterSub",
    function="train_step",
    slot=0,
    thread=0,
    device="/job:localhost/replica:0/task:0/device:CPU:0",
    replica=None,
    call=2,
    step=2,
    iteration=(),
    b=Counterpart("sgd/ResourceScatterSub", 2, 2, ()),
    category="kernel",
    contained=False,
    source=SOURCE,
    forward_of=ForwardOp("embedding/GatherV2", "ResourceGather", Source("train.py", 28, "", "  loss = f(model(x), y)")),
    inputs=(InputState("x", "_Arg", True), InputState("table", "VarHandleOp", True), InputState("mul", "Mul", True)),
    difference=Difference("float32", (256, 64), 589_824, 1_204, 2, 1.19e-7, 3.2e-7, (3, 17), "values", "bits of both"),
    causes=(
        Cause(
            "scatter-duplicates",
            "rows named more than once are updated in the order threads arrive",
            "high",
            "The updates are shared out among threads, and the sums of a row depend on which thread comes first.",
            "tf.config.experimental.enable_op_determinism()",
            "tensorflow/tensorflow#30880",
        ),
    ),
    downstream=8_412,
)

SECOND = dataclasses.replace(
    CULPRIT,
    op_type="PyFunc",
    name="PyFunc",
    category="host",
    step=3,
    source=Source("data.py", 7, "load", "tf.numpy_function(noise, [x], tf.float32)"),
    difference=None,
    forward_of=None,
)

COMPARISON = Comparison(
    verdict="diverged",
    runs=({"path": "run1.h5", "argv": ["train.py"]}, {"path": "run2.h5", "argv": ["train.py"]}),
    warnings=("an op that was not seen stands above PyFunc: the blame may belong one hop higher",),
    environment=(EnvironmentDifference("environment.TF_NUM_INTRAOP_THREADS", (None, "2")),),
    coverage=Coverage(12_345, 12, 1, (Opaque("cluster_0", "XlaLaunch", "compiled by XLA", 8, SOURCE),)),
    culprits=(CULPRIT, SECOND, dataclasses.replace(SECOND, contained=True)),
    receivers_by_step=tuple((step, 100 * step) for step in range(2, 18)),
)

IDENTICAL = Comparison("identical", COMPARISON.runs, coverage=Coverage(12_345))
INCONCLUSIVE = Comparison("inconclusive", COMPARISON.runs, coverage=Coverage(90, 0, 4))


@pytest.mark.parametrize("width", [80, 140])
def test_diverged_looks_like_this(golden, width):
    golden(f"diverged_{width}.txt", render(COMPARISON, "terminal", Page(width)))


def test_identical_and_inconclusive_look_like_this(golden):
    golden("identical.txt", render(IDENTICAL, "terminal", Page()))
    golden("inconclusive.txt", render(INCONCLUSIVE, "terminal", Page()))


@pytest.mark.parametrize("width", [40, 80, 140])
def test_one_screen_and_no_line_is_wider_than_the_page(width):
    lines = render(COMPARISON, "terminal", Page(width)).splitlines()
    assert max(map(len, lines)) <= width
    assert width < 80 or len(lines) <= 50


@pytest.mark.parametrize("category", CATEGORIES)
def test_every_category_has_a_sentence(category):
    culprit = dataclasses.replace(CULPRIT, category=category, source=None, causes=(), difference=None)
    text = render(dataclasses.replace(COMPARISON, culprits=(culprit,)), "terminal", Page())
    assert text.startswith("DIVERGED  first at ResourceScatterSub")
    assert "\n  ResourceScatterSub " in text and category in text


def test_colour_only_when_asked_for():
    assert "\x1b[" in render(COMPARISON, "terminal", Page(colour=True))
    assert "\x1b" not in render(COMPARISON, "terminal", Page(colour=False))


def test_ascii_when_the_encoding_has_no_more():
    odd = dataclasses.replace(CULPRIT, name="größe/MatMul", source=dataclasses.replace(SOURCE, file="/tmp/größe.py"))
    text = render(dataclasses.replace(COMPARISON, culprits=(odd,)), "terminal", Page(unicode=False))
    assert text.isascii() and "###" in text and r"gr\xf6\xdfe" in text


def made_of(text):
    """A comparison in which every text that can come from a trace is this one."""
    source = Source(text, 1, text, text)
    culprit = dataclasses.replace(
        CULPRIT,
        op_type=text,
        name=text,
        function=text,
        device=text,
        b=Counterpart(text, 2, 2, ()),
        explanation=text,
        source=source,
        forward_of=ForwardOp(text, text, source),
        inputs=(InputState(text, text, True),),
        causes=(Cause(text, text, "high", text, text, text),),
    )
    return dataclasses.replace(
        COMPARISON,
        runs=({"path": text, "argv": [text]},) * 2,
        warnings=(text,),
        environment=(EnvironmentDifference(text, (text, text)),),
        coverage=Coverage(1, 0, 0, (Opaque(text, text, text, 1, source),)),
        culprits=(culprit, culprit),
    )


@given(st.text(max_size=30))
def test_strings_of_a_trace_can_neither_style_nor_move_the_text(hostile):
    comparison = made_of("[bold red]x[/] :bomb: \x1b[31m\r\x08\u202e" + hostile)
    text = render(comparison, "terminal", Page(200))
    assert "[bold red]x[/] :bomb:" in text
    assert all(char.isprintable() or char == "\n" for char in text)


EVIL = "\x1b]0;owned\x07\x1b[2J\x00\x9b31m\u202e</script><img src=x onerror=alert(1)>]]>&<!--\n::error::\r'\"`$(id)`"


@pytest.mark.parametrize("format", formats())
def test_names_reach_no_terminal_browser_or_shell_as_more_than_text(format):
    """Whatever the reporter: no control characters, no markup, no lines of their own."""
    comparison = made_of(EVIL)
    text = render(comparison, format, Page(200))

    def control(text):
        return sorted(char for char in text if unicodedata.category(char) in ("Cc", "Cf", "Cs") and char != "\n")

    assert control(text) == control(render(COMPARISON, format, Page(200)))  # scripts inlined in a page have some
    assert "\n::error::" not in text
    if format in ("html", "junit"):
        assert "<img src=x" not in text and "<!--\n::" not in text


def test_sizes_are_said_as_a_person_would():
    def said(**changes):
        culprit = dataclasses.replace(CULPRIT, difference=dataclasses.replace(CULPRIT.difference, **changes))
        text = render(dataclasses.replace(COMPARISON, culprits=(culprit,)), "terminal", Page(200))
        return re.search(r"size +(.*)", text)[1]

    assert said().startswith("1,204 of 589,824 elements differ, at most 2 ulp (absolute 1.2e-07, relative 3.2e-07)")
    assert said(differing=1, elements=1).startswith("1 of 1 element differs")
    assert "payload of NaN only" in said(kind="nan_payload")
    assert "sign of zero only" in said(kind="zero_sign")
    assert said(kind="shape").startswith("the shapes differ")
    assert "ulp" not in said(max_ulp=None, max_abs=None, max_rel=None)
    assert "3 NaN or infinite" in said(nonfinite=3)
    assert "by many ulp (absolute" in said(max_ulp=2**40)


def test_long_settings_are_cut_where_they_do_not_differ():
    values = tuple("--xla_flags=" + "same," * 40 + end for end in ("one", "two"))
    comparison = dataclasses.replace(COMPARISON, environment=(EnvironmentDifference("XLA_FLAGS", values),))
    assert re.search(r"XLA_FLAGS +….*one +….*two\n", render(comparison, "terminal", Page()))
    assert re.search(r"XLA_FLAGS +\.\.\..*one +\.\.\..*two\n", render(comparison, "terminal", Page(unicode=False)))


def test_json_is_strict_and_complete():
    run = {"path": "a.h5", "learning_rate": float("nan"), "name": "größe \udcff"}
    odd = dataclasses.replace(COMPARISON, runs=(run,))
    text = render(odd, "json", Page())
    assert text.isascii() and text.endswith("}\n")

    def refuse(token):
        raise AssertionError(f"{token} is no JSON")

    data = json.loads(text, parse_constant=refuse)
    assert data["format"] == 1 and data["verdict"] == "diverged" and data["runs"][0]["learning_rate"] == "nan"
    assert Comparison.from_json(data).culprits == odd.culprits


def test_formats_are_the_modules_of_the_folder():
    assert {"terminal", "json"} <= set(formats())
    assert all(not name.startswith("_") for name in formats())
    with pytest.raises(Usage, match="expected one of"):
        render(COMPARISON, "__init__", Page())


def test_the_name_of_a_file_tells_its_format(tmp_path):
    assert guess_format(tmp_path / "result.json") == "json"
    assert guess_format(tmp_path / "result.JSON") == "json"
    assert guess_format(tmp_path / "result.txt") == "terminal"
    assert guess_format(None) == "terminal"


# -- for CI and code hosts ---------------------------------------------------------------------------------------------


def junit(comparison):
    return ElementTree.fromstring(render(comparison, "junit", Page()))


def test_junit_has_a_failure_for_each_culprit():
    suite = junit(COMPARISON).find("testsuite")
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("3", "3", "0")
    case = suite.find("testcase")
    assert (case.get("file"), case.get("line")) == ("/home/ada/project/train.py", "31")
    failure = case.find("failure")
    assert failure.get("type") == "kernel" and "ResourceScatterSub diverged first" in failure.get("message")
    assert "enable_op_determinism" in failure.text and "1,204 of 589,824" in failure.text


def test_junit_passes_identical_runs_and_errs_where_nothing_is_known():
    suite = junit(IDENTICAL).find("testsuite")
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("1", "0", "0")
    suite = junit(INCONCLUSIVE).find("testsuite")
    assert (suite.get("failures"), suite.get("errors")) == ("0", "1")


@given(st.text(max_size=30))
def test_junit_is_well_formed_whatever_the_names(text):
    hostile = f"]]></failure><x>\x00\ufffe\udcff{text}"
    culprit = dataclasses.replace(CULPRIT, name=hostile, op_type=hostile, source=Source(hostile, 1, hostile, hostile))
    root = junit(dataclasses.replace(COMPARISON, culprits=(culprit,), warnings=(hostile,)))
    assert root.find("testsuite/testcase/failure") is not None and root.find(".//x") is None


def test_sarif_points_at_the_line():
    inside = dataclasses.replace(COMPARISON, runs=({"path": "a.h5", "cwd": "/home/ada/project"}, {"path": "b.h5"}))
    text = render(inside, "sarif", Page())
    document = json.loads(text)
    assert document["version"] == "2.1.0" and text.isascii()
    [run] = document["runs"]
    first = run["results"][0]
    location = first["locations"][0]["physicalLocation"]
    assert location["artifactLocation"] == {"uri": "train.py", "uriBaseId": "SRCROOT"}
    assert location["region"]["startLine"] == 31
    assert run["originalUriBaseIds"]["SRCROOT"]["uri"] == "file:///home/ada/project/"
    assert run["tool"]["driver"]["rules"][first["ruleIndex"]]["id"] == first["ruleId"] == "tfbisect/kernel"
    assert [result["level"] for result in run["results"]] == ["error", "error", "note"]


@pytest.mark.parametrize(
    ("file", "uri"),
    [
        ("/elsewhere/a b.py", "file:///elsewhere/a%20b.py"),
        ("C:\\code\\train.py", "file:///C:/code/train.py"),
        ("train.py", "train.py"),
        ("/tmp/gr\udcffße.py", "/tmp/gr%3F%C3%9Fe.py"),
    ],
)
def test_sarif_names_any_file_by_a_uri(file, uri):
    culprit = dataclasses.replace(CULPRIT, source=Source(file, 3))
    document = json.loads(render(dataclasses.replace(COMPARISON, culprits=(culprit,)), "sarif", Page()))
    location = document["runs"][0]["results"][0]["locations"][0]["physicalLocation"]
    assert location["artifactLocation"]["uri"] == uri


def test_sarif_of_other_verdicts():
    assert json.loads(render(IDENTICAL, "sarif", Page()))["runs"][0]["results"] == []
    [run] = json.loads(render(INCONCLUSIVE, "sarif", Page()))["runs"]
    assert run["invocations"][0]["executionSuccessful"] is False


# -- the page as text: what it does in a browser is told in tests/e2e -------------------------------------------------


def test_the_page_holds_all_it_needs_and_runs_nothing_else():
    text = render(COMPARISON, "html", Page())
    scripts = re.findall(r"<script>(.*?)</script>", text, flags=re.DOTALL)
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text)[1]
    assert "default-src 'none'" in policy and "unsafe-eval" not in policy
    for script in scripts:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert not re.search(r"<(?:script|img|iframe|link)[^>]+(?:src|href)=(?![\"']data:)", text)
    assert "Permission is hereby granted" in text  # the licences of what is bundled


def test_bundled_scripts_cannot_end_their_element():
    for path in (Path(reporters.__file__).parent / "assets").iterdir():
        text = path.read_text(encoding="utf-8")
        if path.suffix in (".js", ".css"):
            assert "</script" not in text and "<!--" not in text and "</style" not in text, path.name


@given(st.text(max_size=30))
def test_names_cannot_leave_the_data_of_the_page(text):
    hostile = f"</script><!--<script>{text}"
    culprit = dataclasses.replace(CULPRIT, op_type=hostile, name=hostile)
    page = render(dataclasses.replace(COMPARISON, culprits=(culprit,)), "html", Page())
    data = re.search(r'<script id="data" type="application/json">(.*?)</script>', page, flags=re.DOTALL)[1]
    assert "<" not in data and json.loads(data)["culprits"][0]["op_type"] == hostile


def test_the_executed_kernel_of_a_fused_op_is_told():
    culprit = dataclasses.replace(CULPRIT, extra={"executed": "_FusedMatMul"})
    text = render(dataclasses.replace(COMPARISON, culprits=(culprit,)), "terminal", Page())
    assert re.search(r"executed +_FusedMatMul", text)


def test_formats_are_guessed_by_what_their_modules_name(tmp_path):
    names = {"a.html": "html", "a.htm": "html", "a.xml": "junit", "a.sarif": "sarif", "a.junit": "junit"}
    assert {name: guess_format(tmp_path / name) for name in names} == names
