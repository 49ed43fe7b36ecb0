"""A regressor of scikit-learn's kind in a pipeline and in a grid search over folds."""

import keras
from client import report, rng, wrap
from scikeras.wrappers import KerasRegressor
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

x = rng.normal(2, 3, (60, 4)).astype("float32")
y = x.sum(1)


def build(units=4):
    keras.utils.set_random_seed(units)
    model = wrap(keras.Sequential([keras.Input((4,)), keras.layers.Dense(units, "tanh"), keras.layers.Dense(1)]))
    model.compile(keras.optimizers.SGD(0.05), "mse")
    return model


options = {"epochs": 2, "batch_size": 12, "verbose": 0, "shuffle": False}
pipe = make_pipeline(StandardScaler(), KerasRegressor(build, **options)).fit(x, y)
search = GridSearchCV(KerasRegressor(build, units=4, **options), {"units": [4, 8]}, cv=3).fit(x, y)
report(outputs=pipe.predict(x), scores=search.cv_results_["mean_test_score"], best=search.best_params_["units"])
