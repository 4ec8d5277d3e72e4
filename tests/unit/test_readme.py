"""What the README promises and can be checked cheaply. Its first command is what tests/e2e/test_demo.py runs."""

import configparser
import re
import shlex

import pytest
import yaml
from helpers import ROOT

import tfbisect
from tfbisect import cli

README = (ROOT / "README.md").read_text(encoding="utf-8")
DEMO = "python3 -m venv .venv && .venv/bin/pip install -q -e . && .venv/bin/python -m tfbisect demo"
TESTS = "python3 -m venv .venv && .venv/bin/pip install -q -e '.[test]' && .venv/bin/pytest"


def blocks():
    return re.findall(r"^```(\w*)\n(.*?)^```", README, flags=re.DOTALL | re.MULTILINE)


def commands():
    """Every `python -m tfbisect ...` of the README, in code blocks and in the text."""
    return sorted(set(re.findall(r"python -m tfbisect ([a-z][^`\n#&|]*)", README)))


def test_the_two_commands_stand_in_it_word_for_word():
    lines = [line for _, block in blocks() for line in block.splitlines()]
    assert [line for line in lines if line.startswith("python3 -m venv")] == [DEMO, TESTS]


def test_ci_runs_the_second_one_word_for_word():
    assert TESTS in (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("command", commands())
def test_commands_parse(command):
    options = cli._parser().parse_args(shlex.split(command))
    assert callable(options.command.run)


def test_every_command_is_named():
    names = re.findall(r"^    (\w+) ", cli._parser().format_help(), flags=re.MULTILINE)
    assert len(names) > 4
    assert set(names) <= {command.split()[0] for command in commands()}


def test_python_in_it_compiles_and_uses_public_names():
    sources = [block for kind, block in blocks() if kind == "python"]
    assert sources
    for source in sources:
        compile(source, "README.md", "exec")
        assert set(re.findall(r"tfbisect\.(\w+)\(", source)) <= set(tfbisect.__all__)


def test_the_workflow_is_yaml_and_runs_what_there_is():
    (text,) = (block for kind, block in blocks() if kind == "yaml")
    steps = yaml.safe_load(text)["jobs"]["repeatable"]["steps"]
    ours = [step["run"] for step in steps if "tfbisect " in step.get("run", "") and "pip" not in step["run"]]
    assert len(ours) == 2
    assert all(cli._parser().parse_args(shlex.split(line)[3:]) for line in ours)


def test_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert target.startswith("https://") or (ROOT / target).exists(), target


def test_versions_are_those_of_the_package():
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    classifiers = config["metadata"]["classifiers"]
    versions = re.findall(r"Python :: (3\.\d+)", classifiers)
    assert f"Python {versions[0]} to {versions[-1]}" in README
    minimum = re.search(r"tensorflow>=([\d.]+)", config["options"]["install_requires"])[1]
    assert f"TensorFlow {minimum}" in README
