"""Keras' TensorBoard callback: one rank writes, and its numbers are those of the whole batches."""

import keras
import tensorflow as tf
from client import OUT, PLAIN, report, rng, wrap

import tarantella as tnt

x = rng.normal(size=(64, 8)).astype("float32")
y = x.sum(1, keepdims=True)
model = wrap(keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)]))
model.compile("sgd", "mse")
board = keras.callbacks.TensorBoard(str(OUT / "logs"), histogram_freq=1)
history = model.fit(x, y, batch_size=16, epochs=2, verbose=0, shuffle=False, validation_data=(x, y), callbacks=[board]).history
logged = []
if not PLAIN:
    tnt.barrier()
for file in sorted((OUT / "logs").glob("*/*")):
    for event in tf.compat.v1.train.summary_iterator(str(file)):
        logged += [float(tf.make_ndarray(value.tensor)) for value in event.summary.value if value.tag == "epoch_loss"]
report(history=history, logged=logged)
