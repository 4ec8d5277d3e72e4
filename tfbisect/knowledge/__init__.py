"""Why an op can differ between two runs and what to change: the knowledge base's public functions.

Decides nothing about which op differed first: it explains an op that a comparison names. The facts are in the family
modules beside this file, found by listing the folder; nothing here imports TensorFlow.
"""

import difflib
import importlib
import pkgutil
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from shlex import quote
from textwrap import wrap

from tfbisect.errors import printable
from tfbisect.knowledge.entry import RANK, Answer, Confidence, Entry, Evidence, Grade, Setting, Steady
from tfbisect.knowledge.precision import COPIES, EXACT, EXACT_OF_TWO
from tfbisect.model import Cause

__all__ = [
    "Answer",
    "Confidence",
    "Entry",
    "Evidence",
    "Grade",
    "Setting",
    "Steady",
    "causes_for",
    "cures_for",
    "entries",
    "entries_for_error",
    "explain",
    "is_exact_elementwise",
    "known_op_types",
    "risks",
    "steady",
]

MOST_CAUSES = 4
_WIDTH = 100
_BRACKETED = re.compile(r" \(\{settings\}\)|: \{settings\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_GRADES: Mapping[str, str] = {
    "source": "stated by the sources",
    "measured": "measured, and stated by the sources",
    "inferred": "inferred from the sources, not seen to vary",
}


@cache
def _families() -> tuple[tuple[Entry, ...], tuple[Steady, ...]]:
    """What every module of this folder knows; a module without ENTRIES is a helper."""
    found: list[Entry] = []
    steadies: list[Steady] = []
    for module in sorted(pkgutil.iter_modules(__path__), key=lambda module: module.name):
        family = importlib.import_module(f"{__name__}.{module.name}")
        found.extend(getattr(family, "ENTRIES", ()))
        steadies.extend(getattr(family, "STEADY", ()))
    return tuple(found), tuple(steadies)


def entries() -> tuple[Entry, ...]:
    """Every cause that is known."""
    return _families()[0]


def steady(op_type: str, device: str = "") -> tuple[Steady, ...]:
    """What is known of this op repeating: equal bits for equal inputs on one set-up."""
    return tuple(
        item
        for item in _families()[1]
        if op_type in item.op_types and (not device or any(kind in device.upper() for kind in item.devices))
    )


def causes_for(evidence: Evidence) -> tuple[Cause, ...]:
    """The likely causes of what the evidence shows, best first; empty when nothing true can be said."""
    found: list[tuple[int, bool, bool, Entry, Confidence]] = []
    for entry in entries():
        confidence = entry.applies(evidence)
        if confidence:
            found.append(
                (RANK[confidence], entry.generic, not entry.names_exactly(evidence.op_type), entry, confidence)
            )
    found.sort(key=lambda item: item[:3])  # stable: entries keep the order of their family
    if any(rank < RANK["low"] and not generic for rank, generic, *_ in found):
        found = [item for item in found if not item[1]]  # a named cause makes the general advice superfluous
    if found and found[0][0] == RANK["high"]:
        found = [item for item in found if item[0] < RANK["low"]]
    return tuple(_cause(entry, confidence, evidence) for _, _, _, entry, confidence in found[:MOST_CAUSES])


def cures_for(entry: Entry, evidence: Evidence) -> tuple[Setting, ...]:
    """The settings of an entry that run A's TensorFlow version has and that were not on already, best first."""
    return tuple(
        setting
        for setting in entry.cures
        if setting.available(evidence.version)
        and not (setting.env and evidence.variable(setting.env[0]) == setting.env[1])
        and not (setting.env and setting.env[0] == "TF_DETERMINISTIC_OPS" and evidence.op_determinism)
    )


def explain(op_type: str) -> str:
    """All that is known about an op type, as plain text."""
    name = printable(op_type)
    known = [entry for entry in entries() if not entry.any_op and entry.names(op_type)]
    quiet = steady(op_type)
    if not known and not quiet:
        near = difflib.get_close_matches(op_type, known_op_types(), n=3, cutoff=0.6)
        hint = f" Near names: {', '.join(near)}." if near else ""
        return (
            f"{name}: nothing is known about this op type.{hint}\n"
            "That is no promise that it repeats; see it in your program: python -m tfbisect run --times 5 program.py"
        )
    blocks = [name]
    for item in quiet:
        blocks.append(
            _block(f"Repeats on {' and '.join(item.devices)}", [("", item.note)])
            + "\n"
            + _listed("sources", item.sources)
        )
    blocks.extend(_described(entry) for entry in known)
    return "\n\n".join(blocks)


def known_op_types() -> tuple[str, ...]:
    """Every op type that an entry names, patterns left out, and every one known to repeat."""
    names = {name for entry in entries() for name in entry.op_types if "*" not in name}
    names.update(name for item in _families()[1] for name in item.op_types)
    return tuple(sorted(names))


def risks(evidence: Evidence) -> tuple[Entry, ...]:
    """The reasons why this op can differ between two equal runs on this device and with these settings.

    What an entry asks of the data (repeated indices, float weights) is in its `condition` and is not checked here. A
    dtype that it does not speak of is no risk.
    """
    return tuple(
        entry
        for entry in entries()
        if entry.varies is not None
        and not entry.any_op
        and entry.names(evidence.op_type)
        and any(evidence.on(kind) for kind in entry.devices)
        and entry.varies(evidence)
        and not _harmless_dtype(entry, evidence)
    )


def _harmless_dtype(entry: Entry, evidence: Evidence) -> bool:
    """Whether the entry would speak of this op if only it computed with floats."""
    if evidence.floating:
        return False
    kernel, floats = (replace(evidence, category="kernel", dtype=dtype) for dtype in (evidence.dtype, "float32"))
    return entry.rule(floats) is not None and entry.rule(kernel) is None


def entries_for_error(text: str) -> tuple[Entry, ...]:
    """The entries whose op raised this error under op determinism."""
    if "determinis" not in text.lower() and "determinsim" not in text:  # TensorFlow misspells one of them
        return ()
    return tuple(entry for entry in entries() if any(fragment in text for fragment in entry.error_fragments))


def is_exact_elementwise(op_type: str, inputs: int = 0) -> bool:
    """Whether the op rounds each element once or not at all, so that only its inputs decide its bits.

    inputs: how many values it takes, which decides of some.
    """
    return op_type in EXACT or op_type in COPIES or (op_type in EXACT_OF_TWO and inputs == 2)


def _cause(entry: Entry, confidence: Confidence, evidence: Evidence) -> Cause:
    cures = cures_for(entry, evidence)
    settings = _differences(entry, evidence)
    text = (entry.explanation or entry.mechanism).replace("{known}", _known(evidence))
    text = text.replace("{seed_shift}", evidence.seed_shift)
    text = text.replace("{settings}", settings) if settings else _BRACKETED.sub("", text)
    return Cause(
        id=entry.id,
        title=entry.title,
        confidence=confidence,
        explanation=text.replace("{op}", printable(evidence.op_type)),
        cure=(cures[0].line.replace("{exports}", _exports(entry, evidence)) if cures else "") or entry.workaround,
        source=entry.sources[0],
    )


def _known(evidence: Evidence) -> str:
    quiet = steady(evidence.op_type, evidence.device)
    return f"{{op}} is known to repeat ({quiet[0].sources[-1]})" if quiet else "nothing is known about {op} varying"


def _differences(entry: Entry, evidence: Evidence) -> str:
    """The settings that differ and reach this op, such as "threads.intra_op: 1 and 2"; "" when there are none."""
    keys = evidence.differing(entry.settings)[:3]
    return "; ".join(
        f"{printable(key)}: {' and '.join(_value(value) for value in evidence.environment[key])}" for key in keys
    )


def _exports(entry: Entry, evidence: Evidence) -> str:
    """The lines that give another run the environment variables of run A."""
    keys = [key for key in evidence.differing(entry.settings) if key.startswith("environment.")][:3]
    names = {key.removeprefix("environment."): evidence.environment[key][0] for key in keys}
    return "; ".join(
        f"unset {printable(name)}" if value is None else f"export {printable(name)}={quote(printable(value))}"
        for name, value in names.items()
        if _NAME.fullmatch(name)
    )


def _value(value: object) -> str:
    text = "unset" if value is None else printable(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _described(entry: Entry) -> str:
    rows = [("", entry.mechanism)]
    rows += [(word, text) for word, text in (("when", entry.condition), ("versions", entry.versions)) if text]
    lines = [_block(f"{entry.title} [{entry.id}], on {' and '.join(entry.devices)}", rows)]
    if entry.cures:
        lines.append("  cures:")
        for setting in entry.cures:
            lines.append(f"    {setting.line}")
            lines.append(
                f"      {setting.name}, since {setting.since}{': ' + setting.effect if setting.effect else ''}"
            )
    if entry.useless:
        lines.append(_listed("no help", entry.useless))
    note = f": {entry.raises_note}" if entry.raises_note else ""
    lines.append(
        _block("", [("raises under op determinism", f"{entry.raises}{note}"), ("workaround", entry.workaround)])
    )
    lines.append(_listed("sources", entry.sources))
    lines.append(f"  evidence: {_GRADES[entry.grade]}")
    return "\n".join(lines)


def _block(title: str, rows: Iterable[tuple[str, str]]) -> str:
    lines = [title] if title else []
    for word, text in rows:
        lines += wrap(f"{word}: {text}" if word else text, _WIDTH, initial_indent="  ", subsequent_indent="  ")
    return "\n".join(lines)


def _listed(word: str, texts: Iterable[str]) -> str:
    return "\n".join([f"  {word}:", *(f"    {text}" for text in texts)])
