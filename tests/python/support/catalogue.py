"""Which training runs are compared with plain Keras, on how many ranks, and how near they must come.

The grid is every model with every optimizer and batch size. A part of it is run, chosen so that every model meets every
optimizer, and that on each number of ranks every model, every optimizer and every batch size occurs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

SIZES = (1, 2, 3, 4)
MODELS = ("mlp", "cnn", "two_inputs", "embedding", "mixed_dtypes")
OPTIMIZERS = ("sgd", "momentum", "adam", "adamw", "rmsprop")
BATCH_SIZES = (61, 63, 64)


@dataclass(frozen=True)
class Expected:
    """How a run shall come out: relative tolerance of losses and metrics, absolute one of weights."""

    sizes: tuple[int, ...]
    losses: float = 1e-5
    weights: float = 1e-4


def grid(size: int) -> list[str]:
    """The cases of the grid on so many ranks: each model with one optimizer or, on 2 ranks, with two."""
    cases = []
    for index, model in enumerate(MODELS):
        for shift in (0, 3) if size == 2 else (0,):
            optimizer = OPTIMIZERS[(index + size + shift) % len(OPTIMIZERS)]
            cases.append(f"{model}-{optimizer}-{BATCH_SIZES[(index + size + shift) % len(BATCH_SIZES)]}")
    return cases


# 16 bits of a gradient or a product are lost at other places when a batch is computed in parts
HALF = {"losses": 5e-3, "weights": 5e-3}

SPECIAL = {
    "static_batch": Expected((2,)),
    "static_batch_smaller_than_ranks": Expected((4,)),
    "batches_smaller_than_ranks": Expected((4,)),
    "arrays": Expected((3,)),
    "arrays_shuffled": Expected((4,)),
    "shuffled_with_a_seed": Expected((3,)),
    "shuffled_with_the_global_seed": Expected((2,)),
    "repeated": Expected((3,)),
    "generator": Expected((2,)),
    "py_dataset": Expected((2,)),
    "py_dataset_shuffled": Expected((3,)),
    "py_dataset_with_workers": Expected((2,)),
    "padded_batches": Expected((2,)),
    "ragged_batches": Expected((3,)),
    "bucketed_batches": Expected((4,)),
    "zipped_and_interleaved": Expected((3,)),
    "maps_before_the_batch": Expected((4,)),
    "sparse_input": Expected((2,)),
    "class_weight": Expected((3,)),
    "sample_weight": Expected((2,)),
    "sample_weight_in_the_dataset": Expected((4,)),
    "own_batches": Expected((3,)),
    "validation": Expected((1, 4)),
    "stopped_early": Expected((3,)),
    "validation_now_and_then": Expected((2,)),
    "steps_per_execution": Expected((3,)),
    "run_eagerly": Expected((1, 3)),
    "fit_twice": Expected((2,)),
    "compiled_again": Expected((2,)),
    "frozen_between": Expected((2,)),
    "clipnorm": Expected((3,)),
    "global_clipnorm": Expected((2,)),
    "clipvalue": Expected((2,)),
    "gradient_accumulation": Expected((3,)),
    "gradient_accumulation_over_fits": Expected((2,)),
    "gradient_accumulation_eagerly": Expected((2,)),
    "gradient_accumulation_with_loss_scale": Expected((3,)),
    "gradient_accumulation_of_own_batches": Expected((2,)),
    "gradient_accumulation_of_an_embedding": Expected((2,)),
    "moving_average_of_weights": Expected((2,)),
    "learning_rate_schedule": Expected((3,)),
    "loss_scale_optimizer": Expected((3,)),
    "mixed_float16": Expected((2,), **HALF),
    "mixed_bfloat16": Expected((2,), **HALF),
    "bfloat16": Expected((3,), **HALF),
    "regularizers": Expected((2,)),
    "activity_regularizer": Expected((2,)),
    "unused_variable": Expected((2,)),
    "subclassed": Expected((2,)),
    "own_train_step": Expected((3,)),
    "own_logs": Expected((3,)),
    "own_tracker": Expected((2,)),
    "two_outputs": Expected((3,)),
    "text_input": Expected((2,)),
    "embedding_with_repeated_ids": Expected((2,)),
    "large_embedding": Expected((2,)),
    "large_embedding_with_repeated_ids": Expected((3,)),
    "embedding_alone": Expected((4,)),
    "large_embedding_with_loss_scale": Expected((2,)),
    "recurrent": Expected((2,)),
    "masked": Expected((3,)),
    "masked_eagerly": Expected((2,)),
    "masked_and_weighted": Expected((3,)),
    "masked_sum": Expected((2,)),
    "ignored_class": Expected((2,)),
    "sum_of_losses": Expected((3,)),
    "mean_with_sample_weight": Expected((4,)),
    "several_reductions": Expected((3,)),
    "sum_of_own_batches": Expected((2,)),
    "own_validation": Expected((2,)),
    "validation_split": Expected((2,)),
    "micro_batches": Expected((3,)),
    "single_batches": Expected((4,)),
    "class_weight_on_a_batch": Expected((3,)),
    "predictions": Expected((4,)),
}


# with legacy Keras, where they have to come out like its own
LEGACY = {
    "mlp-adam-61": (3,),
    "embedding-rmsprop-61": (2,),
    "batches_smaller_than_ranks": (3,),
    "arrays_shuffled": (2,),
    "generator": (3,),
    "class_weight": (2,),
    "sample_weight": (2,),
    "own_batches": (3,),
    "validation": (2,),
    "stopped_early": (2,),
    "steps_per_execution": (2,),
    "run_eagerly": (2,),
    "global_clipnorm": (2,),
    "learning_rate_schedule": (2,),
    "mixed_float16": (2,),
    "legacy_adam": (2,),
    "legacy_loss_scale": (2,),
    "regularizers": (2,),
    "subclassed": (2,),
    "own_train_step": (2,),
    "own_logs": (2,),
    "own_tracker": (2,),
    "added_loss": (2,),
    "two_outputs": (2,),
    "large_embedding": (2,),
    "masked": (2,),
    "several_reductions": (2,),
    "validation_split": (2,),
    "single_batches": (2,),
    "predictions": (3,),
}


def legacy_cases(size: int) -> list[str]:
    """The cases of legacy Keras on so many ranks."""
    return [name for name, sizes in LEGACY.items() if size in sizes]


def expected(name: str) -> Expected:
    """How this case shall come out."""
    return SPECIAL.get(name) or Expected(tuple(size for size in SIZES if name in grid(size)))


def cases(size: int) -> list[str]:
    """All cases on so many ranks."""
    return [*grid(size), *(name for name, special in SPECIAL.items() if size in special.sizes)]


def cases_of_all_sizes(cases: Callable[[int], list[str]]) -> list[str]:
    """Every case once: what plain Keras has to do."""
    return list(dict.fromkeys(name for size in SIZES for name in cases(size)))
