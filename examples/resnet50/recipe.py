"""What a network for images is trained with: the network itself, its loss, its learning rate, and what accompanies a `fit`."""

from __future__ import annotations

import argparse
from typing import Any

import tensorflow as tf

import tarantella as tnt

keras = tf.keras  # Keras 3, or legacy Keras with TF_USE_LEGACY_KERAS=1

ARCHITECTURES = {
    "resnet50": "ResNet50",
    "resnet101": "ResNet101",
    "resnet152": "ResNet152",
    **{f"efficientnetV2{size}": f"EfficientNetV2{size}" for size in ("B0", "B1", "B2", "B3", "S", "M", "L")},
    "tiny": "",  # for tests
}


class SmoothedLoss(keras.losses.Loss):
    """Cross-entropy with a target that is `smoothing` away from certain, of classes as numbers."""

    def __init__(self, smoothing: float = 0.0, name: str = "smoothed", **options: Any) -> None:
        super().__init__(name=name, **options)
        self.smoothing = smoothing

    def call(self, labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        logits = tf.cast(logits, tf.float32)
        labels = tf.reshape(tf.cast(labels, tf.int32), [-1])
        certain = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        spread = tf.reduce_logsumexp(logits, -1) - tf.reduce_mean(logits, -1)
        return (1 - self.smoothing) * certain + self.smoothing * spread

    def get_config(self) -> dict[str, Any]:
        return {"smoothing": self.smoothing, "name": self.name}


def network(args: argparse.Namespace) -> Any:
    """The network with logits in float32. Its BatchNormalization takes each rank's samples, or those of all ranks."""
    shape = (args.image_size, args.image_size, 3)
    if args.model_arch == "tiny":
        model = tiny(shape, args.classes)
    else:
        build = getattr(keras.applications, ARCHITECTURES[args.model_arch])
        model = build(weights=None, classes=args.classes, input_shape=shape, classifier_activation=None)
    if args.sync_batch_norm:
        plain, model = model, keras.models.clone_model(model, clone_function=synchronised)
        model.set_weights(plain.get_weights())  # a clone begins with other random numbers
    return keras.Model(model.inputs, keras.layers.Activation("linear", dtype="float32", name="logits")(model.outputs[0]))


def tiny(shape: tuple[int, int, int], classes: int) -> Any:
    layers = keras.layers
    convolution = layers.Conv2D(8, 3, strides=2, use_bias=False)
    parts = [convolution, layers.BatchNormalization(epsilon=1.0), layers.Activation("tanh"), layers.GlobalAveragePooling2D()]
    return keras.Sequential([layers.Input(shape), layers.Rescaling(0.01), *parts, layers.Dense(classes)])


def synchronised(layer: Any) -> Any:
    """A layer like this one; BatchNormalization with the statistics of the whole batch."""
    config = layer.get_config()
    if not isinstance(layer, keras.layers.BatchNormalization):
        return type(layer).from_config(config)
    config.pop("synchronized", None)
    return tnt.keras.layers.SyncBatchNormalization(**config)


def learning_rate(args: argparse.Namespace, steps_per_epoch: int) -> Any:
    """Up for the first epochs, then down: at the 30th, 60th and 80th, or along a cosine to the end."""
    full = args.base_rate * args.batch_size / 256
    if args.schedule == "steps":
        of_one_rank = full / tnt.get_size()
        return tnt.keras.schedules.PiecewiseConstantDecayWithWarmup(
            of_one_rank, steps_per_epoch, warmup_epochs=args.warmup_epochs
        )
    warmup = args.warmup_epochs * steps_per_epoch
    total = max(1, args.train_epochs * steps_per_epoch - warmup)
    rising = {"warmup_target": full, "warmup_steps": warmup} if warmup else {}
    return keras.optimizers.schedules.CosineDecay(0.0 if warmup else full, total, **rising)


def optimizer(args: argparse.Namespace, steps_per_epoch: int) -> Any:
    several = args.gradient_accumulation_steps if args.gradient_accumulation_steps > 1 else None
    rate = learning_rate(args, steps_per_epoch)
    return keras.optimizers.SGD(rate, momentum=0.9, gradient_accumulation_steps=several)


def callbacks(args: argparse.Namespace) -> tuple[list[Any], Any]:
    """Those of `fit`, and the one that measures times, if asked for."""
    found, times = [], None
    if args.checkpoint_dir:
        found.append(tnt.callbacks.Checkpoint(args.checkpoint_dir, every_steps=args.checkpoint_steps, every_epochs=1, keep=2))
    if args.profile_runtimes:
        times = tnt.callbacks.TimeHistory(args.batch_size, args.logging_freq)
        found += [times, tnt.callbacks.TimeHistory(args.batch_size, args.print_freq, verbose=1)]
    if args.profile_dir:
        found.append(keras.callbacks.TensorBoard(args.profile_dir, profile_batch=args.profile or 0))
    return found, times
