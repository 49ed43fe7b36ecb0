"""Tracking of a training by mlflow: its autolog on the master alone, one run with the numbers of the whole batches."""

import keras
import mlflow
from client import OUT, PLAIN, report, rng, wrap

import tarantella as tnt

IS_MASTER = PLAIN or tnt.is_master_rank()
x = rng.normal(size=(64, 8)).astype("float32")
y = x.sum(1, keepdims=True)
model = wrap(keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)]))
model.compile("sgd", "mse", metrics=["mae"])
if IS_MASTER:
    mlflow.set_tracking_uri(f"sqlite:///{OUT}/runs.db")
    mlflow.set_experiment("training")
    mlflow.tensorflow.autolog(log_models=False, log_datasets=False)
history = model.fit(x, y, batch_size=16, epochs=2, verbose=0, shuffle=False, validation_data=(x, y)).history
if IS_MASTER:
    (run,) = mlflow.search_runs(output_format="list")
    logged = {name: value for name, value in run.data.metrics.items() if name in history}
    assert set(logged) == set(history), logged
    assert all(abs(logged[name] - history[name][-1]) < 1e-6 for name in logged)
report(history=history)
