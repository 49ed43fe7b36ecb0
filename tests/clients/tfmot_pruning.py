"""A network that TensorFlow Model Optimization prunes: its callback counts steps, which decide on the masks."""

import numpy as np
import tensorflow_model_optimization as tfmot
import tf_keras as keras
from client import OUT, report, rng, wrap

sparsity = tfmot.sparsity.keras
x = rng.normal(size=(72, 8)).astype("float32")
y = x.sum(1, keepdims=True)
schedule = sparsity.PolynomialDecay(0.1, 0.5, begin_step=2, end_step=12, frequency=2)
layers = [keras.Input((8,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)]
model = wrap(sparsity.prune_low_magnitude(keras.Sequential(layers), schedule))
model.compile(keras.optimizers.SGD(0.02), "mse")
callbacks = [sparsity.UpdatePruningStep(), sparsity.PruningSummaries(str(OUT / "logs"))]
history = model.fit(x, y, batch_size=16, epochs=3, verbose=0, shuffle=False, callbacks=callbacks).history
pruned = sparsity.strip_pruning(getattr(model, "model", model))
weights = pruned.get_weights()
report(history=history, weights=weights, zeros=[np.mean(weight == 0) for weight in weights])
