"""A search for the best learning rate: trial after trial, each on all ranks, and what is done is not done again.

    tarantella -n 2 -- rates.py --trials 8 --folder trials
    sbatch rates.sbatch                                    the trials as jobs of an array of Slurm's

Every rank runs the same trials in the same order, and the losses are those of all ranks, so all ranks choose alike. With
``--only N`` a job runs trial N alone. A trial that was interrupted goes on with its next step, on any number of ranks.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import tarantella as tnt

keras = tf.keras  # Keras 3, or legacy Keras with TF_USE_LEGACY_KERAS=1


def samples(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A function to learn, and noise."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (n, 4)).astype(np.float32)
    return x, (np.sin(3 * x.sum(1, keepdims=True)) + rng.normal(0, 0.05, (n, 1))).astype(np.float32)


def rates(trials: int, low: float, high: float) -> list[float]:
    """Evenly spread over the logarithm. (Equal on all ranks; random ones would need a seed.)"""
    return [float(rate) for rate in np.geomspace(low, high, trials)]


def trial(wrap: Any, rate: float, epochs: int, callbacks: list[Any]) -> float:
    """The validation loss at the end. Each trial begins with the same weights, whatever was before it."""
    keras.backend.clear_session()
    keras.utils.set_random_seed(1)
    layers = [keras.layers.Input((4,)), keras.layers.Dense(32, activation="tanh"), keras.layers.Dense(1)]
    model = wrap(keras.Sequential(layers))
    model.compile(keras.optimizers.SGD(rate, momentum=0.9), "mse")
    history = model.fit(
        *samples(512, seed=1),
        batch_size=32,
        epochs=epochs,
        shuffle=False,
        validation_data=samples(128, seed=2),
        callbacks=[*callbacks, keras.callbacks.TerminateOnNaN()],
        verbose=0,
    ).history
    loss = history.get("val_loss", [np.nan])[-1]
    return float(loss) if np.isfinite(loss) else float("inf")


def search(wrap: Any, chosen: dict[int, float], epochs: int, folder: Path | None = None) -> dict[int, float]:
    """The loss of each trial, by its number. folder: where finished trials and checkpoints of unfinished ones are."""
    losses = {}
    for number, rate in chosen.items():
        file = folder / f"trial{number}.json" if folder else None
        known = tnt.broadcast_object(file.read_text() if file and tnt.is_master_rank() and file.is_file() else "")
        if known:
            losses[number] = json.loads(known)["loss"]
            continue
        losses[number] = trial(wrap, rate, epochs, [tnt.callbacks.Checkpoint(str(folder / f"trial{number}"))] if folder else [])
        if file and tnt.is_master_rank():
            part = file.with_suffix(".part")
            part.write_text(json.dumps({"rate": rate, "loss": losses[number]}))
            part.rename(file)  # it is there whole, or not at all
    return losses


def main() -> None:
    parser = argparse.ArgumentParser(description="Searches for a learning rate.")
    parser.add_argument("--trials", type=int, default=8)
    parser.add_argument("--between", type=float, nargs=2, default=(1e-3, 1.0), metavar=("LOW", "HIGH"))
    parser.add_argument("--only", type=int, metavar="N", help="this trial alone, from 0 on")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--folder", type=Path, help="keeps results and checkpoints, to go on with")
    args = parser.parse_args()
    if args.only is not None and not 0 <= args.only < args.trials:
        parser.error(f"--only {args.only}: the trials are 0 to {args.trials - 1}")
    chosen = dict(enumerate(rates(args.trials, *args.between)))
    if args.only is not None:
        chosen = {args.only: chosen[args.only]}
    losses = search(tnt.Model, chosen, args.epochs, args.folder)
    if tnt.is_master_rank():
        print(*(f"trial {number}: rate {chosen[number]:.4g}, loss {loss:.4f}" for number, loss in losses.items()), sep="\n")
        best = min(losses, key=losses.__getitem__)
        print(f"best: rate {chosen[best]:.4g}")


if __name__ == "__main__":
    main()
