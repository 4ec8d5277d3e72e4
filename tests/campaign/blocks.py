"""Statements of a generated program that hold others: gradients, loops, branches, callbacks, eager tapes.

Straight-line statements are `straight`'s; functions and whole programs are `writer`'s.
"""

import re

from campaign.straight import Scope, Straight, Value, dims

_RACES = re.compile(r"assign|scatter|apply|\.normal\(|random|shuffle|dropout|\bf\d+\(")


class Blocks(Straight):
    """Writes statements that hold others."""

    # -- gradients ---------------------------------------------------------------------------------------------------

    def gradient(self, scope: Scope) -> None:
        x = self.float(scope)
        tape = self.name("g")
        watched = [x.name, *(v.name for v in self.variables if v.dtype != "int32")][: self.random.randint(1, 3)]
        self.put(scope, f"with tf.GradientTape() as {tape}:")
        inner = scope.inner(taped=True)
        self.put(inner, f"{tape}.watch({x.name})")
        before = len(inner.values)
        inner.values.append(x)
        self.statements(inner, self.random.randint(1, 4))
        made = [v for v in inner.values[before:] if v.dtype != "int32"]
        losses = " + ".join(f"tf.reduce_sum(tf.cast({v.name}, tf.float32))" for v in made[-2:])
        for v in self.variables[:1]:
            if v.dtype != "int32":
                losses += f" + tf.reduce_sum(tf.square(tf.cast({v.name}, tf.float32)))"
        loss = self.let(inner, losses, "float32", ())
        scope.values += [v for v in inner.values[before:] if v.name != x.name]
        grads = [self.name("d") for _ in watched]
        self.put(
            scope,
            f'{", ".join(grads)}, = {tape}.gradient({loss.name}, [{", ".join(watched)}], unconnected_gradients="zero")',
        )
        kinds = {v.name: v for v in self.variables}
        applied = []
        for grad, name in zip(grads, watched, strict=True):
            source = kinds.get(name, x)
            scope.values.append(Value(grad, source.dtype, source.shape))
            if name in kinds and self.random.random() < 0.8:
                applied.append((grad, source))
        float_only = [(g, v) for g, v in applied if v.dtype == "float32"]
        if self.optimizers and float_only and self.random.random() < 0.7:
            pairs = ", ".join(
                f"(tf.clip_by_value(tf.convert_to_tensor({g}), -1.0, 1.0), {v.name})" for g, v in float_only
            )
            self.put(scope, f"{self.random.choice(self.optimizers)}.apply_gradients([{pairs}])")
        else:
            for grad, v in applied:
                self.put(scope, f"{v.name}.assign_sub(tf.tanh({grad}) * 0.1)")

    def tape_around(self, scope: Scope) -> None:
        """An eager tape around functions: they run in two halves, forward and backward."""
        x = self.float(scope)
        tape = self.name("g")
        self.put(scope, f"with tf.GradientTape(persistent={self.random.random() < 0.2}) as {tape}:")
        inner = scope.inner(taped=True)
        self.put(inner, f"{tape}.watch({x.name})")
        before = len(inner.values)
        self.call(inner, self.random.choice(self.functions), prefer=x)
        if self.random.random() < 0.5:
            self.elementwise(inner)
        made = [v for v in inner.values[before:] if v.dtype != "int32"] or [x]
        loss = self.let(inner, " + ".join(f"tf.reduce_sum(tf.cast({v.name}, tf.float32))" for v in made), "float32", ())
        scope.values += inner.values[before:]
        self.let(scope, f'{tape}.gradient({loss.name}, {x.name}, unconnected_gradients="zero")', x.dtype, x.shape)

    # -- control flow in graphs --------------------------------------------------------------------------------------

    def carried(self, scope: Scope) -> Value:
        """A value of its own name that a loop or branch gives another value."""
        x = self.float(scope)
        if len(x.shape) == 0 or self.random.random() < 0.5:
            return self.let(scope, f"tf.tanh({x.name})", x.dtype, x.shape)
        return self.let(scope, f"{x.name} * 0.5", x.dtype, x.shape)

    def for_loop(self, scope: Scope) -> None:
        c, i, n = self.carried(scope), self.name("i"), self.random.randint(1, 4)
        self.put(scope, f"for {i} in tf.range({n}):")
        inner = scope.inner(when=(*scope.when, i), trips=(*scope.trips, n))
        start = self.loop_options(inner)
        if self.random.random() < 0.15 and n > 2:
            self.put(inner, f"if {i} == {n - 1}:")
            self.put(inner.inner(), self.random.choice(("break", "continue")))
            inner.trips = (*scope.trips, n - 1)
        self.body(inner, c)
        self.settle(start)

    def loop_options(self, inner: Scope) -> int:
        """The line that says how many iterations may overlap; `settle` completes it once the body is written."""
        return self.put(inner, "tf.autograph.experimental.set_loop_options(parallel_iterations=«parallel»)")

    def settle(self, start: int) -> None:
        self.lines[start - 1] = self.lines[start - 1].replace("«parallel»", self.parallel(start))

    def parallel(self, start: int) -> str:
        """How many iterations may overlap: 1 where the body, from this line on, writes, draws or calls: a race."""
        races = any(_RACES.search(line) for line in self.lines[start:])
        return "1" if races else str(self.random.choice((1, 2, 10)))

    def body(self, inner: Scope, c: Value) -> None:
        before = len(inner.values)
        self.statements(inner, self.random.randint(1, 4))
        made = inner.values[before:]
        mixed = self.random.choice(made) if made else c
        self.put(inner, f"{c.name} = tf.tanh({c.name} + {self.fit(mixed, c.dtype, c.shape)})")

    def while_loop(self, scope: Scope) -> None:
        """`tf.while_loop`, with a condition on the data."""
        c, i, n = self.carried(scope), self.name("i"), self.random.randint(2, 4)
        body, condition = self.name("body"), self.name("condition")
        self.put(scope, f"def {condition}({i}, {c.name}):")
        test = (
            f"tf.logical_and({i} < {n}, tf.reduce_sum(tf.abs({c.name})) < {self.random.choice(('1.5', '3.0', '50.0'))})"
        )
        self.put(scope.inner(), f"return {test}")
        self.put(scope, f"def {body}({i}, {c.name}):")
        inner = scope.inner(when=(*scope.when, i), trips=(*scope.trips, n))
        start = len(self.lines)
        self.body(inner, c)
        self.put(inner, f"return {i} + 1, {c.name}")
        parallel = self.parallel(start)
        self.put(
            scope,
            f"_, {c.name} = tf.while_loop({condition}, {body}, [tf.constant(0), {c.name}], "
            f"parallel_iterations={parallel})",
        )

    def branch(self, scope: Scope) -> None:
        c, p = self.carried(scope), self.float(scope)
        self.put(scope, f"if tf.reduce_sum({p.name}) > {self.random.choice(('0.0', '0.3', '-0.5'))}:")
        self.body(scope.inner(), c)
        self.put(scope, "else:")
        self.body(scope.inner(), c)

    def cond(self, scope: Scope) -> None:
        c, p = self.carried(scope), self.float(scope)
        names = [self.name("side") for _ in range(self.random.choice((2, 2, 3)))]
        for side in names:
            self.put(scope, f"def {side}():")
            inner = scope.inner()
            before = len(inner.values)
            self.statements(inner, self.random.randint(1, 3))
            made = inner.values[before:]
            self.put(inner, f"return {self.fit(made[-1] if made else c, c.dtype, c.shape)} + {c.name}")
        if len(names) == 2:
            self.let(scope, f"tf.cond(tf.reduce_mean({p.name}) > 0.0, {names[0]}, {names[1]})", c.dtype, c.shape)
        else:
            index = f"tf.cast(tf.abs(tf.reduce_sum({p.name})), tf.int32) % 3"
            self.let(scope, f"tf.switch_case({index}, [{', '.join(names)}])", c.dtype, c.shape)

    def map_fn(self, scope: Scope) -> None:
        x = self.pick(scope, lambda v: v.shape != () and v.dtype != "int32")
        if x is None:
            return self.elementwise(scope)
        function, i, e = self.name("each"), self.name("i"), self.name("e")
        n = x.shape[0]
        start = self.put(scope, f"def {function}(pair):")
        inner = scope.inner(when=(*scope.when, i), trips=(*scope.trips, n))
        self.put(inner, f"{e}, {i} = pair")
        row = Value(e, x.dtype, x.shape[1:])
        inner.values.append(row)
        before = len(inner.values)
        self.statements(inner, self.random.randint(1, 3))
        made = inner.values[before:]
        self.put(inner, f"return {self.fit(made[-1] if made else row, x.dtype, row.shape)} + {e}")
        parallel = self.parallel(start)
        text = f"tf.map_fn({function}, ({x.name}, tf.range({n})), fn_output_signature=tf.{x.dtype}"
        text += f", parallel_iterations={parallel})"
        self.let(scope, f"tf.ensure_shape({text}, {dims(x.shape)})", x.dtype, x.shape)
        return None

    def array(self, scope: Scope) -> None:
        x, i, ta, n = self.float(scope), self.name("i"), self.name("ta"), self.random.randint(2, 4)
        self.put(
            scope, f"{ta} = tf.TensorArray(tf.{x.dtype}, {n}, element_shape={dims(x.shape)}, clear_after_read=False)"
        )
        self.put(scope, f"for {i} in tf.range({n}):")
        inner = scope.inner(when=(*scope.when, i), trips=(*scope.trips, n))
        start = self.loop_options(inner)
        before = len(inner.values)
        self.statements(inner, self.random.randint(0, 2))
        made = inner.values[before:]
        self.put(
            inner,
            f"{ta} = {ta}.write({i}, {self.fit(made[-1] if made else x, x.dtype, x.shape)}"
            f" + tf.cast({i}, tf.{x.dtype}))",
        )
        self.settle(start)
        if self.random.random() < 0.4:
            self.let(scope, f"{ta}.read({n - 1}) + {ta}.read(0)", x.dtype, x.shape)
        else:
            self.let(scope, f"tf.reduce_sum({ta}.stack(), axis=0)", x.dtype, x.shape)

    def scan(self, scope: Scope) -> None:
        x = self.pick(scope, lambda v: v.shape != () and v.dtype != "int32")
        if x is None:
            return self.elementwise(scope)
        function, c, e = self.name("scanned"), self.name("c"), self.name("e")
        self.put(scope, f"def {function}({c}, {e}):")
        inner = scope.inner(when=scope.when, pinned=False)
        row = Value(e, x.dtype, x.shape[1:])
        inner.values.append(row)
        inner.values.append(Value(c, x.dtype, x.shape[1:]))
        self.statements(inner, self.random.randint(1, 3))
        self.put(inner, f"return {self.bounded(inner.values[-1], x.dtype, row.shape)} + {e}")
        if self.random.random() < 0.6:
            self.let(scope, f"tf.scan({function}, {x.name}, parallel_iterations=1)", x.dtype, x.shape)
        else:
            self.let(
                scope,
                f"tf.{self.random.choice(('foldl', 'foldr'))}({function}, {x.name}, parallel_iterations=1)",
                x.dtype,
                row.shape,
            )
        return None

    def over_dataset(self, scope: Scope) -> None:
        """A loop over a dataset in a graph."""
        c, e, n = self.carried(scope), self.name("e"), self.random.randint(2, 3)
        text = f"arr({self.random.randrange(99)}, ({n}, 3))"
        token = self.site(scope, "constant", text, f"changed({text})")
        self.put(scope, f"for {e} in tf.data.Dataset.from_tensor_slices({token}):")
        inner = scope.inner(pinned=False)
        inner.values.append(Value(e, "float32", (3,)))
        line, before = self.here - 1, len(self.sites) - 1
        self.sites[-1].lines.add(line)
        self.body(inner, c)
        for site in self.sites[before:]:  # a loop over a dataset runs unseen, inside one op that is then to blame
            site.lines.add(line)
            site.ops = None if site.ops is None else site.ops | {"ReduceDataset"}
            site.hidden = True

    def callback(self, scope: Scope) -> None:
        """Python code in the graph that computes with TensorFlow, and writes a variable perhaps."""
        x = self.float(scope)
        if scope.eager:
            return self.elementwise(scope)
        function, a = self.name("callback"), self.name("a")
        self.put(scope, f"def {function}({a}):")
        inner = scope.inner()
        floats = [v for v in self.variables if v.dtype != "int32"]
        if floats and self.random.random() < 0.5:
            v = self.random.choice(floats)
            self.put(inner, f"{v.name}.assign_add({self.bounded(Value(a, x.dtype, x.shape), v.dtype, v.shape)})")
        token = self.site(scope, "scalar", *self.literal(), lines={self.here, self.here + 1})
        self.put(inner, f"return tf.sin({a}) * {token}")
        self.let(
            scope,
            f"tf.ensure_shape(tf.py_function({function}, [{x.name}], tf.{x.dtype}), {dims(x.shape)})",
            x.dtype,
            x.shape,
        )
        return None

    def local_variable(self, scope: Scope) -> None:
        """A variable that is made along the way."""
        x = self.float(scope)
        v = Value(self.name("w"), x.dtype, x.shape)
        self.put(scope, f"{v.name} = tf.Variable({x.name})")
        self.put(scope, f"{v.name}.assign_add({self.bounded(self.any(scope), v.dtype, v.shape)})")
        self.let(scope, f"{v.name} * 0.5", x.dtype, x.shape)

    def attempt(self, scope: Scope) -> None:
        """An op that may fail, and does so for some values."""
        x = self.float(scope)
        c = self.carried(scope)
        self.put(scope, "try:")
        inner = scope.inner()
        limit = self.random.choice(("0.0", "0.5", "-9.0"))
        self.put(inner, f"tf.debugging.assert_less(tf.reduce_sum({x.name}), tf.constant({limit}, tf.{x.dtype}))")
        self.put(inner, f"{c.name} = {c.name} * 0.25")
        self.put(scope, "except tf.errors.InvalidArgumentError:")
        self.put(inner, f"{c.name} = {c.name} - 0.25")

    def lambda_function(self, scope: Scope) -> None:
        """Functions without a name of their own, traced for other shapes too."""
        name = self.name("h")
        ops = self.random.sample(
            ("tf.sin(x)", "tf.cos(x)", "tf.tanh(x)", "x * 0.75", "x - tf.reduce_mean(x)", "x + 0.5"), 2
        )
        token = self.site(scope, "op", f"{ops[0]} * 0.5", f"({ops[1]} * 0.5)", ops=None)
        self.put(scope, f"{name} = tf.function(lambda x: tf.nn.relu({token} + x))")
        for _ in range(self.random.randint(1, 3)):
            x = self.float(scope)
            self.let(scope, f"{name}({x.name})", x.dtype, x.shape)

    # -- eager code --------------------------------------------------------------------------------------------------

    def decision(self, scope: Scope) -> None:
        """Python looks at a tensor and decides."""
        x = self.float(scope)
        c = self.carried(scope)
        self.put(scope, f"if float(tf.reduce_sum({x.name})) > {self.random.choice(('0.0', '0.5', '-0.3'))}:")
        self.body(scope.inner(), c)
        self.put(scope, "else:")
        self.body(scope.inner(), c)

    def swap(self, scope: Scope) -> None:
        """Python looks at a tensor and decides which of two writes comes first."""
        x, v = self.float(scope), self.random.choice(self.variables)
        first = f"{v.name}.assign_add({self.bounded(x, v.dtype, v.shape)})"
        second = f"{v.name}.assign({v.name} {'// 2' if v.dtype == 'int32' else '* 0.5'})"
        test = f"float(tf.reduce_mean({x.name})) > {self.random.choice(('0.0', '0.3', '-0.2'))}"
        self.put(scope, f"({first}, {second}) if {test} else ({second}, {first})")

    def feedback(self, scope: Scope) -> None:
        """Python fetches a tensor and hands it in again."""
        x, y = self.float(scope), self.float(scope)
        form = self.random.choice((
            f"{x.name} * float(tf.reduce_mean({y.name}))",
            f"tf.sin({x.name}) + round(float(tf.reduce_mean({y.name})), 1)",
            f"{x.name} + tf.constant({x.name}.numpy() * 0.5)",
        ))  # fmt: skip
        self.let(scope, form, x.dtype, x.shape)

    def thread(self, scope: Scope) -> None:
        x = self.float(scope)
        done = self.name("done")
        self.put(scope, f"{done} = []")
        work = self.random.choice((f"tf.sin({x.name}) * 0.5", f"tf.tanh({x.name})"))
        self.put(scope, f"in_thread(lambda {x.name}={x.name}: {done}.append({work}))")
        self.let(scope, f"{done}[0] + {x.name}", x.dtype, x.shape)
