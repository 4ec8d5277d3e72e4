"""Writes a random TensorFlow program: real Python source in which faults can be planted.

Runs nothing. The program reads a global `RUN`: only in run "B" does a planted fault act. It has `setup()`, which may
run outside the recording, and `main()`; results go to the list `OUT`.
"""

from collections.abc import Callable

from campaign.blocks import Blocks
from campaign.faults import Function, Site
from campaign.prelude import HEADER
from campaign.straight import FLOATS, SHAPES, Scope, Value

HOSTS = {"HOST": "host", "PAIR": "host_pair"}


class Writer(Blocks):
    """Writes one program: `source` is its text, `planted` the sites with a fault."""

    def __init__(self, seed: int, faults: int | None = None) -> None:
        super().__init__(seed)
        self.lines = HEADER.format(seed=seed).split("\n")[:-1]
        self.calls: list[tuple[Function, str, int]] = []  # in the driver's loop: not yet multiplied by its steps
        self.outside = self.random.random() < 0.25
        self.planted: list[Site] = []
        self._program()
        self._plant(self.random.choice((0, 1, 1, 1, 1, 2)) if faults is None else faults)
        self.source = "\n".join(self.lines) + "\n"

    # -- statements --------------------------------------------------------------------------------------------------

    def statements(self, scope: Scope, count: int) -> None:
        for _ in range(count):
            if self.budget <= 0:
                return
            self.budget -= 1
            self.statement(scope)

    def statement(self, scope: Scope) -> None:
        eager, deep = scope.eager, scope.depth
        menu: list[tuple[float, Callable[[Scope], object]]] = [
            (20, self.elementwise), (14, self.shaped), (4, self.matmul), (4, self.integers), (7, self.scalar),
            (4, self.constant), (5, self.python), (5, self.random_op), (3, self.other_op),
        ]  # fmt: skip
        if self.variables:
            menu += [(6, self.read), (5, self.write), (2 if eager else 0, self.swap)]
        if deep < 2:
            menu += [(3, self.gradient)]
        if not eager and deep < 2:
            menu += [(2, self.scan), (1, self.over_dataset)]
            menu += [
                (5, self.for_loop),
                (2, self.while_loop),
                (3, self.branch),
                (3, self.map_fn),
                (2, self.array),
                (2, self.cond),
            ]
        if not scope.taped:
            menu += [(2, self.callback)]
        if eager and deep < 2:
            menu += [(2, self.local_variable), (2, self.attempt), (2, self.lambda_function)]
            menu += [(3, self.decision), (2, self.feedback), (1, self.thread)]
        if eager and scope.loops == 0 and deep < 2:
            menu += [(3, self.dataset), (2, self.steps)]
        if self.callable(scope):
            menu += [(14 if eager else 5, self.call)]
        if eager and self.functions and deep < 2:
            menu += [(4, self.tape_around)]
        self.random.choices([m for _, m in menu], [w for w, _ in menu])[0](scope)

    def callable(self, scope: Scope) -> list[Function]:
        if scope.function is None:
            return self.functions
        return self.functions if len(scope.function.callers) == 0 and scope.depth < 3 else []

    # -- functions ---------------------------------------------------------------------------------------------------

    def function(self) -> None:
        parameters = [
            Value(self.name("p"), self.random.choice(FLOATS), self.random.choice(SHAPES))
            for _ in range(self.random.randint(1, 3))
        ]
        if self.random.random() < 0.2:
            parameters.append(Value(self.name("p"), "int32", (3,)))
        made = Function(self.name("f"), parameters, [])
        t = self.name("t")
        self.put(
            Scope([], 0),
            self.random.choice(
                ("@tf.function", "@tf.function", "@tf.function(reduce_retracing=True)", "@tf.function(autograph=True)")
            ),
        )
        names = [p.name for p in parameters] + [t]
        k = None
        if self.random.random() < 0.35:
            k = self.name("k")
            made.scalar = set()
            names.append(k)
        scope = Scope(list(parameters), 1, made, when=(t,))
        self.put(Scope([], 0), f"def {made.name}({', '.join(names)}):")
        share = max(2, self.budget // 3)
        for _ in range(self.random.randint(1, share)):
            self.statements(scope, 1)
            if k and self.random.random() < 0.4:
                made.scalar.add(self.here)  # type: ignore[union-attr]
                x = self.float(scope)
                self.let(scope, f"{x.name} * {k}", x.dtype, x.shape)
        own = scope.values[len(parameters) :] or scope.values
        made.results = [own[-1], *self.random.sample(own, min(len(own), self.random.randint(0, 2)))]
        self.put(scope, f"return {', '.join(v.name for v in made.results)},")
        self.put(Scope([], 0), "")
        self.put(Scope([], 0), "")
        self.functions.append(made)

    def call(self, scope: Scope, function: Function | None = None, prefer: Value | None = None) -> None:
        function = function or self.random.choice(self.callable(scope))
        arguments = []
        for parameter in function.parameters:
            value = (
                prefer
                if prefer is not None and parameter.dtype == prefer.dtype and parameter.shape == prefer.shape
                else self.any(scope)
            )
            arguments.append(self.fit(value, parameter.dtype, parameter.shape))
        if scope.eager:
            moment = 1 + len(self.lines)
            forward = " (forward)" if scope.taped else ""
            function.sure &= scope.depth == scope.loops
            if scope.loops:
                arguments.append(f"tf.constant(1000 * step + {moment})")
                self.calls.append((function, forward, moment))
            else:
                arguments.append(f"tf.constant({moment})")
                function.calls[forward].append(moment)
        else:
            arguments.append(scope.when[0])
            if scope.function not in function.callers:
                function.callers.append(scope.function)  # type: ignore[arg-type]
        if function.scalar is not None:
            token = self.site(scope, "argument", *self.literal(), lines={self.here} | function.scalar)
            arguments.append(token)
        results = [Value(self.name(), v.dtype, v.shape) for v in function.results]
        self.put(scope, f"{', '.join(v.name for v in results)}, = {function.name}({', '.join(arguments)})")
        scope.values += results

    # -- eager loops ---------------------------------------------------------------------------------------------------

    def dataset(self, scope: Scope) -> None:
        ds, element, n = self.name("ds"), self.name("e"), self.random.randint(2, 4)
        text = f"arr({self.random.randrange(99)}, ({2 * n}, 3))"
        token = self.site(scope, "data", text, f"changed({text})")
        extra = self.random.choice(
            (
                "",
                ".shuffle(8, seed=5)",
                ".map(lambda e: e * 2.0)",
                ".map(tf.sin, num_parallel_calls=2)",
                ".prefetch(2)",
                ".repeat(2).take(3)",
            )
        )
        self.put(scope, f"{ds} = tf.data.Dataset.from_tensor_slices({token}){extra}.batch(2)")
        c = self.carried(scope)
        self._data_lines(self.here)
        self.put(scope, f"for step, {element} in enumerate({ds}):")
        inner = scope.inner(loops=1, when=("step",), trips=(1,))
        inner.values.append(Value(self.name(), "float32", (3,)))
        self.put(inner, f"{inner.values[-1].name} = {element}[0]")
        self.looped(inner, c, 2 if "take" in extra else n)

    def _data_lines(self, line: int) -> None:
        data = next(s for s in reversed(self.sites) if s.kind == "data")
        data.lines |= {line}

    def looped(self, inner: Scope, c: Value, steps: int) -> None:
        self.calls = []
        self.body(inner, c)
        for step in range(steps):
            for function, forward, moment in self.calls:
                function.calls[forward].append(1000 * step + moment)
        self.calls = []

    def steps(self, scope: Scope) -> None:
        c, n = self.carried(scope), self.random.randint(2, 4)
        token = self.site(scope, "step", str(n), str(n + 1))
        self.put(scope, f"for step in range({token}):")
        inner = scope.inner(loops=1, when=("step",), trips=(n,))
        if self.random.random() < 0.2:
            self.put(inner, "tfbisect.step()")
        self.looped(inner, c, n)

    # -- the program -------------------------------------------------------------------------------------------------

    def _program(self) -> None:
        random, top = self.random, Scope([], 0)
        if random.random() < 0.2:
            self.lines[1] += ", sys"
        self.lines[4:4] = ["import tfbisect"]
        setup = Scope([], 1)
        self.put(top, "def setup():")
        names: list[str] = []
        start = len(self.lines)
        self.put(setup, "tf.random.set_seed(7)")
        for _ in range(random.randint(0, 3)):
            v = Value(self.name("v"), random.choice((*FLOATS, "int32")), random.choice(SHAPES[1:]))
            text = f'arr({random.randrange(99)}, {v.shape}, "{v.dtype}")'
            token = self.site(setup, "initial", text, f"changed({text})", variable=v.name)
            self.put(setup, f"{v.name} = tf.Variable({token})")
            self.variables.append(v)
            names.append(v.name)
        floats = [v for v in self.variables if v.dtype == "float32"]
        if floats and random.random() < 0.6:
            name = self.name("opt")
            kind = random.choice(("SGD(0.1)", "SGD(0.1, momentum=0.9)", "Adam(0.05)", "RMSprop(0.01)", "AdamW(0.02)"))
            self.put(setup, f"{name} = tf.keras.optimizers.{kind}")
            self.put(setup, f"{name}.build([{', '.join(v.name for v in floats)}])")
            self.optimizers.append(name)
            names.append(name)
        if random.random() < 0.2:
            name = self.name("gen")
            token = self.site(setup, "seed", "3", "4")
            self.put(setup, f"{name} = tf.random.Generator.from_seed({token})")
            self.sites[-1].variable = name
            self.generators.append(name)
            names.append(name)
        if names:
            self.lines.insert(start, f"    global {', '.join(names)}")
            for site in self.sites:
                site.lines = {line + 1 for line in site.lines}
        self.put(top, "")
        self.put(top, "")
        for _ in range(random.randint(1, 3)):
            self.function()
        self.budget = max(self.budget, 6)
        self.put(top, "def main():")
        scope = Scope([], 1)
        self.constant(scope)
        while self.budget > 0:
            if all(not f.moments() for f in self.functions) and self.budget < 4:
                self.call(scope, self.functions[-1])
            self.statements(scope, 1)
        kept = {v.name: v for v in scope.values if v.name not in {p.name for f in self.functions for p in f.parameters}}
        self.put(scope, f"OUT.extend([{', '.join(kept)}])")
        if self.variables:
            self.put(scope, f"OUT.extend([{', '.join(v.name + '.numpy()' for v in self.variables)}])")

    def _plant(self, count: int) -> None:
        tables = {f.name: f for f in self.functions}
        able = [site for site in self.sites if site.function is None or tables[site.function].moments()]
        for _ in range(count):
            kinds = sorted({site.kind for site in able})
            if not kinds:
                break
            weights = [4 if kind == "ulp" else 2 if kind == "constant" else 1 for kind in kinds]
            kind = self.random.choices(kinds, weights)[0]
            site = self.random.choice([site for site in able if site.kind == kind])
            able.remove(site)
            self.planted.append(site)
            site.path = tuple(self.random.randrange(n) for n in site.trips)
            if site.function is not None:
                site.moment = self.random.choice(tables[site.function].moments())
        text = "\n".join(self.lines)
        for site in self.sites:
            if site not in self.planted:
                said = site.a
            elif site.b in HOSTS:
                when = (*([] if site.moment is None else [site.moment]), *(site.path or ()))
                said = f"{HOSTS[site.b]}({when!r}, {self.random.random() < 0.5})"
            else:
                said = f"({site.b} if B else {site.a})"
            text = text.replace(site.token, said)
        self.lines = text.split("\n")
