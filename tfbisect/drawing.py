"""What a page draws of a comparison, in bounded space and time: graph, time line, growth, differing ops."""

from tfbisect.bisector import Findings
from tfbisect.culprits import Portraits
from tfbisect.model import Json
from tfbisect.overview import DifferingEvents, Overview
from tfbisect.sizes import Sizes
from tfbisect.surroundings import Surroundings

DRAWN = ("graph", "timeline", "growth", "differing")


def drawn(findings: Findings, portraits: Portraits) -> tuple[Json, DifferingEvents]:
    """({each of DRAWN: JSON}, all differing events)"""
    sizes = Sizes(findings.equality)
    overview = Overview(findings, portraits.steps[0], sizes)
    growth = overview.growth()  # first of all: what may be measured is bounded
    found = {
        "graph": Surroundings(findings, portraits.steps, sizes).graph(),
        "timeline": overview.timeline(),
        "growth": growth,
        "differing": overview.differing(),
    }
    return {key: found[key] for key in DRAWN}, overview.events()
