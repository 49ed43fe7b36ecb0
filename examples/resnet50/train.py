"""ResNet-50, or another of Keras' networks for images, on ImageNet or on images made on the spot.

    tarantella -n 4 -- train.py --data_dir IMAGENET --batch_size 256
    tarantella -n 2 -- train.py --synthetic_data --batch_size 4 --train_num_samples 8 --val_num_samples 4 --train_epochs 1

``IMAGENET`` has TFRecords: files ``train-*`` and ``validation-*``. `convert.py` makes such of a folder of images. Augmentation
is drawn by the number of an image, so any number of ranks trains with the same images. With ``--checkpoint_dir``, a training
that is started again goes on with its next step. Damaged records are named with their files: they are refused, or left
out (``--damaged skip``).
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path

import tensorflow as tf
from images import datasets
from recipe import ARCHITECTURES, SmoothedLoss, callbacks, network, optimizer
from records import DataError

import tarantella as tnt

keras = tf.keras  # Keras 3, or legacy Keras with TF_USE_LEGACY_KERAS=1


def steps_to_profile(text: str) -> tuple[int, int]:
    first, _, last = text.partition(",")
    if not (first.isdigit() and (last or first).isdigit() and 1 <= int(first) <= int(last or first)):
        raise argparse.ArgumentTypeError(f"{text} is not FIRST,LAST: give numbers of steps, such as 5,10")
    return int(first), int(last or first)


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
    parser.add_argument("--schedule", choices=("steps", "cosine"), default="steps", help="how the learning rate falls")
    parser.add_argument("--warmup_epochs", type=int, default=5)
    parser.add_argument("--gradient_accumulation_steps", type=int, default=1, help="steps from one update to the next")
    parser.add_argument("--label_smoothing", type=float, default=0.0)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--damaged", choices=("refuse", "skip", "unchecked"), default="refuse", help="records that are damaged")
    parser.add_argument("--dtype", choices=("float32", "mixed_bfloat16", "mixed_float16"), default="float32")
    parser.add_argument(
        "--sync_batch_norm", action=argparse.BooleanOptionalAction, default=False, help="statistics of all ranks"
    )
    parser.add_argument("--checkpoint_dir", help="folder from which the training goes on when it is started again")
    parser.add_argument("--checkpoint_steps", type=int, help="steps from one checkpoint to the next, beside those of epochs")
    parser.add_argument("--profile", type=steps_to_profile, metavar="FIRST,LAST", help="steps that TensorBoard profiles")
    args = parser.parse_args()
    if args.strategy != "data" or args.num_pipeline_stages != 1 or args.num_partitions != 1:
        parser.error("pipelining is not available in this version: use --strategy data, without stages and partitions")
    if args.distribute not in ("tnt", "None"):
        parser.error(f"--distribute {args.distribute} is not available: use tnt, or None for plain Keras on one device")
    if not args.synthetic_data and args.data_dir is None:
        parser.error("nothing to train with: give --data_dir or --synthetic_data")
    if args.distribute == "None" and (args.checkpoint_dir or args.sync_batch_norm):
        parser.error("--checkpoint_dir and --sync_batch_norm need --distribute tnt")
    if args.gradient_accumulation_steps < 1:
        parser.error(f"--gradient_accumulation_steps {args.gradient_accumulation_steps}: give 1 or more")
    if args.profile and not args.profile_dir:
        parser.error("--profile needs a folder: give --profile_dir")
    return args


def main() -> None:
    args = arguments()
    keras.utils.set_random_seed(args.shuffle_seed)
    if args.dtype != "float32":
        keras.mixed_precision.set_global_policy(args.dtype)
    try:
        train, validation = datasets(args)
    except DataError as error:
        if tnt.is_master_rank():
            print(f"train.py: {error}", file=sys.stderr)
        sys.exit(2)
    steps = (math.floor if args.drop_remainder else math.ceil)(args.train_num_samples / args.batch_size)

    model = network(args)
    if args.distribute == "tnt":
        model = tnt.Model(model)
    model.compile(
        optimizer=optimizer(args, steps),
        loss=SmoothedLoss(args.label_smoothing),
        metrics=["accuracy", keras.metrics.SparseTopKCategoricalAccuracy(5, name="top5")],
    )

    accompanying, times = callbacks(args)
    history = model.fit(
        train,
        epochs=args.train_epochs,
        validation_data=validation,
        validation_freq=args.val_freq,
        callbacks=accompanying,
        verbose=args.verbose,
    ).history

    if tnt.is_master_rank():
        print("final " + ", ".join(f"{name} {values[-1]:.4f}" for name, values in history.items()))
        if times is not None and args.profile_dir:
            Path(args.profile_dir, "runtimes.json").write_text(json.dumps(times.intervals))


if __name__ == "__main__":
    main()
