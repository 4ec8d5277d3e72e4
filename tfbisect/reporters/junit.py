"""A comparison as JUnit XML, which CI systems show as tests: one that passes, or one failure a culprit.

A culprit is named by its op; its line stands in `file` and `line`, which the common viewers link.
"""

import re
from xml.etree import ElementTree

from tfbisect.errors import printable
from tfbisect.model import Comparison, Culprit
from tfbisect.reporters import Page
from tfbisect.reporters._culprit import lines, subject, workers
from tfbisect.reporters._text import place

SUFFIXES = ("xml",)
SUITE = "tfbisect"
# What XML 1.0 (section 2.2) cannot hold or changes when it is read, and what moves a terminal that shows it.
_FORBIDDEN = re.compile(r"[^\t\n\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render(comparison: Comparison, page: Page) -> str:
    """One `testsuite`. Inconclusive is an error, not a failure: nothing was shown to differ."""
    suite = ElementTree.Element("testsuite", name=SUITE)
    failures = [culprit for culprit in comparison.culprits if comparison.verdict == "diverged"]
    for number, culprit in enumerate(failures, 1):
        case = _case(suite, _name(culprit, number), culprit)
        message = _clean(_message(culprit) + (f", {where}" if (where := workers(culprit, comparison)) else ""))
        failure = ElementTree.SubElement(case, "failure", type=culprit.category, message=message)
        failure.text = _clean(lines(comparison, culprit, page))
    if not failures:
        case = _case(suite, "the runs agree", None)
        if comparison.verdict != "identical":
            tag = "failure" if comparison.verdict == "diverged" else "error"
            message = "; ".join(comparison.warnings) or "nothing could be compared, or what differs cannot be blamed"
            ElementTree.SubElement(case, tag, type=comparison.verdict, message=_clean(message))
    suite.set("tests", str(len(suite)))
    suite.set("failures", str(len(suite.findall("testcase/failure"))))
    suite.set("errors", str(len(suite.findall("testcase/error"))))
    suite.set("skipped", "0")
    ElementTree.SubElement(suite, "system-out").text = _clean(
        "\n".join([f"{comparison.coverage.compared:,} values compared", *map(printable, comparison.warnings)])
    )
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    # ASCII with references, so that the text is right whatever encoding it is written in.
    text: bytes = ElementTree.tostring(root, encoding="us-ascii", xml_declaration=False)
    return '<?xml version="1.0"?>\n' + text.decode("ascii") + "\n"


def _case(suite: ElementTree.Element, name: str, culprit: Culprit | None) -> ElementTree.Element:
    source = culprit.source if culprit is not None else None
    module = f".{source.base.removesuffix('.py')}" if source is not None else ""
    case = ElementTree.SubElement(suite, "testcase", classname=_clean(SUITE + module), name=_clean(name), time="0")
    if source is not None:
        case.set("file", _clean(source.file))
        case.set("line", str(source.line))
    return case


def _name(culprit: Culprit, number: int) -> str:
    where = f" at {place(culprit.source)}" if culprit.source is not None else ""
    return f"{number} {culprit.op_type} {culprit.name}{where}"


def _message(culprit: Culprit) -> str:
    where = f", {place(culprit.source)}" if culprit.source is not None else ""
    step = f", step {culprit.step}" if culprit.step is not None else ""
    return f"{subject(culprit)} diverged first ({culprit.category}){where}{step}"


def _clean(text: str) -> str:
    """Without characters that XML has no way to write."""
    return _FORBIDDEN.sub(lambda found: printable(found[0]), text)
