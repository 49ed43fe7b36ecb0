"""A Transformer that translates English to German: training on all ranks, BLEU between epochs.

    pip install "tarantella[translation]"
    tarantella -n 2 -- train.py --model_dir en-de
    tarantella -n 8 -- train.py --param_set big --data_dir WMT14 --model_dir wmt --batch_size 25000
    python translate.py --model_dir en-de "Could not open the file."

Without ``--data_dir`` the sentences are those of message catalogues that are on this machine (catalogues.py). Started again, a
training goes on where it was.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import catalogues
import corpus
import numpy as np
import sacrebleu
import tensorflow as tf
from batches import Pairs, batches, dataset
from corpus import DataError
from network import SIZES, Transformer, keras_model
from search import Translator, translate
from tokens import Tokens, learn
from trained import Folder

import tarantella as tnt
from training import SmoothedLoss, TimeHistory, WarmUp

keras = tf.keras  # Keras 3, or legacy Keras with TF_USE_LEGACY_KERAS=1


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Trains a Transformer to translate.")
    parser.add_argument("--model_dir", type=Path, default=Path("transformer"), help="folder of the training, to go on")
    parser.add_argument("--data_dir", type=Path, help="folder with train.en, train.de, validation.en and so on")
    parser.add_argument("--catalogues", type=Path, nargs="+", help="wheels and folders with message catalogues")
    parser.add_argument("--vocab_file", type=Path, help="a vocabulary that is there already; otherwise one is learned")
    parser.add_argument("--vocab_size", type=int, default=6000, help="subwords to learn")
    parser.add_argument("--param_set", choices=SIZES, default="small", help="how large the network is")
    parser.add_argument("--max_length", type=int, default=64, help="tokens of the longest sentence")
    parser.add_argument("--batch_size", type=int, default=2048, help="tokens, with padding, of all ranks together")
    parser.add_argument("--train_epochs", type=int, default=10)
    parser.add_argument("--epochs_between_evals", type=int, default=1)
    parser.add_argument("--num_sentences", type=int, help="train with so many sentences only")
    parser.add_argument("--num_eval_sentences", type=int, default=500, help="translated for BLEU after each evaluation")
    parser.add_argument("--learning_rate", type=float, default=0.7, help="factor of the schedule")
    parser.add_argument("--warmup_steps", type=int, default=600)
    parser.add_argument("--label_smoothing", type=float, default=0.1)
    parser.add_argument("--dropout", type=float, help="for that of the size")
    parser.add_argument("--decode_batch_size", type=int, default=32, help="sentences that are translated together")
    parser.add_argument("--beam_size", type=int, default=4)
    parser.add_argument("--alpha", type=float, default=0.6, help="how much longer translations are preferred")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--auto_data_dist", action=argparse.BooleanOptionalAction, default=True, help="no: by rank, by hand")
    parser.add_argument("--distribute", choices=("tnt", "None"), default="tnt", help="None: plain Keras on one device")
    parser.add_argument("--verbose", type=int, default=0, choices=(0, 1, 2))
    args = parser.parse_args()
    for name in ("max_length", "batch_size", "train_epochs", "epochs_between_evals", "num_eval_sentences", "beam_size"):
        if getattr(args, name) < 1:
            parser.error(f"--{name} {getattr(args, name)}: it must be at least 1")
    if args.batch_size < args.max_length:
        parser.error(f"--batch_size {args.batch_size} tokens do not hold one sentence of --max_length {args.max_length}")
    return args


def say(*lines: str) -> None:
    if tnt.is_master_rank():
        print(*lines, sep="\n", flush=True)


@dataclass
class Data:
    """What a training and its evaluations take."""

    train: Pairs
    validation: Pairs
    test: Pairs
    tokens: Tokens


def prepare(args: argparse.Namespace, folder: Folder) -> None:
    """On one rank: collects the sentences and learns the vocabulary, unless they are there."""
    if args.data_dir is None and not folder.data.is_dir():
        catalogues.prepare(folder.data, args.catalogues or catalogues.places())
    if args.vocab_file is None and not folder.vocabulary.is_file():
        sources, targets = corpus.read(args.data_dir or folder.data)["train"]
        learn([*sources, *targets], args.vocab_size, folder.vocabulary)


def agree(error: str) -> None:
    """Raises DataError on all ranks if one has met with an error."""
    failed = np.flatnonzero(tnt.all_gather(np.array([len(error)])))
    if len(failed):
        raise DataError(tnt.broadcast_object(error, root=int(failed[0])))


def load(args: argparse.Namespace, folder: Folder) -> Data:
    """The data as every rank needs it."""
    error = ""
    if tnt.is_master_rank():
        try:
            prepare(args, folder)
        except DataError as failed:
            error = str(failed)
    agree(error)
    try:
        data = read(args, folder)
        _ = folder.history  # a damaged one is found before anything is trained
    except DataError as failed:
        error = str(failed)
    agree(error)
    for name in corpus.PARTS:
        pairs: Pairs = getattr(data, name)
        skipped = f", {pairs.skipped} skipped that are longer than --max_length {args.max_length} tokens"
        say(f"{name}: {len(pairs)} sentences, {pairs.tokens} tokens" + skipped * (pairs.skipped > 0))
    if tnt.is_master_rank():
        folder.begin(folder.settings(args.param_set, args.max_length, data.tokens))
        if args.vocab_file is not None:
            folder.vocabulary.write_bytes(args.vocab_file.read_bytes())
    return data


def read(args: argparse.Namespace, folder: Folder) -> Data:
    """Sentences as numbers of a vocabulary that fits the training."""
    parts = corpus.read(args.data_dir or folder.data)
    vocabulary = args.vocab_file or folder.vocabulary
    tokens = Tokens(vocabulary)
    folder.check(folder.settings(args.param_set, args.max_length, tokens), vocabulary)
    sources, targets = parts["train"]
    parts["train"] = sources[: args.num_sentences], targets[: args.num_sentences]
    pairs = {name: Pairs(*map(tokens.numbers, both), args.max_length) for name, both in parts.items()}
    for name, some in pairs.items():
        if not len(some):
            raise DataError(f"all sentences of {name} are longer than --max_length {args.max_length} tokens: give a larger one")
    return Data(**pairs, tokens=tokens)


class Training:
    """The model with its data, on this rank."""

    def __init__(self, args: argparse.Namespace, data: Data, folder: Folder) -> None:
        self.args, self.data, self.folder = args, data, folder
        size = SIZES[args.param_set]
        size = size if args.dropout is None else replace(size, dropout=args.dropout)
        self.transformer = Transformer(size, len(data.tokens), args.max_length, name="transformer")
        plain = keras_model(self.transformer)
        self.model = tnt.Model(plain) if args.distribute == "tnt" else plain
        self.model.compile(
            optimizer=keras.optimizers.Adam(
                WarmUp(args.learning_rate, size.width, args.warmup_steps), beta_1=0.9, beta_2=0.98, epsilon=1e-9
            ),
            loss=SmoothedLoss(args.label_smoothing),
            weighted_metrics=[
                keras.metrics.SparseCategoricalCrossentropy(from_logits=True, name="cross_entropy"),
                keras.metrics.SparseCategoricalAccuracy(name="accuracy"),
            ],
        )
        self.translator = Translator(self.transformer, args.beam_size, args.alpha)
        self.by_hand = {} if args.auto_data_dist or args.distribute == "None" else {"tnt_distribute_dataset": False}
        self.part = (tnt.get_rank(), tnt.get_size()) if self.by_hand else (0, 1)

    def run(self) -> None:
        """Trains all epochs but those that the folder holds already."""
        history, args = self.folder.history, self.args
        times: Any = TimeHistory(self.data.train.tokens)
        if args.distribute == "tnt":
            times = tnt.callbacks.Callback(times)  # on one rank
        for begin in range(0, args.train_epochs, args.epochs_between_evals):
            end = min(begin + args.epochs_between_evals, args.train_epochs)
            logs = self.fit(begin, end, times)
            if str(end) in history:
                continue  # `fit` has only restored its end
            figures = self.evaluate(self.data.validation, args.num_eval_sentences)[0]
            figures |= {"train_cross_entropy": logs["cross_entropy"], "tokens_per_second": 0.0}
            if tnt.is_master_rank():
                figures["tokens_per_second"] = times.tokens_per_second[end - 1]
                history[str(end)] = figures
                self.folder.keep(history, self.translatable())
            trained = f"cross-entropy {logs['cross_entropy']:.3f}, {figures['tokens_per_second']:.0f} tokens/s"
            say(f"epoch {end}: {trained}; validation: {in_words(figures)}")
        figures, translations = self.evaluate(self.data.test, len(self.data.test))
        say(f"test: {in_words(figures)}", *translations)

    def fit(self, begin: int, end: int, times: Any) -> dict[str, float]:
        """Trains epochs, each with its own order of the batches, and gives the last one's logs."""
        logs: dict[str, float] = {}
        for epoch in range(begin, end):
            order = batches(self.data.train, self.args.batch_size, seed=self.args.seed * 1000 + epoch)
            checkpoints = [tnt.callbacks.Checkpoint(self.folder.checkpoints, keep=1)] if self.args.distribute == "tnt" else []
            history = self.model.fit(
                dataset(self.data.train, order, self.part),
                initial_epoch=epoch,
                epochs=epoch + 1,
                callbacks=[*checkpoints, times],
                verbose=self.args.verbose,
                **self.by_hand,
            ).history
            logs = {name: values[-1] for name, values in history.items()}
        return logs

    def evaluate(self, pairs: Pairs, sentences: int) -> tuple[dict[str, float], list[str]]:
        """Cross-entropy, accuracy and BLEU, and on rank 0 five translations."""
        order = batches(pairs, self.args.batch_size, seed=None)
        measured = self.model.evaluate(dataset(pairs, order, self.part), verbose=0, **self.by_hand)
        figures = dict(zip(("cross_entropy", "accuracy"), measured[1:], strict=True))
        # each rank translates its part, by the plain model
        rank, size = tnt.get_rank(), tnt.get_size()
        sources, targets = pairs.sources[:sentences], pairs.targets[:sentences]
        mine = translate(self.translator, sources[rank::size], self.args.decode_batch_size)
        rows = np.zeros((-(-len(sources) // size), self.args.max_length), np.int32)  # as many on each rank
        rows[: len(mine)] = mine
        everything = tnt.all_gather(rows).swapaxes(0, 1).reshape(-1, self.args.max_length)[: len(sources)]
        english, wanted, german = (self.data.tokens.texts(each) for each in (sources, targets, everything))
        figures["bleu"] = sacrebleu.corpus_bleu(german, [wanted]).score
        shown = np.linspace(0, len(sources) - 1, 5).astype(int)
        return figures, [f"  {english[n]}\n    {german[n]}\n    ({wanted[n]})" for n in shown]

    def translatable(self) -> Any:
        """A plain Keras model, whose weights `translate.py` loads."""
        return self.model.model if self.args.distribute == "tnt" else self.model


def in_words(figures: dict[str, float]) -> str:
    return f"cross-entropy {figures['cross_entropy']:.3f}, accuracy {figures['accuracy']:.3f}, BLEU {figures['bleu']:.1f}"


def main() -> None:
    args = arguments()
    keras.utils.set_random_seed(args.seed)
    folder = Folder(args.model_dir)
    try:
        data = load(args, folder)
    except DataError as error:
        if tnt.is_master_rank():
            print(f"train.py: {error}", file=sys.stderr)
        sys.exit(2)
    Training(args, data, folder).run()


if __name__ == "__main__":
    main()
