"""Programs that are killed, signalled, forked or left by daemon threads while they are recorded."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from helpers import ROOT, python

import tfbisect

KERAS = """
import numpy as np, tensorflow as tf, keras
keras.utils.set_random_seed(1)
x = np.random.default_rng(0).normal(size=(64, 8)).astype("f4")
model = keras.Sequential([keras.layers.Dense(16, activation="relu"), keras.layers.Dense(1)])
model.compile("adam", "mse")
print("begin", flush=True)
while True:
    model.fit(x, x[:, :1], batch_size=8, verbose=0, shuffle=False)
"""


def start(folder: Path, program: str, name: str, *, script: Path | None = None) -> subprocess.Popen[str]:
    if script is None:
        script = folder / "program.py"
        script.write_text(program)
    env = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tfbisect", "record", "-o", name, str(script)]
    return subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def killed(folder: Path, name: str, seconds: float, **how: Path) -> tfbisect.Trace:
    """The trace of a program that was killed so long after its training began."""
    with start(folder, KERAS, name, **how) as child:
        assert child.stdout is not None and child.stdout.readline()
        time.sleep(seconds)
        child.send_signal(signal.SIGKILL)
    trace = tfbisect.load(folder / name)
    assert not trace.complete and any("no end" in problem for problem in trace.problems)
    return trace


@pytest.mark.parametrize("moments", [5, pytest.param(30, marks=pytest.mark.slow)])
def test_what_was_flushed_survives_sigkill_at_any_moment(tmp_path, moments):
    draw, sizes = random.Random(moments), []
    for number in range(moments):
        trace = killed(tmp_path, f"{number}.h5", 3 * draw.random())
        sizes.append(len(trace.events))
        if number:
            result = tfbisect.compare(tmp_path / "0.h5", tmp_path / f"{number}.h5")
            assert (result.verdict, result.culprits) == ("inconclusive", ()) and result.coverage.compared > 0
    assert max(sizes) > 20


@pytest.mark.slow
def test_resnet50_survives_sigkill_at_30_random_moments(tmp_path):
    draw, script = random.Random(50), tmp_path / "resnet50.py"
    script.write_text(
        "import numpy as np, tensorflow as tf, keras\n"
        "keras.utils.set_random_seed(1)\n"
        "model = keras.applications.ResNet50(weights=None, input_shape=(64, 64, 3), classes=10)\n"
        "model.compile('sgd', 'sparse_categorical_crossentropy')\n"
        "x, y = np.random.default_rng(0).random((8, 64, 64, 3), 'f4'), np.arange(8)\n"
        "model.train_on_batch(x, y)\n"
        "print('begin', flush=True)\n"
        "while True:\n    model.train_on_batch(x, y)\n"
    )
    for number in range(30):
        trace = killed(tmp_path, f"{number}.h5", 20 * draw.random(), script=script)
        assert len(trace.events) > 1000
        if number:
            result = tfbisect.compare(tmp_path / "0.h5", tmp_path / f"{number}.h5")
            assert (result.verdict, result.culprits) == ("inconclusive", ())
            (tmp_path / f"{number}.h5").unlink()


WAYS = """
import multiprocessing, os, signal, sys, threading, time
import tensorflow as tf

def work(number):
    return float(tf.reduce_sum(tf.sin(tf.fill([3], float(number)))))

def plain(number):
    return number * 2

def endless():
    while True:
        tf.cos(tf.constant(0.5))

if __name__ == "__main__":
    way = sys.argv[1]
    print(work(1))
    if way == "spawn":
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            print(pool.map(work, [2, 3]))
    elif way == "fork":
        with multiprocessing.get_context("fork").Pool(2) as pool:
            print(pool.map(plain, [2, 3]))
        if not (child := os.fork()):
            os._exit(0)
        os.waitpid(child, 0)
    elif way == "daemon":
        threading.Thread(target=endless, daemon=True).start()
        time.sleep(0.5)
    elif way == "term":
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(5)
    elif way == "int":
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(5)
    print(work(4))
"""


@pytest.mark.parametrize("way", ["spawn", "fork", "daemon", "term", "int"])
def test_processes_threads_and_signals_of_the_program(cli, tmp_path, way):
    (tmp_path / "ways.py").write_text(WAYS)
    plain = python("ways.py", way, cwd=tmp_path)
    recorded = cli("record", "-o", "a.h5", "ways.py", way)
    status = {"term": 7, "int": 130}.get(way, 0)
    assert (plain.stdout, status if way == "int" else plain.returncode) == (recorded.stdout, recorded.returncode)
    assert recorded.returncode == status
    trace = tfbisect.load(tmp_path / "a.h5")
    assert trace.complete and len(trace.events) > 3
    assert trace.end is not None and trace.end["exit"] == status
    if way != "daemon":
        names = [trace.graphs[int(call["graph"])].name for call in trace.calls]
        assert names.count("Sin") == (1 if way in ("term", "int") else 2)


def test_a_file_size_limit_is_a_full_disk(cli, tmp_path):
    (tmp_path / "full.py").write_text(
        "import resource, signal\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "import tensorflow as tf\n"
        "x = tf.constant(0.5)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, resource.RLIM_INFINITY))\n"
        "for _ in range(20_000):\n    x = tf.sin(x)\n"
        "print(float(x))\n"
    )
    plain, recorded = python("full.py", cwd=tmp_path), cli("record", "-o", "a.h5", "full.py")
    assert (plain.stdout, 0) == (recorded.stdout, recorded.returncode)
    assert recorded.stderr.count("the program goes on") == 1 and "File too large" in recorded.stderr
    trace = tfbisect.load(tmp_path / "a.h5")
    assert not trace.complete and len(trace.events) > 0
