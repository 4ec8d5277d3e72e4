"""Which step runs now: the rules by which steps are counted while a program runs, and the form of --steps."""

import pytest

from tfbisect.errors import Usage
from tfbisect.recorder.progress import By, Progress
from tfbisect.recorder.window import Window


class Seen:
    """A Progress and the numbers that it told of."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.progress = Progress(lambda: self.numbers.append(self.progress.number))


def test_a_function_that_is_called_once_at_the_start_does_not_count() -> None:
    seen = Seen()
    for name in ["fill", "train", "train", "evaluate", "train", "evaluate"]:
        seen.progress.function(name)
    assert seen.numbers == [0, 1, 2]


def test_functions_that_take_turns_share_their_steps() -> None:
    seen = Seen()
    for _ in range(3):
        seen.progress.function("discriminator")
        seen.progress.function("generator")
    assert seen.numbers == [0, 1, 2]


def test_a_round_of_eager_writes_is_a_step_and_ends_with_its_last_write() -> None:
    seen = Seen()
    for name in "vw":
        seen.progress.written(("made", name))
    assert seen.numbers == [0]  # what is written once belongs to the first step
    for _ in range(4):
        for name in "vw":
            seen.progress.written(("updated", name))
    assert seen.numbers == [0, 1, 2, 3, 4]
    assert seen.progress.by == By.EAGER


def test_marks_win_over_functions_and_functions_over_eager_writes() -> None:
    seen = Seen()
    seen.progress.written("v")
    seen.progress.written("v")
    seen.progress.function("train")
    seen.progress.written("v")
    seen.progress.marked(0)
    seen.progress.function("train")
    seen.progress.marked(1)
    seen.progress.marked(-1)
    assert seen.numbers == [0, 1, 2, 0, 1, -1] or seen.numbers[-3:] == [0, 1, -1]
    assert seen.progress.by == By.MARKS


@pytest.mark.parametrize(
    "text, inside, outside",
    [
        ("3:5", [3, 4], [-1, 0, 2, 5]),
        ("3:", [3, 10**6], [-1, 2]),
        (":2", [-1, 0, 1], [2]),
        ("7", [7], [6, 8]),
        (":", [-1, 0, 10**9], []),
        ("none", [], [-1, 0, 5]),
    ],
)
def test_windows(text: str, inside: list[int], outside: list[int]) -> None:
    window = Window.parse(text)
    assert [step for step in inside + outside if window.holds(step)] == inside
    assert Window.parse(str(window)) == window


@pytest.mark.parametrize("text", ["", "5:3", "4:4", "a:b", "-1:3", "3:5:7", "0:0"])
def test_a_window_that_makes_no_sense_is_an_error(text: str) -> None:
    with pytest.raises(Usage, match="FIRST:LAST"):
        Window.parse(text)
