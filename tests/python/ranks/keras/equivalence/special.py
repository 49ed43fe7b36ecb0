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
    """The usual run, with one thing changed."""
    how.setdefault("compiling", {"metrics": ["mae"]})
    return job.train(
        mlp() if model is None else model,
        batched(mlp_data(), BATCH) if data is None else data,
        optimizer=optimizers.Adam(2e-3) if optimizer is None else optimizer,
        loss="mse",
        **how,
    )
