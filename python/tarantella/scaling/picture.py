"""Speed-up over ranks, beside linear. matplotlib is imported when a picture is drawn, not before."""

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol


class Point(Protocol):
    """A prediction for a number of ranks."""

    @property
    def ranks(self) -> int:
        """The number."""

    @property
    def speed_up(self) -> float:
        """Over one."""


class PictureError(Exception):
    """The picture cannot be drawn; the text says why."""


def draw(curves: Mapping[str, Sequence[Point]], file: Path, title: str) -> None:
    """Raises PictureError."""
    try:
        matplotlib = importlib.import_module("matplotlib")
        matplotlib.use("Agg")
        pyplot = importlib.import_module("matplotlib.pyplot")
    except ModuleNotFoundError:
        raise PictureError("--plot needs matplotlib: pip install tarantella[bench]") from None
    figure, axes = pyplot.subplots(figsize=(6.4, 4.8), layout="constrained")
    ranks = sorted({prediction.ranks for curve in curves.values() for prediction in curve})
    axes.plot(ranks, ranks, color="0.6", linestyle=":", label="linear")
    for label, curve in curves.items():
        axes.plot([p.ranks for p in curve], [p.speed_up for p in curve], marker="o", markersize=3, label=label)
    axes.set(xscale="log", yscale="log", xlabel="ranks", ylabel="speed-up, simulated", title=title)
    axes.grid(alpha=0.3)
    axes.legend()
    try:
        figure.savefig(file)
    except (OSError, ValueError) as error:
        raise PictureError(f"--plot {file}: {error}") from None
    finally:
        pyplot.close(figure)
