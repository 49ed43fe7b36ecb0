"""The examples run on two ranks, on little data, and learn something."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from support.launch import run_alone, run_ranks

pytestmark = pytest.mark.long

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
LENET = EXAMPLES / "lenet5" / "train.py"
RESNET = EXAMPLES / "resnet50" / "train.py"
TINY = ("--image_size", 32, "--batch_size", 4, "--train_num_samples", 10, "--val_num_samples", 4, "--train_epochs", 1)


def test_lenet_learns():
    sizes = ("-train", 3200, "-val", 300, "-test", 300)
    result = run_ranks(2, LENET, *sizes, "-e", 3, "--data_dir", "nowhere", timeout=200).good()
    assert "50/50" in result.stdout  # steps of 64 samples on both ranks together
    accuracy = float(re.search(r"accuracy ([\d.]+)$", result.stdout).group(1))
    assert accuracy > 0.8


def test_lenet_takes_mnist_where_it_is(tmp_path):
    rng = np.random.default_rng(0)
    kinds = {"train": 60, "test": 20}
    images = {f"x_{kind}": rng.integers(0, 256, (n, 28, 28), np.uint8) for kind, n in kinds.items()}
    digits = {f"y_{kind}": rng.integers(0, 10, n).astype(np.uint8) for kind, n in kinds.items()}
    np.savez(tmp_path / "mnist.npz", **images, **digits)
    sizes = ("-bs", 12, "-train", 48, "-val", 12, "-test", 20)
    result = run_alone(LENET, *sizes, "--data_dir", tmp_path, timeout=200).good()
    assert "4/4" in result.stdout
    assert "test loss" in result.stdout


def test_resnet_on_images_made_on_the_spot(tmp_path):
    result = run_ranks(
        2, RESNET, "--synthetic_data", "--profile_runtimes", "--print_freq", 2, "--profile_dir", tmp_path, *TINY, timeout=280
    ).good()
    assert "3/3" in result.stdout
    assert re.search(r"final .*val_top5 [\d.]+", result.stdout)
    assert "interval of 2 steps" in result.stdout
    assert (tmp_path / "runtimes.json").is_file()
    assert list(tmp_path.glob("train/events.*"))


RECORDS = """
    import sys
    from pathlib import Path
    import numpy as np
    import tensorflow as tf
    rng = np.random.default_rng(0)
    for kind, files in (("train", 3), ("validation", 1)):
        for file in range(files):
            with tf.io.TFRecordWriter(str(Path(sys.argv[1], f"{kind}-{file:05}-of-{files:05}"))) as writer:
                for n in range(4):
                    image = rng.integers(0, 256, (40 + n, 50, 3), np.uint8)
                    feature = {
                        "image/encoded": tf.train.Feature(
                            bytes_list=tf.train.BytesList(value=[tf.io.encode_jpeg(image).numpy()])
                        ),
                        "image/class/label": tf.train.Feature(int64_list=tf.train.Int64List(value=[4 * file + n + 1])),
                    }
                    writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())
    """


def test_resnet_on_records(tmp_path):
    run_alone(RECORDS, tmp_path, timeout=200).good()
    result = run_ranks(2, RESNET, "--data_dir", tmp_path, "--drop_remainder", *TINY, timeout=280).good()
    assert "2/2" in result.stdout
    # not a number of use after two steps of two samples on each rank
    assert re.search(r"final .*loss [\d.]+, .*val_loss ", result.stdout)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--synthetic_data", "--strategy", "all"], "pipelining is not available in this version: use --strategy data"),
        (["--synthetic_data", "--distribute", "tf"], "--distribute tf is not available"),
        ([], "nothing to train with: give --data_dir or --synthetic_data"),
    ],
)
def test_resnet_refuses(given, said):
    result = run_alone(RESNET, *given, timeout=100)
    assert result.code == 2, result.said
    assert said in result.stderr.splitlines()[-1]
