"""The central property: in a random program with one planted change, the planted op is the one that is found.

A program has many functions, each with a change of its own, so that one pair of traces tells of many graphs.
"""

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from minilang import record

from tfbisect.comparison import compare

FUNCTIONS = 22
CALLS = 2
EXAMPLES = 25
DEPTH = 2  # of nested blocks

OPS = ("Relu", "Add", "MatMul", "Sum", "ConcatV2", "RandomUniform", "PyFunc", "Split")
FORWARDERS = ("Identity", "Reshape")


@dataclass
class Writer:
    """Writes a random function and remembers where a change can be planted: names with `/iteration` in loops.

    The mini-language orders accesses of a variable within a block; `waits` and `seal` order them across blocks, as
    automatic control dependencies do.
    """

    random: Random
    number: int
    variables: tuple[str, ...]
    lines: list[str] = field(default_factory=list)
    places: list[str] = field(default_factory=list)
    flips: list[tuple[str, str]] = field(default_factory=list)  # outermost branches and what makes their predicate
    count: int = 0

    def name(self) -> str:
        self.count += 1
        return f"f{self.number}n{self.count}"

    def inputs(self, known: list[str], most: int = 3) -> str:
        return " ".join(self.random.choice(known) for _ in range(self.random.randint(1, most)))

    def seal(self, value: str, accesses: list[str]) -> str:
        """A name for a value that is there only after these accesses."""
        if not accesses:
            return value
        name = self.name()
        self.lines.append(" ".join([f"{name} = Identity {value}", *(f"^{access}" for access in accesses)]))
        return name

    def block(
        self, known: list[str], size: int, depth: int, path: list[int], waits: str = ""
    ) -> tuple[list[str], list[str]]:
        """Statements; -> the names they made, and the accesses among them. `waits`: what accesses wait for."""
        random, known, accesses = self.random, list(known), []
        for _ in range(size):
            name, kind = self.name(), random.random()
            suffix = "/" + ",".join(str(random.randrange(trips)) for trips in path) if path else ""
            if kind < 0.12:
                self.lines.append(f"{name} = {random.choice(FORWARDERS)} {self.inputs(known, 2)}")
            elif kind < 0.18 and not path:
                self.lines.append(f"{name} = Const a={self.count}")
            elif kind < 0.30:
                self.lines.append(f"{name} = read {random.choice(self.variables)}{waits}")
                self.places.append(name + suffix)
                accesses.append(name)
            elif kind < 0.42:
                op = random.choice(("assign", "ResourceApplyMomentum", "ResourceScatterAdd"))
                self.lines.append(f"{name} = {op} {random.choice(self.variables)} {random.choice(known)}{waits}")
                self.places.append(name + suffix)
                accesses.append(name)
                continue
            elif kind < 0.58 and depth:
                nested = self.loop if kind < 0.50 else self.branch
                chosen = random.choice(known)
                if nested == self.branch and chosen in self.places and depth == DEPTH:
                    self.flips.append((name, chosen))
                start = self.seal(chosen, accesses + waits.replace("^", "").split())
                nested(name, start, known, depth, path)
                accesses, waits = [name], f"{waits} ^{name}"
            else:
                self.lines.append(f"{name} = {random.choice(OPS)} {self.inputs(known)}")
                self.places.append(name + suffix)
            known.append(name)
        return known, accesses

    def loop(self, name: str, start: str, known: list[str], depth: int, path: list[int]) -> None:
        variables = [self.name() for _ in range(self.random.randint(1, 2))]
        trips = self.random.randint(1, 3)
        starts = [start, *(self.random.choice(known) for _ in variables[1:])]
        self.lines.append(f"{name} = loop {trips} " + " ".join(map("=".join, zip(variables, starts, strict=True))))
        waits = f" ^{variables[0]}"
        made, accesses = self.block([*known, *variables], self.random.randint(1, 4), depth - 1, [*path, trips], waits)
        ends = [self.seal(self.random.choice(made), accesses) for _ in variables]
        self.lines += [f"next {variable} {end}" for variable, end in zip(variables, ends, strict=True)] + ["end"]

    def branch(self, name: str, start: str, known: list[str], depth: int, path: list[int]) -> None:
        self.lines.append(f"{name} = if {start}")
        made, accesses = self.block(known, self.random.randint(1, 3), depth - 1, path)
        self.lines += [f"give {self.seal(self.random.choice(made[-2:]), accesses)}", "else"]
        places = list(self.places)
        made, accesses = self.block(known, self.random.randint(1, 2), depth - 1, path)
        self.places = places  # that side never runs
        self.lines += [f"give {self.seal(self.random.choice(made[-2:]), accesses)}", "end"]


def program(seed: int, functions: int = FUNCTIONS) -> tuple[str, dict[str, str], dict[str, str]]:
    """A random program; for each of its functions a place to plant a change, and {branch: what makes its predicate}."""
    random = Random(seed)
    text: list[str] = []
    planted: dict[str, str] = {}
    flips: dict[str, str] = {}
    for number in range(functions):
        writer = Writer(random, number, (f"v{number}",))
        writer.block([f"f{number}x", f"f{number}y"], random.randint(3, 12), DEPTH, [])
        text += [f"v{number} := Variable s{number}", f"def f{number} f{number}x f{number}y", *writer.lines, "end"]
        flips.update(writer.flips[:1])
        if writer.places:
            place = random.choice(writer.places)
            name, slash, path = place.partition("/")
            planted[name] = f"{name}@{random.randrange(CALLS)}{slash}{path}"
    text += [f"y{number} = f{number} p{number} q{number}" for number in range(functions)]
    return "\n".join(text), planted, flips


def chained(seed: int, rounds: int = CALLS, again: int | None = None) -> tuple[str, str]:
    """A random program whose functions share variables and hand values on through eager ops; one place to plant.

    rounds: how often the top level runs; again: chooses another place in the same program.
    """
    random = Random(seed)
    variables = tuple(f"v{number}" for number in range(random.randint(1, 3)))
    text = [f"{variable} := Variable s{variable}" for variable in variables]
    places = []
    for number in range(random.randint(1, 3)):
        writer = Writer(random, number, variables)
        made, _ = writer.block([f"f{number}x", f"f{number}y"], random.randint(2, 8), DEPTH, [])
        results = " ".join(random.sample(made, min(len(made), 2)))
        text += [f"def f{number} f{number}x f{number}y", *writer.lines, f"return {results}", "end"]
        places += [(number, place) for place in writer.places]
    known, calls, eager = ["p", "q"], [], []
    for count in range(random.randint(3, 8)):
        if random.random() < 0.6:
            number = random.randrange(1 + max((n for n, _ in places), default=0))
            text.append(f"t{count} = f{number} {random.choice(known)} {random.choice(known)}")
            calls.append(number)
        else:
            text.append(f"t{count} = {random.choice(OPS[:5])} {random.choice(known)} {random.choice(known)}")
            eager.append(f"t{count}@{random.randrange(rounds)}")
        known.append(f"t{count}")
    inside = [
        f"{place.partition('/')[0]}@{random.randrange(rounds * calls.count(number))}{''.join(place.partition('/')[1:])}"
        for number, place in places
        if number in calls
    ]
    if again is not None:
        random = Random(again)
    return "\n".join(text), random.choice(inside + eager) if inside + eager else ""


def found(
    text: str, change: dict[str, int], calls: int = CALLS, **options: object
) -> list[tuple[str, int | None, tuple[int, ...]]]:
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / name for name in ("a.h5", "b.h5")]
        record(text, paths[0], calls=calls)
        record(text, paths[1], calls=calls, change=change, **options)
        result = compare(*paths)
    assert result.coverage.undecided == 0
    assert result.verdict == ("diverged" if change else "identical")
    return [(culprit.name, culprit.call, culprit.iteration) for culprit in result.culprits]


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 10**9))
def test_the_planted_op_is_the_one_found(seed):
    text, planted, _ = program(seed)
    wanted = set()
    for name, place in planted.items():
        call, _, path = place.partition("@")[2].partition("/")
        wanted.add((name, int(call), tuple(int(i) for i in path.split(",") if i)))
    assert set(found(text, dict.fromkeys(planted.values(), 1))) == wanted


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 10**9))
def test_the_planted_op_is_found_in_a_program_of_many_parts(seed):
    text, place = chained(seed)
    culprits = found(text, {place: 1} if place else {})
    name, _, where = place.partition("@")
    call, _, path = where.partition("/")
    if name.startswith("f"):
        assert culprits == [(name, int(call), tuple(int(i) for i in path.split(",") if i))]
    else:
        assert [n for n, _, _ in culprits] == [
            line.split()[2] for line in text.split("\n") if line.startswith(f"{name} =")
        ]


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 10**9))
def test_what_flips_a_branch_is_found_and_nothing_behind_it(seed):
    text, _, flips = program(seed)
    change, branch = dict.fromkeys(flips.values(), 1), dict.fromkeys(flips, False)
    assert {name for name, _, _ in found(text, change, 1, branch=branch)} == set(flips.values())


@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 10**9))
def test_nothing_planted_is_identical(seed):
    assert found(program(seed)[0], {}) == []
