"""Keras' callbacks: their state, the files they write, and a base class for our own."""

import functools
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tensorflow as tf

from tarantella.keras.adapter.front_end import LEGACY, keras

_SAVING = ("_batches_seen_since_last_saving", "_last_batch_seen")


class Callback(keras.callbacks.Callback):  # type: ignore[misc]
    """A callback of our own, which does not look at the logs of a step."""

    _supports_tf_logs = True  # otherwise legacy Keras waits for the numbers of each step


def callback_list(callbacks: Any) -> list[Any]:
    """A new list of what Keras accepts as ``callbacks``: None, one, a nested structure or a `CallbackList`."""
    if isinstance(callbacks, keras.callbacks.CallbackList):
        return list(callbacks.callbacks)
    return [] if callbacks is None else list(tf.nest.flatten(callbacks))


def callback_kinds(*names: str) -> tuple[type, ...]:
    """The classes of these callbacks of Keras, as far as this version has them."""
    return tuple(getattr(keras.callbacks, name) for name in names if hasattr(keras.callbacks, name))


def callback_states() -> list[tuple[type, tuple[str, ...]]]:
    """Keras' callbacks that keep state between epochs, each with the attributes that hold it.

    Keras saves the state of none of them, so it has no public way to ask. Legacy Keras lacks some of the attributes.
    """
    names = {
        "EarlyStopping": ("wait", "stopped_epoch", "best", "best_epoch", "best_weights"),
        "ReduceLROnPlateau": ("wait", "best", "cooldown_counter"),
        "ModelCheckpoint": ("best", "epochs_since_last_save", *_SAVING),
        "BackupAndRestore": ("_current_epoch", "_batches_count", *_SAVING),
        "CSVLogger": ("keys",),
        "SwapEMAWeights": ("_ema_weights_in_model",),
        "TensorBoard": ("_global_train_batch", "_global_test_batch", "_previous_epoch_iterations"),
    }
    return [(kind, attributes) for name, attributes in names.items() for kind in callback_kinds(name)]


def remember(callback: Any, attributes: dict[str, Any]) -> None:
    """Gives a callback the attributes that hold its state.

    Before Keras 3.7 an `EarlyStopping` forgets the best value when it chooses how to compare, in its first epoch. It does now.
    """
    if isinstance(callback, keras.callbacks.EarlyStopping) and callback.model is not None:
        choose = vars(keras.callbacks.EarlyStopping).get("_set_monitor_op")  # later, its base class has it
        if choose is not None and callback.monitor_op is None:
            choose(callback)
    vars(callback).update(attributes)


def batch_counter(callback: Any, hook: str) -> Callable[[int], bool] | None:
    """What counts a batch as this hook of one of Keras' callbacks does, and does nothing else; None if the hook counts none.

    It returns whether the hook would write a file at this batch.
    """
    if hook in (counted := {"on_train_batch_begin": "_global_train_batch", "on_test_batch_begin": "_global_test_batch"}):
        if isinstance(callback, callback_kinds("TensorBoard")) and counted[hook] in vars(callback):
            return lambda _: _count(callback, counted[hook], None)
        return None
    frequency = getattr(callback, "save_freq", None)
    if hook != "on_train_batch_end" or not isinstance(frequency, int) or not frequency:
        return None
    for kind in callback_kinds("BackupAndRestore", "ModelCheckpoint"):
        methods = (hook, "_should_save_on_batch")  # as Keras has them
        is_plain = isinstance(callback, kind) and all(getattr(type(callback), m, 0) is getattr(kind, m, 0) for m in methods)
        if is_plain:
            if "_batches_count" in vars(callback):  # legacy Keras
                return lambda _: _count(callback, "_batches_count", frequency)
            counter: Callable[[int], bool] = callback._should_save_on_batch
            return counter
    return None


def _count(callback: Any, name: str, end: int | None) -> bool:
    """Counts one more. end: where it begins anew. Returns whether it did."""
    count = vars(callback)[name] + 1
    is_over = end is not None and count >= end
    vars(callback)[name] = 0 if is_over else count
    return is_over


@contextmanager
def without_restoring(callback: Any) -> Iterator[None]:
    """In this context a `BackupAndRestore` finds nothing to restore."""
    owner: Any = callback
    attributes: dict[str, Any] = {"_weights_path": "", "_training_metadata_path": ""}
    if LEGACY:
        owner, attributes = tf.train.CheckpointManager, {"restore_or_initialize": lambda _: None}
    before = {name: getattr(owner, name) for name in attributes}
    for name, value in attributes.items():
        setattr(owner, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(owner, name, value)


def tensorboard_folders() -> tuple[str, ...]:
    """The attributes of a `TensorBoard` that hold its writers' folders. The public ``log_dir`` is only their parent."""
    return ("_train_dir", "_val_dir")


def with_arrays(value: Any) -> Any:
    """The value of an attribute of a callback, with tensors as arrays."""
    return tf.nest.map_structure(lambda leaf: leaf.numpy() if hasattr(leaf, "numpy") else leaf, value)


def progress_bar() -> Any:
    """A new callback of the class that shows progress in `fit`."""
    return keras.callbacks.ProgbarLogger(count_mode="steps") if LEGACY else keras.callbacks.ProgbarLogger()


def backup_writer(callback: Any, replace: Callable[[Path, Callable[[str], Any]], None]) -> list[tuple[Any, str, Any]]:
    """Patches (owner, attribute, value) by which a `BackupAndRestore` writes its files with `replace`.

    Keras overwrites them in place: a process that is killed in the middle leaves a broken file. It has no public hook there.
    """
    if LEGACY:  # writes TensorFlow's checkpoints, which are renamed when they are complete
        return []

    def write() -> None:
        folder = Path(callback.backup_dir)
        folder.mkdir(parents=True, exist_ok=True)
        weights_file, epoch_file = Path(callback._weights_path), Path(callback._training_metadata_path)
        if getattr(callback, "double_checkpoint", False):  # from Keras 3.7 on
            for file, kept in (
                (weights_file, callback._prev_weights_path),
                (epoch_file, callback._prev_training_metadata_path),
            ):
                if file.exists():
                    replace(Path(kept), functools.partial(shutil.copyfile, file))
        replace(weights_file, callback.model.save_weights)
        progress = {"epoch": callback._current_epoch, "batch": callback._last_batch_seen}
        replace(epoch_file, lambda path: Path(path).write_text(json.dumps(progress)))

    return [(callback, "_save_model", write)]
