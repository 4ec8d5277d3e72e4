"""The commands that try the versions and print the figures: what they make of what others print."""

import figures
import pytest
import versions
from helpers import ROOT, python

README = f"before\n{versions.BEGIN}\n{versions.END}\nafter\n"
ROW = versions.Row("2.16.2", "3.10.13", "3.12.4", "1.26.4", "works", "212, 1 skipped", "2026-01-02")


def test_a_row_of_the_table_replaces_that_of_its_pair_and_leaves_the_others():
    once = versions.with_rows(README, {ROW.pair: ROW})
    assert once.startswith("before\n") and once.endswith("\nafter\n")
    assert versions.rows(once)["2.16/3.10"] == ROW
    assert {row.result for pair, row in versions.rows(once).items() if pair != ROW.pair} == {versions.NOT_TRIED}
    worse = ROW._replace(python="3.10.14", result="2 failed")
    twice = versions.with_rows(once, versions.rows(once) | {worse.pair: worse})
    assert versions.rows(twice) == versions.rows(once) | {"2.16/3.10": worse}
    with pytest.raises(SystemExit, match=r"README.md has no"):
        versions.with_rows("", {})


def test_the_table_in_the_readme_is_whole():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert list(versions.rows(text)) == versions.pairs()
    assert versions.with_rows(text, versions.rows(text)) == text


@pytest.mark.parametrize(
    ("counts", "wanted"),
    [
        ('tests="5" failures="0" errors="0" skipped="1"', ("works", "4, 1 skipped")),
        ('tests="5" failures="1" errors="1" skipped="0"', ("2 failed", "3")),
        ('tests="1" failures="0" errors="0" skipped="1"', ("no tests ran", "0, 1 skipped")),
    ],
)
def test_a_report_of_pytest_becomes_a_result(tmp_path, counts, wanted):
    report = tmp_path / "tests.xml"
    report.write_text(f"<testsuites><testsuite {counts}/></testsuites>")
    assert versions.outcome(report) == wanted


CAMPAIGN = "\n".join(f"{label:<16}{number:>6}" for label, number in (
    ("right", 7), ("fine", 2), ("undecided", 1), ("WRONG", 0), ("false alarm", 0), ("broken", 0), ("programs", 10),
))  # fmt: skip


@pytest.mark.parametrize(
    ("read", "said", "figure", "met"),
    [
        (figures.passed, "3 passed, 1 skipped in 2.0s", "3 of 4, 1 skipped", True),
        (figures.passed, "1 failed, 3 passed, 2 warnings in 2.0s", "3 of 4", False),
        (figures.passed, "no tests ran in 0.1s", "0 of 0", False),
        (figures.flips, "a.h5: found out 3, the same answer 1,017\nb.h5: found out 2, less, and said so 4",
         "a.h5: found out 3, the same answer 1,017 | b.h5: found out 2, less, and said so 4", True),
        (figures.flips, "a.h5: WRONG: ('identical', ()) 1, found out 3", "WRONG", False),
        (figures.fuzzed, "\n60 inputs of seed 1 in 7 s: 0 failed\n", "60 inputs of seed 1 in 7 s: 0 failed", True),
        (figures.fuzzed, "60 inputs of seed 1 in 7 s: 10 failed", "60 inputs of seed 1 in 7 s: 10 failed", False),
        (figures.fuzzed, "", "nothing was printed", False),
        (figures.named, CAMPAIGN, "right 7, fine 2, undecided 1, WRONG 0", True),
        (figures.named, CAMPAIGN.replace("WRONG                0", "WRONG                1"), "WRONG 1", False),
        (figures.named, "", "right 0, WRONG 0", False),
        (figures.alarms, CAMPAIGN.replace("undecided            1", "undecided            0"), "2 pairs", True),
        (figures.alarms, CAMPAIGN, "2 pairs identical, 0 diverged, 1 bad in all", False),
        (figures.zoo, "eager_loop                  1,234  yes      yes\nall good", "1 programs, all good", True),
        (figures.zoo, "eager_loop                  1,234  NO       yes\n1 bad: eager_loop", "1 programs", False),
        (figures.tried, "2.16/3.10   works, /p\n2.21/3.13   works, /p\n2.17/3.10   not tried, /p",
         "2 of 3 pairs work, 0 fail, 1 not tried", True),
        (figures.tried, "2.16/3.10   works, /p\n2.21/3.13   1 failed, /p", "1 of 2 pairs work, 1 fail", False),
    ],
)  # fmt: skip
def test_a_figure_is_read_from_what_its_command_prints(read, said, figure, met):
    found = read(said)
    assert figure in found[0] and found[1] == met, found


def test_the_figures_are_printed_with_their_commands():
    done = python("tests/figures.py", "--quick", "--only", "versions", cwd=ROOT)
    assert "python tests/versions.py --list" in done.stdout
    assert (done.returncode == 0) == ("NOT MET" not in done.stdout), done.stderr
