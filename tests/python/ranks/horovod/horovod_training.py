"""Scripts for Horovod on made-up data, in the style of its examples: what they train is compared with serial Keras."""

from __future__ import annotations

import sys
from typing import Any

import horovod.keras as hvd_of_keras
import horovod.tensorflow as hvd_tf
import horovod.tensorflow.keras as hvd
import numpy as np
import tensorflow as tf
from tensorflow import keras

from checks import check, raised, run

FOLDER = sys.argv[1]
hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
ROWS = 16  # of each rank's batch, four batches
X = np.random.default_rng(1).normal(size=(4 * ROWS * SIZE, 6)).astype(np.float32)
Y = np.random.default_rng(2).integers(0, 3, len(X))


def model(seed: int = 5) -> Any:
    keras.utils.set_random_seed(seed)
    return keras.Sequential([keras.Input((6,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(3, "softmax")])


def shard() -> tf.data.Dataset:
    """Batches of this rank: those of all ranks together are the serial batches."""
    data = tf.data.Dataset.from_tensor_slices((X, Y)).shard(SIZE, RANK)
    return data.batch(ROWS)


def serial(optimizer: Any, epochs: int = 2, batch: int = ROWS * SIZE) -> list[np.ndarray]:
    reference = model()
    reference.compile(optimizer, "sparse_categorical_crossentropy")
    reference.fit(X, Y, batch_size=batch, epochs=epochs, shuffle=False, verbose=0)
    return reference.get_weights()


def error(found: list[np.ndarray], expected: list[np.ndarray]) -> float:
    return max(float(np.abs(a - b).max()) for a, b in zip(found, expected, strict=True))


@check
def shuffles_differ() -> bool:
    """Each rank shuffles data of its own."""
    order = np.array(list(tf.data.Dataset.range(64).shuffle(64).as_numpy_iterator()))
    return bool(np.ptp(hvd.allgather(order[np.newaxis]), axis=0).max() > 0)


@check
def fit() -> dict[str, Any]:
    trained = model(seed=5 + RANK)  # the callback makes them alike
    optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(0.01 * SIZE))
    trained.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.MetricAverageCallback(),
        hvd.callbacks.LearningRateWarmupCallback(initial_lr=0.01 * SIZE, warmup_epochs=1, verbose=1),
    ]
    history = trained.fit(shard(), epochs=2, callbacks=callbacks, verbose=0).history
    rates = [0.01 * (1 + (SIZE - 1) * (step + 1) / 4) if step < 4 else 0.01 * SIZE for step in range(8)]
    reference = model()
    reference.compile(keras.optimizers.Adam(0.0), "sparse_categorical_crossentropy")
    for step, rate in enumerate(rates):
        reference.optimizer.learning_rate.assign(rate)
        at = step % 4 * ROWS * SIZE
        reference.train_on_batch(X[at : at + ROWS * SIZE], Y[at : at + ROWS * SIZE])
    kept = f"{FOLDER}/{RANK}.keras"
    trained.save(kept)
    again = hvd.load_model(kept)
    return {
        "error": error(trained.get_weights(), reference.get_weights()),
        "alike": bool(np.ptp(hvd.allgather(np.array([history["loss"]])), axis=0).max() == 0),
        "rate": abs(history["lr"][-1] - 0.01 * SIZE) < 1e-6,
        "class": type(trained.optimizer).__name__,
        "loaded": hasattr(again.optimizer, "register_local_var") and error(again.get_weights(), trained.get_weights()),
    }


@check
def loop() -> dict[str, float]:
    """The tape inside a `tf.function`, with a broadcast after the first batch, as in the example with MNIST."""
    errors = {}
    for name, choices, rate in (
        ("average", {}, 0.1),
        ("sum", {"op": hvd.Sum}, 0.1 / SIZE),
        ("fp16", {"compression": hvd.Compression.fp16}, 0.1),
    ):
        trained, optimizer = model(), keras.optimizers.SGD(rate)
        loss = keras.losses.SparseCategoricalCrossentropy()

        @tf.function
        def step(x, y, first, trained=trained, optimizer=optimizer, loss=loss, choices=choices):
            with tf.GradientTape() as tape:
                value = loss(y, trained(x, training=True))
            tape = hvd_tf.DistributedGradientTape(tape, **choices)
            grads = tape.gradient(value, trained.trainable_variables)
            optimizer.apply_gradients(zip(grads, trained.trainable_variables, strict=True))
            if first:
                hvd_tf.broadcast_variables(trained.variables, root_rank=0)
                hvd_tf.broadcast_variables(optimizer.variables(), root_rank=0)
            return value

        for _ in range(2):
            for batch, (x, y) in enumerate(shard()):
                step(x, y, batch == 0)
        errors[name] = error(trained.get_weights(), serial(keras.optimizers.SGD(0.1)))
    return errors


@check
def passes() -> dict[str, float]:
    """Two steps of each rank are one step of the serial training."""
    found = {}
    for averaged, rate in ((True, 0.2), (False, 0.1)):
        trained = model()
        optimizer = hvd.DistributedOptimizer(
            keras.optimizers.SGD(rate), backward_passes_per_step=2, average_aggregated_gradients=averaged
        )
        trained.compile(optimizer, "sparse_categorical_crossentropy")
        trained.fit(shard(), epochs=1, verbose=0)
        found[str(averaged)] = error(trained.get_weights(), serial(keras.optimizers.SGD(0.2), 1, 2 * ROWS * SIZE))
    return found


@check
def iterations() -> list[Any]:
    """Legacy Keras: each batch counts, so that a schedule of the rate runs by batches as it does without passes."""
    schedule = keras.optimizers.schedules.PiecewiseConstantDecay([1, 3], [1.0, 10.0, 100.0])
    optimizer = hvd.DistributedOptimizer(
        keras.optimizers.SGD(schedule), backward_passes_per_step=2, average_aggregated_gradients=True
    )
    weight, counts = tf.Variable([0.0]), []
    step = tf.function(lambda: optimizer.apply_gradients([(tf.constant([1.0]), weight)]))
    for _ in range(5):
        step()
        counts.append(int(optimizer.iterations))
    return [counts, float(weight[0])]


@check
def local_layers() -> list[bool]:
    trained = model()
    first = trained.layers[0]
    optimizer = hvd.PartialDistributedOptimizer(keras.optimizers.SGD(0.1), local_layers=first)
    trained.compile(optimizer, "sparse_categorical_crossentropy")
    trained.fit(shard(), epochs=1, verbose=0)
    return [bool(np.ptp(hvd.allgather(w.numpy()[np.newaxis]), axis=0).max() > 0) for w in trained.weights]


@check
def process_set() -> float:
    """Gradients of a part of the ranks: rank 0 alone trains on its own batches."""
    keras.backend.clear_session()  # ranks that make different numbers of models give different names to the next
    alone = hvd.add_process_set([0])
    if RANK != 0:
        return 0.0
    trained = model()
    trained.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), process_set=alone), "sparse_categorical_crossentropy")
    trained.fit(shard(), epochs=1, verbose=0)
    reference = model()
    reference.compile(keras.optimizers.SGD(0.1), "sparse_categorical_crossentropy")
    reference.fit(shard(), epochs=1, verbose=0)
    return error(trained.get_weights(), reference.get_weights())


@check
def embedding() -> list[float]:
    """Rows of a table, as such and as a whole."""
    words = np.random.default_rng(3).integers(0, 400, (32 * SIZE, 4))
    wanted = np.random.default_rng(4).normal(size=(32 * SIZE, 1)).astype(np.float32)

    keras.backend.clear_session()

    def net() -> Any:
        keras.utils.set_random_seed(7)
        layers = [keras.Input((4,)), keras.layers.Embedding(400, 64), keras.layers.Flatten(), keras.layers.Dense(1)]
        return keras.Sequential(layers)

    reference = net()
    reference.compile(keras.optimizers.SGD(0.5), "mse")
    reference.fit(words, wanted, batch_size=32 * SIZE, verbose=0)
    found = []
    for dense in (False, True):
        trained = net()
        trained.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.5), sparse_as_dense=dense), "mse")
        trained.fit(words[RANK::SIZE], wanted[RANK::SIZE], batch_size=32, verbose=0)
        found.append(error(trained.get_weights(), reference.get_weights()))
    return found


@check
def loss_scale() -> list[Any]:
    """Inside, all ranks skip the step that overflows on the last one; outside, each would decide by itself."""
    scaled, sgd = keras.mixed_precision.LossScaleOptimizer, keras.optimizers.SGD
    outside = model()
    outside.compile(scaled(hvd.DistributedOptimizer(sgd(0.1))), "sparse_categorical_crossentropy")
    refused = raised(lambda: outside.fit(shard(), verbose=0))
    inside, optimizer = model(), scaled(sgd(0.1), initial_scale=4.0)
    inside.compile(hvd.DistributedOptimizer(optimizer), "sparse_categorical_crossentropy")
    x = X[RANK::SIZE].copy()
    x[ROWS] = np.inf if RANK == SIZE - 1 else x[ROWS]
    inside.fit(x, Y[RANK::SIZE], batch_size=ROWS, shuffle=False, verbose=0)
    skipped = [int(optimizer.inner_optimizer.iterations), float(optimizer.dynamic_scale)]
    return [refused[0], *skipped, inside.get_weights()[0].tolist()]


@check
def names() -> list[Any]:
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1))
    return [
        hvd_of_keras.callbacks.MetricAverageCallback is hvd.callbacks.MetricAverageCallback,
        raised(hvd.DistributedOptimizer, optimizer)[0],
        raised(hvd.DistributedOptimizer, "sgd")[0],
        raised(hvd_tf.broadcast_global_variables, 0)[0],
    ]


run(FOLDER, *sys.argv[2:])
