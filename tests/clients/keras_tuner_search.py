"""A search in one folder, by the tuner that draws at random and by the one of Bayes; the best model is loaded."""

import keras
import keras_tuner
from client import OUT, PLAIN, report, rng, wrap

import tarantella as tnt

x = rng.normal(size=(96, 8)).astype("float32")
y = x.sum(1, keepdims=True)


def build(hp):
    units, activation = hp.Choice("units", [4, 8, 16]), hp.Choice("activation", ["relu", "tanh", "elu"])
    start = keras.initializers.GlorotUniform(1)
    layers = [keras.layers.Dense(units, activation, kernel_initializer=start), keras.layers.Dense(1, kernel_initializer=start)]
    model = wrap(keras.Sequential([keras.Input((8,)), *layers]))
    model.compile(keras.optimizers.SGD(hp.Float("rate", 1e-3, 1e-1, sampling="log")), "mse")
    return model


found = []
for kind in (keras_tuner.RandomSearch, keras_tuner.BayesianOptimization):
    options = {"objective": "val_loss", "max_trials": 4, "seed": 3, "directory": str(OUT), "project_name": kind.__name__}
    tuner = kind(build, **options) if PLAIN else tnt.tuner(kind, build, **options)
    tuner.search(x, y, batch_size=24, epochs=2, validation_split=0.25, verbose=0, shuffle=False)
    trials = [tuner.oracle.trials[name] for name in sorted(tuner.oracle.trials)]
    best = tuner.get_best_models(1)[0]
    found.append([[trial.score, trial.hyperparameters.values["units"]] for trial in trials])
    found.append(best.predict(x, verbose=0))
report(found=found)
