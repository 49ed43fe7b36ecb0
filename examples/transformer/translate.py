"""Translates by a model that train.py has trained, with plain Keras.

    python translate.py --model_dir en-de "Could not open the file." "No such user."
    python translate.py --model_dir en-de < sentences.en > sentences.de

A sentence that is longer than the model takes becomes an empty line, and standard error names it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
from corpus import DataError
from search import Translator, translate
from trained import Folder


def main() -> None:
    parser = argparse.ArgumentParser(description="Translates sentences.")
    parser.add_argument("sentences", nargs="*", help="otherwise the lines of standard input")
    parser.add_argument("--model_dir", type=Path, default=Path("transformer"), help="that of train.py")
    parser.add_argument("--vocab_file", type=Path, help="another place of the vocabulary")
    parser.add_argument("--decode_batch_size", type=int, default=32, help="sentences that are translated together")
    parser.add_argument("--beam_size", type=int, default=4)
    parser.add_argument("--alpha", type=float, default=0.6, help="how much longer translations are preferred")
    args = parser.parse_args()
    try:
        transformer, tokens = Folder(args.model_dir).load(args.vocab_file)
    except DataError as error:
        sys.exit(f"translate.py: {error}")
    sentences = args.sentences or [line.strip() for line in sys.stdin]
    sources = [np.array(numbers, np.int32) for numbers in tokens.numbers(sentences)]
    short = [number for number, source in enumerate(sources) if len(source) <= transformer.max_length]
    for number in sorted(set(range(len(sources))) - set(short)):
        length = len(sources[number])
        print(
            f"translate.py: sentence {number + 1} has {length} tokens, and the model takes {transformer.max_length}: it is "
            "left untranslated, as an empty line",
            file=sys.stderr,
        )
    found = [""] * len(sources)
    translator = Translator(transformer, args.beam_size, args.alpha)
    numbers = translate(translator, [sources[n] for n in short], args.decode_batch_size)
    for number, text in zip(short, tokens.texts(numbers), strict=True):
        found[number] = text
    print(*found, sep="\n")


if __name__ == "__main__":
    main()
