"""The check that all ranks took parts of the same batch, and the sentence that says whose batch differs, and in what."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from tarantella import runtime
from tarantella.errors import mark
from tarantella.keras.data import causes, split
from tarantella.keras.reduction import collectives

Datasets = Callable[[], Sequence[tf.data.Dataset]]

_WHAT = "the ranks took parts of different batches in this step"


def checked(is_same: tf.Tensor, share: split.Share, given: Datasets) -> list[Any]:
    """What an operation waits for that shall run only if all ranks have the same batch.

    If they have not, they vote: that costs an exchange, and nothing in a step that is right.

    Args:
        is_same: whether the sums of the fingerprints are equal on all ranks: the same on all.
        given: gives the datasets of which the batches are, for advice.
    """
    names = list(share.fingerprints)

    def vote() -> tf.Tensor:
        traits = tf.reshape(tf.numpy_function(lambda: causes.traits(given()), [], tf.int64), [causes.N_TRAITS])
        own = tf.concat([tf.stack(list(share.fingerprints.values())), traits], 0)
        place = tf.one_hot(runtime.get_rank(), runtime.get_size(), dtype=tf.int64)
        rank_fingerprints = collectives.total(place[:, tf.newaxis] * own)
        text = tf.numpy_function(
            lambda found: mark("TNT_MISMATCH", sentence(names, found, given())), [rank_fingerprints], tf.string
        )
        check = tf.debugging.Assert(is_same, [text])
        with tf.control_dependencies([] if check is None else [check]):
            return tf.constant(False)

    return [tf.cond(is_same, lambda: tf.constant(True), vote)]


def sentence(names: Sequence[str], rank_fingerprints: NDArray[np.int64], given: Sequence[tf.data.Dataset]) -> str:
    """Says which ranks have another batch than most, and what of it differs.

    Args:
        names: of the fingerprints.
        rank_fingerprints: each rank's fingerprints, and after them its `causes.traits`.
    """
    batches = [tuple(row) for row in rank_fingerprints[:, : len(names)].tolist()]
    (most, votes), *others = Counter(batches).most_common()
    usual, odd = batches.index(most), [rank for rank, batch in enumerate(batches) if batch != most]
    has_majority = votes > 1 and (not others or votes > others[0][1])
    who = f"{_ranks(odd)} {'has' if len(odd) == 1 else 'have'} another than the others" if has_majority else ""
    if not has_majority:
        odd = odd[:1]
        who = f"those of {_ranks([usual, *odd])} differ" if len(batches) == 2 else "there is none that most ranks have"
    differing = [place for place, name in enumerate(names) if any(batches[r][place] != most[place] for r in odd)]
    what = [names[place] for place in differing if names[place] != split.SAMPLES]
    said = [f"in {' and '.join(what)}"] if what else []
    if split.SAMPLES in names and (place := names.index(split.SAMPLES)) in differing:
        counts = {rank: batches[rank][place] for rank in [usual, *odd]}
        said.append("in the number of samples: " + ", ".join(f"{n} on rank {rank}" for rank, n in sorted(counts.items())))
    alike = [len(set(trait)) == 1 for trait in rank_fingerprints[:, len(names) :].T.tolist()]
    return f"{_WHAT}: {who}, {', and '.join(said)}. To mend it: {causes.advice(given, alike)}"


def _ranks(ranks: Sequence[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    shown = [*map(str, ranks[:8]), *(["others"] if len(ranks) > 8 else [])]
    return f"ranks {', '.join(shown[:-1])} and {shown[-1]}"
