"""The demo, as the README's first command runs it."""

import os
import re


def test_demo_finds_the_op_the_line_and_the_cure(cli):
    start = os.times()
    done = cli("demo")
    assert done.returncode == 0, done.stdout + done.stderr
    # Processor time: about 20 s. What else the machine does would slow a clock.
    assert sum(os.times()[2:4]) - sum(start[2:4]) < 60
    assert re.search(r"DIVERGED  first at ResourceScatterSub, line \d+ of embedding_sgd.py", done.stdout)
    assert "optimizer.apply(gradients, model.trainable_variables)" in done.stdout
    assert "enable_op_determinism" in done.stdout
    assert re.search(r"size +[\d,]+ of [\d,]+ elements differ", done.stdout)
    # Every seed was set and the data are the same: the loss of all runs is, to the digits shown, too.
    assert len(set(re.findall(r"steps: ([\d.]+)", done.stdout))) == 1
