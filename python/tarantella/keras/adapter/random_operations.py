"""The operations that draw random numbers, and how a replacement gets in front of them.

Layers, `keras.random`, `tf.random`, `tf.image` and `tf.nn` all end at functions that TensorFlow generates for its operations.
The modules of these functions are private. `tf.raw_ops` has the same functions under public names, and tells the modules.
TensorFlow 2.21 was looked at.
"""

import enum
import functools
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import tensorflow as tf


class Seeds(enum.Enum):
    """Where an operation has its seed."""

    ATTRIBUTES = "two integers, seed and seed2; the operation keeps its position in a state that nobody can read"
    TENSOR = "the tensor seed"
    KEY = "the tensor key, beside the tensor counter"
    VARIABLE = "the state of a tf.random.Generator, whose last element is its key"


_NAMES = {
    Seeds.ATTRIBUTES: (
        "RandomUniform RandomUniformInt RandomStandardNormal TruncatedNormal ParameterizedTruncatedNormal RandomGamma "
        "RandomPoisson RandomPoissonV2 Multinomial RandomShuffle RandomCrop SampleDistortedBoundingBox "
        "SampleDistortedBoundingBoxV2 FractionalAvgPool FractionalMaxPool AllCandidateSampler FixedUnigramCandidateSampler "
        "LearnedUnigramCandidateSampler LogUniformCandidateSampler ThreadUnsafeUnigramCandidateSampler UniformCandidateSampler"
    ),
    Seeds.TENSOR: (
        "RandomIndexShuffle StatelessMultinomial StatelessParameterizedTruncatedNormal StatelessRandomBinomial "
        "StatelessRandomGammaV2 StatelessRandomNormal StatelessRandomPoisson StatelessRandomUniform "
        "StatelessRandomUniformFullInt StatelessRandomUniformInt StatelessSampleDistortedBoundingBox StatelessTruncatedNormal"
    ),
    Seeds.KEY: (
        "StatelessRandomGammaV3 StatelessRandomNormalV2 StatelessRandomUniformFullIntV2 StatelessRandomUniformIntV2 "
        "StatelessRandomUniformV2 StatelessShuffle StatelessTruncatedNormalV2"
    ),
    Seeds.VARIABLE: (
        "StatefulRandomBinomial StatefulStandardNormal StatefulStandardNormalV2 StatefulTruncatedNormal StatefulUniform "
        "StatefulUniformFullInt StatefulUniformInt"
    ),
}
SEEDS = {name: seeds for seeds, names in _NAMES.items() for name in names.split() if hasattr(tf.raw_ops, name)}
"""Where each operation that draws random numbers has its seed. Not in here: those of datasets and of queues."""

_PLAIN = re.compile(
    "(Random|StatelessRandom|Stateful)(Uniform|StandardNormal|Normal)(Int)?(V2)?|(Stateless|Stateful)?TruncatedNormal(V2)?"
)


@dataclass(frozen=True)
class Draw:
    """One call of an operation that draws random numbers."""

    operation: str
    arguments: dict[str, Any]
    original: Callable[..., Any]

    @property
    def seeds(self) -> Seeds:
        """Where the operation has its seed."""
        return SEEDS[self.operation]

    @property
    def has_plain_numbers(self) -> bool:
        """Whether each element is drawn by itself, from one normal or uniform distribution for all."""
        return _PLAIN.fullmatch(self.operation) is not None

    @property
    def is_shuffle(self) -> bool:
        """Whether it brings the rows of a tensor into another order."""
        return self.operation in ("RandomShuffle", "StatelessShuffle")

    def run(self, **changed: Any) -> Any:
        """Draws, with some arguments changed."""
        return self.original(**{**self.arguments, **changed})


def replace_draws(is_replaced: Callable[[], bool], draw: Callable[[Draw], Any]) -> None:
    """From now on `draw` makes the calls for which `is_replaced` holds, of all operations in `SEEDS`. Once in a process.

    `tf.random` has no hook for this, and its public functions are called by names that others have imported.
    """
    for operation in SEEDS:
        generated = inspect.unwrap(getattr(tf.raw_ops, operation))
        signature = inspect.signature(generated)
        for owner, name in _places(operation, generated):
            setattr(owner, name, _replacement(operation, signature, getattr(owner, name), is_replaced, draw))


def _places(operation: str, generated: Callable[..., Any]) -> Iterator[tuple[Any, str]]:
    module = sys.modules[generated.__module__]
    yield from ((module, generated.__name__), (module, operation), (tf.raw_ops, operation), (tf.compat.v1.raw_ops, operation))


def _replacement(
    operation: str,
    signature: inspect.Signature,
    original: Callable[..., Any],
    is_replaced: Callable[[], bool],
    draw: Callable[[Draw], Any],
) -> Callable[..., Any]:
    @functools.wraps(original)
    def replacement(*args: Any, **kwargs: Any) -> Any:
        if not is_replaced():
            return original(*args, **kwargs)
        return draw(Draw(operation, signature.bind(*args, **kwargs).arguments, original))

    return tf.autograph.experimental.do_not_convert(replacement)  # type: ignore[no-any-return]


def trace_apart(mark: Callable[[], Any]) -> None:
    """From now on a `tf.function` has a trace of its own for each value of `mark` that is not None. Once for a mark.

    A trace is kept for later calls, with the operations that it was made with. What else a `tf.function` distinguishes
    cannot be extended from outside.
    """
    from tensorflow.python.eager.polymorphic_function import function_context

    original = function_context.make_function_context

    @functools.wraps(original)
    def make_function_context(*args: Any, **kwargs: Any) -> Any:
        found, value = original(*args, **kwargs), mark()
        return found if value is None else found._replace(context=(found.context, value))

    function_context.make_function_context = make_function_context
