"""Functions in functions: called several times, recursive, not inlined, implementations, control dependencies."""

import tensorflow as tf
from ending import show

weights = tf.Variable(tf.random.stateless_normal([6, 6], seed=[7, 1]) * 0.4)
calls = tf.Variable(0)


@tf.function
def shared(x, scale):
    return tf.tanh(tf.matmul(x, weights)) * scale


@tf.function(experimental_implements="zoo.dense")
def implements(x, kernel):
    return tf.nn.relu(tf.matmul(x, kernel) + 0.1)


@tf.function(experimental_attributes={"_noinline": True})
def kept(x):
    """Stays a call in the executed graph, with a loop and another kept call inside."""
    for _ in tf.range(3):
        x = tf.sin(x) + kept_inner(x)
    return x


@tf.function(experimental_attributes={"_noinline": True})
def kept_inner(x):
    calls.assign_add(10)
    return tf.reduce_mean(x) * tf.ones_like(x)


@tf.function
def power(x, n):
    """One trace for each Python number."""
    return x if n == 0 else x * power(x, n - 1)


@tf.function
def step(x):
    with tf.GradientTape() as tape:
        a = shared(x, 1.0) + shared(x, 2.0) + shared(shared(x, 0.5), 1.0)
        b = implements(a, weights.read_value()) + kept(a)
        with tf.control_dependencies([calls.assign_add(100)]):
            c = power(tf.tanh(b), 4)
        loss = tf.reduce_mean(tf.square(c - 0.5)) + tf.reduce_mean(implements(x, weights.read_value()))
    gradient = tape.gradient(loss, weights)
    weights.assign_sub(0.1 * gradient)
    return {"loss": loss, "parts": (a, [b, None, c]), "gradient": gradient}


@tf.function
def nothing():
    pass


@tf.function
def only_writes(value):
    calls.assign_add(value)


losses, outputs = [], []
for number in range(5):
    result = step(tf.random.stateless_normal([4, 6], seed=[number, 17]))
    losses.append(result.pop("loss"))
    outputs.append([result["parts"], result["gradient"]])
    nothing()
    only_writes(tf.constant(1000))
concrete = shared.get_concrete_function(tf.TensorSpec([None, 6]), 3.0)
outputs.append([concrete(tf.ones([n, 6])) for n in (1, 2, 3)])
outputs.append([implements(tf.ones([2, 6]), tf.eye(6)), kept(tf.ones([2, 6]))])
pruned = tf.compat.v1.wrap_function(lambda x: tf.identity(tf.matmul(x, x) + 1.0, name="out"), [tf.TensorSpec([2, 2])])
outputs.append([pruned(tf.eye(2)), pruned.prune(pruned.inputs, "out:0")(tf.ones([2, 2]))])
show(losses, weights=weights, calls=calls, outputs=outputs)
