"""`tf.Module`: methods as functions, nested modules, variables created on the first call, momentum, summaries."""

import tensorflow as tf
from ending import show


class Dense(tf.Module):
    def __init__(self, width, number):
        super().__init__(name=f"dense{number}")
        self.width, self.number, self.kernel = width, number, None

    @tf.Module.with_name_scope
    def __call__(self, x):
        if self.kernel is None:
            shape = [x.shape[-1], self.width]
            self.kernel = tf.Variable(tf.random.stateless_normal(shape, seed=[33, self.number]) * 0.3, name="kernel")
            self.bias = tf.Variable(tf.zeros([self.width]), name="bias")
        return tf.matmul(x, self.kernel) + self.bias


class Net(tf.Module):
    def __init__(self):
        super().__init__()
        self.layers = [Dense(8, 1), Dense(8, 2), Dense(1, 3)]
        self.steps = tf.Variable(0, dtype=tf.int64)
        self.slots = None

    def __call__(self, x):
        for layer in self.layers[:-1]:
            x = tf.nn.relu(layer(x))
        return self.layers[-1](x)

    @tf.function
    def train(self, x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self(x) - y))
        gradients = tape.gradient(loss, self.parameters)
        if self.slots is None:
            self.slots = [tf.Variable(tf.zeros_like(parameter)) for parameter in self.parameters]
        for slot, parameter, gradient in zip(self.slots, self.parameters, gradients, strict=True):
            slot.assign(0.9 * slot + gradient)
            parameter.assign_sub(0.05 * slot)
        self.steps.assign_add(1)
        tf.summary.write("loss", loss, step=self.steps)
        return loss

    @property
    def parameters(self):
        return [variable for layer in self.layers for variable in (layer.kernel, layer.bias)]


net = Net()
losses = []
with tf.summary.create_file_writer("logs").as_default():
    for number in range(5):
        x = tf.random.stateless_normal([8, 6], seed=[number, 61])
        losses.append(net.train(x, tf.reduce_sum(x, axis=1, keepdims=True)))
    tf.summary.write("kernel", net.layers[0].kernel, step=5)
show(losses, weights=net.variables, outputs=net(tf.ones([2, 6])))
