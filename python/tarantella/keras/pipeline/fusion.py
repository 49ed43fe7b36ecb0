"""Places at which a cut would divide what TensorFlow computes as one.

TensorFlow's graph optimizer replaces some neighbours by one kernel (a Dense layer and the activation after it), and adds up
sums of sums in another order. It sees one stage at a time. A cut between such neighbours may therefore change the last bit.
"""

from collections.abc import Sequence
from typing import Any

from tarantella.errors import UnsupportedError
from tarantella.keras import adapter
from tarantella.keras.pipeline.trace import variables_of

# lower-case names of layers and of keras.ops
_SUMS = {"add", "subtract", "rescaling"}
_ACTIVATIONS = {"activation", "relu", "relu6", "leakyrelu", "elu", "gelu", "silu", "sigmoid", "tanh"}
_NOTHING_IN_EVALUATE = {"identity", "splitlayer", "dropout", "spatialdropout1d", "spatialdropout2d", "spatialdropout3d"}
_NOTHING_IN_EVALUATE |= {"gaussiandropout", "gaussiannoise", "alphadropout"}


def neighbours(calls: Sequence[Any]) -> list[tuple[int, int]]:
    """The places of two calls that TensorFlow may compute as one: the second takes what only the first gives.

    Layers that do nothing outside of training may stand between them.
    """
    makers = {id(tensor): place for place, call in enumerate(calls) for tensor in call.outputs}
    users: dict[int, set[int]] = {}
    for place, call in enumerate(calls):
        for tensor in call.input_tensors:
            users.setdefault(id(tensor), set()).add(place)
    found = []
    for place, call in enumerate(calls):
        if _kind(call) in _SUMS | _ACTIVATIONS:
            for tensor in call.input_tensors:
                maker, key = makers.get(id(tensor)), id(tensor)
                while maker is not None and len(users[key]) == 1 and _kind(calls[maker]) in _NOTHING_IN_EVALUATE:
                    key = id(calls[maker].input_tensors[0])
                    maker = makers.get(key)
                if maker is not None and len(users[key]) == 1 and _ends_in_a_sum(calls[maker]):
                    found.append((maker, place))
    return found


def places(calls: Sequence[Any]) -> set[int]:
    """The places at which a cut would come between such neighbours."""
    return {place for first, second in neighbours(calls) for place in range(first + 1, second + 1)}


def refuse_divided(calls: Sequence[Any], stage_of: Sequence[int]) -> None:
    """Raises UnsupportedError if such neighbours are in two stages."""
    for first, second in neighbours(calls):
        if stage_of[first] != stage_of[second]:
            names = calls[first].operation.name, calls[second].operation.name
            raise UnsupportedError(
                f"reproducible: TensorFlow may compute {names[0]} and {names[1]} as one, with other bits than if a cut of the "
                f"pipeline comes between them: cut before {names[0]} or after {names[1]}, use fewer stages, or leave out "
                "reproducible"
            )


def _kind(call: Any) -> str:
    return type(call.operation).__name__.lower()


def _ends_in_a_sum(call: Any) -> bool:
    """Whether its last operation may be a sum: of products, with a bias, or of its inputs."""
    activation = getattr(call.operation, "activation", None)
    is_linear = activation is None or activation is adapter.keras.activations.linear
    return _kind(call) in _SUMS or (bool(variables_of(call)) and is_linear)
