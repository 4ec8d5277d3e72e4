"""Straight-line statements of a generated program: what is written without control flow or functions.

Knows Python text and the types and shapes of values; `blocks` nests statements, `writer` makes programs of them.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import NamedTuple

from campaign.faults import Function, Site

SHAPES = ((), (3,), (4,), (3, 4), (4, 3), (3, 3), (2, 3, 4), (6,))
FLOATS = ("float32", "float32", "float32", "float64")
UNARY = (
    "tf.sin({})", "tf.cos({})", "tf.tanh({})", "tf.sigmoid({})", "tf.nn.relu({})", "tf.abs({})", "-{}", "tf.square({})",
    "tf.nn.softplus({})", "tf.sqrt(tf.abs({}) + 0.5)", "tf.exp(-tf.abs({}))", "tf.math.erf({})", "tf.nn.elu({})",
    "tf.math.log1p(tf.abs({}))", "tf.clip_by_value({}, -2.0, 2.0)", "tf.floor({} * 4.0)", "tf.sign({})",
    "tf.identity({})",    "tf.math.rsqrt(tf.square({}) + 1.0)", "{} * 0.0", "tf.stop_gradient({})", "half({})",
    "again({})",    "tf.nn.leaky_relu({})", "tf.ensure_shape({}, None)",
)  # fmt: skip
BINARY = (
    "{} + {}", "{} - {}", "{} * {}", "tf.maximum({}, {})", "tf.minimum({}, {})", "tf.math.squared_difference({}, {})",
    "tf.math.divide_no_nan({}, {})", "tf.atan2({}, {})", "tf.where({0} > {1}, {0}, {1} * 0.5)",
    "tf.add_n([{0}, {1}, {0}])",
)  # fmt: skip
INTEGER = (
    "{} + {}",
    "{} - {}",
    "{} * {}",
    "tf.maximum({}, {})",
    "tf.math.floormod({}, tf.abs({}) + 2)",
    "tf.bitwise.bitwise_xor({}, {})",
)
CONSTANTS = ("0.5", "0.75", "1.5", "2.0", "1.25", "0.5", "1.0", "-1.0", "3.0", "0.0")


class Value(NamedTuple):
    """A tensor of the program, by its Python name."""

    name: str
    dtype: str
    shape: tuple[int, ...]


@dataclass
class Scope:
    """Where statements are written, and what they can use."""

    values: list[Value]
    indent: int
    function: Function | None = None
    when: tuple[str, ...] = ()  # names that tell the moment, loop counters last
    trips: tuple[int, ...] = ()
    pinned: bool = True
    taped: bool = False
    depth: int = 0
    loops: int = 0  # Python's, around eager code
    own: set[str] = field(default_factory=set)

    @property
    def eager(self) -> bool:
        return self.function is None

    def inner(self, **changes: object) -> "Scope":
        return replace(self, values=list(self.values), indent=self.indent + 1, depth=self.depth + 1, **changes)  # type: ignore[arg-type]


def dims(shape: tuple[int, ...]) -> str:
    return "[" + ", ".join(map(str, shape)) + "]"


class Straight:
    """Writes statements without control flow into `lines`, and remembers the sites where a fault can be planted."""

    def __init__(self, seed: int) -> None:
        self.seed, self.random = seed, Random(seed)
        self.lines: list[str] = []
        self.sites: list[Site] = []
        self.functions: list[Function] = []
        self.variables: list[Value] = []
        self.optimizers: list[str] = []
        self.generators: list[str] = []
        self.count = 0
        self.budget = self.random.randint(5, 40)

    def call(self, scope: Scope, function: Function | None = None, prefer: Value | None = None) -> None:
        """Call a function of the program."""
        raise NotImplementedError

    def statements(self, scope: Scope, count: int) -> None:
        """Write up to so many statements, nested ones included."""
        raise NotImplementedError

    # -- text --------------------------------------------------------------------------------------------------------

    @property
    def here(self) -> int:
        """The number of the line that comes next."""
        return len(self.lines) + 1

    def put(self, scope: Scope, text: str) -> int:
        self.lines.append("    " * scope.indent + text)
        return len(self.lines)

    def name(self, prefix: str = "x") -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def let(self, scope: Scope, text: str, dtype: str, shape: tuple[int, ...]) -> Value:
        value = Value(self.name(), dtype, shape)
        self.put(scope, f"{value.name} = {text}")
        scope.values.append(value)
        return value

    def site(self, scope: Scope, kind: str, a: str, b: str, lines: set[int] | None = None, **more: object) -> str:
        """A place for a fault on the line that comes next; -> the token that stands for what it says there."""
        site = Site(
            len(self.sites), kind, lines or {self.here}, a, b, function=scope.function.name if scope.function else None,
            trips=scope.trips, pinned=scope.pinned, **more,  # type: ignore[arg-type]
        )  # fmt: skip
        self.sites.append(site)
        return site.token

    # -- values ------------------------------------------------------------------------------------------------------

    def pick(self, scope: Scope, test: Callable[[Value], bool] = lambda v: v.dtype != "int32") -> Value | None:
        found = [value for value in scope.values if test(value)]
        if not found:
            return None
        return self.random.choice(found[-5:] if self.random.random() < 0.7 else found)

    def any(self, scope: Scope) -> Value:
        return self.pick(scope, lambda v: True) or self.constant(scope)

    def float(self, scope: Scope) -> Value:
        return self.pick(scope) or self.constant(scope)

    def fit(self, value: Value, dtype: str, shape: tuple[int, ...]) -> str:
        """An expression of this type and shape that depends on a value."""
        text = value.name
        if value.shape != shape:
            text = f"tf.cast({text}, tf.float32)" if value.dtype == "int32" else text
            kept = value.dtype if value.dtype != "int32" else "float32"
            text = f"tf.fill({dims(shape)}, tf.reduce_mean({text}))" if shape else f"tf.reduce_mean({text})"
            value = Value(text, kept, shape)
        if value.dtype == dtype:
            return text
        if dtype == "int32":
            return f"tf.cast(tf.clip_by_value({text}, -50.0, 50.0), tf.int32)"
        return f"tf.cast({text}, tf.{dtype})"

    def bounded(self, value: Value, dtype: str, shape: tuple[int, ...]) -> str:
        """Like `fit`, for what is carried through loops and steps: it must not grow."""
        text = self.fit(value, dtype, shape)
        return f"tf.math.floormod({text}, 7)" if dtype == "int32" else f"tf.tanh({text})"

    def literal(self) -> tuple[str, str]:
        a, b = self.random.sample(sorted(set(CONSTANTS)), 2)
        return a, b

    def constant(self, scope: Scope) -> Value:
        dtype, shape = self.random.choice(FLOATS), self.random.choice(SHAPES[1:])
        text = f'arr({self.random.randrange(99)}, {shape}, "{dtype}")'
        kind = "array" if scope.eager else "constant"
        token = self.site(scope, kind, text, f"changed({text})", ops=None if scope.eager else frozenset({"Const"}))
        value = self.let(scope, f"tf.constant({token})", dtype, shape)
        if scope.eager:  # the first op that takes it stands on the next line
            self.sites[-1].lines = {self.here}
            function = self.random.random() < 0.25 and self.functions
            if function:
                self.sites[-1].lines |= set(range(1, self.here + 1))  # the first op inside
                called = self.random.choice(self.functions)
                if not any(p.dtype == dtype and p.shape == shape for p in called.parameters):
                    called = None
                if called:
                    self.call(scope, called, prefer=value)
                    return value
                self.sites[-1].lines = {self.here}
            return self.let(
                scope,
                self.random.choice(("tf.sin({})", "{} + {}", "tf.identity({})")).replace("{}", value.name),
                dtype,
                shape,
            )
        return value

    def elementwise(self, scope: Scope) -> None:
        x = self.float(scope)
        if self.random.random() < 0.5:
            text = self.random.choice(UNARY).replace("{}", x.name)
            if "shape" in text:
                text = f"tf.ensure_shape({x.name}, {dims(x.shape)})"
        else:
            y = self.float(scope)
            text = self.random.choice(BINARY)
            other = f"({self.fit(y, x.dtype, x.shape)})"
            text = text.replace("{0}", x.name).replace("{1}", other).replace("{}", x.name, 1).replace("{}", other)
        self.let(scope, text, x.dtype, x.shape)

    def shaped(self, scope: Scope) -> None:
        random = self.random
        x = self.pick(scope, lambda v: v.shape != () and v.dtype != "int32") or self.constant(scope)
        n, shape, rank = x.name, x.shape, len(x.shape)
        axis = random.randrange(rank)
        less = shape[:axis] + shape[axis + 1 :]
        size = 1
        for dim in shape:
            size *= dim
        reduce = random.choice(("sum", "mean", "max", "min", "prod", "logsumexp", "std"))
        options = [
            (f"tf.reduce_{reduce}({n}, axis={axis})".replace("tf.reduce_std", "tf.math.reduce_std"), less),
            (f"tf.reduce_mean({n}, axis={axis}, keepdims=True) + {n}", shape),
            (f"tf.reduce_sum({n})", ()),
            (f"tf.reshape({n}, [-1])", (size,)),
            (f"tf.transpose({n})", shape[::-1]),
            (f"tf.reverse({n}, [{axis}])", shape),
            (f"tf.cumsum({n}, axis={axis})", shape),
            (f"tf.sort({n}, axis={axis})", shape),
            (f"tf.nn.softmax({n})", shape),
            (f"tf.nn.log_softmax({n}) * 0.1", shape),
            (f"tf.gather({n}, [1, 0, 1], axis={axis})", shape[:axis] + (3,) + shape[axis + 1 :]),
            (f"tf.gather({n}, tf.argmax({n}, axis={axis}) % 2, axis={axis})", None if rank > 1 else ()),
            (f"{n}[{random.choice((0, 1, -1))}]", shape[1:]),
            (f"{n}[1:]", (shape[0] - 1, *shape[1:])),
            (f"tf.concat([{n}, {n} * 0.5], axis={axis})", shape[:axis] + (2 * shape[axis],) + shape[axis + 1 :]),
            (f"tf.stack([{n}, tf.sin({n})], axis=0)", (2, *shape)),
            (f"tf.unstack({n}, axis={axis})[1]", less),
            (f"tf.math.l2_normalize({n}, axis={axis})", shape),
            (f"tf.reduce_sum(tf.boolean_mask({n}, {n} > 0))", ()),
            (f"tf.roll({n}, 1, {axis})", shape),
            (f"tf.expand_dims({n}, 0)[0]", shape),
            (f"tf.pad({n}, {[[1, 0]] + [[0, 0]] * (rank - 1)})", (shape[0] + 1, *shape[1:])),
            (f"tf.one_hot(tf.argmax({n}, axis={axis}), 3, dtype=tf.{x.dtype})", (*less, 3)),
            (f"tf.math.unsorted_segment_sum({n}, {[i % 2 for i in range(shape[0])]}, 2)", (2, *shape[1:])),
            (f"tf.norm({n}) + {n}", shape),
            (
                f"tf.split({n}, {[1, shape[axis] - 1]}, axis={axis})[1]",
                shape[:axis] + (shape[axis] - 1,) + shape[axis + 1 :],
            ),
            (f"tf.math.top_k({n}, 2).values", (*shape[:-1], 2) if shape[-1] > 1 else None),
            (f"tf.tile({n}, {[2] + [1] * (rank - 1)})", (2 * shape[0], *shape[1:])),
        ]

        def able(text: str, made: tuple[int, ...] | None) -> bool:
            small = made is not None and len(made) < 4 and 0 not in made and max(made, default=1) <= 24
            pairs = shape[axis] > 1 or not any(word in text for word in ("[1, 0, 1]", "unstack", "% 2"))
            return (
                small
                and pairs
                and not (shape[0] < 2 and f"{n}[1]" in text)
                and not (scope.taped and "unsorted" in text)
            )

        options = [option for option in options if able(*option)]
        text, shape = random.choice(options)
        self.let(scope, text, x.dtype, shape)

    def matmul(self, scope: Scope) -> None:
        x = self.pick(scope, lambda v: len(v.shape) == 2 and v.dtype != "int32")
        if x is None:
            return self.elementwise(scope)
        y = self.pick(scope, lambda v: len(v.shape) == 2 and v.dtype == x.dtype and v.shape[0] == x.shape[1])
        if y is not None:
            self.let(scope, f"tf.matmul({x.name}, {y.name})", x.dtype, (x.shape[0], y.shape[1]))
        elif self.random.random() < 0.5:
            self.let(scope, f"tf.matmul({x.name}, {x.name}, transpose_b=True)", x.dtype, (x.shape[0],) * 2)
        else:
            self.let(scope, f'tf.einsum("ij,kj->ik", {x.name}, {x.name})', x.dtype, (x.shape[0],) * 2)
        return None

    def integers(self, scope: Scope) -> None:
        x = self.pick(scope, lambda v: v.dtype == "int32")
        if x is None:
            y = self.float(scope)
            self.let(scope, f"tf.cast(tf.clip_by_value({y.name} * 3.0, -50.0, 50.0), tf.int32)", "int32", y.shape)
            return
        text = self.random.choice(INTEGER)
        y = self.pick(scope, lambda v: v.dtype == "int32" and v.shape == x.shape) or x
        self.let(scope, text.replace("{}", x.name, 1).replace("{}", y.name), "int32", x.shape)

    def scalar(self, scope: Scope) -> None:
        """A Python number: a constant of a graph, a value handed in by eager code."""
        x = self.float(scope)
        ops = None if scope.eager else frozenset({"Const"})
        token = self.site(scope, "scalar" if scope.eager else "constant", *self.literal(), ops=ops)
        form = self.random.choice(
            ("{} * {}", "{} + {}", "tf.maximum({}, {})", "{1} - {0}", "{} * tf.constant({}, {}.dtype)")
        )
        if "{0}" in form:
            text = form.replace("{1}", token).replace("{0}", x.name)
        else:
            text = form.replace("{}", x.name, 1).replace("{}", token, 1).replace("{}", x.name)
        self.let(scope, text, x.dtype, x.shape)

    def other_op(self, scope: Scope) -> None:
        """A place where another op can run instead."""
        x = self.float(scope)
        y = self.fit(self.float(scope), x.dtype, x.shape)
        texts = [
            f"tf.sin({x.name})",
            f"tf.cos({x.name})",
            f"{x.name} - {y}",
            f"{y} - {x.name}",
            f"tf.sin({x.name}) * 0.5",
        ]
        a, b = self.random.sample(texts, 2)
        self.let(scope, self.site(scope, "op", a, b), x.dtype, x.shape)

    def python(self, scope: Scope) -> None:
        x = self.any(scope)
        kind = self.random.choice(("numpy", "numpy", "stateless", "py", "pair"))
        if kind == "pair" and (scope.eager or x.dtype == "int32"):
            kind = "py"
        when = ", ".join(scope.when)
        inputs = f"[{x.name}, {when}]" if when else f"[{x.name}]"
        ops = {"numpy": "PyFunc", "pair": "PyFunc", "stateless": "PyFuncStateless", "py": "EagerPyFunc"}[kind]
        if scope.eager and kind != "py":
            token = self.site(scope, "eager-ulp", "host(None)", "HOST")
            result = f"tf.numpy_function({token}, {inputs}, tf.{x.dtype})"
            value = self.let(scope, result, x.dtype, x.shape)
            self.sites[-1].lines = {self.here}
            self.let(scope, f"tf.identity({value.name})", x.dtype, x.shape)
            return
        token = self.site(scope, "eager-ulp" if scope.eager else "ulp", "host(None)", "HOST", ops=frozenset({ops}))
        if kind == "pair":
            self.sites[-1].a, self.sites[-1].b = "host_pair(None)", "PAIR"
        form = {
            "numpy": f"tf.numpy_function({token}, {inputs}, tf.{x.dtype})",
            "stateless": f"tf.numpy_function({token}, {inputs}, tf.{x.dtype}, stateful=False)",
            "pair": f"tf.numpy_function({token}, {inputs}, [tf.{x.dtype}] * 2)[1]",
            "py": f"tf.stop_gradient(tf.py_function({token}, {inputs}, tf.{x.dtype}))",
        }[kind]
        self.let(scope, f"tf.ensure_shape({form}, {dims(x.shape)})", x.dtype, x.shape)

    def random_op(self, scope: Scope) -> None:
        random = self.random
        x = self.float(scope)
        a, b = (str(n) for n in random.sample(range(1, 50), 2))
        shape, dtype = dims(x.shape), f"tf.{x.dtype}"
        token = self.site(scope, "seed", a, b)
        when = f"{scope.when[0]}" if scope.when and random.random() < 0.5 else "3"
        forms = [
            f"tf.random.stateless_normal({shape}, [{token}, {when}], dtype={dtype})",
            f"tf.random.stateless_uniform({shape}, [{token}, {when}], dtype={dtype})",
            f"tf.random.uniform({shape}, seed={token}, dtype={dtype})",
            f"tf.random.normal({shape}, seed={token}, dtype={dtype})",
            f"tf.nn.dropout({x.name}, 0.4, seed={token})",
            f"tf.nn.experimental.stateless_dropout({x.name}, 0.4, [{token}, {when}])",
        ]
        if x.shape:
            forms.append(f"tf.random.shuffle({x.name}, seed={token})")
        if self.generators and random.random() < 0.3:
            self.sites.pop()
            self.let(scope, f"{random.choice(self.generators)}.normal({shape}, dtype={dtype})", x.dtype, x.shape)
            return
        self.let(scope, random.choice(forms), x.dtype, x.shape)

    # -- variables ---------------------------------------------------------------------------------------------------

    def read(self, scope: Scope) -> None:
        v = self.random.choice(self.variables)
        forms = [(f"tf.identity({v.name})", v.shape), (f"{v.name} * {v.name}", v.shape)]
        if v.shape:
            forms += [(f"tf.gather({v.name}, [0, 1, 1])", (3, *v.shape[1:])), (f"{v.name}[0]", v.shape[1:])]
        text, shape = self.random.choice(forms)
        self.let(scope, text, v.dtype, shape)

    def write(self, scope: Scope) -> None:
        v = self.random.choice(self.variables)
        x = self.any(scope)
        new = self.bounded(x, v.dtype, v.shape)
        forms = [f"{v.name}.assign({new})", f"{v.name}.assign_add({new})", f"{v.name}.assign_sub({new})"]
        if v.shape:
            row = self.bounded(x, v.dtype, (2, *v.shape[1:]))
            forms += [
                f"{v.name}.scatter_update(tf.IndexedSlices({row}, [0, 1]))",
                f"{v.name}.scatter_add(tf.IndexedSlices({row}, [1, 1]))",
                f"{v.name}.scatter_nd_add([[1], [0]], {row})", f"{v.name}[0:2].assign({row})",
                f"tf.compat.v1.assign_add({v.name}, {new})",
            ]  # fmt: skip
        if self.random.random() < 0.3:
            first, second = (
                f"{v.name}.assign_add({new})",
                f"{v.name}.assign({v.name} {'// 2' if v.dtype == 'int32' else '* 0.5'})",
            )
            token = self.site(scope, "order", f"({first}, {second})", f"({second}, {first})")
            self.put(scope, token)
            return
        self.put(scope, self.random.choice(forms))
