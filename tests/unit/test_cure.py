"""What a cure consists of: which treatments causes ask for, the checklist, the words and the command's usage."""

import json

import pytest
from helpers import python

from tfbisect import cli, knowledge, treatments
from tfbisect.checklist import checklist
from tfbisect.knowledge import settings
from tfbisect.model import Cause, Culprit, Source
from tfbisect.remedy import Cure, Plain, Raised, Trial
from tfbisect.reporters import Page, _cure


def culprit(
    cause: str = "random-unseeded", category: str = "rng", op_type: str = "RandomUniform", device: str = "CPU:0"
):
    source = Source("/home/ada/train.py", 4, "<module>", "x = tf.random.uniform([3])")
    return Culprit(
        op_type, op_type, "", 0, 0, device, None, 0, None, (), None, category, False, source,
        causes=(Cause(cause, "a cause", "high", "it draws", "seed it", "a page"),),
    )  # fmt: skip


def names(found):
    return [each.name for each in found]


def test_every_setting_that_a_treatment_stands_for_is_known():
    known = {value.name for value in vars(settings).values() if isinstance(value, settings.Setting)}
    assert {name for each in treatments.CATALOGUE for name in each.stands_for} <= known


def test_the_catalogue_is_cheapest_first_and_names_are_unique():
    costs = [each.cost for each in treatments.CATALOGUE]
    assert costs == sorted(costs)
    assert len(set(names(treatments.CATALOGUE))) == len(treatments.CATALOGUE)


def test_an_unseeded_op_asks_for_seeds_that_of_tensorflow_first():
    found = names(treatments.asked_for([culprit()], gpu=False))
    assert found == ["TensorFlow's seed", "Python's seed", "NumPy's seed"]


def test_a_layer_without_seed_asks_for_that_of_python_first():
    assert names(treatments.asked_for([culprit("keras-layer-seed")], gpu=False))[0] == "Python's seed"


def test_hash_order_asks_for_the_hash_seed():
    (found,) = treatments.asked_for([culprit("hash-order", "host")], gpu=False)
    assert found.environment == (("PYTHONHASHSEED", "0"),)


def test_every_variable_that_an_entry_sets_can_be_tried():
    """No setting of the knowledge base that is an environment variable is lost on the way to a treatment."""
    for entry in knowledge.entries():
        found = treatments.asked_for([culprit(entry.id)], gpu=True)
        done = {pair for each in found for pair in each.environment}
        for setting in entry.cures:
            if setting.env is not None and setting.env[0] != "TF_DETERMINISTIC_OPS":
                assert setting.env in done or any(setting.name in each.stands_for for each in found), setting.name


def test_an_op_on_another_device_can_be_pinned_to_the_cpu():
    entry = next(e for e in knowledge.entries() if any(s.name == settings.ON_CPU.name for s in e.cures))
    (pinned,) = [
        each
        for each in treatments.asked_for([culprit(entry.id, "kernel", "MatMul", "/device:GPU:0")], gpu=True)
        if each.actions and each.actions[0][0] == "pin"
    ]
    assert pinned.actions == (("pin", "MatMul", "CPU:0"),)
    assert not [e for e in treatments.asked_for([culprit(entry.id, "kernel", "MatMul")], gpu=True) if "pin" in str(e)]


def test_without_a_gpu_nothing_for_gpus_is_tried():
    assert not [each for each in treatments.applicable(gpu=False) if each.gpu]
    assert treatments.CUDNN_DETERMINISTIC in treatments.applicable(gpu=True)
    assert treatments.CPU_ONLY not in treatments.applicable(gpu=True)


def test_a_variable_that_differs_is_made_one():
    found = treatments.equal_variables({"MODE": "a b", "SAME": "1"}, {"MODE": "c", "SAME": "1", "TF_NEW": "2"})
    assert [each.environment for each in found] == [(("MODE", "a b"),), (("TF_NEW", None),)]
    assert found[0].lines == ("export MODE='a b'  # for both runs",)
    assert found[1].lines == ("unset TF_NEW  # for both runs",)
    assert "two programs" in found[0].note and not found[1].note


def test_all_seeds_are_one_line():
    lines = treatments.to_paste([*treatments.ALL_SEEDS, treatments.HASH_SEED])
    assert lines == (settings.SEED_ALL.line, settings.HASH_SEED.line)
    assert len(treatments.to_paste(treatments.ALL_SEEDS[:2])) == 2


def needs(found):
    return {advice.item: advice.need for advice in found}


def test_the_checklist_says_what_is_needed_and_what_is_wasted():
    trials = [Trial(("TensorFlow's seed",), 3, 3), Trial(("op determinism",), 3, 3), Trial(("NumPy's seed",), 0, 1)]
    found = checklist(["TensorFlow's seed"], trials, [culprit()], gpu=False, modules=())
    need = needs(found)
    assert need.pop("tf.random.set_seed") == "needed"
    assert need.pop("tf.config.experimental.enable_op_determinism") == "would do too"
    assert set(need.values()) == {"wasted"}
    assert len(found) == 15
    assert all(advice.reason for advice in found)


def test_where_nothing_cures_all_is_wasted_but_another_sum():
    found = checklist([], [], [culprit("cpu-thread-count", "kernel", "Sum")], gpu=False, modules=())
    assert {item for item, need in needs(found).items() if need != "wasted"} == {
        "a dot product with ones instead of reduce_sum", "integer or quantised sums",
    }  # fmt: skip


def test_only_what_was_tried_is_called_tried():
    trials = [Trial(("op determinism", "hash seed"), 0, 0, None, Raised("no")), Trial(("NumPy's seed", "x"), 0, 1)]
    reasons = {advice.item: advice.reason for advice in checklist([], trials, [culprit()], gpu=True, modules=())}
    assert reasons["the CPU only"] == "not tried"
    assert reasons["numpy.random.seed"] == "tried, and the runs still differed"
    assert reasons["tf.config.experimental.enable_op_determinism"].startswith("the program fails with")


def test_scikit_learn_draws_from_numpy():
    item = "random_state of scikit-learn's splits"
    assert needs(checklist(["NumPy's seed"], [], [], gpu=False, modules=("sklearn",)))[item] == "needed"
    assert needs(checklist(["NumPy's seed"], [], [], gpu=False, modules=()))[item] == "wasted"


CURED = Cure(
    "cured", ("train.py",), 12, Trial((), 0, 1, 1.0), (culprit(),),
    (
        Trial(("op determinism",), 0, 0, None, Raised("exit status 1: \x1b[31mno", ("Timestamp",), "pass the time in")),
        Trial(("TensorFlow's seed",), 3, 3, 1.25, own=("random.seed",)),
    ),
    ("TensorFlow's seed",), ("tf.random.set_seed(1)",), Plain(3, 3, "variable w [3]", 1, "", 1.5),
)  # fmt: skip


def test_the_text_says_verdict_proof_lines_and_what_raised():
    text = _cure.render(CURED, Page(100))
    assert text.startswith("CURED  TensorFlow's seed: 3 of 3 pairs identical\n")
    assert "untreated  0 of 1 pair identical" in text
    assert "3 of 3 pairs left the same variables and output, calls take 1.50 times as long" in text
    assert "Paste\n  tf.random.set_seed(1)\n" in text
    assert "Timestamp raises under it. pass the time in" in text
    assert "the program sets random.seed itself, which stands" in text
    assert "\x1b" not in text


@pytest.mark.parametrize("width", [40, 80, 200])
def test_the_text_keeps_to_the_page(width):
    assert max(map(len, _cure.render(CURED, Page(width)).splitlines())) <= width
    assert _cure.render(CURED, Page(width, unicode=False)).isascii()


def test_the_json_is_strict_and_whole():
    found = json.loads(json.dumps(CURED.to_json(), allow_nan=False))
    assert found["verdict"] == "cured"
    assert found["trials"][0]["raised"]["op_types"] == ["Timestamp"]
    assert found["plain"]["identical"] == 3
    assert found["culprits"][0]["source"]["line"] == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--env-b", "MODE", "a.py"], "expected NAME=VALUE"),
        (["--max-runs", "3", "a.py"], "expected 4 or more"),
        (["--pairs", "0", "a.py"], "expected 1 or more"),
        (["nothing.py"], "program nothing.py"),
    ],
)
def test_usage(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.py").write_text("")
    assert cli.main(["cure", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_a_program_that_fails_is_no_crash(tmp_path):
    (tmp_path / "a.py").write_text("import os\nos._exit(1)\n")
    done = python("-m", "tfbisect", "cure", "a.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "[cannot-read]" in done.stderr and "Traceback" not in done.stderr
