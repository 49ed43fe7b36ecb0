"""examples/resnet50: its data, what it refuses, and the training with all it has, on ranks and in plain Keras."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.launch import run_alone, run_ranks

pytestmark = pytest.mark.long

EXAMPLE = Path(__file__).resolve().parents[3] / "examples/resnet50"
RESNET, CONVERT = EXAMPLE / "train.py", EXAMPLE / "convert.py"
TINY = ("--image_size", 32, "--batch_size", 4, "--train_num_samples", 10, "--val_num_samples", 4, "--train_epochs", 1)


def test_resnet_on_images_made_on_the_spot(tmp_path):
    result = run_ranks(
        2, RESNET, "--synthetic_data", "--profile_runtimes", "--print_freq", 2, "--profile_dir", tmp_path, *TINY, timeout=280
    ).good()
    assert "3/3" in result.stdout
    assert re.search(r"final .*val_top5 [\d.]+", result.stdout)
    assert "interval of 2 steps" in result.stdout
    assert (tmp_path / "runtimes.json").is_file()
    assert list(tmp_path.glob("train/events.*"))


IMAGES = """
    import sys
    from pathlib import Path
    import numpy as np
    import tensorflow as tf
    from sklearn.datasets import load_sample_images
    rng = np.random.default_rng(0)
    for kind in ("train", "validation"):
        for name, n in (("cat", 5), ("dog", 7), ("photo", 2)):
            folder = Path(sys.argv[1], kind, name)
            folder.mkdir(parents=True)
            for number in range(n):
                image = rng.integers(0, 120, (40 + number, 50, 3), np.uint8) + np.uint8(100 * (name == "dog"))
                if name == "photo":
                    image = load_sample_images().images[number][::4, ::4]
                encoded = tf.io.encode_jpeg(image) if number else tf.io.encode_png(image[..., :1])  # one is grey and no JPEG
                (folder / f"{number}.{'jpg' if number else 'png'}").write_bytes(encoded.numpy())
    (Path(sys.argv[1]) / "validation/dog/7.jpg").write_bytes(b"no image")
    """


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images made on the spot and scikit-learn's two, converted: three files of each part."""
    folder = tmp_path_factory.mktemp("images")
    run_alone(IMAGES, folder / "images", timeout=60).good()
    done = run_alone(CONVERT, folder / "images", folder / "records", "--files", 3, timeout=60).good()
    assert "validation/dog/7.jpg is no image that can be read: skipped" in done.stderr
    part = ": 14 images of 3 classes in 3 files, "
    assert done.stdout == f"train{part}0 skipped\nvalidation{part}1 skipped\n"
    assert (folder / "records/classes.txt").read_text().split() == ["cat", "dog", "photo"]
    return folder / "records"


SMALL = ("--model_arch", "tiny", "--image_size", 24, "--classes", 3, "--batch_size", 5, "--base_rate", 1, "--warmup_epochs", 1)
NUMBERS = ("--train_num_samples", 14, "--val_num_samples", 14, "--verbose", 0)


def final(stdout: str) -> dict[str, float]:
    (line,) = (line for line in stdout.splitlines() if line.startswith("final "))
    return {name: float(value) for name, value in re.findall(r"(\w+) (-?[\d.]+)", line.removeprefix("final "))}


def test_any_number_of_ranks_is_plain_keras(records: Path, tmp_path: Path) -> None:
    """Augmentation, smoothing, accumulation, statistics of all ranks; two epochs on two ranks, and the third on one."""
    recipe = ("--label_smoothing", 0.1, "--gradient_accumulation_steps", 2)
    data = ("--data_dir", records, *SMALL, *NUMBERS, *recipe)
    ours = (*data, "--sync_batch_norm", "--checkpoint_dir", tmp_path / "checkpoints")
    with ThreadPoolExecutor(1) as pool:
        serial = pool.submit(run_alone, RESNET, *data, "--train_epochs", 3, "--distribute", "None", timeout=60)
        run_ranks(2, RESNET, *ours, "--train_epochs", 2, timeout=60).good()
        found = final(run_ranks(1, RESNET, *ours, "--train_epochs", 3, timeout=60).good().stdout)
        truth = final(serial.result().good().stdout)
    assert found.keys() == truth.keys() and len(found) == 6
    assert found == pytest.approx(truth, abs=3e-4)


def broken(records: Path, folder: Path) -> Path:
    """The records with one that is no JPEG's, and a file that is cut off."""
    folder.mkdir()
    for file in records.glob("*-of-*"):
        (folder / file.name).write_bytes(file.read_bytes())
    cut = folder / "train-00002-of-00003"
    cut.write_bytes(cut.read_bytes()[:-20])
    script = """
        import sys, tensorflow as tf
        record = tf.train.Example()
        record.features.feature["image/encoded"].bytes_list.value.append(b"nothing")
        record.features.feature["image/class/label"].int64_list.value.append(1)
        kept = [each.numpy() for each in tf.data.TFRecordDataset(sys.argv[1])]
        with tf.io.TFRecordWriter(sys.argv[1]) as writer:
            for each in [kept[0], record.SerializeToString(), *kept[1:]]:
                writer.write(each)
        """
    run_alone(script, folder / "train-00000-of-00003", timeout=60).good()
    return folder


def test_damaged_records_are_named(records: Path, tmp_path: Path) -> None:
    """The training is refused, or goes on without them."""
    folder = broken(records, tmp_path / "broken")
    words = ("--data_dir", folder, *SMALL, *NUMBERS, "--train_epochs", 1)
    refused = run_ranks(2, RESNET, *words, timeout=60)
    assert refused.code == 2, refused.said
    said = "train-00000-of-00003: record 1 is no JPEG, and 1 more are damaged: mend the data, or leave such records out by"
    assert said in refused.stderr and "Traceback" not in refused.stderr, refused.said
    recipe = ("--damaged", "skip", "--schedule", "cosine", "--dtype", "mixed_bfloat16")
    result = run_ranks(2, RESNET, *words, *recipe, timeout=60).good()
    lines = [line for line in result.stdout.splitlines() if line.startswith("skipped: ")]
    assert len(lines) == 2 and lines[0].endswith("train-00000-of-00003: record 1 is no JPEG")
    cut = r"train-00002-of-00003: record \d has a wrong checksum or is cut off, and what follows cannot be read$"
    assert re.search(cut, lines[1])
    assert final(result.stdout)["loss"] > 0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--synthetic_data", "--strategy", "all"], "pipelining is not available in this version: use --strategy data"),
        (["--synthetic_data", "--distribute", "tf"], "--distribute tf is not available"),
        (["--synthetic_data", "--profile", "2,3"], "--profile needs a folder: give --profile_dir"),
        (["--data_dir", "nowhere"], "nowhere has no files train-*: name a folder of TFRecords by --data_dir"),
        ([], "nothing to train with: give --data_dir or --synthetic_data"),
    ],
)
def test_resnet_refuses(given, said):
    result = run_alone(RESNET, *given, timeout=100)
    assert result.code == 2, result.said
    assert said in result.stderr.splitlines()[-1]
