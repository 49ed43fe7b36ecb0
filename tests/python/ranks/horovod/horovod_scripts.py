"""Whole scripts in the style of those of Horovod's users, on made-up data. Nothing in them was written for Tarantella."""

from __future__ import annotations

import os
import sys
import timeit
from typing import Any

import horovod.tensorflow as hvd_tf
import horovod.tensorflow.keras as hvd
import numpy as np
import tensorflow as tf

from checks import check, run

FOLDER = sys.argv[1]
IMAGES = np.random.default_rng(1).integers(0, 255, (256, 12, 12), np.uint8)
LABELS = np.random.default_rng(2).integers(0, 10, 256)


def same(model: Any) -> bool:
    """Whether all ranks have the same trainable weights, which are finite."""
    flat = np.concatenate([np.ravel(w) for w in model.trainable_variables])
    each = hvd.allgather(flat[np.newaxis])
    return bool(np.isfinite(each).all() and np.ptp(each, axis=0).max() == 0)


def images() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(
        (tf.cast(IMAGES[..., tf.newaxis] / 255.0, tf.float32), tf.cast(LABELS, tf.int64))
    ).repeat().shuffle(1000).batch(16)  # fmt: skip


def small_network() -> Any:
    return tf.keras.Sequential([
        tf.keras.layers.Conv2D(4, [3, 3], activation="relu"),
        tf.keras.layers.MaxPooling2D(pool_size=(2, 2)),
        tf.keras.layers.Dropout(0.25),
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(10, activation="softmax"),
    ])  # fmt: skip


@check
def keras_mnist() -> dict[str, bool]:
    hvd.init()
    gpus = tf.config.experimental.list_physical_devices("GPU")
    if gpus:
        tf.config.experimental.set_visible_devices(gpus[hvd.local_rank()], "GPU")
    scaled_lr = 0.001 * hvd.size()
    opt = hvd.DistributedOptimizer(tf.optimizers.Adam(scaled_lr), backward_passes_per_step=1, average_aggregated_gradients=True)
    model = small_network()
    model.compile(loss=tf.losses.SparseCategoricalCrossentropy(), optimizer=opt, metrics=["accuracy"],
                  experimental_run_tf_function=False)  # fmt: skip
    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.MetricAverageCallback(),
        hvd.callbacks.LearningRateWarmupCallback(initial_lr=scaled_lr, warmup_epochs=3, verbose=1),
    ]
    if hvd.rank() == 0:
        callbacks.append(tf.keras.callbacks.ModelCheckpoint(f"{FOLDER}/mnist-{{epoch}}.h5"))
    verbose = 2 if hvd.rank() == 0 else 0
    history = model.fit(images(), steps_per_epoch=8 // hvd.size(), callbacks=callbacks, epochs=4, verbose=verbose).history
    rates = np.allclose(history["lr"], np.array([1 + 1 / 3, 1 + 2 / 3, 2, 2]) / 2 * scaled_lr)
    return {
        "same": same(model),
        "rates": bool(rates),
        "files": os.path.exists(f"{FOLDER}/mnist-4.h5") or hvd.rank() > 0,
        "averaged": bool(hvd.allreduce(history["loss"][-1], op=hvd.Max) == hvd.allreduce(history["loss"][-1], op=hvd.Min)),
    }


@check
def mnist_loop() -> dict[str, bool]:
    hvd_tf.init()
    model = small_network()
    loss = tf.losses.SparseCategoricalCrossentropy()
    opt = tf.optimizers.Adam(0.001 * hvd_tf.size())
    checkpoint = tf.train.Checkpoint(model=model, optimizer=opt)

    @tf.function
    def training_step(images: tf.Tensor, labels: tf.Tensor, first_batch: bool) -> tf.Tensor:
        with tf.GradientTape() as tape:
            probs = model(images, training=True)
            loss_value = loss(labels, probs)
        tape = hvd_tf.DistributedGradientTape(tape)
        grads = tape.gradient(loss_value, model.trainable_variables)
        opt.apply_gradients(zip(grads, model.trainable_variables))  # noqa: B905  # as users write it
        if first_batch:
            hvd_tf.broadcast_variables(model.variables, root_rank=0)
            hvd_tf.broadcast_variables(opt.variables(), root_rank=0)
        return loss_value

    for batch, (x, y) in enumerate(images().take(8 // hvd_tf.size())):
        loss_value = training_step(x, y, batch == 0)
        if batch % 2 == 0 and hvd_tf.local_rank() == 0:
            print(f"Step #{batch}\tLoss: {loss_value:.6f}")
    if hvd_tf.rank() == 0:
        checkpoint.save(f"{FOLDER}/checkpoints/")
    return {"same": same(model), "saved": hvd_tf.rank() > 0 or bool(tf.train.latest_checkpoint(f"{FOLDER}/checkpoints"))}


@check
def synthetic_benchmark() -> dict[str, bool]:
    hvd_tf.init()
    model = small_network()
    opt = tf.optimizers.SGD(0.01)
    data = tf.random.uniform([8, 12, 12, 3])
    target = tf.random.uniform([8, 1], minval=0, maxval=9, dtype=tf.int64)

    @tf.function
    def benchmark_step(first_batch: bool) -> None:
        with tf.GradientTape() as tape:
            probs = model(data, training=True)
            loss = tf.losses.SparseCategoricalCrossentropy()(target, probs)
        tape = hvd_tf.DistributedGradientTape(tape, compression=hvd_tf.Compression.fp16)
        gradients = tape.gradient(loss, model.trainable_variables)
        opt.apply_gradients(zip(gradients, model.trainable_variables))  # noqa: B905
        if first_batch:
            hvd_tf.broadcast_variables(model.variables, root_rank=0)
            hvd_tf.broadcast_variables(opt.variables(), root_rank=0)

    seconds = []
    with tf.device("/cpu:0"):
        benchmark_step(first_batch=True)
        timeit.timeit(lambda: benchmark_step(first_batch=False), number=2)
        for _ in range(2):
            seconds.append(timeit.timeit(lambda: benchmark_step(first_batch=False), number=2))
    return {"same": same(model), "timed": min(seconds) > 0}


@check
def keras_synthetic_benchmark() -> dict[str, bool]:
    hvd.init()
    model = small_network()
    opt = hvd.DistributedOptimizer(tf.optimizers.SGD(0.01), compression=hvd.Compression.fp16)
    model.compile(loss="sparse_categorical_crossentropy", optimizer=opt, experimental_run_tf_function=False)
    data = tf.random.uniform([32, 12, 12, 1])
    target = tf.random.uniform([32, 1], minval=0, maxval=9, dtype=tf.int64)
    dataset = tf.data.Dataset.from_tensor_slices((data, target)).cache().repeat().batch(8)
    batches = []

    class TimeCallback(tf.keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            self.starttime = timeit.default_timer()

        def on_epoch_end(self, epoch, logs=None):
            batches.append(8 * 2 / (timeit.default_timer() - self.starttime))

    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), TimeCallback()]
    model.fit(dataset, batch_size=8, steps_per_epoch=2, callbacks=callbacks, epochs=2, verbose=0)
    return {"same": same(model), "timed": len(batches) == 2}


def imagenet(epochs: int, resume_from: str = "") -> tuple[Any, Any, Any]:
    """As scripts with ResNet-50 train: in two parts, the second of which continues from the file of the first."""
    keras, initial_lr, warmup = tf.keras, 0.05 * hvd.size(), 2
    resume_from_epoch = 0
    for try_epoch in range(epochs, 0, -1):
        if resume_from and os.path.exists(f"{FOLDER}/{resume_from}-{try_epoch}.keras"):
            resume_from_epoch = try_epoch
            break
    resume_from_epoch = hvd.broadcast(resume_from_epoch, 0, name="resume_from_epoch")
    if resume_from_epoch > 0 and hvd.rank() == 0:
        model = hvd.load_model(f"{FOLDER}/{resume_from}-{resume_from_epoch}.keras", compression=hvd.Compression.fp16)
    else:
        inputs = keras.Input((12, 12, 1))
        x = keras.layers.Conv2D(4, 3, padding="same", kernel_regularizer=keras.regularizers.l2(5e-5))(inputs)
        x = keras.layers.ReLU()(keras.layers.BatchNormalization(momentum=0.9, epsilon=1e-5)(x))
        x = keras.layers.GlobalAveragePooling2D()(x)
        model = keras.Model(inputs, keras.layers.Dense(10, activation="softmax")(x))
        opt = hvd.DistributedOptimizer(
            keras.optimizers.SGD(learning_rate=initial_lr, momentum=0.9), compression=hvd.Compression.fp16
        )
        model.compile(loss=keras.losses.categorical_crossentropy, optimizer=opt,
                      metrics=["accuracy", "top_k_categorical_accuracy"])  # fmt: skip
    schedule = hvd.callbacks.LearningRateScheduleCallback
    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.MetricAverageCallback(),
        hvd.callbacks.LearningRateWarmupCallback(initial_lr=initial_lr, warmup_epochs=warmup, verbose=hvd.rank() == 0),
        schedule(initial_lr=initial_lr, multiplier=1.0, start_epoch=warmup, end_epoch=3),
        schedule(initial_lr=initial_lr, multiplier=1e-1, start_epoch=3, end_epoch=4),
        schedule(initial_lr=initial_lr, multiplier=lambda epoch: 1e-2, start_epoch=4),
    ]
    if hvd.rank() == 0:
        callbacks.append(keras.callbacks.ModelCheckpoint(f"{FOLDER}/resnet-{{epoch}}.keras"))
    x, y = IMAGES[hvd.rank() :: hvd.size(), ..., np.newaxis] / 255.0, keras.utils.to_categorical(LABELS, 10)
    y = y[hvd.rank() :: hvd.size()]
    history = model.fit(x, y, batch_size=32, steps_per_epoch=len(x) // 32, callbacks=callbacks, epochs=epochs,
                        verbose=0, initial_epoch=resume_from_epoch, validation_data=(x[:64], y[:64]))  # fmt: skip
    score = hvd.allreduce(model.evaluate(x, y, verbose=0))
    if hvd.rank() == 0:
        print("Test loss:", score[0])
    return model, history.history["lr"], score


@check
def imagenet_resnet50() -> dict[str, bool]:
    hvd.init()
    rate = 0.05 * hvd.size()
    first, rates, score = imagenet(3)
    hvd_tf.barrier()
    second, later, _ = imagenet(5, "resnet")
    return {
        "same": same(first) and same(second),
        "rates": bool(np.allclose(rates, [0.75 * rate, rate, rate])),
        "later": bool(np.allclose(later, [0.1 * rate, 0.01 * rate])),
        "score": len(score) == 3 and bool(np.ptp(hvd.allgather(np.array(score)[np.newaxis]), axis=0).max() == 0),
        "momentum": int(second.optimizer.iterations.numpy()) == 5 * 4,
    }


run(FOLDER, *sys.argv[2:])
