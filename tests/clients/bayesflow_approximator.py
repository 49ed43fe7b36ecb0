"""An approximator of bayesflow, whose fit builds it from its own kind of data set, and whose evaluate renames its numbers."""

import bayesflow
import keras
import numpy as np
from client import report, rng, wrap

theta = rng.normal(size=(96, 2)).astype("float32")
x = (theta + 0.3 * rng.normal(size=(96, 2))).astype("float32")
adapter = bayesflow.adapters.Adapter().rename("theta", "inference_variables").rename("x", "inference_conditions")
network = bayesflow.networks.CouplingFlow(depth=2, subnet_kwargs={"widths": (16,), "dropout": 0.0})
model = wrap(bayesflow.ContinuousApproximator(adapter=adapter, inference_network=network, standardize=None))
model.compile(optimizer=keras.optimizers.Adam(1e-3))


def data(begin: int, end: int, batch_size: int) -> bayesflow.OfflineDataset:
    samples = {"theta": theta[begin:end], "x": x[begin:end]}
    return bayesflow.OfflineDataset(data=samples, batch_size=batch_size, adapter=adapter, shuffle=False)


history = model.fit(dataset=data(0, 72, 24), epochs=2, verbose=0, validation_data=data(72, 96, 12)).history
report(history=history, weights=[np.asarray(weight) for weight in model.get_weights()])
