"""The workers of a job, in two runs: what each put into a collective op, and what that led to on the others.

The inputs of a collective op are what all its members put in, on whatever worker. A program in one process is a job of
one worker. Blames nothing: `bisector` does.
"""

import bisect
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from functools import cached_property
from typing import Any, NamedTuple

from tfbisect.collectives import Collectives, Instance, Member
from tfbisect.effects import Effects
from tfbisect.equality import UNKNOWN, Equality, Outcome, Status
from tfbisect.reach import Links

_TASK = re.compile(r"/job:[^/]*/replica:\d+/task:\d+")

Moment = tuple[int, tuple[int, ...]]
"""A call of run A and a place in it, as `Suspect.place` begins."""


def task_of(info: Mapping[str, Any]) -> str:
    """The name of the task that a trace is of, such as "worker:1", of which it takes `Trace.info`; "" for none."""
    told = info.get("worker")
    return str(told.get("task", "")) if isinstance(told, Mapping) else ""


def processes(info: Mapping[str, Any]) -> int:
    """How many processes made a run together, of which it takes a worker's `Trace.info`."""
    told = info.get("worker")
    cluster = told.get("cluster") if isinstance(told, Mapping) else None
    if isinstance(cluster, Mapping):
        return sum(count for count in cluster.values() if isinstance(count, int))
    devices = info.get("devices")
    names = devices if isinstance(devices, list) else []
    return max(1, len({found[0] for name in names if (found := _TASK.match(str(name)))}))


class Elsewhere(NamedTuple):
    """Differences on another worker, by number, that a collective op took."""

    worker: int
    numbers: tuple[int, ...]


class Job:
    """Workers are numbered as their pairs of runs are given. processes: how many the job had, in A and in B."""

    def __init__(self, equalities: Sequence[Equality], processes: Sequence[int] = (1, 1)) -> None:
        self._equalities, self._processes = equalities, processes
        self._collectives = [[Collectives(run) for run in equality.runs] for equality in equalities]
        self._elsewhere: list[dict[int, Elsewhere]] = [{} for _ in equalities]
        self._known: dict[tuple[int, int, Instance, int], Outcome] = {}

    @property
    def alone(self) -> bool:
        """Whether there was one process, in both runs."""
        return max(self._processes) <= 1 and len(self._equalities) == 1

    def inputs(self, worker: int, row: int, other: int) -> Iterator[Outcome]:
        """How what all members put into a collective op compares, given its events in A and B.

        What differs on another worker is a mixture of nothing, which `reached` follows there.
        """
        instances = [self._instance(worker, side, at) for side, at in enumerate((row, other))]
        mine, theirs = (self._members(side, instance) for side, instance in enumerate(instances))
        if [at for at, _ in mine] != [at for at, _ in theirs]:
            yield UNKNOWN
        if not (self._whole(worker, 0, row, mine) and self._whole(worker, 1, other, theirs)):
            yield UNKNOWN
        for place, ((at, one), (there, two)) in enumerate(zip(mine, theirs, strict=False)):
            if at != there or one.data is None or two.data is None:
                continue
            outcome = self._equalities[at].compare(one.data, two.data)
            yield outcome if at == worker else self._from(worker, at, instances[0], place, outcome)

    def _instance(self, worker: int, side: int, row: int) -> Instance | None:
        run = self._equalities[worker].runs[side]
        node = run.node_of(row)[1]
        return self._collectives[worker][side].instance(run.event_call[row], node, run.event_path[row])

    def _members(self, side: int, instance: Instance | None) -> list[tuple[int, Member]]:
        """(worker, member) of all that take part, in one order."""
        workers = enumerate(self._collectives)
        return [(worker, member) for worker, sides in workers for member in sides[side].members(instance)]

    def _whole(self, worker: int, side: int, row: int, members: Sequence[tuple[int, Member]]) -> bool:
        """Whether all that take part are known."""
        if not members:
            return False
        run, collectives = self._equalities[worker].runs[side], self._collectives[worker][side]
        node = run.node_of(row)[1]
        itself = next(
            (m for at, m in members if at == worker and (m.call, m.node) == (run.event_call[row], node)), None
        )
        size = collectives.group_size(itself) if itself is not None else 0
        if size:
            return len(members) >= size
        present = {at for at, _ in members}
        return len(present) == len(self._equalities) == max(1, self._processes[side])

    def _from(self, worker: int, at: int, instance: Instance | None, place: int, outcome: Outcome) -> Outcome:
        if outcome.status != Status.DIFFERS or instance is None:
            return outcome._replace(edges=(), finding=None)
        key = worker, at, instance, place
        if key not in self._known:
            equality = self._equalities[worker]
            equality.mixtures.append(())
            number = len(equality.pairs) + len(equality.mixtures) - 1
            self._elsewhere[worker][number] = Elsewhere(at, outcome.edges)
            self._known[key] = Outcome(Status.DIFFERS, (number,))
        return self._known[key]

    def elsewhere(self, worker: int) -> list[int]:
        """The mixtures of a worker that stand for differences on others."""
        return list(self._elsewhere[worker])

    # -- what comes of a difference on other workers -----------------------------------------------------------------

    def reached(self, edges: Sequence[Links]) -> list[tuple[set[int], set[int]]]:
        """For each worker the differences that lead, through others, to their results and to their outputs.

        edges: for each worker those of each of its differences.
        """
        found: list[tuple[set[int], set[int]]] = [(set(), set()) for _ in self._equalities]
        if not any(self._elsewhere):
            return found
        effects = [Effects(equality, each) for equality, each in zip(self._equalities, edges, strict=True)]
        for kind in (0, 1):
            waiting: list[tuple[int, Set[int]]] = [
                (n, each.to_outputs if kind else each.to_results) for n, each in enumerate(effects)
            ]
            while waiting:
                worker, numbers = waiting.pop()
                for number, there in self._elsewhere[worker].items():
                    known = found[there.worker][kind]
                    if number in numbers and not known.issuperset(there.numbers):
                        known.update(there.numbers)
                        waiting.append((there.worker, effects[there.worker].above(set(there.numbers))))
        return found

    # -- order across workers ----------------------------------------------------------------------------------------

    def moment(self, worker: int, place: Moment) -> int:
        """Sorts places of run A on all workers: those before a collective op on any worker come before those after it.

        Places between the same two are not ordered: equal numbers.
        """
        places, clocks = self._clocks[worker]
        at = bisect.bisect_right(places, place)
        if at and places[at - 1] == place:
            return 2 * clocks[at - 1]
        return 2 * (clocks[at - 1] if at else 0) + 1

    @cached_property
    def _clocks(self) -> list[tuple[list[Moment], list[int]]]:
        """For each worker the places of its collective ops, and of each a number larger than all that came before it
        on any of its members (a Lamport clock)."""
        orders = [sides[0].order for sides in self._collectives]
        left = [len(order) for order in orders]
        clocks: list[list[int]] = [[] for _ in orders]
        while any(left):
            fronts = {n: orders[n][-count][1] for n, count in enumerate(left) if count}
            # Of one that others do not come to, because their trace ends before, the rest of the job does not wait.
            ready = next((each for n, each in fronts.items() if self._at_front(each, fronts, orders, left)), None)
            ready = ready if ready is not None else next(iter(fronts.values()))
            there = [n for n, each in fronts.items() if each == ready]
            clock = 1 + max((clocks[n][-1] for n in there if clocks[n]), default=0)
            for n in there:
                while left[n] and orders[n][-left[n]][1] == ready:  # several devices of one worker
                    clocks[n].append(clock)
                    left[n] -= 1
        return [([place for place, _ in order], clock) for order, clock in zip(orders, clocks, strict=True)]

    def _at_front(
        self, instance: Instance, fronts: dict[int, Instance],
        orders: Sequence[Sequence[tuple[Moment, Instance]]], left: Sequence[int],
    ) -> bool:  # fmt: skip
        """Whether all workers that take part have come to an instance."""
        return all(
            fronts.get(worker) == instance or not self._ahead(worker, instance, orders[worker], left[worker])
            for worker, sides in enumerate(self._collectives)
            if sides[0].members(instance)
        )

    def _ahead(self, worker: int, instance: Instance, order: Sequence[tuple[Moment, Instance]], left: int) -> bool:
        """Whether an instance is still to come on a worker."""
        last = self._last[worker].get(instance, -1)
        return last >= len(order) - left

    @cached_property
    def _last(self) -> list[dict[Instance, int]]:
        """For each worker {instance: its last place in the order}"""
        return [{each: n for n, (_, each) in enumerate(sides[0].order)} for sides in self._collectives]
