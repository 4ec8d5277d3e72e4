"""The parser of the mini-language that `minilang` describes: text -> Program.

Runs nothing and writes nothing.
"""

import itertools
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass
class Op:
    name: str
    op: str
    inputs: list[str]
    controls: list[str]
    attrs: str
    line: int
    text: str
    ordered: bool = True
    thread: int = 0
    node: int = -1


@dataclass
class Loop:
    name: str
    trips: str
    variables: list[tuple[str, str]]
    line: int
    text: str
    body: list["Statement"] = field(default_factory=list)
    next: dict[str, str] = field(default_factory=dict)


@dataclass
class If:
    name: str
    predicate: str
    line: int
    text: str
    sides: tuple[list["Statement"], list["Statement"]] = field(default_factory=lambda: ([], []))
    give: list[str] = field(default_factory=list)


Statement = Op | Loop | If


@dataclass
class Function:
    name: str
    args: list[str]
    body: list[Statement] = field(default_factory=list)
    results: list[str] | None = None
    line: int = 0


@dataclass
class Program:
    functions: dict[str, Function]
    variables: dict[str, tuple[str, str | None, int]]  # name -> (how, initial host value, line)
    main: list[Op]


def program(text: str) -> Program:
    """Parses a text. ValueError names the statement that makes no sense."""
    lines = text.split("\n") if "\n" in text.strip() else text.split(";")
    statements = []
    for number, line in enumerate(lines, 1):
        for part in line.split("#")[0].split(";"):
            if part.strip():
                statements.append((number, part.strip()))
    result = Program({}, {}, [])
    whole = not any(part.split()[0] == "def" for _, part in statements)
    function = Function("f", []) if whole else None
    if function is not None:
        result.functions["f"] = function
    blocks: list[tuple[Any, list[Statement]]] = [(function, function.body)] if function else []
    for number, part in statements:
        try:
            function = _statement(result, function, blocks, number, part)
        except (ValueError, IndexError, KeyError) as error:
            raise ValueError(f"line {number}: {part}: {error}") from error
    if whole:
        function = result.functions["f"]
        declared = function.args
        loose = free(function.body, set(declared))
        function.args = declared + [name for name in loose if name not in result.variables]
        result.main.append(Op("", "f", list(function.args), [], "", len(lines) + 1, f"f({', '.join(function.args)})"))
    return result


def _statement(
    result: Program, function: Function | None, blocks: list[tuple[Any, list[Statement]]], number: int, part: str
) -> Function | None:
    words = part.split()
    if words[0] == "def":
        function = result.functions[words[1]] = Function(words[1], words[2:], line=number)
        blocks.append((function, function.body))
        return function
    if ":=" in words:
        if words[2] not in ("Variable", "Entry"):
            raise ValueError("Variable or Entry")
        result.variables[words[0]] = (words[2], words[3] if len(words) > 3 else None, number)
        return function
    if not blocks:
        thread = int(words.pop(0)[1:]) if words[0].startswith("@") else 0
        op = _op(words, number, part)
        result.main.append(replace(op, thread=thread))
        return function
    owner, statements = blocks[-1]
    if words[0] == "end":
        blocks.pop()
        return function if blocks else None
    if words[0] == "else":
        blocks[-1] = (owner, owner.sides[1])
    elif words[0] == "return":
        assert function is not None
        function.results = words[1:]
    elif words[0] == "next":
        owner.next[words[1]] = words[2]
    elif words[0] == "give":
        owner.give.append(words[1])
    elif len(words) == 1:
        assert function is not None
        function.args.append(words[0])
    elif words[1:3] == ["=", "loop"]:
        variables = [(left, right) for left, right in (word.split("=") for word in words[4:])]
        loop = Loop(words[0], words[3], variables, number, part)
        statements.append(loop)
        blocks.append((loop, loop.body))
    elif words[1:3] == ["=", "if"]:
        branch = If(words[0], words[3], number, part)
        statements.append(branch)
        blocks.append((branch, branch.sides[0]))
    else:
        statements.append(_op(words, number, part, function))
    return function


def _op(words: list[str], number: int, text: str, function: Function | None = None) -> Op:
    name = ""
    if len(words) > 1 and words[1] == "=":
        name, words = words[0], words[2:]
    op = words[0]
    ordered = not op.endswith("!")
    op = {"read": "ReadVariableOp", "assign": "AssignVariableOp"}.get(op.rstrip("!"), op.rstrip("!"))
    inputs = [word for word in words[1:] if "=" not in word and not word.startswith("^")]
    controls = [word[1:] for word in words[1:] if word.startswith("^")]
    attrs = " ".join(sorted(word for word in words[1:] if "=" in word))
    if not name and function is not None:
        stem = f"{words[0].rstrip('!')}_{inputs[0]}" if inputs else op
        name = unused(stem, {statement.name for statement in walk(function.body)})
    return Op(name, op, inputs, controls, attrs, number, text, ordered)


def unused(name: str, taken: Collection[str]) -> str:
    """`name`, or the first of name_1, name_2 ... that is not taken."""
    return next(n for n in itertools.chain([name], (f"{name}_{i}" for i in itertools.count(1))) if n not in taken)


def walk(statements: Sequence[Statement]) -> list[Statement]:
    found: list[Statement] = []
    for statement in statements:
        found.append(statement)
        if isinstance(statement, Loop):
            found += walk(statement.body)
        elif isinstance(statement, If):
            found += walk(statement.sides[0]) + walk(statement.sides[1])
    return found


def base(name: str) -> str:
    return name.split(":")[0].split(".")[0]


def free(statements: Sequence[Statement], known: set[str]) -> list[str]:
    """The names that statements use and nobody made, in order of appearance."""
    known, found = set(known), []
    for statement in walk(statements):
        used: list[str] = []
        if isinstance(statement, Op):
            used = statement.inputs
        elif isinstance(statement, Loop):
            used = [right for _, right in statement.variables]
            used += [statement.trips] if not statement.trips.isdigit() else []
            known |= {left for left, _ in statement.variables}
        else:
            used = [statement.predicate]
        found += [name for name in dict.fromkeys(map(base, used)) if name not in known and name not in found]
        known.add(statement.name)
    return found
