"""The demo, as the README's first command runs it."""

import re
import time


def test_demo_finds_the_op_the_line_and_the_cure(cli):
    start = time.monotonic()
    done = cli("demo")
    assert done.returncode == 0, done.stdout + done.stderr
    assert time.monotonic() - start < 60
    assert re.search(r"DIVERGED  first at ResourceScatterSub, line \d+ of embedding_sgd.py", done.stdout)
    assert "optimizer.apply(gradients, model.trainable_variables)" in done.stdout
    assert "enable_op_determinism" in done.stdout
    assert re.search(r"size +[\d,]+ of [\d,]+ elements differ", done.stdout)
    # Every seed was set and the data are the same: the loss of all runs is, to the digits shown, too.
    assert len(set(re.findall(r"steps: ([\d.]+)", done.stdout))) == 1
