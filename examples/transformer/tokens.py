"""Subwords of both languages: byte pairs that are learned from the sentences to train with (by the package `tokenizers`)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import tokenizers
from corpus import DataError
from tokenizers import decoders, models, pre_tokenizers, trainers

PAD, BEGIN, END = 0, 1, 2
SPECIAL = ["<pad>", "<begin>", "<end>"]


class Tokens:
    """A vocabulary that is stored in a file. Every text can be written with it, as its smallest pieces are bytes."""

    def __init__(self, file: Path) -> None:
        if not file.is_file():
            raise DataError(f"{file} does not exist: it is the vocabulary of a training, vocabulary.json in its --model_dir")
        try:
            self._words = tokenizers.Tokenizer.from_file(str(file))
        except Exception as error:  # tokenizers raises nothing more special
            raise DataError(f"{file} is no vocabulary of the package tokenizers: {error}") from error
        if [self._words.id_to_token(number) for number in range(len(SPECIAL))] != SPECIAL:
            raise DataError(f"{file} does not begin with {', '.join(SPECIAL)}: take a vocabulary that this example has made")
        self.fingerprint = hashlib.sha256(file.read_bytes()).hexdigest()[:16]

    def __len__(self) -> int:
        return int(self._words.get_vocab_size())

    def numbers(self, texts: Sequence[str]) -> list[list[int]]:
        """Each text's subwords, and END."""
        return [[*encoding.ids, END] for encoding in self._words.encode_batch(list(texts))]

    def texts(self, numbers: Iterable[Sequence[int]]) -> list[str]:
        """Each text up to its END."""
        return [text.strip() for text in self._words.decode_batch([_until_end(each) for each in numbers])]


def learn(texts: Iterable[str], size: int, file: Path) -> None:
    """Makes a vocabulary of at most so many subwords of these texts."""
    words = tokenizers.Tokenizer(models.BPE())
    words.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    words.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False)
    words.train_from_iterator(texts, trainer)
    file.parent.mkdir(parents=True, exist_ok=True)
    words.save(str(file))


def _until_end(numbers: Sequence[int]) -> list[int]:
    kept = []
    for number in numbers:
        if number == END:
            break
        if number not in (PAD, BEGIN):
            kept.append(int(number))
    return kept
