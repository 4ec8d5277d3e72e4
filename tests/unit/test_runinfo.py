"""What a trace says of the environment it was recorded in."""

import pytest

from tfbisect.recorder import runinfo


def test_what_reaches_tensorflow_comes_first_and_secrets_are_digests():
    given = {
        "APP": "x", "AWS_SECRET_ACCESS_KEY": "hunter2", "LONG": "y" * 33, "PWD": "/", "TF_DETERMINISTIC_OPS": "1",
        "TF_AUTH_TOKEN": "abc", "XLA_FLAGS": "--a=" + "z" * 40, "_": "python",
    }  # fmt: skip
    kept = runinfo.environment(given)
    assert list(kept) == [
        "TF_AUTH_TOKEN", "TF_DETERMINISTIC_OPS", "XLA_FLAGS", "APP", "AWS_SECRET_ACCESS_KEY", "LONG",
    ]  # fmt: skip
    assert kept["TF_DETERMINISTIC_OPS"] == "1" and kept["XLA_FLAGS"] == given["XLA_FLAGS"] and kept["APP"] == "x"
    for name in ("AWS_SECRET_ACCESS_KEY", "TF_AUTH_TOKEN", "LONG"):
        assert kept[name].startswith("sha256:") and given[name] not in kept[name]
    assert runinfo.environment({**given, "LONG": "y" * 34})["LONG"] != kept["LONG"]


CLUSTER = '{"cluster": {"chief": ["a:1"], "worker": ["b:2", "c:3"]}, "task": {"type": "worker", "index": 1}}'
ALONE = '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}}'


@pytest.mark.parametrize(
    ("variables", "task", "cluster"),
    [
        ({"TF_CONFIG": CLUSTER}, "worker:1", {"chief": 1, "worker": 2}),
        ({"TF_CONFIG": CLUSTER, "RANK": "0", "WORLD_SIZE": "4"}, "worker:1", {"chief": 1, "worker": 2}),
        ({"RANK": "3", "WORLD_SIZE": "4"}, "rank:3", {"rank": 4}),
        ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"}, "rank:0", {"rank": 2}),
        ({"SLURM_PROCID": "7", "SLURM_NTASKS": "8"}, "rank:7", {"rank": 8}),
    ],
)
def test_which_worker_of_a_job_a_process_is(variables, task, cluster):
    assert runinfo.worker(variables) == {"worker": {"task": task, "cluster": cluster}}


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"TF_CONFIG": ALONE},
        {"TF_CONFIG": "{"},
        {"TF_CONFIG": "[]"},
        {"TF_CONFIG": '{"cluster": 5, "task": {"type": 1}}'},
        {"RANK": "0", "WORLD_SIZE": "1"},
        {"RANK": "first", "WORLD_SIZE": "2"},
        {"RANK": "0"},
    ],
)
def test_a_process_that_is_alone_or_told_nonsense_is_no_worker(variables):
    assert runinfo.worker(variables) == {}
