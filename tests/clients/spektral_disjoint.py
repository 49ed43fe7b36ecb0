"""Mini-batches of graphs of spektral's loader: each rank reads graphs of its own, and states how many a batch has."""

import numpy as np
import tensorflow as tf
import tf_keras as keras
from client import PLAIN, report, rng, wrap
from spektral.data import Dataset, DisjointLoader, Graph
from spektral.layers import GCNConv, GlobalAvgPool

import tarantella as tnt

RANK, SIZE = (0, 1) if PLAIN else (tnt.get_rank(), tnt.get_size())
BATCH, STEPS = 12, 4  # of all ranks together


class Graphs(Dataset):
    def read(self):
        made = []
        for nodes in rng.integers(3, 8, BATCH * STEPS):
            x = rng.normal(size=(nodes, 4)).astype("float32")
            edges = (rng.uniform(size=(nodes, nodes)) < 0.5).astype("float32")
            made.append(Graph(x=x, a=edges, y=np.tanh([x.sum()]).astype("float32")))
        return made


class Network(keras.Model):
    def __init__(self):
        super().__init__()
        self.convolution, self.pool, self.last = GCNConv(8, "tanh"), GlobalAvgPool(), keras.layers.Dense(1)

    def call(self, inputs):
        x, edges, graph = inputs
        return self.last(self.pool([self.convolution([x, edges]), graph]))


loader = DisjointLoader(Graphs()[RANK::SIZE], batch_size=BATCH // SIZE, shuffle=False)
how = {} if PLAIN else {"tnt_distribute_dataset": False, "tnt_batch_size": lambda batch: tf.shape(batch[1])[0]}
model = wrap(Network())
model.compile(keras.optimizers.SGD(0.05), "mse", metrics=["mae"])
history = model.fit(loader.load(), steps_per_epoch=STEPS, epochs=2, verbose=0, **how).history
report(history=history, weights=model.get_weights())
