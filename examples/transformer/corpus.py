"""Sentences in two languages, in files as those of WMT: one sentence a line, line n of one translates line n of the other.

A folder has ``train``, ``validation`` and ``test``, each with the ending of the source language (``.en``) and of the target
(``.de``).
"""

from __future__ import annotations

from pathlib import Path

PARTS = ("train", "validation", "test")
LANGUAGES = ("en", "de")

Sentences = tuple[list[str], list[str]]
"""Sources and targets."""
Corpus = dict[str, Sentences]
"""Those of each part."""


class DataError(Exception):
    """Data that cannot be used, in one sentence."""


def write(folder: Path, parts: Corpus) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for part, sentences in parts.items():
        for language, lines in zip(LANGUAGES, sentences, strict=True):
            (folder / f"{part}.{language}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def read(folder: Path) -> Corpus:
    """All parts of a folder. A pair of lines of which one is empty is left out."""
    if not folder.is_dir():
        raise DataError(f"--data_dir {folder} is no folder: name one with train.en, train.de, validation.en and so on")
    missing = [file.name for part in PARTS for file in _files(folder, part) if not file.is_file()]
    if missing:
        raise DataError(f"--data_dir {folder} lacks {', '.join(missing)}: it needs {', '.join(PARTS)}, each .en and .de")
    return {part: _read_part(folder, part) for part in PARTS}


def _files(folder: Path, part: str) -> list[Path]:
    return [folder / f"{part}.{language}" for language in LANGUAGES]


def _read_part(folder: Path, part: str) -> Sentences:
    files = _files(folder, part)
    lines = [lines_of(file) for file in files]
    counts = [len(each) for each in lines]
    if counts[0] != counts[1]:
        raise DataError(f"{files[0]} has {counts[0]} lines, and {files[1]} {counts[1]}: line n of one must translate line n")
    pairs = [pair for pair in zip(*lines, strict=True) if all(pair)]
    if not pairs:
        raise DataError(f"{files[0]} and {files[1]} have no pair of sentences")
    return [source for source, _ in pairs], [target for _, target in pairs]


def lines_of(file: Path) -> list[str]:
    """The lines of a text without spaces at their ends."""
    try:
        return [line.strip() for line in file.read_text(encoding="utf-8").split("\n")[:-1]]
    except UnicodeDecodeError as error:
        line = file.read_bytes()[: error.start].count(b"\n") + 1
        raise DataError(f"{file} is not UTF-8 in line {line}: convert it") from error
