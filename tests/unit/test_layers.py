"""Imports point down only, and TensorFlow is loaded only by what needs it."""

import ast
import importlib.util
from pathlib import Path

import pytest
from helpers import ROOT, python

import tfbisect

PACKAGE = Path(tfbisect.__file__).parent

LAYERS = [
    {"version", "choices", "errors", "checked", "reasons", "sequences", "reach", "launcher"},
    {"notebook", "progress", "storage"},
    {"model", "schema", "image"},
    {"frames", "events"},
    {"tables", "flow", "remedy", "stability", "definition"},
    {"metrics", "reading", "places", "snippets", "result"},
    {"trace", "recorded"},
    {"provenance", "nodes", "outcomes", "seeds", "differences", "knowledge"},
    {"threads", "pipelines", "upstream", "strangers", "eventpairs", "collectives", "passed"},
    {"cheap"},
    {"recorder", "alignment", "reporters", "orchestrator"},
    {"equality", "graphdiff", "longruns", "steps", "verification", "written", "treatments"},
    {"receivers", "effects", "files", "circles", "stores", "replayer", "sizes", "checklist", "trials"},
    {"seen", "judgements", "job"},
    {"judging", "categories"},
    {"bisector"},
    {"culprits", "crosscheck", "risks", "ways"},
    {"overview", "surroundings", "remarks"},
    {"drawing"},
    {"pairwise"},
    {"manyruns", "tolerance", "workers"},
    {"comparison", "cure"},
    {"checking", "baseline"},
    {"commands"},
    {"cli", "pytest_plugin", "keras"},
    {"__init__", "__main__"},
]
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
NEEDS_TENSORFLOW = {"recorder", "replayer", "keras"}
PROGRAMS = {"demo"}  # no modules: the package does not import them


def part(module):
    """`recorder` of `tfbisect.recorder.twin`; `__init__` of `tfbisect`."""
    return (module.split(".") + ["__init__"])[1]


def imports(path, module):
    """Full names of the modules that a source file imports anywhere in it, also in functions and for types only."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = module if path.name == "__init__.py" else module.rpartition(".")[0]
                base = importlib.util.resolve_name("." * node.level + base, package)
            # `from tfbisect import cli` imports a module; `from tfbisect.cli import main` only names one.
            names = [f"{base}.{alias.name}" for alias in node.names] if base == "tfbisect" else [base]
            yield from names


def modules():
    for path in sorted(PACKAGE.rglob("*.py")):
        inside = path.relative_to(PACKAGE).with_suffix("")
        if inside.parts[0] not in PROGRAMS:
            yield path, ".".join(["tfbisect", *(p for p in inside.parts if p != "__init__")])


def upward(path, module):
    """Imports of a file that do not point down, as text."""
    here = part(module)
    for name in imports(path, module):
        if name.split(".")[0] != "tfbisect" or part(name) == here:
            continue
        if RANK[here] <= RANK[part(name)]:
            yield f"{module} imports {name}"


def test_every_module_has_a_layer():
    assert {part(module) for _, module in modules()} == set(RANK)


def test_imports_point_down():
    assert [fault for path, module in modules() for fault in upward(path, module)] == []


def test_the_layer_test_sees_imports_in_functions_and_relative_ones(tmp_path):
    source = tmp_path / "trace.py"
    source.write_text("def f():\n  from tfbisect import cli\n  from .recorder import twin\n  import tfbisect.errors\n")
    assert list(upward(source, "tfbisect.trace")) == [
        "tfbisect.trace imports tfbisect.cli",
        "tfbisect.trace imports tfbisect.recorder",
    ]


def test_only_the_recorder_and_the_replayer_name_tensorflow():
    named = {
        part(module)
        for path, module in modules()
        for name in imports(path, module)
        if name.split(".")[0] in ("tensorflow", "keras")
    }
    assert named <= NEEDS_TENSORFLOW


def loaded(statement, folder=ROOT):
    """The names of all modules that are loaded after a statement has run in a fresh process."""
    done = python("-c", f"{statement}\nimport sys\nprint(*sys.modules)", cwd=folder)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split())


RECORDERS = "('record', 'shadow', 'step')"
EVERY_NAME = f"import tfbisect; [getattr(tfbisect, name) for name in tfbisect.__all__ if name not in {RECORDERS}]"


def test_import_and_compare_load_no_tensorflow():
    assert importlib.util.find_spec("tensorflow") is not None
    assert "tensorflow" not in loaded(EVERY_NAME)


def test_the_test_above_would_notice(tmp_path):
    (tmp_path / "tensorflow.py").write_text("")
    assert "tensorflow" in loaded(EVERY_NAME + "\nimport tensorflow", tmp_path)


def test_import_leaves_numpy_to_the_program():
    assert {"numpy", "h5py", "rich"}.isdisjoint(loaded("import tfbisect, tfbisect.cli"))


def test_a_recorder_that_waits_for_the_program_loads_nothing_that_compares():
    assert {"tfbisect.model", "tfbisect.knowledge", "numpy"}.isdisjoint(loaded("import tfbisect.recorder"))


LIGHT = [module for _, module in modules() if part(module) not in NEEDS_TENSORFLOW and part(module) != "__main__"]


@pytest.mark.parametrize("module", LIGHT)
def test_module_imports_alone_and_without_tensorflow(module):
    assert "tensorflow" not in loaded(f"import {module}")


def test_public_names_are_there_and_no_module_is_hidden_by_one():
    assert set(tfbisect.__all__) <= set(dir(tfbisect))
    for name in tfbisect.__all__:
        assert name == "__version__" or importlib.util.find_spec(f"tfbisect.{name}") is None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = tfbisect.nonsense
