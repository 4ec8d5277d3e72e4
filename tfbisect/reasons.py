"""Why two calls are each other's partners, as a number to keep and as text."""

import enum


class Why(enum.IntEnum):
    """Why two calls are each other's partners; 0 of a call without one."""

    NONE = 0
    ORDER = 1
    CONTENT = 2
    CALLER = 3
    NAME = 4
    TAKER = 5


REASONS = {
    Why.NONE: "no partner",
    Why.ORDER: "function and lines, in order",
    Why.CONTENT: "function and lines, and what it took and made: its order is chance",
    Why.CALLER: "its caller's partner, function and lines, in order",
    Why.NAME: "the name of what was there before recording",
    Why.TAKER: "a value of Python's: the first op that takes it",
}
