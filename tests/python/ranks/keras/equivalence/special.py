"""Training runs beside the grid: one for each thing of Keras or of the data that distribution could break.

They are in the files `special_*.py`; here is what these share, and the list.
"""

from __future__ import annotations

from typing import Any

from tensorflow.keras import optimizers

from recipes import batched, mlp, mlp_data
from training import Case, Job, Outcome

CASES: dict[str, Case] = {}
BATCH = 61


def case(function: Case) -> Case:
    CASES[function.__name__] = function
    return function


def train_mlp(job: Job, *, model: Any = None, data: Any = None, optimizer: Any = None, **how: Any) -> tuple[Any, Outcome]:
    """The usual run, with one thing changed. SGD shows a gradient that is too large or too small; Adam would divide it away."""
    return job.train(
        mlp() if model is None else model,
        batched(mlp_data(), BATCH) if data is None else data,
        optimizer=optimizers.SGD(0.05) if optimizer is None else optimizer,
        loss="mse",
        **how,
    )
