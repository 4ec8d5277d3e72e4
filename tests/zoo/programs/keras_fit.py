"""Keras `fit`: validation, callbacks, metrics, class and sample weights, a schedule, a checkpoint, early stopping."""

import keras
import numpy as np
from ending import show

keras.utils.set_random_seed(13)
rng = np.random.default_rng(13)
x = rng.normal(size=(96, 10)).astype("float32")
y = (x[:, 0] + x[:, 1] > 0).astype("int32") + (x[:, 2] > 1)

model = keras.Sequential([
    keras.Input((10,)),
    keras.layers.Dense(16, activation="relu", kernel_regularizer=keras.regularizers.L2(1e-3)),
    keras.layers.BatchNormalization(),
    keras.layers.Dropout(0.2, seed=3),
    keras.layers.Dense(3, kernel_constraint=keras.constraints.MaxNorm(2.0)),
])  # fmt: skip
schedule = keras.optimizers.schedules.ExponentialDecay(0.01, decay_steps=4, decay_rate=0.9)
model.compile(
    keras.optimizers.Adam(schedule, global_clipnorm=1.0, use_ema=True, ema_overwrite_frequency=5),
    keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy", keras.metrics.SparseTopKCategoricalAccuracy(2, name="top2")],
    weighted_metrics=[keras.metrics.SparseCategoricalAccuracy(name="weighted")],
)
seen = []
history = model.fit(
    x[:64],
    y[:64],
    batch_size=16,
    epochs=3,
    validation_data=(x[64:], y[64:]),
    class_weight={0: 1.0, 1: 2.0, 2: 0.5},
    callbacks=[
        keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: seen.append(logs["loss"])),
        keras.callbacks.ModelCheckpoint("best.keras", save_best_only=True),
        keras.callbacks.EarlyStopping(patience=2, restore_best_weights=True),
        keras.callbacks.CSVLogger("log.csv"),
        keras.callbacks.TerminateOnNaN(),
    ],
    shuffle=True,
    verbose=0,
)
evaluated = model.evaluate(x, y, sample_weight=np.linspace(0, 1, 96).astype("float32"), verbose=0)
show(
    seen + evaluated,
    history=[history.history[key] for key in sorted(history.history)],
    weights=[model.variables, model.optimizer.variables],
    outputs=model.predict(x, verbose=0),
    log=open("log.csv").read(),
)
