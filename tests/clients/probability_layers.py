"""A layer with a distribution of TensorFlow Probability as its output, trained by likelihood, in legacy Keras."""

import tensorflow as tf
import tensorflow_probability as tfp
import tf_keras as keras
from client import report, rng, wrap

x = rng.normal(size=(64, 4)).astype("float32")
y = x.sum(1, keepdims=True) + rng.normal(size=(64, 1)).astype("float32") / 2


def normal(parameters):
    return tfp.distributions.Normal(parameters[..., :1], 1e-3 + tf.math.softplus(parameters[..., 1:]))


layers = [keras.layers.Dense(8, "tanh"), keras.layers.Dense(2), tfp.layers.DistributionLambda(normal)]
model = wrap(keras.Sequential([keras.Input((4,)), *layers]))
model.compile(keras.optimizers.SGD(0.02), lambda y_true, predicted: -predicted.log_prob(y_true))
history = model.fit(x, y, batch_size=16, epochs=3, verbose=0, shuffle=False).history
report(history=history, weights=model.get_weights())
