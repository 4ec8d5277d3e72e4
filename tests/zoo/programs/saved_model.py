"""SavedModels: a module with functions and a Keras model, exported, loaded, run, trained on."""

import keras
import tensorflow as tf
from ending import show

keras.utils.set_random_seed(23)


class Scorer(tf.Module):
    def __init__(self):
        super().__init__()
        self.weights = tf.Variable(tf.random.stateless_normal([6, 3], seed=[23, 1]))
        self.calls = tf.Variable(0)
        self.table = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(tf.constant(["a", "b"]), tf.constant([1, 2])), default_value=-1
        )

    @tf.function(input_signature=[tf.TensorSpec([None, 6]), tf.TensorSpec([None], tf.string)])
    def score(self, x, kinds):
        self.calls.assign_add(1)
        shift = tf.cast(self.table.lookup(kinds), tf.float32)[:, None]
        return {"scores": tf.nn.softmax(tf.matmul(x, self.weights) + shift), "calls": self.calls.read_value()}

    @tf.function(input_signature=[tf.TensorSpec([None, 6])])
    def loss(self, x):
        for _ in tf.range(2):
            x = tf.concat([tf.tanh(tf.matmul(x, self.weights)), x[:, :3]], axis=1)
        return tf.reduce_mean(tf.square(x - 0.2))


tf.saved_model.save(Scorer(), "scorer")
# one variable: Keras exports several in the order of a set, which is another one in each run
model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(2, activation="relu", use_bias=False)])
model.export("exported", verbose=False)

scorer, exported = tf.saved_model.load("scorer"), tf.saved_model.load("exported")
losses, outputs = [], []
for number in range(5):
    x = tf.random.stateless_normal([4, 6], seed=[number, 43])
    result = scorer.score(x, tf.constant(["a", "b", "c", "a"]))
    outputs += [result["scores"], result["calls"], exported.serve(x), exported.signatures["serve"](x)]
    with tf.GradientTape() as tape:
        loss = scorer.loss(x)
    scorer.weights.assign_sub(0.1 * tape.gradient(loss, scorer.weights))
    losses.append(loss)
layer = keras.layers.TFSMLayer("exported", call_endpoint="serve")
outputs.append(layer(tf.ones([2, 6])))
show(losses, weights=[scorer.weights, scorer.calls], outputs=outputs)
