"""Dilated convolutions over sequences by keras-tcn."""

import keras
import numpy as np
from client import report, rng, wrap
from tcn import TCN

x = rng.normal(size=(60, 20, 3)).astype("float32")
y = np.stack([x.mean((1, 2)), np.abs(x).mean((1, 2))], 1)
network = TCN(8, kernel_size=3, dilations=[1, 2, 4], use_skip_connections=True, use_layer_norm=True)
layers = [keras.Input((None, 3)), network, keras.layers.Dense(2)]
model = wrap(keras.Sequential(layers))
model.compile(keras.optimizers.SGD(0.05), "mse", metrics=["mae"])
history = model.fit(x, y, batch_size=16, epochs=2, verbose=0, shuffle=False, validation_split=0.2).history
report(history=history, outputs=model.predict(x, batch_size=16, verbose=0), weights=model.get_weights())
