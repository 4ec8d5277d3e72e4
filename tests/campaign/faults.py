"""What is planted into a generated program, and what a comparison must then say: the words of the campaign.

Writes no program (`writer` does) and runs none (`run` does).
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# What a culprit's category may be, by kind of fault. An eager Python value that is a seed is of category `rng`.
CATEGORIES = {
    "ulp": {"host"},
    "eager-ulp": {"host", "input"},
    "constant": {"host", "structure"},
    "scalar": {"host", "input"},
    "array": {"input", "host"},
    "seed": {"rng", "host", "input", "structure", "state"},
    "initial": {"host", "input", "state", "rng"},
    "argument": {"host", "structure", "input"},
    "order": {"structure", "state", "race"},
    "op": {"structure"},
    "data": {"input", "host"},
    "step": {"structure", "state"},
}


@dataclass
class Site:
    """A place where a fault can be planted. `lines`: where a culprit may be; `ops`: its op types, None for any."""

    number: int
    kind: str
    lines: set[int]
    a: str
    b: str
    ops: frozenset[str] | None = None
    function: str | None = None  # the function that it stands in; None for eager code
    trips: tuple[int, ...] = ()  # iterations of the loops around it
    hidden: bool = False  # inside an op that hides what it runs
    pinned: bool = True  # `trips` are the loop iterations of the trace
    variable: str | None = None  # "initial": a reader is right whose line names it
    path: tuple[int, ...] | None = None  # chosen when it is planted
    moment: int | None = None

    @property
    def token(self) -> str:
        return f"«{self.number}»"


@dataclass
class Function:
    """A generated tf.function: `calls` are the moments at which the driver calls it, by way of calling."""

    name: str
    parameters: list[Any]
    results: list[Any]
    scalar: set[int] | None = None  # lines that use the Python scalar it takes
    calls: dict[str, list[int]] = field(default_factory=lambda: {"": [], " (forward)": []})
    sure: bool = True  # whether it is certain which of the calls happen, and how
    callers: list["Function"] = field(default_factory=list)

    def moments(self) -> list[int]:
        """All moments at which it runs, also inside other functions."""
        found = self.calls[""] + self.calls[" (forward)"]
        for caller in self.callers:
            found += caller.moments()
        return found


@dataclass
class Verdict:
    """What came of one program."""

    label: str
    note: str = ""
    imprecise: list[str] = field(default_factory=list)


def describes(culprit: Any, site: Site, file: str) -> bool:
    """Whether a culprit is the planted fault."""
    if site.kind == "argument" and culprit.category == "rng":
        return True  # a function that is traced once more draws its random numbers from the start
    if site.kind == "step" and culprit.category in CATEGORIES["step"]:
        return True
    source = culprit.source
    if source is None or Path(source.file).name != file:
        return False
    if site.kind == "order" and culprit.category in ("state", "race"):
        return True
    if site.variable and culprit.category == "state":
        return site.variable in source.text or "apply" in source.text
    # A factor of one is optimized away with its multiplication: another structure, of the op that took the constant.
    gone = site.kind == "constant" and culprit.category == "structure"
    return source.line in site.lines and (site.ops is None or culprit.op_type in site.ops or gone)


def imprecise(culprit: Any, site: Site, functions: dict[str, Function]) -> list[str]:
    """What is not quite right in a culprit that is the planted fault."""
    found = []
    if culprit.category not in CATEGORIES[site.kind] and not site.hidden:
        found.append(f"category {culprit.category} for {site.kind}")
    called = site.function is not None and functions[site.function].callers  # perhaps in a loop of the caller's
    if (
        site.kind == "ulp"
        and site.path is not None
        and site.pinned
        and not called
        and tuple(culprit.iteration) != site.path
    ):
        found.append(f"iteration {list(culprit.iteration)} instead of {list(site.path)}")
    name, half = culprit.function, ""
    if name.endswith(" (forward)"):
        name, half = name[: -len(" (forward)")], " (forward)"
    if site.kind == "ulp" and site.moment is not None and name in functions and functions[name].sure:
        calls = functions[name].calls[half]
        if culprit.call is None or culprit.call >= len(calls) or calls[culprit.call] != site.moment:
            found.append(f"call {culprit.call} of {culprit.function}, not the one at moment {site.moment} of {calls}")
    return found


def judge(comparison: Any, planted: list[Site], file: str, functions: dict[str, Function], changed: bool) -> Verdict:
    """Hold a comparison against what was planted. `changed`: results differed, or a fault ran."""
    culprits, verdict = comparison.culprits, comparison.verdict
    if not planted:
        return Verdict("fine") if verdict == "identical" else Verdict("false alarm", text(comparison))
    if verdict == "identical":
        return Verdict("missed" if changed else "masked")
    if not culprits:
        return Verdict("undecided", "; ".join(comparison.warnings)[:300])
    matches = [next((site for site in planted if describes(each, site, file)), None) for each in culprits]
    if matches[0] is None:
        return Verdict("WRONG", text(comparison))
    exact = [
        issue
        for each, site in zip(culprits, matches, strict=True)
        if site
        for issue in imprecise(each, site, functions)
    ]
    strangers = [each for each, site in zip(culprits, matches, strict=True) if site is None]
    if any(not each.contained for each in strangers):
        return Verdict("extra", text(comparison), exact)
    if strangers:
        return Verdict("contained extra", text(comparison), exact)
    return Verdict("right", "", exact)


def text(comparison: Any) -> str:
    """A comparison in a few words."""
    parts = [comparison.verdict]
    for each in comparison.culprits[:4]:
        where = f"line {each.source.line} `{each.source.text.strip()[:90]}`" if each.source else "no line"
        dies = ", dies out" if each.contained else ""
        parts.append(
            f"{each.category} {each.op_type} {each.name} call {each.call} {list(each.iteration)} at {where}{dies}"
        )
    if len(comparison.culprits) > 4:
        parts.append(f"{len(comparison.culprits) - 4} more")
    if not comparison.culprits:
        parts += comparison.warnings[:2]
    return " | ".join(parts)
