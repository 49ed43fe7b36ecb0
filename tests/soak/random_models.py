"""Random Keras models on several ranks against plain Keras in one process: losses, metrics and weights must agree.

    python tests/soak/random_models.py --runs 500 --seed 1 [--ranks 2]

Model k of a run has the seed SEED + k, which the output names: the same seed makes the same model, data and way to train. The
ways are plain, shard_optimizer, reproducible and pipeline, in float32 or float64. A refusal (UnsupportedError) is counted, and
is no fault. Exit code 1 if a model is wrong.

As `random_models.py RESULTS SEED...` it is the script that trains them, under the launcher or alone.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

WAYS = ("plain", "shard_optimizer", "reproducible", "pipeline")
TOLERANCE = {"float32": (2e-4, 2e-3), "float64": (1e-9, 1e-9)}
"""Relative of losses and metrics, absolute of weights."""
AT_A_TIME = 12
SECONDS_EACH = 120


class Choices:
    """What a seed stands for, without TensorFlow."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.seed = seed
        self.way = self.random.choice(WAYS)
        self.floatx = self.random.choice(sorted(TOLERANCE))
        self.classes = self.random.choice([0, 3])  # 0: a regression
        self.batch, self.samples = self.random.choice([8, 12, 16]), self.random.randint(30, 50)

    def __str__(self) -> str:
        return f"seed {self.seed} ({self.way}, {self.floatx})"


def build(choices: Choices) -> Any:
    import keras
    from keras import layers

    pick = choices.random
    x = inputs = keras.Input((6,))
    regular = [None, keras.regularizers.L2(1e-2), keras.regularizers.L1(1e-3)]
    skip = None
    for _ in range(pick.randint(2, 5)):
        units = pick.choice([4, 6, 9])
        kind = pick.choice(["dense", "dense", "norm", "residual", "activity", "reshape", "concatenate"])
        if kind == "dense":
            x = layers.Dense(units, pick.choice(["tanh", "gelu", "sigmoid"]), kernel_regularizer=pick.choice(regular))(x)
        elif kind == "norm":
            x = layers.LayerNormalization(epsilon=1e-2)(x)
        elif kind == "residual":
            x = layers.Add()([x, layers.Dense(x.shape[-1], "tanh", use_bias=pick.random() < 0.5)(x)])
        elif kind == "activity":
            x = layers.ActivityRegularization(l2=1e-2)(layers.Dense(units, "tanh")(x))
        elif kind == "reshape":
            deep = layers.Reshape((units, 2))(layers.Dense(2 * units)(x))
            x = layers.GlobalAveragePooling1D()(layers.Conv1D(5, 3, padding="same", activation="tanh")(deep))
        elif skip is not None:
            x = layers.Concatenate()([x, skip])
        skip = x
    return keras.Model(inputs, layers.Dense(choices.classes or 1, dtype=choices.floatx)(x))


def optimizer(choices: Choices) -> Any:
    from keras import optimizers

    clip = choices.random.choice([{}, {}, {"clipnorm": 0.5}, {"global_clipnorm": 0.5}, {"clipvalue": 0.1}])
    if choices.way == "reproducible":
        clip = {}
    make: list[Callable[[], Any]] = [
        lambda: optimizers.SGD(0.05, **clip),
        lambda: optimizers.SGD(0.05, momentum=0.9, nesterov=True, **clip),
        lambda: optimizers.Adam(0.01, epsilon=1e-3, **clip),
        lambda: optimizers.AdamW(0.01, epsilon=1e-3, weight_decay=0.01, **clip),
        lambda: optimizers.RMSprop(0.01, epsilon=1e-3, **clip),
    ]
    return choices.random.choice(make)()


def wrapped(model: Any, choices: Choices) -> Any:
    import tarantella as tnt

    if choices.way == "pipeline":
        return tnt.Model(model, tnt.ParallelStrategy.PIPELINING, pipeline_stages=tnt.get_size(), micro_batches=4)
    how = {"shard_optimizer": {"shard_optimizer": True}, "reproducible": {"reproducible": 4}}
    return tnt.Model(model, **how.get(choices.way, {}))


def train(seed: int, plain: bool) -> dict[str, Any]:
    import keras
    import numpy as np

    choices = Choices(seed)
    keras.backend.set_floatx(choices.floatx)
    keras.config.set_dtype_policy(choices.floatx)
    keras.utils.set_random_seed(seed)
    numbers = np.random.default_rng(seed)
    x = numbers.normal(size=(choices.samples, 6)).astype(choices.floatx)
    y = x.sum(1, keepdims=True) if choices.classes == 0 else numbers.integers(0, choices.classes, (choices.samples, 1))
    model = build(choices)
    chosen, pick = optimizer(choices), choices.random
    losses = ["mse", "huber", "log_cosh"] if choices.classes == 0 else [keras.losses.SparseCategoricalCrossentropy(True)]
    metrics = ["mae"] if choices.classes == 0 else ["accuracy"]
    loss, weights = pick.choice(losses), pick.choice([None, numbers.uniform(0.5, 2, choices.samples).astype(choices.floatx)])
    model = model if plain else wrapped(model, choices)
    model.compile(chosen, loss, metrics=metrics, weighted_metrics=[])
    history = model.fit(
        x, y, sample_weight=weights, batch_size=choices.batch, epochs=2, shuffle=pick.random() < 0.5, verbose=0,
        validation_data=(x[:10], y[:10]),
    )  # fmt: skip
    numbers_of = {name: [float(value) for value in values] for name, values in history.history.items()}
    return {"numbers": numbers_of, "weights": [np.asarray(one, "float64").ravel().tolist() for one in model.get_weights()]}


def train_all(results: Path, seeds: Sequence[int]) -> None:
    """Trains the models one after another, in this process or as a rank."""
    plain = "TNT_SIZE" not in os.environ
    found: dict[int, Any] = {}
    for seed in seeds:
        try:
            found[seed] = train(seed, plain)
        except NotImplementedError as error:  # UnsupportedError is one
            found[seed] = {"refused": str(error)}
    rank = os.environ.get("TNT_RANK", "plain")
    (results / f"{rank}.json").write_text(json.dumps(found))


def difference(choices: Choices, expected: dict[str, Any], found: dict[str, Any]) -> str:
    """What is wrong, in words; empty if nothing is."""
    import numpy as np

    relative, absolute = TOLERANCE[choices.floatx]
    if sorted(expected["numbers"]) != sorted(found["numbers"]):
        return f"it has {sorted(found['numbers'])}, and plain Keras {sorted(expected['numbers'])}"
    for name, values in expected["numbers"].items():
        if not np.allclose(found["numbers"][name], values, rtol=relative, atol=relative):
            return f"{name} is {found['numbers'][name]}, and {values} in plain Keras"
    for number, (right, own) in enumerate(zip(expected["weights"], found["weights"], strict=True)):
        if not np.allclose(own, right, rtol=0, atol=absolute):
            return f"weight {number} is off by {np.abs(np.subtract(own, right)).max():.2g}"
    return ""


def compare(seeds: Sequence[int], ranks: int, say: Callable[[str], None]) -> Counter[str]:
    """Trains and compares some models in two jobs. Returns how many were equal, refused and wrong."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("TNT_")}
    environment = {**inherited, "TNT_TIMEOUT": "60", "TF_NUM_INTRAOP_THREADS": "1", "CUDA_VISIBLE_DEVICES": "-1"}
    words = [str(Path(__file__).resolve()), *map(str, seeds)]
    outcome: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name:
        words.insert(1, name)
        commands = ([sys.executable, *words], [sys.executable, "-m", "tarantella", "-n", str(ranks), "--", *words])
        for command in commands:
            job = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=SECONDS_EACH * len(seeds), check=False
            )
            if job.returncode != 0:
                say(f"seeds {list(seeds)}: exit code {job.returncode}\n{job.stdout}\n{job.stderr}")
                return Counter(wrong=len(seeds))
        plain = json.loads(Path(name, "plain.json").read_text())
        of_ranks = [json.loads(Path(name, f"{rank}.json").read_text()) for rank in range(ranks)]
    for seed in map(str, seeds):
        choices = Choices(int(seed))
        for rank, found in enumerate(of_ranks):
            refused = found[seed].get("refused", "")
            wrong = "" if refused else difference(choices, plain[seed], found[seed])
            if wrong or (refused and rank == 0):
                say(f"{choices}, rank {rank}: {wrong or f'refused: {refused}'}")
            if wrong or rank == ranks - 1:
                outcome["wrong" if wrong else "refused" if refused else "equal"] += 1
                break
    return outcome


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Random Keras models on several ranks against plain Keras.")
    parser.add_argument("--runs", type=int, default=AT_A_TIME, help="how many models")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000, help="of the first one (default: a new one)")
    parser.add_argument("--ranks", type=int, default=2)
    given = parser.parse_args(words)
    print(f"--seed {given.seed} --runs {given.runs} --ranks {given.ranks}", flush=True)
    outcome: Counter[str] = Counter()
    for begin in range(0, given.runs, AT_A_TIME):
        seeds = range(given.seed + begin, given.seed + min(begin + AT_A_TIME, given.runs))
        outcome += compare(seeds, given.ranks, print)
        print(f"{outcome.total()} of {given.runs}: {dict(outcome)}", flush=True)
    return 1 if outcome["wrong"] else 0


if __name__ == "__main__":
    if len(sys.argv) > 2 and not sys.argv[1].startswith("-"):
        train_all(Path(sys.argv[1]), [int(word) for word in sys.argv[2:]])
    else:
        sys.exit(main(sys.argv[1:]))
