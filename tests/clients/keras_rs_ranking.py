"""A recommender of Keras RS: embeddings of users and films, crossed features, a rating."""

import keras
import keras_rs
from client import report, rng, wrap

users, films = keras.Input((), dtype="int32", name="user"), keras.Input((), dtype="int32", name="film")
start = keras.initializers.RandomNormal(seed=1)
both = keras.layers.Concatenate()(
    [keras.layers.Embedding(size, 8, embeddings_initializer=start)(ids) for size, ids in ((20, users), (30, films))]
)
crossed = keras_rs.layers.FeatureCross(kernel_initializer=start)(both, both)
model = wrap(keras.Model({"user": users, "film": films}, keras.layers.Dense(1)(crossed)))
model.compile(keras.optimizers.SGD(0.1), "mse", metrics=[keras.metrics.RootMeanSquaredError()])
x = {"user": rng.integers(0, 20, 90), "film": rng.integers(0, 30, 90)}
y = rng.uniform(1, 5, (90, 1)).astype("float32")
history = model.fit(x, y, batch_size=16, epochs=2, verbose=0, shuffle=False).history
report(history=history, outputs=model.predict(x, batch_size=16, verbose=0))
