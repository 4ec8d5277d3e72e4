"""What `cure` changes from outside takes effect, and leaves alone what the program sets itself."""

import json

from helpers import python

SHOWS = """
import json
import numpy as np
import tensorflow as tf
import keras
from tensorflow.python.framework import config

@tf.function
def loop(x):
    for _ in tf.range(3):
        x = tf.linalg.matmul(x, x)
    return x

graph = loop.get_concrete_function(tf.ones([2, 2])).graph.as_graph_def()
dataset = tf.data.Dataset.range(9).map(lambda x: x + 1, num_parallel_calls=4, deterministic=False)
model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(np.arange(8.0).reshape(8, 1), np.zeros(8), batch_size=8, verbose=0, shuffle=True)
old = tf.Graph()
print(json.dumps({
    "seed": tf.compat.v1.get_seed(None)[0],
    "v1": old.seed,
    "loop": [node.attr["parallel_iterations"].i for node in graph.node if "While" in node.op],
    "dataset": type(dataset).__name__,
    "determinism": config.is_op_determinism_enabled(),
}))
"""


def shown(folder, *actions, program=SHOWS):
    (folder / "program.py").write_text(program)
    spec = {"actions": list(actions), "environment": {"MODE": "a"}, "report": str(folder / "report.json")}
    done = python(
        "-m", "tfbisect.recorder.endstate", "state.json", "program.py", cwd=folder, TFBISECT_TREATMENT=json.dumps(spec),
        MODE="a",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = json.loads((folder / "report.json").read_text())
    return json.loads(done.stdout) if done.stdout.startswith("{") else {}, report


def test_everything_takes_effect(tmp_path):
    found, report = shown(
        tmp_path, ["seed_python", "1"], ["seed_numpy", "1"], ["seed_tensorflow", "1"], ["op_determinism"],
        ["data_serial"], ["loops_serial"], ["fit_unshuffled"], ["no_tf32"], ["pin", "MatMul", "CPU:0"],
    )  # fmt: skip
    assert (found["seed"], found["v1"]) == (1, 1)
    assert found["loop"] == [1]
    assert found["dataset"] == "_MapDataset"
    assert found["determinism"] is True
    assert report["own"] == []
    assert report["seconds"] > 0


def test_nothing_changes_without(tmp_path):
    found, _ = shown(tmp_path)
    assert found["v1"] is None and found["loop"] == [10] and found["determinism"] is False
    assert found["dataset"] == "_ParallelMapDataset"


def test_seeds_are_those_of_the_line_to_paste(tmp_path):
    import random

    import numpy as np

    program = "import random, json\nimport numpy as np\nimport tensorflow as tf\n"
    program += "print(json.dumps([random.random(), np.random.rand()]).replace('[', '{\"x\": [', 1) + '}')\n"
    found, _ = shown(tmp_path, ["seed_python", "1"], ["seed_numpy", "1"], program=program)
    assert found["x"] == [random.Random(1).random(), np.random.RandomState(1).rand()]


def test_what_the_program_sets_itself_stands_and_is_told(tmp_path):
    program = (
        "import os, random, json\nimport numpy as np\nimport tensorflow as tf\nrandom.seed(5)\nnp.random.seed(6)\n"
    )
    program += "os.environ['MODE'] = 'b'\n"
    program += "print(json.dumps({'x': random.random() == random.Random(5).random()}))\n"
    found, report = shown(tmp_path, ["seed_python", "1"], ["seed_numpy", "1"], program=program)
    assert found["x"] is True
    assert set(report["own"]) == {"random.seed", "numpy.random.seed", "MODE=b"}


def test_an_op_is_pinned_to_a_device_eagerly_and_in_graphs(tmp_path):
    program = """
import json
import tensorflow as tf

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)

@tf.function
def product(x):
    return tf.sin(tf.matmul(x, x))

x = tf.ones([2, 2])
graph = product.get_concrete_function(x).graph
devices = {op.type: op.device[-5:] for op in graph.get_operations()}
print(json.dumps({"eager": tf.matmul(x, x).device[-5:], "other": tf.sin(x).device[-5:], "graph": devices}))
"""
    found, _ = shown(tmp_path, ["pin", "MatMul", "CPU:1"], program=program)
    assert (found["eager"], found["other"]) == ("CPU:1", "CPU:0")
    assert found["graph"]["MatMul"] == "CPU:1" and found["graph"]["Sin"] != "CPU:1"
