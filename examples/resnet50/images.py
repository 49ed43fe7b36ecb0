"""Images to classify: ImageNet's from TFRecords, or some that are made on the spot.

Every rank makes the same batches, so whatever is random is drawn by the number of the image, never by the order of threads.
"""

from __future__ import annotations

import argparse
from functools import partial

import tensorflow as tf
from records import FEATURES, check, files_of, readable

MEANS = (123.68, 116.78, 103.94)  # of ImageNet's red, green and blue

Sample = tuple[tf.Tensor, tf.Tensor]


def datasets(args: argparse.Namespace) -> tuple[tf.data.Dataset, tf.data.Dataset]:
    """Training and validation in batches of the global size: float32 of (batch, size, size, 3), int64 of (batch,)."""
    if args.synthetic_data:
        train, validation = (made(n, args) for n in (args.train_num_samples, args.val_num_samples))
    else:
        train, validation = (records(args, kind) for kind in ("train", "validation"))
    options = {"drop_remainder": args.drop_remainder}
    return tuple(data.batch(args.batch_size, **options).prefetch(2) for data in (train, validation))  # type: ignore[return-value]


def made(n: int, args: argparse.Namespace) -> tf.data.Dataset:
    """n images of noise, each class in its own colour."""

    size = args.image_size

    def image(number: tf.Tensor) -> Sample:
        label = number % args.classes
        colour = tf.random.stateless_uniform([3], tf.stack([label, 0]), -100.0, 100.0)
        return colour + tf.random.stateless_normal([size, size, 3], tf.stack([number, 1]), stddev=30.0), label

    return tf.data.Dataset.range(n).map(image, num_parallel_calls=tf.data.AUTOTUNE)


def records(args: argparse.Namespace, kind: str) -> tf.data.Dataset:
    """The images in the files ``train-*`` or ``validation-*`` of the folder."""
    files = files_of(args.data_dir, kind)
    read = partial(readable, checks=check(files, args.classes, args.damaged) if args.damaged != "unchecked" else {})
    if kind == "validation":
        data = tf.data.Dataset.from_tensor_slices(files).flat_map(read).take(args.val_num_samples)
        return data.map(lambda record: whole(record, args.image_size), num_parallel_calls=tf.data.AUTOTUNE)
    shuffled = tf.data.Dataset.from_tensor_slices(files).shuffle(len(files), seed=args.shuffle_seed)
    data = shuffled.interleave(read, cycle_length=10, num_parallel_calls=2, deterministic=True)
    numbered = data.take(args.train_num_samples).shuffle(10000, seed=args.shuffle_seed).enumerate()
    return numbered.map(
        lambda number, record: part(record, args.image_size, tf.stack([args.shuffle_seed, number])),
        num_parallel_calls=tf.data.AUTOTUNE,
    )


def parsed(record: tf.Tensor) -> Sample:
    """The JPEG of a record and its class, which ImageNet counts from 1."""
    found = tf.io.parse_single_example(record, FEATURES)
    return found["image/encoded"], found["image/class/label"] - 1


def part(record: tf.Tensor, size: int, seed: tf.Tensor) -> Sample:
    """A random part of an image, perhaps mirrored."""
    jpeg, label = parsed(record)
    begin, extent, _ = tf.image.stateless_sample_distorted_bounding_box(
        tf.io.extract_jpeg_shape(jpeg),
        tf.constant([[[0.0, 0.0, 1.0, 1.0]]]),
        seed,
        min_object_covered=0.1,
        aspect_ratio_range=(0.75, 1.33),
        area_range=(0.05, 1.0),
        max_attempts=100,
    )
    image = tf.image.decode_and_crop_jpeg(jpeg, tf.concat([begin[:2], extent[:2]], 0), channels=3)
    image = tf.image.stateless_random_flip_left_right(image, seed)
    return normalised(tf.image.resize(image, (size, size))), label


def whole(record: tf.Tensor, size: int) -> Sample:
    """The middle of an image."""
    jpeg, label = parsed(record)
    image = tf.image.central_crop(tf.image.decode_jpeg(jpeg, channels=3), 0.875)
    return normalised(tf.image.resize(image, (size, size))), label


def normalised(image: tf.Tensor) -> tf.Tensor:
    return tf.ensure_shape(image, (None, None, 3)) - tf.constant(MEANS)
