"""Which training runs are compared with plain Keras, on how many ranks, and how near they must come.

The grid has models, optimizers and batch sizes. The sparse gradients of an embedding and the mixed types meet every optimizer,
because these have a path of their own for them; dense models of one type need not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

SIZES = (1, 2, 3, 4)
MODELS = ("mlp", "cnn", "two_inputs", "embedding", "mixed_dtypes")
OPTIMIZERS = ("sgd", "momentum", "adam", "adamw", "rmsprop")
BATCH_SIZES = (61, 63, 64)
GRID = {
    1: ["mlp-adam-64", "embedding-rmsprop-61"],
    2: [
        "embedding-sgd-63",
        "embedding-adamw-61",
        "mixed_dtypes-adam-63",
        "mixed_dtypes-momentum-64",
        "mixed_dtypes-rmsprop-61",
        "cnn-adamw-61",
        "two_inputs-rmsprop-64",
    ],
    3: ["embedding-adam-64", "embedding-momentum-61", "mixed_dtypes-adamw-61", "mixed_dtypes-sgd-63", "mlp-rmsprop-61"],
    4: ["embedding-rmsprop-63", "cnn-sgd-64"],
}
"""By the number of ranks."""


@dataclass(frozen=True)
class Expected:
    """How a run shall come out: relative tolerance of losses and metrics, absolute one of weights."""

    sizes: tuple[int, ...] = (2,)
    losses: float = 1e-5
    weights: float = 1e-4


# 16 bits of a gradient or a product are lost at other places when a batch is computed in parts
HALF = Expected(losses=5e-3, weights=5e-3)

SPECIAL = {
    "static_batch": Expected(),
    "static_batch_smaller_than_ranks": Expected((4,)),
    "batches_smaller_than_ranks": Expected((4,)),
    "arrays_shuffled": Expected(),
    "shuffled_with_the_global_seed": Expected(),
    "repeated": Expected((3,)),
    "generator": Expected(),
    "py_dataset": Expected(),
    "padded_batches": Expected(),
    "ragged_batches": Expected(),
    "bucketed_batches": Expected((3,)),
    "zipped_and_interleaved": Expected(),
    "maps_before_the_batch": Expected((3,)),
    "sparse_input": Expected(),
    "class_weight": Expected(),
    "sample_weight": Expected(),
    "sample_weight_in_the_dataset": Expected(),
    "own_batches": Expected((3,)),
    "validation": Expected((1, 3)),
    "stopped_early": Expected(),
    "validation_now_and_then": Expected(),
    "steps_per_execution": Expected(),
    "run_eagerly": Expected((1, 2)),
    "several_fits": Expected(),
    "clipnorm": Expected(),
    "global_clipnorm": Expected(),
    "optimizer_with_pairs_of_its_own": Expected(),
    "gradient_accumulation_over_fits": Expected(),
    "gradient_accumulation_over_data_of_unknown_length": Expected((3,)),
    "gradient_accumulation_eagerly": Expected(),
    "gradient_accumulation_with_loss_scale": Expected(),
    "gradient_accumulation_of_own_batches": Expected(),
    "gradient_accumulation_of_an_embedding": Expected(),
    "schedule_and_moving_average": Expected(),
    "mixed_float16": HALF,
    "mixed_bfloat16": HALF,
    "bfloat16": HALF,
    "regularizers": Expected(),
    "unused_variable": Expected(),
    "subclassed": Expected(),
    "own_train_step": Expected((3,)),
    "own_logs": Expected(),
    "own_tracker": Expected(),
    "text_input": Expected(),
    "embedding_with_repeated_ids": Expected(),
    "large_embedding": Expected(),
    "large_embedding_with_repeated_ids": Expected(),
    "embedding_alone": Expected((3,)),
    "large_embedding_with_loss_scale": Expected(),
    "recurrent": Expected(),
    "masked": Expected(),
    "masked_eagerly": Expected(),
    "masked_and_weighted": Expected((3,)),
    "masked_sum": Expected(),
    "ignored_class": Expected(),
    "sum_of_losses": Expected((3,)),
    "mean_with_sample_weight": Expected(),
    "several_reductions": Expected((3,)),
    "sum_of_own_batches": Expected(),
    "own_validation": Expected(),
    "validation_split": Expected(),
    "micro_batches": Expected(),
    "single_batches": Expected((4,)),
    "class_weight_on_a_batch": Expected(),
    "predictions": Expected((4,)),
}


# with legacy Keras, where they have to come out like its own
LEGACY = {
    "mlp-adam-61": (3,),
    "embedding-rmsprop-61": (2,),
    "batches_smaller_than_ranks": (3,),
    "arrays_shuffled": (2,),
    "generator": (2,),
    "class_weight": (2,),
    "sample_weight": (2,),
    "own_batches": (2,),
    "validation": (2,),
    "stopped_early": (2,),
    "steps_per_execution": (2,),
    "run_eagerly": (2,),
    "global_clipnorm": (2,),
    "schedule_and_moving_average": (2,),
    "mixed_float16": (2,),
    "legacy_adam": (2,),
    "legacy_global_clipnorm": (2,),
    "legacy_loss_scale": (2,),
    "regularizers": (2,),
    "subclassed": (2,),
    "own_train_step": (2,),
    "own_logs": (2,),
    "own_tracker": (2,),
    "added_loss": (2,),
    "large_embedding": (2,),
    "masked": (2,),
    "several_reductions": (2,),
    "validation_split": (2,),
    "single_batches": (2,),
    "predictions": (3,),
}


# with each version of TensorFlow and Keras that is promised (tests/versions), which CI has not
VERSIONS = ("mlp-adam-61", "cnn-momentum-64", "embedding-rmsprop-61", "several_reductions", "validation", "mixed_float16")
VERSIONS_KERAS_3 = ("gradient_accumulation_over_fits", "sample_weight")
VERSIONS_LEGACY = ("legacy_adam",)


def legacy_cases(size: int) -> list[str]:
    """The cases of legacy Keras on so many ranks."""
    return [name for name, sizes in LEGACY.items() if size in sizes]


def expected(name: str) -> Expected:
    """How this case shall come out."""
    return SPECIAL.get(name) or Expected()


def cases(size: int) -> list[str]:
    """All cases on so many ranks."""
    return [*GRID[size], *(name for name, special in SPECIAL.items() if size in special.sizes)]


def cases_of_all_sizes(cases: Callable[[int], list[str]]) -> list[str]:
    """Every case once: what plain Keras has to do."""
    return list(dict.fromkeys(name for size in SIZES for name in cases(size)))
