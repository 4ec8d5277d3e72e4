"""Graph code of TensorFlow 1 in functions: `wrap_function`, loops and gradients, variables by name, imported graphs."""

import tensorflow as tf
from ending import show

v1 = tf.compat.v1


def build(x):
    kernel = v1.get_variable("kernel", [4, 4], initializer=v1.constant_initializer(0.3), use_resource=True)
    _, y = v1.while_loop(lambda i, _: i < 3, lambda i, h: (i + 1, tf.tanh(tf.matmul(h, kernel))), [0, x])
    y = v1.cond(tf.reduce_sum(y) > 0.0, lambda: y * 2.0, lambda: y - 1.0)
    loss = tf.reduce_mean(tf.square(y - 0.2))
    gradient = tf.gradients(loss, kernel)[0]
    with tf.control_dependencies([v1.assign_sub(kernel, 0.1 * gradient)]):
        return (
            tf.identity(loss),
            tf.identity(gradient),
            v1.get_variable("count", [], tf.int32, initializer=v1.zeros_initializer(), use_resource=True).assign_add(1),
        )


scope = v1.wrap_function(build, [tf.TensorSpec([2, 4])])
losses, outputs = [], []
for number in range(5):
    loss, *rest = scope(tf.random.stateless_normal([2, 4], seed=[number, 89]))
    losses.append(loss)
    outputs.append(rest)

graph = tf.Graph()
with graph.as_default():
    x = v1.placeholder(tf.float32, [None, 3], name="x")
    tf.identity(tf.nn.softmax(tf.matmul(x, tf.ones([3, 2])) + [0.5, -0.5]), name="y")
imported = v1.wrap_function(lambda: tf.import_graph_def(graph.as_graph_def(), name=""), [])
pruned = imported.prune("x:0", "y:0")
outputs += [pruned(tf.random.stateless_normal([2, 3], seed=[number, 97])) for number in range(3)]
show(losses, weights=scope.variables, outputs=outputs)
