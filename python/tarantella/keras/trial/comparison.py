"""How numbers of a batch are made of those of its parts."""

import zlib
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

TOLERANCE = 1e-3  # relative: rounding in float32 is less, also in deep models
SAME_VALUE = 1e-4  # of one number, such as a loss


class Kind(Enum):
    """How the number of a batch is made of those of its parts."""

    MEAN = "the mean over samples"
    SUM = "the sum"
    COUPLED = "neither"
    ALIKE = "one that any samples give"
    UNKNOWN = "not known"


class NotComparable(Exception):
    """No comparison can be made; the text says why."""


def compared(
    whole: Any,
    parts: Sequence[Any],
    weights: Sequence[float],
    floor: float = 0.0,
    tolerance: float = TOLERANCE,
) -> Kind:
    """How the numbers of the whole are made of those of the parts.

    Args:
        weights: the part that the samples of each are of the whole.
        floor: differences up to this one are rounding.
        tolerance: so are those up to this part of the numbers.
    """
    whole, parts = np.asarray(whole, np.float64), [np.asarray(part, np.float64) for part in parts]
    if not all(np.isfinite(n).all() for n in (whole, *parts)):
        return Kind.UNKNOWN
    size = max(float(np.linalg.norm(n)) for n in (whole, *parts))
    if size <= floor or size == 0:
        return Kind.UNKNOWN
    allowed = tolerance * size + floor
    if np.linalg.norm(whole - sum(w * p for w, p in zip(weights, parts, strict=True))) <= allowed:
        return Kind.MEAN
    return Kind.SUM if np.linalg.norm(whole - sum(parts)) <= allowed else Kind.COUPLED


def common_kind(kinds: Iterable[Kind]) -> Kind:
    """The kind of a number that was found to be of these kinds, on several ranks or of several samples."""
    known = set(kinds) - {Kind.UNKNOWN}
    if known != {Kind.ALIKE}:
        known -= {Kind.ALIKE}
    if len(known) > 1:
        return Kind.COUPLED  # a mean of some samples and a sum of others is neither
    return known.pop() if known else Kind.UNKNOWN


def difference_of_rows(whole: Any, parts: Sequence[Any], sizes: Sequence[int]) -> float:
    """The largest difference of a sample's row in the whole and in its part, relative to the size of a row.

    Args:
        whole: an output with a row, or equally many rows, for each sample.
        sizes: how many samples the parts have.

    Raises:
        NotComparable: there are no such rows.
    """
    whole, parts = _numbers(whole), [_numbers(part) for part in parts]
    samples = sum(sizes)
    if whole.ndim == 0 or whole.shape[0] % samples or any(part.ndim == 0 for part in parts):
        raise NotComparable("it has not one row for each sample")
    rows = whole.shape[0] // samples
    if any(part.shape[0] != rows * size for part, size in zip(parts, sizes, strict=True)):
        raise NotComparable("it has not one row for each sample")
    if any(part.shape[1:] != whole.shape[1:] for part in parts):
        return np.inf  # a longer row, for example, where another sample is longer
    grouped = [part.reshape(rows, size, -1) for part, size in zip(parts, sizes, strict=True)]
    whole, together = whole.reshape(rows, samples, -1), np.concatenate(grouped, 1)
    if not np.array_equal(np.isfinite(whole), np.isfinite(together)):
        return np.inf
    whole, together = np.nan_to_num(whole), np.nan_to_num(together)
    size = np.sqrt((whole**2).sum((0, 2)).mean())
    apart = np.sqrt(((whole - together) ** 2).sum((0, 2)).max())
    return float(apart / size) if size else float(apart > 0)


def _numbers(output: Any) -> NDArray[Any]:
    array = np.asarray(output)
    if array.dtype.kind not in "fiubc" and array.dtype.name not in ("bfloat16", "float16"):
        array = np.array([zlib.crc32(bytes(text)) for text in array.ravel()], np.float64).reshape(array.shape)
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)
