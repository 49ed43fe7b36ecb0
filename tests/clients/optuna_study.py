"""A study of optuna: the master's trials are told to the other ranks, and all train each of them."""

import keras
import optuna
from client import PLAIN, report, rng, wrap

import tarantella as tnt

x = rng.normal(size=(64, 8)).astype("float32")
y = x.sum(1, keepdims=True)


def trained(rate: float, units: int) -> float:
    keras.utils.set_random_seed(1)
    model = wrap(keras.Sequential([keras.Input((8,)), keras.layers.Dense(units, "tanh"), keras.layers.Dense(1)]))
    model.compile(keras.optimizers.SGD(rate), "mse")
    return model.fit(x, y, batch_size=16, epochs=2, verbose=0, shuffle=False).history["loss"][-1]


study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=1)) if PLAIN or tnt.is_master_rank() else None
scores = []
for _ in range(4):
    trial = study.ask() if study else None
    chosen = [trial.suggest_float("rate", 1e-3, 1e-1, log=True), trial.suggest_int("units", 2, 16)] if trial else None
    chosen = chosen if PLAIN else tnt.broadcast_object(chosen)
    scores.append(trained(*chosen))
    if study:
        study.tell(trial, scores[-1])
report(scores=scores)
