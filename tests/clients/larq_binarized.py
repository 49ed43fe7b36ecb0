"""A network of binary weights by larq, with its optimizer by cases: one for binary variables, one for others."""

import larq
import numpy as np
import tf_keras as keras
from client import report, rng, wrap

x = rng.normal(size=(60, 8)).astype("float32")
y = x.sum(1, keepdims=True)
binary = {"kernel_quantizer": "ste_sign", "kernel_constraint": "weight_clip", "use_bias": False}
dense = [larq.layers.QuantDense(16, **binary), larq.layers.QuantDense(8, input_quantizer="ste_sign", **binary)]
layers = [keras.Input((8,)), dense[0], keras.layers.LayerNormalization(), dense[1], keras.layers.Dense(1)]
model = wrap(keras.Sequential(layers))
by_case = (larq.optimizers.Bop.is_binary_variable, larq.optimizers.Bop(threshold=1e-6, gamma=1e-2))
model.compile(larq.optimizers.CaseOptimizer(by_case, default_optimizer=keras.optimizers.legacy.SGD(1e-3)), "mse")
history = model.fit(x, y, batch_size=16, epochs=2, verbose=0, shuffle=False).history
report(history=history, outputs=model.predict(x, batch_size=16, verbose=0), signs=[np.sign(w) for w in model.get_weights()])
