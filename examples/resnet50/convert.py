"""Makes TFRecords in ImageNet's layout of a folder of images, which has a folder for each class.

    python convert.py photos records --files 8
    tarantella -n 2 -- train.py --data_dir records --classes 12 --train_num_samples 9000 --val_num_samples 1000

``photos/cat/1.jpg`` has the class ``cat``. Classes are numbered from 1, in the order of their names (``records/classes.txt``).
If there are ``photos/train`` and ``photos/validation``, these are the two parts. Otherwise a tenth is for validation.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path

import tensorflow as tf

ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".gif")
PARTS = ("train", "validation")


def images(folder: Path) -> dict[str, list[tuple[Path, str]]]:
    """The files of each part with the names of their classes."""
    if all((folder / part).is_dir() for part in PARTS):
        return {part: list(_classified(folder / part)) for part in PARTS}
    found: dict[str, list[tuple[Path, str]]] = {part: [] for part in PARTS}
    for file, name in _classified(folder):
        found["validation" if _held_back(f"{name}/{file.name}") else "train"].append((file, name))
    return found


def _classified(folder: Path) -> Iterator[tuple[Path, str]]:
    for name in sorted(path.name for path in folder.iterdir() if path.is_dir()):
        for file in sorted((folder / name).rglob("*")):
            if file.suffix.lower() in ENDINGS:
                yield file, name


def _held_back(name: str) -> bool:
    """Of the name alone, so that a further image changes the part of no other."""
    return hashlib.sha256(name.encode()).digest()[0] < 26  # of 256


def jpeg(file: Path) -> tuple[bytes, tuple[int, int]]:
    """The image as a JPEG in colours, and its height and width. Raises InvalidArgumentError if it is none."""
    content = file.read_bytes()
    image = tf.io.decode_image(content, channels=3, expand_animations=False)
    if not tf.io.is_jpeg(content) or int(tf.io.extract_jpeg_shape(content)[2]) != 3:
        content = tf.io.encode_jpeg(image, quality=95).numpy()
    return content, (int(image.shape[0]), int(image.shape[1]))


def example(content: bytes, shape: tuple[int, int], label: int, name: str, file: str) -> bytes:
    """A record with ImageNet's names."""

    def numbers(*values: int) -> tf.train.Feature:
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))

    def text(value: bytes) -> tf.train.Feature:
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))

    feature = {
        "image/encoded": text(content),
        "image/format": text(b"JPEG"),
        "image/height": numbers(shape[0]),
        "image/width": numbers(shape[1]),
        "image/filename": text(file.encode()),
        "image/class/label": numbers(label),
        "image/class/text": text(name.encode()),
    }
    return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()


def write(found: list[tuple[Path, str]], labels: dict[str, int], folder: Path, part: str, files: int) -> tuple[int, int]:
    """The records of a part, in turn in each of its files. Returns how many there are, and how many images were skipped."""
    names = [folder / f"{part}-{number:05}-of-{files:05}" for number in range(files)]
    writers = [tf.io.TFRecordWriter(str(name)) for name in names]
    written = 0
    for file, name in found:
        try:
            content, shape = jpeg(file)
        except tf.errors.InvalidArgumentError:
            print(f"convert.py: {file} is no image that can be read: skipped", file=sys.stderr)
            continue
        writers[written % files].write(example(content, shape, labels[name], name, file.name))
        written += 1
    for writer in writers:
        writer.close()
    return written, len(found) - written


def main() -> None:
    parser = argparse.ArgumentParser(description="Makes TFRecords of a folder of images.")
    parser.add_argument("images", type=Path, help="folder with a folder for each class")
    parser.add_argument("records", type=Path, help="folder to write to")
    parser.add_argument("--files", type=int, default=8, help="files of each part")
    args = parser.parse_args()
    if args.files < 1 or not args.images.is_dir():
        parser.error(f"--files {args.files} must be at least 1" if args.files < 1 else f"{args.images} is no folder")
    found = images(args.images)
    if not found["train"]:
        sys.exit(f"convert.py: {args.images} has no images: it needs a folder for each class, with {', '.join(ENDINGS)}")
    if not found["validation"]:  # of a handful
        found["validation"] = found["train"][-1:]
        print("convert.py: so few images: the last one is also the one for validation", file=sys.stderr)
    labels = {name: number for number, name in enumerate(sorted({name for part in found.values() for _, name in part}), 1)}
    args.records.mkdir(parents=True, exist_ok=True)
    (args.records / "classes.txt").write_text("".join(f"{name}\n" for name in labels))
    for part, some in found.items():
        written, skipped = write(some, labels, args.records, part, args.files)
        print(f"{part}: {written} images of {len(labels)} classes in {args.files} files, {skipped} skipped")


if __name__ == "__main__":
    main()
