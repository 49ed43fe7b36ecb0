"""Damaged records, found before a training begins: each with its file and number.

A record is damaged if its checksum is wrong or the file ends in it, if it is no image with a class, or if its JPEG has no end.
Ranks share the files. All of the data is read once, but no image is decoded; `--damaged unchecked` saves that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import tensorflow as tf

import tarantella as tnt

FEATURES = {
    "image/encoded": tf.io.FixedLenFeature([], tf.string),
    "image/class/label": tf.io.FixedLenFeature([], tf.int64),
}


class DataError(Exception):
    """Data that cannot be used, in one sentence."""


@dataclass
class Check:
    """What is wrong with a file: numbers of single records, and from which on it cannot be read."""

    damaged: list[int] = field(default_factory=list)
    end: int | None = None
    reasons: list[str] = field(default_factory=list)


def check_file(file: str, classes: int) -> Check:
    """Reads the file to its end."""
    found, number = Check(), 0
    try:
        for record in tf.data.TFRecordDataset(file):
            if reason := wrong(record, classes):
                found.damaged.append(number)
                found.reasons.append(f"{file}: record {number} {reason}")
            number += 1
    except tf.errors.DataLossError:
        found.end = number
        found.reasons.append(f"{file}: record {number} has a wrong checksum or is cut off, and what follows cannot be read")
    return found


def wrong(record: tf.Tensor, classes: int) -> str:
    """What is wrong with a record, or nothing."""
    try:
        parsed = tf.io.parse_single_example(record, FEATURES)
    except tf.errors.InvalidArgumentError:
        return "has no image/encoded or no image/class/label"
    jpeg, label = parsed["image/encoded"].numpy(), int(parsed["image/class/label"])
    if not 1 <= label <= classes:
        return f"has the class {label}, not one from 1 to {classes} (--classes)"
    try:
        tf.io.extract_jpeg_shape(jpeg)
    except tf.errors.InvalidArgumentError:
        return "is no JPEG"
    return "" if jpeg.rstrip(b"\0")[-2:] == b"\xff\xd9" else "is a JPEG without its end"


def check(files: Sequence[str], classes: int, damaged: str) -> dict[str, Check]:
    """The checks of the files that have damage, on every rank. damaged: "refuse" raises DataError if there is any."""
    rank, size = tnt.get_rank(), tnt.get_size()
    mine = {file: vars(check_file(file, classes)) for file in files[rank::size]}
    found = {}
    for root in range(size):
        found |= tnt.broadcast_object(mine if root == rank else None, root=root)
    checks = {file: Check(**content) for file, content in sorted(found.items()) if content["reasons"]}
    reasons = [reason for each in checks.values() for reason in each.reasons]
    if reasons and damaged == "refuse":
        more = f", and {len(reasons) - 1} more are damaged" if len(reasons) > 1 else ""
        raise DataError(f"{reasons[0]}{more}: mend the data, or leave such records out by --damaged skip")
    if tnt.is_master_rank():
        print(*(f"skipped: {reason}" for reason in reasons), sep="\n", end="\n" if reasons else "", flush=True)
    return checks


def readable(file: tf.Tensor, checks: dict[str, Check]) -> tf.data.Dataset:
    """The records of a file without those that were found damaged."""
    data = tf.data.TFRecordDataset(file)
    if not checks:
        return data
    ends = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(list(checks), [-1 if each.end is None else each.end for each in checks.values()]),
        -1,
    )
    keys = [f"{name}\n{number}" for name, each in checks.items() for number in each.damaged] or ["\n"]
    gone = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, [1] * len(keys)), 0)
    numbered = data.take(tf.cast(ends.lookup(file), tf.int64)).enumerate()
    kept = numbered.filter(lambda number, _: gone.lookup(tf.strings.join([file, tf.strings.as_string(number)], "\n")) == 0)
    return kept.map(lambda _, record: record)


def files_of(folder: str, kind: str) -> list[str]:
    """The files ``train-*`` or ``validation-*`` of a folder."""
    files = sorted(map(str, Path(folder).glob(f"{kind}-*")))
    if not files:
        raise DataError(f"{folder} has no files {kind}-*: name a folder of TFRecords by --data_dir, or make one by convert.py")
    return files
