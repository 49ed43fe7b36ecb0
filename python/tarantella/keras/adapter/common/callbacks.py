"""Callbacks."""

from __future__ import annotations

import functools
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tarantella.keras.adapter.front_end import LEGACY, keras

if TYPE_CHECKING:
    from collections.abc import Callable


class Callback(keras.callbacks.Callback):  # type: ignore[misc]
    """A callback of our own: it does not look at the logs of a step, so Keras need not wait for their numbers."""

    _supports_tf_logs = True


def callback_list(callbacks: Any) -> list[Any]:
    """What Keras accepts as ``callbacks``, as a list of its own."""
    if isinstance(callbacks, keras.callbacks.CallbackList):
        return list(callbacks.callbacks)
    return [] if callbacks is None else list(tf.nest.flatten(callbacks))


def callback_kinds(*names: str) -> tuple[type, ...]:
    """Those of Keras' callbacks that this version has."""
    return tuple(getattr(keras.callbacks, name) for name in names if hasattr(keras.callbacks, name))


def callback_states() -> list[tuple[type, tuple[str, ...]]]:
    """Keras' callbacks that remember something from epoch to epoch, each with the attributes that hold it.

    Keras restores none of them, so it has no public way to ask. A version that lacks an attribute keeps nothing there.
    """
    names = {
        "EarlyStopping": ("wait", "stopped_epoch", "best", "best_epoch", "best_weights"),
        "ReduceLROnPlateau": ("wait", "best", "cooldown_counter"),
        "ModelCheckpoint": ("best", "epochs_since_last_save", "_batches_seen_since_last_saving", "_last_batch_seen"),
        "SwapEMAWeights": ("_ema_weights_in_model",),
        "TensorBoard": ("_global_train_batch", "_global_test_batch", "_previous_epoch_iterations"),
    }
    return [(kind, attributes) for name, attributes in names.items() for kind in callback_kinds(name)]


def tensorboard_folders() -> tuple[str, ...]:
    """The attributes of a `TensorBoard` that hold its writers' folders. The public ``log_dir`` is the same on all ranks."""
    return ("_train_dir", "_val_dir")


def plain(value: Any) -> Any:
    """What a callback remembers, with tensors as arrays."""
    return tf.nest.map_structure(lambda leaf: leaf.numpy() if hasattr(leaf, "numpy") else leaf, value)


def progress_bar() -> Any:
    """The callback by which Keras shows progress in `fit`."""
    return keras.callbacks.ProgbarLogger(count_mode="steps") if LEGACY else keras.callbacks.ProgbarLogger()


def backup_writer(callback: Any, replace: Callable[[Path, Callable[[str], Any]], None]) -> list[tuple[Any, str, Any]]:
    """Of a `BackupAndRestore`: itself, the name of the method that writes its files, and one that writes them by `replace`."""
    if LEGACY:  # TensorFlow's checkpoints are written beside their place already
        return []

    def write() -> None:
        folder = Path(callback.backup_dir)
        folder.mkdir(parents=True, exist_ok=True)
        weights_file, epoch_file = Path(callback._weights_path), Path(callback._training_metadata_path)
        if callback.double_checkpoint:
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
