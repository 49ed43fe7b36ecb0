"""Tracking by mlflow, written as for one process: one run, with the numbers of the whole batches and the model."""

import os

import keras
import mlflow
from client import OUT, PLAIN, report, rng, wrap

import tarantella as tnt

IS_MASTER = PLAIN or tnt.is_master_rank()
x = rng.normal(size=(64, 8)).astype("float32")
y = x.sum(1, keepdims=True)
os.chdir(OUT)  # logged models go to a folder there
mlflow.set_tracking_uri(f"sqlite:///{OUT}/runs.db")
mlflow.set_experiment("training")
mlflow.tensorflow.autolog()
model = wrap(keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)]))
model.compile("sgd", "mse", metrics=["mae"])
with mlflow.start_run():
    history = model.fit(x, y, batch_size=16, epochs=2, verbose=0, shuffle=False, validation_data=(x, y)).history
    mlflow.log_metric("done", 1.0)
history = {name: [float(v) for v in values] for name, values in history.items()}
if IS_MASTER:
    (run,) = mlflow.search_runs(output_format="list", search_all_experiments=True)
    logged = {name: value for name, value in run.data.metrics.items() if name in history}
    assert set(logged) == set(history), run.data.metrics
    assert all(abs(logged[name] - history[name][-1]) < 1e-6 for name in logged)
    assert run.data.metrics["done"] == 1.0
    assert mlflow.search_logged_models(output_format="list") or run.data.tags
report(history=history)
