"""Why an op that draws random numbers got another seed in the other run: what was made before it.

Reads what the recorder noted; decides no culprit.
"""

from collections import Counter
from collections.abc import Sequence

from tfbisect.errors import printable
from tfbisect.tables import Draw, Trace

MOST = 3  # ops that are named


def pair_of_seeds(
    a: Trace, at_a: tuple[int, int], b: Trace, at_b: tuple[int, int]
) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """(graph seed, op seed) in both runs of an op at (graph, node); None where they are not known."""
    one, two = a.seeds.get(at_a), b.seeds.get(at_b)
    return None if one is None or two is None else (one, two)


def shift(a: Trace, at_a: tuple[int, int], b: Trace, at_b: tuple[int, int]) -> str:
    """One sentence on what shifted the op's seed; "" if its seeds do not differ that way."""
    seeds = pair_of_seeds(a, at_a, b, at_b)
    if seeds is None or seeds[0][0] != seeds[1][0] or seeds[0][1] == seeds[1][1]:
        return ""
    scopes = a.scopes.get(at_a[0], ""), b.scopes.get(at_b[0], "")
    made = a.made.get(scopes[0], []), b.made.get(scopes[1], [])
    (graph, one), (_, two) = seeds
    both = f"Both runs have graph seed {graph}; the op got seed {one} in run A and {two} in run B"
    if scopes[0] == EAGER:
        return _moved(b, made[1], "B", both, one) or _moved(a, made[0], "A", both, two)
    before = [_before(trace, at, each) for trace, at, each in ((a, at_a, made[0]), (b, at_b, made[1]))]
    more = [_more(a, before[0], b, before[1]), _more(b, before[1], a, before[0])]
    if not any(more):
        return ""
    texts = [
        f"run {run} made {_text(trace, draws)} before it"
        for run, trace, draws in (("A", a, more[0]), ("B", b, more[1]))
        if draws
    ]
    return f"{both}, since {' and '.join(texts)}"


EAGER = "eager"
"""The scope of eager ops: their seeds are drawn one after the other."""


def _moved(trace: Trace, made: Sequence[Draw], run: str, both: str, seed: int) -> str:
    """Eager seeds are drawn in order: another op of the run got the one that this op has in the other run."""
    taker = next((draw for draw in made if draw.op_seed == seed), None)
    return f"{both}; run {run} gave seed {seed} to {_text(trace, [taker])}" if taker is not None else ""


def _before(trace: Trace, at: tuple[int, int], made: Sequence[Draw]) -> list[Draw]:
    name = trace.graphs[at[0]].nodes[at[1]].name
    place = next((place for place, draw in enumerate(made) if draw.name == name), 0)
    return list(made[:place])


def _more(trace: Trace, mine: Sequence[Draw], other: Trace, theirs: Sequence[Draw]) -> list[Draw]:
    """What was made in one run only, by type and line of code."""
    left = Counter(_key(other, draw) for draw in theirs)
    found = []
    for draw in mine:
        key = _key(trace, draw)
        if left[key]:
            left[key] -= 1
        else:
            found.append(draw)
    return found


def _key(trace: Trace, draw: Draw) -> tuple[str, str]:
    source = trace.source(draw.stack)
    return draw.op, source.text if source is not None else draw.name


def _text(trace: Trace, draws: Sequence[Draw]) -> str:
    texts = []
    for draw in draws[:MOST]:
        source = trace.source(draw.stack)
        line = (
            f" at line {source.line} ({printable(source.text.strip())})"
            if source is not None
            else f" {printable(draw.name)}"
        )
        texts.append(printable(draw.op) + line)
    more = f" and {len(draws) - MOST} more" if len(draws) > MOST else ""
    return ", ".join(texts) + more
