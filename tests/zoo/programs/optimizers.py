"""Every Keras optimizer and the raw training ops on dense gradients, and rules that clip, average and accumulate."""

import keras
import tensorflow as tf
from ending import show

keras.utils.set_random_seed(37)
OPTIMIZERS = [
    keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True),
    keras.optimizers.RMSprop(0.01, centered=True),
    keras.optimizers.Adam(0.01, amsgrad=True, clipvalue=0.5),
    keras.optimizers.AdamW(0.01, clipnorm=1.0),
    keras.optimizers.Adadelta(1.0),
    keras.optimizers.Adagrad(0.1),
    keras.optimizers.Adamax(0.01),
    keras.optimizers.Adafactor(0.01),
    keras.optimizers.Nadam(0.01),
    keras.optimizers.Ftrl(0.1, l1_regularization_strength=0.01),
    keras.optimizers.Lion(0.01),
    keras.optimizers.SGD(0.1, gradient_accumulation_steps=2),
]
start = tf.random.stateless_normal([5, 3], seed=[37, 1])
variables = [tf.Variable(start) for _ in OPTIMIZERS]
for optimizer, variable in zip(OPTIMIZERS, variables, strict=True):
    optimizer.build([variable])
raw = [tf.Variable(start) for _ in range(6)]
slots = [[tf.Variable(tf.ones([5, 3])) for _ in range(3)] for _ in raw]


@tf.function
def step(x):
    losses = []
    for optimizer, variable in zip(OPTIMIZERS, variables, strict=True):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.matmul(x, variable) - 1.0))
        optimizer.apply([tape.gradient(loss, variable)], [variable])
        losses.append(loss)
    return tf.add_n(losses)


@tf.function
def apply_raw(g):
    ops, v, s = tf.raw_ops, [variable.handle for variable in raw], [[slot.handle for slot in row] for row in slots]
    ops.ResourceApplyGradientDescent(var=v[0], alpha=0.1, delta=g)
    ops.ResourceApplyMomentum(var=v[1], accum=s[1][0], lr=0.1, grad=g, momentum=0.9, use_nesterov=True)
    ops.ResourceApplyAdam(
        var=v[2], m=s[2][0], v=s[2][1], beta1_power=0.9, beta2_power=0.99, lr=0.1, beta1=0.9, beta2=0.99, epsilon=1e-7,
        grad=g,
    )  # fmt: skip
    ops.ResourceApplyRMSProp(var=v[3], ms=s[3][0], mom=s[3][1], lr=0.1, rho=0.9, momentum=0.1, epsilon=1e-7, grad=g)
    ops.ResourceApplyAdagradV2(var=v[4], accum=s[4][0], lr=0.1, epsilon=1e-7, grad=g)
    ops.ResourceSparseApplyAdagradV2(
        var=v[5], accum=s[5][0], lr=0.1, epsilon=1e-7, grad=g[:2], indices=tf.constant([0, 3])
    )


losses = []
for number in range(5):
    losses.append(step(tf.random.stateless_normal([4, 5], seed=[number, 67])))
    apply_raw(tf.random.stateless_normal([5, 3], seed=[number, 71]))
state = [optimizer.variables for optimizer in OPTIMIZERS]
show(losses, weights=variables, state=state, raw=[raw, slots])
