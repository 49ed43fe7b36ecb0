"""Traffic on a graph of roads: a graph convolution with the edges as a constant, an LSTM over the nodes of each sample."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers

from example import Trained, Wrap, as_script, numbers

NODES, STEPS, WIDTH = 4, 3, 3
EDGES = np.array([[0, 0, 1, 2, 3], [1, 2, 3, 3, 0]])


class GraphConvolution(layers.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.kernel_layer = layers.Dense(WIDTH, use_bias=False)

    def call(self, features: Any) -> Any:
        neighbours = tf.gather(features, EDGES[1])
        sums = tf.math.unsorted_segment_mean(neighbours, EDGES[0], num_segments=NODES)
        return tf.nn.relu(tf.concat([self.kernel_layer(features), self.kernel_layer(sums)], -1))


class GraphLstm(layers.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.lstm, self.dense = GraphConvolution(), layers.LSTM(4), layers.Dense(2)

    def call(self, inputs: Any) -> Any:
        out = self.convolution(tf.transpose(inputs, [2, 0, 1, 3]))  # nodes first
        batch = tf.shape(out)[1]
        out = self.dense(self.lstm(tf.reshape(out, (batch * NODES, STEPS, 2 * WIDTH))))
        return tf.transpose(tf.reshape(out, (NODES, batch, 2)), [1, 2, 0])


def train(wrap: Wrap) -> Trained:
    series = numbers(0, 36, NODES)
    inputs = keras.utils.timeseries_dataset_from_array(series[:-2, :, None], None, STEPS, batch_size=12)
    targets = keras.utils.timeseries_dataset_from_array(series[STEPS:], None, 2, batch_size=12)
    data = tf.data.Dataset.zip((inputs, targets)).shuffle(10, seed=3).cache()
    start = keras.Input((STEPS, NODES, 1))
    model = wrap(keras.Model(start, GraphLstm()(start)))
    model.compile(optimizer=keras.optimizers.RMSprop(learning_rate=2e-4, epsilon=1e-3), loss=keras.losses.MeanSquaredError())
    stopping = keras.callbacks.EarlyStopping(patience=10)
    return model, model.fit(data, validation_data=data, epochs=2, callbacks=[stopping], verbose=0).history


if __name__ == "__main__":
    as_script(train)
