"""ResNet-50, or another of Keras' networks for images, on ImageNet or on images made on the spot.

    tarantella -n 4 -- train.py --data_dir IMAGENET --batch_size 256
    tarantella -n 2 -- train.py --synthetic_data --batch_size 4 --train_num_samples 8 --val_num_samples 4 --train_epochs 1

``IMAGENET`` has TFRecords: files ``train-*`` and ``validation-*``.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

import tensorflow as tf
from images import CLASSES, datasets

import tarantella as tnt

keras = tf.keras  # Keras 3, or legacy Keras with TF_USE_LEGACY_KERAS=1

ARCHITECTURES = {
    "resnet50": "ResNet50",
    "resnet101": "ResNet101",
    "resnet152": "ResNet152",
    **{f"efficientnetV2{size}": f"EfficientNetV2{size}" for size in ("B0", "B1", "B2", "B3", "S", "M", "L")},
}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Trains a network for images.")
    parser.add_argument("--data_dir", help="folder with ImageNet's TFRecords")
    parser.add_argument("--synthetic_data", action=argparse.BooleanOptionalAction, default=False, help="make images instead")
    parser.add_argument("--batch_size", type=int, default=128, help="of all ranks together")
    parser.add_argument("--train_epochs", type=int, default=90)
    parser.add_argument("--train_num_samples", type=int, default=1281167)
    parser.add_argument("--val_num_samples", type=int, default=50000)
    parser.add_argument("--shuffle_seed", type=int, default=42)
    parser.add_argument("--val_freq", type=int, default=1, help="epochs from one validation to the next")
    parser.add_argument("--verbose", type=int, default=2, choices=(0, 1, 2))
    parser.add_argument("--profile_dir", help="folder for TensorBoard, and for runtimes.json with --profile_runtimes")
    parser.add_argument("--logging_freq", type=int, default=10, help="steps of which a time is kept together")
    parser.add_argument("--print_freq", type=int, default=30, help="steps of which a time is printed together")
    parser.add_argument("--profile_runtimes", action=argparse.BooleanOptionalAction, default=False, help="measure samples/s")
    parser.add_argument("--distribute", default="tnt", help="tnt, or None for plain Keras on one device")
    parser.add_argument("--model_arch", default="resnet50", choices=ARCHITECTURES)
    parser.add_argument("--strategy", default="data", help="data")
    parser.add_argument("--num_pipeline_stages", type=int, default=1, help="1")
    parser.add_argument("--num_partitions", type=int, default=1, help="1")
    parser.add_argument("--drop_remainder", action=argparse.BooleanOptionalAction, default=False, help="no shorter last batch")
    parser.add_argument("--image_size", type=int, default=224, help="pixels of each side")
    parser.add_argument("--base_rate", type=float, default=0.1, help="learning rate for 256 samples")
    args = parser.parse_args()
    if args.strategy != "data" or args.num_pipeline_stages != 1 or args.num_partitions != 1:
        parser.error("pipelining is not available in this version: use --strategy data, without stages and partitions")
    if args.distribute not in ("tnt", "None"):
        parser.error(f"--distribute {args.distribute} is not available: use tnt, or None for plain Keras on one device")
    if not args.synthetic_data and args.data_dir is None:
        parser.error("nothing to train with: give --data_dir or --synthetic_data")
    return args


def schedule(args: argparse.Namespace, steps_per_epoch: int) -> Any:
    """That of ResNet-50: up for five epochs, then down at the 30th, 60th and 80th."""
    of_one_rank = args.base_rate * args.batch_size / tnt.get_size() / 256
    return tnt.keras.schedules.PiecewiseConstantDecayWithWarmup(of_one_rank, steps_per_epoch)


def main() -> None:
    args = arguments()
    keras.utils.set_random_seed(args.shuffle_seed)
    train, validation = datasets(args)
    steps = (math.floor if args.drop_remainder else math.ceil)(args.train_num_samples / args.batch_size)

    network = getattr(keras.applications, ARCHITECTURES[args.model_arch])
    model = network(weights=None, classes=CLASSES, input_shape=(args.image_size, args.image_size, 3))
    if args.distribute == "tnt":
        model = tnt.Model(model)
    model.compile(
        optimizer=keras.optimizers.SGD(schedule(args, steps), momentum=0.9),
        loss=keras.losses.SparseCategoricalCrossentropy(),
        metrics=["accuracy", keras.metrics.SparseTopKCategoricalAccuracy(5, name="top5")],
    )

    callbacks, times = [], None
    if args.profile_runtimes:
        times = tnt.callbacks.TimeHistory(args.batch_size, args.logging_freq)
        callbacks += [times, tnt.callbacks.TimeHistory(args.batch_size, args.print_freq, verbose=1)]
    if args.profile_dir:
        callbacks.append(keras.callbacks.TensorBoard(args.profile_dir))
    history = model.fit(
        train,
        epochs=args.train_epochs,
        validation_data=validation,
        validation_freq=args.val_freq,
        callbacks=callbacks,
        verbose=args.verbose,
    ).history

    if tnt.is_master_rank():
        print("final " + ", ".join(f"{name} {values[-1]:.4f}" for name, values in history.items()))
        if times is not None and args.profile_dir:
            Path(args.profile_dir, "runtimes.json").write_text(json.dumps(times.intervals))


if __name__ == "__main__":
    main()
