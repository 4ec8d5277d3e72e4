"""The processes of one job: what they are told, whose output is whose, and that one that fails ends all."""

import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from tfbisect import launcher

WORKER = "import json, os; rank = json.loads(os.environ['TF_CONFIG'])['task']['index']\n"


def run(folder: Path, program: str, workers: int = 2) -> tuple[launcher.Ended, list[str], list[str]]:
    """How the job ended, and the lines it wrote to standard output and error, sorted."""
    with open(folder / "out", "wb") as out, open(folder / "err", "wb") as err:
        ended = launcher.run_job([[sys.executable, "-c", WORKER + program]] * workers, out.fileno(), err.fileno())
    out_text, err_text = ((folder / name).read_text(encoding="utf-8") for name in ("out", "err"))
    return ended, sorted(out_text.splitlines()), sorted(err_text.splitlines())


def test_each_worker_knows_the_cluster_and_its_place_in_it():
    configs = [json.loads(text) for text in launcher.cluster(3)]
    hosts = configs[0]["cluster"]["worker"]
    assert [config["task"] for config in configs] == [{"type": "worker", "index": n} for n in range(3)]
    assert all(config["cluster"] == {"worker": hosts} for config in configs)
    assert len(set(hosts)) == 3 and all(host.startswith("127.0.0.1:") for host in hosts)


def test_lines_are_passed_on_behind_the_workers_number(tmp_path):
    program = "import sys\nprint('step', rank)\nprint('no newline', rank, end='', file=sys.stderr)"
    ended, out, err = run(tmp_path, program)
    assert ended == launcher.Ended((0, 0), -1)
    assert out == ["[0] step 0", "[1] step 1"]
    assert err == ["[0] no newline 0", "[1] no newline 1"]


@pytest.mark.parametrize(
    ("end", "status", "told"),
    [
        ("raise SystemExit(3)", 3, "worker 1 ended with exit status 3"),
        ("import signal; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL, "worker 1 was ended by SIGKILL"),
    ],
)
def test_one_that_fails_ends_the_others(tmp_path, monkeypatch, end, status, told):
    monkeypatch.setattr(launcher, "GRACE_SECONDS", 0.5)
    began = time.monotonic()
    program = f"import time\nif rank == 1:\n    {end}\nprint('waits', flush=True)\ntime.sleep(60)"
    ended, out, _ = run(tmp_path, program)
    assert time.monotonic() - began < 30
    assert (ended.failed, ended.statuses[1]) == (1, status)
    assert ended.statuses[0] == -signal.SIGTERM
    assert launcher.told(ended) == told


def test_one_that_fails_leaves_the_others_time_to_end_by_themselves(tmp_path):
    ended, out, _ = run(tmp_path, "import time\nif rank == 1: raise SystemExit(1)\ntime.sleep(1)\nprint('done')")
    assert (ended, out) == (launcher.Ended((0, 1), 1), ["[0] done"])


def test_a_worker_that_insists_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(launcher, "GRACE_SECONDS", 0.5)
    program = (
        "import signal, time\nif rank == 1:\n    time.sleep(1)\n    raise SystemExit(1)\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(60)"
    )
    assert run(tmp_path, program)[0].statuses[0] == -signal.SIGKILL


def test_nothing_is_left_open(tmp_path):
    run(tmp_path, "pass")
    before = os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else []
    run(tmp_path, "pass")
    assert len(before) == (len(os.listdir("/proc/self/fd")) if before else 0)
