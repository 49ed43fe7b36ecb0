"""examples/transformer: the same training on any number of ranks, its translations, its data, and what it refuses."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import h5py
import pytest

from support.launch import Result, run_alone, run_ranks

for package in ("babel", "sacrebleu", "tokenizers"):
    pytest.importorskip(package, reason=f"{package} is not installed: pip install tarantella[translation]")

pytestmark = pytest.mark.long

EXAMPLE = Path(__file__).resolve().parents[3] / "examples/transformer"
TRAIN, TRANSLATE, CATALOGUES = (EXAMPLE / f"{name}.py" for name in ("train", "translate", "catalogues"))
TINY = ("--param_set", "tiny", "--dropout", 0, "--max_length", 16, "--batch_size", 160, "--warmup_steps", 9)
WORDS = {"file": "Datei", "door": "Tür", "open": "öffne", "close": "schließe", "the": "die", "old": "alte", "new": "neue"}


LEGACY = {"TF_USE_LEGACY_KERAS": "1"}
ALL = os.environ.get("ALL_EXAMPLES") == "1"  # a run of all ways takes a minute

Runs = dict[str, tuple[Path, Result]]


def sentences(n: int) -> tuple[list[str], list[str]]:
    """Of the words in turn, from one to six."""
    english = [[list(WORDS)[(i * 5 + j * (i % 3 + 1)) % len(WORDS)] for j in range(1 + i % 6)] for i in range(n)]
    return [" ".join(words) for words in english], [" ".join(WORDS[word] for word in words) for words in english]


def write(folder: Path, **lines: list[str]) -> Path:
    folder.mkdir(exist_ok=True)
    for name, text in lines.items():
        (folder / name.replace("_", ".")).write_text("".join(f"{line}\n" for line in text))
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sentences, one of them longer than the model."""
    english, german = sentences(100)
    english[7] = german[7] = "file " * 30
    parts = {"train": slice(0, 80), "validation": slice(80, 89), "test": slice(89, 100)}
    lines = {f"{name}_en": english[part] for name, part in parts.items()}
    lines |= {f"{name}_de": german[part] for name, part in parts.items()}
    return write(tmp_path_factory.mktemp("data"), **lines)


@pytest.fixture(scope="module")
def runs(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Three epochs in several ways, side by side: the folder and what was printed."""
    folder = tmp_path_factory.mktemp("models")

    def train(name: str, ranks: int, *options: object, env: dict[str, str] | None = None) -> tuple[Path, Result]:
        words = (*TINY, "--data_dir", data, "--model_dir", folder / name, *options)
        job = run_ranks(ranks, TRAIN, *words, env=env, timeout=100) if ranks else run_alone(TRAIN, *words, env=env, timeout=100)
        return folder / name, job.good()

    with ThreadPoolExecutor(2) as pool:
        serial = pool.submit(train, "serial", 0, "--train_epochs", 2, "--distribute", "None")
        found = {"by hand": train("ours", 2, "--train_epochs", 1, "--no-auto_data_dist")}
        found["resumed"] = train("ours", 1, "--train_epochs", 2)
        if ALL:
            found |= {f"{ranks} ranks": train(f"{ranks}", ranks, "--train_epochs", 2) for ranks in (2, 4)}
            found["legacy serial"] = train("legacy0", 0, "--train_epochs", 2, "--distribute", "None", env=LEGACY)
            found["legacy"] = train("legacy2", 2, "--train_epochs", 2, env=LEGACY)
        return {"serial": serial.result(), **found}


def history(folder: Path) -> list[dict[str, float]]:
    return list(json.loads((folder / "history.json").read_text()).values())


@pytest.mark.parametrize(
    ("way", "truth"),
    [("resumed", "serial"), *((way, "serial") for way in ("2 ranks", "4 ranks") if ALL), *[("legacy", "legacy serial")] * ALL],
)
def test_every_way_is_the_serial_training(runs: Runs, way: str, truth: str) -> None:
    """Each epoch's figures. The resumed training had its first epoch on two ranks with data by hand, its second on one."""
    serial, ours = history(runs[truth][0]), history(runs[way][0])
    assert len(ours) == len(serial) == 2
    assert serial[1]["train_cross_entropy"] < 0.8 * serial[0]["train_cross_entropy"], "it does not learn"
    for mine, wanted in zip(ours, serial, strict=True):
        for name in ("train_cross_entropy", "cross_entropy", "accuracy", "bleu"):
            assert mine[name] == pytest.approx(wanted[name], rel=2e-4), (name, ours, serial)


def test_reproducible_has_the_same_bits_on_any_number_of_ranks(data: Path, tmp_path: Path) -> None:
    """With dropout: figures of the epoch, BLEU among them, and all weights."""

    def train(ranks: int) -> tuple[dict[str, float], dict[str, str]]:
        folder = tmp_path / str(ranks)
        words = (*TINY, "--dropout", 0.1, "--data_dir", data, "--model_dir", folder, "--train_epochs", 1, "--beam_size", 1)
        run_ranks(ranks, TRAIN, *words, env={"TNT_REPRODUCIBLE": "2"}, timeout=100).good()
        (figures,) = history(folder)
        del figures["tokens_per_second"]
        return figures, hashes(folder / "transformer.weights.h5")

    with ThreadPoolExecutor(2) as pool:
        (truth, weights), (figures, ours) = pool.map(train, (1, 2))
    assert figures == truth
    assert ours == weights and len(weights) > 10


def hashes(file: Path) -> dict[str, str]:
    """SHA-256 of each array in a file of weights, by its name."""
    found: dict[str, str] = {}

    def visit(name: str, node: h5py.Group | h5py.Dataset) -> None:
        if isinstance(node, h5py.Dataset):
            found[name] = hashlib.sha256(node[()].tobytes()).hexdigest()

    with h5py.File(file) as stored:
        stored.visititems(visit)
    return found


def test_what_it_prints(runs: Runs) -> None:
    lines = runs["by hand"][1].stdout.splitlines()
    assert re.match(r"train: 79 sentences, \d+ tokens, 1 skipped that are longer than --max_length 16 tokens$", lines[0])
    epoch = r"epoch 1: cross-entropy \d\S+, \d+ tokens/s; validation: cross-entropy .*, accuracy .*, BLEU [\d.]+$"
    assert re.match(epoch, lines[3])
    assert lines[4].startswith("test: ") and len(lines) == 5 + 5 * 3


def test_translate(runs: Runs) -> None:
    """The file of weights gives the training's own translations. A sentence that is too long is left out, and it says so."""
    folder, result = runs["serial"]
    shown = re.findall(r"^  (\S.*)\n    (.*)\n    \(", result.stdout, re.MULTILINE)
    assert len(shown) == 5
    given = [shown[0][0], "door " * 20, shown[4][0]]
    done = run_alone(TRANSLATE, "--model_dir", folder, *given, timeout=60).good()
    assert done.stdout.splitlines() == [shown[0][1], "", shown[4][1]]
    assert re.search(r"sentence 2 has \d+ tokens, and the model takes 16: it is left untranslated", done.stderr)


SEARCH = """
    import sys
    from pathlib import Path
    import numpy as np
    import tensorflow as tf
    sys.path.insert(0, sys.argv[1])
    from network import keras_model
    from search import EXTRA, Translator, translate
    from tokens import BEGIN, END
    from trained import Folder
    transformer, tokens = Folder(Path(sys.argv[2])).load()
    model = keras_model(transformer)
    sources = [np.array(each, np.int32) for each in tokens.numbers(["the old door", "open", "close the new file file door"])]

    def likelihood(source, target):  # of a translation, by the whole model, without what is kept from token to token
        before = np.array([[BEGIN, *target[:-1]]])
        logits = tf.nn.log_softmax(model([source[None], before]))[0].numpy()
        return sum(logits[n, token] for n, token in enumerate(target)) / ((5 + len(target)) / 6) ** 0.6

    def greedy(source):
        target = []
        while END not in target and len(target) < transformer.max_length:
            target.append(int(model([source[None], np.array([[BEGIN, *target]])])[0, -1].numpy().argmax()))
        return target

    def until_end(row):
        row = row.tolist()
        return row[: row.index(END) + 1] if END in row else row

    one, four = (translate(Translator(transformer, beams), sources, 2) for beams in (1, 4))
    for source, narrow, wide in zip(sources, one, four):
        assert until_end(narrow) == greedy(source), (narrow, greedy(source))
        assert likelihood(source, until_end(wide)) >= likelihood(source, until_end(narrow)) - 1e-5, (wide, narrow)
    """


def test_beam_search(runs: Runs) -> None:
    """With one beam it is what the whole model finds, token by token. With four it finds nothing less likely."""
    run_alone(SEARCH, EXAMPLE, runs["serial"][0], timeout=60).good()


def catalogue(**pairs: str) -> str:
    """A .po file: spaces are _ in the names."""
    entries = (f'\nmsgid "{english.replace("_", " ")}"\nmsgstr "{german}"\n' for english, german in pairs.items())
    return 'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n' + "".join(entries)


def test_catalogues(tmp_path: Path) -> None:
    """Pairs of a folder and a wheel: cleaned, each once, and each message in one part."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    many = {f"The_{a}_{b}_door_is_open": f"Die Tür {a} {b} ist offen" for a in letters for b in letters}
    folder = tmp_path / "de/LC_MESSAGES"
    folder.mkdir(parents=True)
    (folder / "doors.po").write_text(catalogue(**many, OK="OK", Same_text="Same text", One_two="Eins   zwei"))
    (folder / "broken.mo").write_bytes(b"\xde\x12\x04\x95\x00")
    plural = '\nmsgid "%d open file"\nmsgid_plural "%d open files"\nmsgstr[0] "%d offene Datei"\nmsgstr[1] "%d offene Dateien"'
    fuzzy = '\n#, fuzzy\nmsgid "Not seen"\nmsgstr "Nicht gesehen"\n'
    with zipfile.ZipFile(tmp_path / "x.whl", "w") as wheel:
        wheel.writestr("x/locale/de/LC_MESSAGES/x.po", catalogue(One_two="Eins zwei", Lost_="Was %s") + plural + "\n" + fuzzy)
        wheel.writestr("x/locale/fr/LC_MESSAGES/x.po", catalogue(The_file="Le fichier"))
    done = run_alone(CATALOGUES, tmp_path / "data", tmp_path / "de", tmp_path / "x.whl", timeout=60).good()
    lines = done.stdout.splitlines()
    assert lines[0] == f"{tmp_path}/de: 1 catalogues, 679 messages, 677 new pairs"
    assert lines[1].startswith(f"  skipped, as it cannot be read: {folder}/broken.mo (")
    assert lines[2] == f"{tmp_path}/x.whl: 1 catalogues, 4 messages, 2 new pairs"
    assert lines[3].startswith("679 pairs: ")
    parts = {part: (tmp_path / f"data/{part}.en").read_text().splitlines() for part in ("train", "validation", "test")}
    assert all(parts.values()) and len(set().union(*parts.values())) == sum(map(len, parts.values())) == 679
    pairs = {}
    for part in parts:
        pairs.update(zip(parts[part], (tmp_path / f"data/{part}.de").read_text().splitlines(), strict=True))
    assert pairs["One two"] == "Eins zwei" and pairs["%d open files"] == "%d offene Dateien"


def refused(result: Result, code: int = 2) -> str:
    """The one line of the script among what the launcher says."""
    assert result.code == code, result.said
    (line,) = (line for line in result.stderr.splitlines() if line.startswith(("train.py: ", "translate.py: ")))
    assert "Traceback" not in result.stderr, result.said
    return line.partition(": ")[2]


HALF = {
    "nowhere": "is no folder: name one with train.en",
    "half": r"lacks train.de, test.en: it needs train, validation, test",
    "uneven": r"train.en has 100 lines, and .*train.de 99",
    "long": r"all sentences of validation are longer than --max_length 16 tokens",
}


@pytest.mark.parametrize("name", HALF)
def test_bad_data_is_one_sentence(name: str, data: Path, tmp_path: Path) -> None:
    english, german = sentences(100)
    parts, both = ("train", "validation", "test"), {"en": english, "de": german}
    lines = {f"{part}_{ending}": text for part in parts for ending, text in both.items()}
    if name == "half":
        del lines["train_de"], lines["test_en"]
    if name == "uneven":
        lines["train_de"] = german[:99]
    if name == "long":
        lines["validation_en"] = ["the old door " * 30] * 100
    folder = tmp_path / "nowhere" if name == "nowhere" else write(tmp_path / "data", **lines)
    words = (*TINY, "--data_dir", folder, "--model_dir", tmp_path / "model")
    result = run_ranks(2, TRAIN, *words, timeout=60) if name == "half" else run_alone(TRAIN, *words, timeout=60)
    assert re.search(HALF[name], refused(result))


def test_another_vocabulary_is_one_sentence(runs: Runs, data: Path, tmp_path: Path) -> None:
    """By the training and by the translation; nothing of the training's is touched."""
    trained, other = runs["serial"][0], tmp_path / "other.json"
    before = {file: file.read_bytes() for file in trained.iterdir() if file.is_file()}
    words = f"import sys; sys.path.insert(0, {str(EXAMPLE)!r}); from pathlib import Path; import tokens; "
    run_alone(words + f"tokens.learn(['the old door'] * 9, 270, Path({str(other)!r}))", timeout=60).good()
    pattern = r"the vocabulary .*other.json \(\d+ tokens\) is not the one that the training in .* began with \(\d+ tokens\)"
    result = run_alone(TRAIN, *TINY, "--data_dir", data, "--model_dir", trained, "--vocab_file", other, timeout=60)
    assert re.match(pattern, refused(result))
    result = run_alone(TRANSLATE, "--model_dir", trained, "--vocab_file", other, "the door", timeout=60)
    assert re.match(pattern, refused(result, 1))
    assert before == {file: file.read_bytes() for file in trained.iterdir() if file.is_file()}


def test_damaged_files_are_one_sentence(runs: Runs, data: Path, tmp_path: Path) -> None:
    """Weights that end too early, and a list of epochs that does."""
    trained = Path(shutil.copytree(runs["serial"][0], tmp_path / "model"))
    for name in ("transformer.weights.h5", "history.json"):
        (trained / name).write_bytes((trained / name).read_bytes()[:100])
    result = run_alone(TRANSLATE, "--model_dir", trained, "the door", timeout=60)
    assert "transformer.weights.h5 is damaged, or of another network: " in refused(result, 1)
    result = run_ranks(2, TRAIN, *TINY, "--data_dir", data, "--model_dir", trained, timeout=60)
    assert re.search(r"history.json is damaged \(.*\): restore it, or give another --model_dir", refused(result))
