"""The configurations of a model, its optimizers, losses and metrics, compared between ranks: all must train the same.

Ranks whose models differ in more than the shapes of weights would pass any other comparison: in an activation, a loss, a rate
of dropout, a learning rate or a momentum. Their gradients would be mixed without a word. Keras describes most objects by their
`get_config`; a function is described by its code and the numbers that it closes over.
"""

import functools
import hashlib
import json
import os
import re
import types
import weakref
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tarantella import collectives, runtime
from tarantella.errors import MismatchError
from tarantella.keras import adapter

# what may differ between ranks that train the same: seeds, how a rank runs, and names (the plan has those of variables)
_LEFT_OUT = {
    *("name", "seed", "build_config", "compile_config", "registered_name", "optimizer", "jit_compile", "run_eagerly"),
    *("shared_object_id", "batch_input_shape", "batch_shape"),
}
_SIMPLE = (type(None), bool, int, float, str, bytes)
_MAX_SHOWN = 100
_MAX_DEPTH = 40
_TEXT_BYTES = 1000

_not_compared: weakref.WeakKeyDictionary[Any, set[str]] = weakref.WeakKeyDictionary()  # what the log has named already


class Entry(NamedTuple):
    """One value of a configuration."""

    key: str
    value: str
    owner: str
    """The layer, or the like, to which it belongs: the names of layers may differ between ranks."""


class _Description:
    """The entries of a model's configuration, and the names of what cannot be described."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.unknown: list[str] = []

    def add(self, key: str, value: Any, owner: str = "", depth: int = 0) -> None:
        """Adds what describes a value."""
        if isinstance(value, (np.generic, bytes)):
            value = value.item() if isinstance(value, np.generic) else hashlib.sha256(value).hexdigest()
        if isinstance(value, str) and os.sep in value:
            value = os.path.basename(value)  # ranks may have folders of their own
        if isinstance(value, _SIMPLE):
            self._append(key, value, owner)
        elif depth > _MAX_DEPTH:
            self.unknown.append(f"{key} ({type(value).__name__})")
        elif isinstance(value, dict):
            self._add_dict(key, value, owner, depth)
        elif isinstance(value, (list, tuple)):
            if len(value) > 16 and all(isinstance(item, _SIMPLE) for item in value):
                self._append(key, f"{len(value)} values, {_digest(json.dumps(value, default=str).encode())}", owner)
            else:
                for i, item in enumerate(value):
                    self.add(f"{key}[{i}]", item, owner, depth + 1)
        elif isinstance(value, (set, frozenset)):
            self._append(key, sorted(map(str, value)), owner)
        else:
            self._add_object(key, value, owner, depth)

    def _add_dict(self, key: str, value: dict[Any, Any], owner: str, depth: int) -> None:
        inner = value.get("config")
        if "class_name" in value and isinstance(inner, dict):  # as Keras serializes an object
            name = str(inner.get("name", ""))
            owner = f"{value['class_name']} {name!r}" if name and not owner else owner
            self._append(f"{key}.class", value["class_name"], owner)
            if value["class_name"] == "__lambda__":  # its bytes differ between processes
                return
            others = {name: item for name, item in value.items() if name not in ("class_name", "config", "module")}
            without_code = {"function"} if value["class_name"] == "Lambda" else set()
            value = {**{n: item for n, item in inner.items() if n not in without_code}, **others}
        for name in sorted(value, key=str):
            if name not in _LEFT_OUT:
                item = value[name]
                own = owner if name != "layers" else ""
                shown = _without_number(str(name)) if key.startswith("compile.") else str(name)  # of an output, or a metric
                self.add(f"{key}.{shown}", item, own, depth + 1)

    def _add_object(self, key: str, value: Any, owner: str, depth: int) -> None:
        if isinstance(value, functools.partial):
            self.add(f"{key}()", [value.func, list(value.args), value.keywords], owner, depth + 1)
        elif isinstance(value, types.MethodType):
            self.add(key, value.__func__, owner, depth + 1)
        elif isinstance(value, types.FunctionType):
            self._append(key, f"{value.__module__}.{value.__qualname__}", owner)
            self._append(f"{key} (its code)", _digest(_code(value.__code__)), owner)
            cells = zip(value.__code__.co_freevars, value.__closure__ or (), strict=False)
            for name, cell in sorted(cells):
                content = _content(cell)
                if isinstance(content, (bool, int, float)):
                    self._append(f"{key} (its {name})", content, owner)
        elif isinstance(value, type):
            self._append(key, f"{value.__module__}.{value.__qualname__}", owner)
        elif isinstance(value, (np.ndarray, tf.Tensor)) and hasattr(value, "__array__"):  # not one of a graph
            array = np.asarray(value)
            self._append(key, f"{array.dtype} {array.shape} {_digest(array.tobytes())}", owner)
        elif hasattr(value, "get_config"):
            kind = type(value)
            self._append(f"{key}.class", f"{kind.__module__}.{kind.__qualname__}", owner)
            self._add_config(key, value, owner, depth)
        else:
            self._append(key, f"{type(value).__module__}.{type(value).__qualname__}", owner)

    def _add_config(self, key: str, value: Any, owner: str, depth: int) -> bool:
        """Adds the configuration of an object of Keras'; whether it has one."""
        try:
            config = dict(value.get_config())
        except Exception as error:
            runtime.logger.debug("no configuration of %s: %s", type(value).__name__, error)
            self.unknown.append(f"{getattr(value, 'name', key)} ({type(value).__name__})")
            return False
        self._add_dict(key, config, owner, depth)
        return True

    def add_model(self, model: Any) -> None:
        """Adds the layers of a model, however deep."""
        known: set[int] = set()
        for i, layer in enumerate(adapter.layers_of(model)):
            if isinstance(layer, adapter.keras.layers.Lambda):
                self.add(f"layers[{i}].function", layer.function, f"Lambda {layer.name!r}")
            if id(layer) in known or isinstance(layer, adapter.keras.metrics.Metric):
                continue
            key, owner = f"layers[{i}]", "" if layer is model else f"{type(layer).__name__} {layer.name!r}"
            self._append(f"{key}.class", type(layer).__qualname__, owner)
            if isinstance(layer, adapter.keras.layers.Lambda):
                continue
            begin = len(self.entries)
            if not self._add_config(key, layer, owner, 0):
                del self.entries[begin:]
            elif any(entry.key.startswith(f"{key}.layers[") for entry in self.entries[begin:]):
                known.update(map(id, adapter.layers_of(layer)))  # it describes all layers in it

    def _append(self, key: str, value: Any, owner: str) -> None:
        text = value if isinstance(value, str) else repr(value)
        self.entries.append(Entry(key, _without_number(text), owner))


def _without_number(text: str) -> str:
    """The text without the number at the end of a name that Keras has made: ranks may have made other models before."""
    return re.sub(r"^([A-Za-z]\w*?)_\d+$", r"\1", text)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def _code(code: types.CodeType) -> bytes:
    consts = [_code(c) if isinstance(c, types.CodeType) else repr(c).encode() for c in code.co_consts if _is_plain(c)]
    return b"|".join([code.co_code, repr(code.co_names).encode(), *consts])


def _is_plain(value: Any) -> bool:
    return isinstance(value, (*_SIMPLE, types.CodeType)) or (isinstance(value, tuple) and all(map(_is_plain, value)))


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # empty
        return None


def _described(model: Any) -> _Description:
    found = _Description()
    found.add_model(model)
    for name, optimizer in adapter.named_optimizers(model).items():
        found.add(name, optimizer, f"{type(optimizer).__name__}")
    found.add("compile", adapter.compile_arguments(model))
    return found


def entries(model: Any) -> list[list[str]]:
    """The configuration without learning rates, which are state: what describes each value, the value, and its owner."""
    return [list(entry) for entry in _described(model).entries if not entry.key.endswith("learning_rate")]


def difference(own: list[list[str]], others: list[list[str]]) -> tuple[str, str, str] | None:
    """What differs first between two models' `entries`, and both values; None if nothing does."""
    if [entry[:2] for entry in own] == [entry[:2] for entry in others]:
        return None
    return _first_difference([Entry(*entry) for entry in own], [Entry(*entry) for entry in others])


def require_same(model: Any, again: bool = False) -> None:
    """Compares the configurations of model, optimizers, losses and metrics between ranks. Collective.

    again: whether ranks were the same before. Learning rates that were set since are then state, of which rank 0's counts.

    Raises:
        MismatchError: on all ranks; names the first rank that differs from rank 0, the first key, and both values.
    """
    if runtime.get_size() == 1:
        return
    own = _described(model)
    if again:
        _warn_of_rates(model)
        own.entries = [entry for entry in own.entries if not entry.key.endswith("learning_rate")]
    new = set(own.unknown) - _not_compared.setdefault(model, set())
    if new:
        _not_compared[model].update(new)
        runtime.logger.info("without a configuration, so not compared between ranks: %s", ", ".join(sorted(new)))
    rows = [[entry.key, entry.value] for entry in own.entries]
    digests = collectives.all_gather(np.frombuffer(hashlib.sha256(json.dumps(rows).encode()).digest(), np.uint8))
    others = np.flatnonzero((digests != digests[0]).any(axis=1)).tolist()
    if not others:
        return
    master_entries = collectives.broadcast_object([list(entry) for entry in own.entries])
    rank = others[0]
    text = _difference(own.entries, [Entry(*row) for row in master_entries], rank) if runtime.get_rank() == rank else ""
    said = np.frombuffer(text.encode()[:_TEXT_BYTES].ljust(_TEXT_BYTES, b"\0"), np.uint8)
    raise MismatchError(bytes(collectives.broadcast(said, rank)).rstrip(b"\0").decode(errors="replace"))


def _shown(value: str) -> str:
    if re.fullmatch(r"-?\d+\.\d+(e-?\d+)?", value):
        return f"{float(value):.7g}"  # of a number with 32 bits
    return value if len(value) <= _MAX_SHOWN else f"{value[:_MAX_SHOWN]}…"


def _warn_of_rates(model: Any) -> None:
    rates = np.array([float(rate.numpy()) for rate in adapter.learning_rates(model)])
    rank_rates = collectives.all_gather(rates) if len(rates) else np.zeros((1, 0))
    if (rank_rates != rank_rates[0]).any():
        runtime.logger.warning("the ranks have set different learning rates (%s): all take rank 0's", rank_rates.tolist())


def _first_difference(own: list[Entry], master_entries: list[Entry]) -> tuple[str, str, str]:
    nothing = Entry("", "nothing", "")
    for i in range(max(len(own), len(master_entries))):
        here, there = (entries[i] if i < len(entries) else nothing for entries in (own, master_entries))
        if here[:2] != there[:2]:
            break
    owner = here.owner or there.owner
    what = here.key or there.key
    shown = [_shown(entry.value) if entry.key in (what, "") else f"{entry.key} {entry.value}" for entry in (here, there)]
    return f"{what.rpartition('].')[2]}{f' of {owner}' if owner else ''}", shown[0], shown[1]


def _difference(own: list[Entry], master_entries: list[Entry], rank: int) -> str:
    what, here, there = _first_difference(own, master_entries)
    return (
        f"the models of the ranks differ: {what} is {here} on rank {rank} and {there} on rank 0. All ranks train one "
        "model: draw random choices alike (keras.utils.set_random_seed; tnt.tuner makes a tuner that does), or take rank 0's "
        "by tnt.broadcast_object"
    )
