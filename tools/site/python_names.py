"""The page of the public Python names: those of `tarantella.__all__`, with their docstrings."""

from __future__ import annotations

import tarantella

TITLE = """# Python

The public names of `import tarantella as tnt`. The names that only scripts of the predecessor need are in
[Names of the predecessor](../collectives.md#names-of-the-predecessor).
"""
GROUPS = {
    "Models": ("Model", "ParallelStrategy", "deferred_weights"),
    "Ranks": ("get_rank", "get_size", "get_local_rank", "get_local_size", "get_master_rank", "is_master_rank", "launch"),
    "Collectives": (
        "all_reduce",
        "all_gather",
        "all_to_all",
        "reduce_scatter",
        "broadcast",
        "broadcast_object",
        "barrier",
    ),
    "Groups of ranks": ("Group", "get_group_master_rank", "is_group_master_rank"),
    "Training loops of your own": (
        "DistributedGradientTape",
        "broadcast_variables",
        "no_sync",
        "plan",
        "PackedBucket",
        "noise_by_rank",
        "independent_samples",
        "same_noise",
    ),
    "Search for hyperparameters": ("tuner",),
    "Errors": (
        "TarantellaError",
        "InvalidArgumentError",
        "MismatchError",
        "DeadlineError",
        "PeerLostError",
        "AbortedError",
        "RankFailedError",
        "UnsupportedError",
    ),
}
MODULES = {
    "Callbacks": "tarantella.keras.callbacks",
    "Optimizers": "tarantella.keras.loops.optimizers",
    "Loops that lose ranks": "tarantella.keras.elastic.committed",
    "Models from files and from layers": "tarantella.keras.models",
}


def page() -> str:
    parts = [TITLE]
    for title, names in GROUPS.items():
        parts.append(f"\n## {title}\n")
        parts += [f"\n::: {_module(name)}.{name}\n" for name in names]
    for title, module in MODULES.items():
        parts.append(f"\n## {title}\n\n::: {module}\n    options:\n      show_root_heading: false\n")
    return "".join(parts)


def _module(name: str) -> str:
    """Where a name is defined: not all are loaded when the package is imported."""
    return tarantella._LAZY.get(name) or getattr(tarantella, name).__module__
