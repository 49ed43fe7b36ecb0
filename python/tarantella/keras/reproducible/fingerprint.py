"""`TNT_FINGERPRINT=file`: hashes of gradients and weights in each step, by which two runs of a training can be compared.

Rank 0 writes the file, a JSON object on each line, and `tarantella verify` reads it. Gradients are hashed where they leave the
reducers, by TensorFlow's FarmHash of their bytes, and the hashes are kept in a variable until the step ends. Weights are hashed
between steps.
"""

import json
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tarantella import _native, environment, runtime, settings
from tarantella.errors import InvalidArgumentError
from tarantella.keras import adapter
from tarantella.keras.adapter.tensorflow import own_variable
from tarantella.keras.reduction.weights import state_keys


class View:
    """All of it: every rank holds the whole model."""

    def is_here(self, variable: Any) -> bool:
        """Whether this rank has the variable's value."""
        return True

    def together(self, values: Sequence[int | None]) -> list[int | None]:
        """The hashes of all ranks, None where no rank has one."""
        return list(values)

    def state(self, model: Any) -> list[tuple[str, Any]]:
        """The paths of the optimizers' variables, and the variables: in the same order in any run of the script.

        A variable whose value this rank does not have is None.
        """
        variables = adapter.optimizer_variables(model)
        paths = [adapter.path(v) for v in variables]
        ordered = sorted(zip(state_keys(paths), range(len(paths)), strict=True))
        return [(paths[place], variables[place]) for _, place in ordered]


FORMAT = 1
_BITS = (1 << 64) - 1
_recorders: "weakref.WeakKeyDictionary[Any, Recorder]" = weakref.WeakKeyDictionary()
_log: "_Log | None" = None


# ------------------------------------------------------------------------------------------------- for other modules


def record_gradients(model: Any, grads: Sequence[Any], variables: Sequence[Any], view: View | None = None) -> None:
    """Records the gradients that the optimizer gets next; graph or eager. Costs nothing unless hashes are asked for."""
    recorder = _recorder(model, view)
    if recorder is not None:
        recorder.record_gradients(grads, variables)


def callbacks(model: Any, bucket_of: Callable[[], Mapping[int, int]], view: View | None = None) -> list[Any]:
    """Callbacks for `fit`, to run after the ranks' state is synchronised; none unless hashes are asked for.

    Args:
        bucket_of: gives the bucket of each variable's gradient, by the variable's id.
        view: of a model of which no rank holds all; all ranks have callbacks then.
    """
    recorder = _recorder(model, view)
    return [] if recorder is None else [_RecordingCallback(recorder, bucket_of)]


def with_callbacks(given: Any, model: Any) -> Any:
    """The callbacks of a `fit` of the plain model on one rank, with one that records its weights if hashes are asked for."""
    recording = callbacks(model, dict)
    return [*recording, *adapter.callback_list(given)] if recording else given


@contextmanager
def recorded_step(model: Any, bucket_of: Callable[[], Mapping[int, int]], view: View | None = None) -> Iterator[None]:
    """Context of a single step, such as `train_on_batch`. Arguments: as for `callbacks`."""
    recorder = _recorder(model, view)
    if recorder is None:
        yield
        return
    if not recorder.began:
        recorder.begin()
    recorder.before_step()
    yield
    recorder.after_step(None, recorder.steps, bucket_of)


def _recorder(model: Any, view: View | None = None) -> "Recorder | None":
    """The model's recorder: on the rank that writes the file, or on all ranks if each holds a part of the model."""
    global _log
    path = settings.fingerprint()
    if path is None:
        return None
    if runtime.is_master_rank() and _log is None:
        _log = _Log(path, environment.restarts())
    if model not in _recorders and (view is not None or runtime.is_master_rank()):
        _recorders[model] = Recorder(model, _log, view or View())
    return _recorders.get(model)


# ------------------------------------------------------------------------------------------------------ the file


class _Log:
    """The file. A job begins it anew; a job that was restarted continues it."""

    def __init__(self, path: Path, restarts: int) -> None:
        try:
            self._file = path.open("a+b" if restarts else "wb", buffering=0)
        except OSError as error:
            raise InvalidArgumentError(f"TNT_FINGERPRINT: cannot write {str(path)!r}: {error.strerror}") from None
        self.trainings = 0
        if restarts and self._file.tell():
            self._file.write(b"\n")  # the last line may be incomplete
            self.write("restart", restart=restarts)
        self.write(
            "run",
            format=FORMAT,
            ranks=runtime.get_size(),
            shards=settings.reproducible(),
            threads=environment.intra_op_threads(),
            versions={"tarantella": _native.version(), "tensorflow": tf.__version__, "keras": adapter.version()},
        )

    def write(self, kind: str, **values: Any) -> None:
        """Writes a line at once."""
        self._file.write(json.dumps({"kind": kind, **values}).encode() + b"\n")


class Recorder:
    """Records the training of one model.

    Args:
        log: None on ranks that do not write.
    """

    def __init__(self, model: Any, log: _Log | None, view: View) -> None:
        # not the model itself, which is the weak key of this recorder
        self._model = weakref.ref(model)
        self._log, self._view = log, view
        self._training: int | None = None
        self._initial: list[str | None] | None = None
        self._described = False
        self._hashers: dict[tuple[int, ...], Callable[[], tf.Tensor]] = {}
        self._slots: dict[tuple[int, ...], tuple[tf.Variable, list[Any]]] = {}
        self._counts: dict[tuple[int, ...], int] = {}
        self.steps = 0

    # ------------------------------------------------------------------------------------------- in a step

    def record_gradients(self, grads: Sequence[Any], variables: Sequence[Any]) -> None:
        """Hashes gradients into their slot, whose first element counts the steps."""
        present = [(g, v) for g, v in zip(grads, variables, strict=True) if g is not None]
        if not present:
            return
        slot = self._slot([v for _, v in present])
        found = _hashes([tf.convert_to_tensor(g) for g, _ in present])
        slot.assign(tf.concat([slot.read_value()[:1] + 1, found], 0))

    def _slot(self, variables: list[Any]) -> tf.Variable:
        key = _key(variables)
        if key not in self._slots:
            with tf.init_scope(), tf.device("CPU:0"):
                zeros = np.zeros(1 + len(variables), np.int64)
                self._slots[key] = own_variable(zeros, name="fingerprints"), variables
        return self._slots[key][0]

    # ----------------------------------------------------------------------------------------------- between steps

    def begin(self) -> None:
        self._training, self._initial, self._described, self.steps = 0, None, False, 0
        if self._log is not None:
            self._training = self._log.trainings
            self._log.trainings += 1

    @property
    def began(self) -> bool:
        """Whether there was a training."""
        return self._training is not None

    def before_step(self) -> None:
        """Hashes the initial weights. They are written after the first step, when all variables have their names."""
        if self._initial is None:
            self._initial = self._hashes_of(adapter.weights(self._model_here()))

    def after_step(self, epoch: int | None, step: int, bucket_of: Callable[[], Mapping[int, int]]) -> None:
        """Writes a line."""
        model = self._model_here()
        variables = adapter.trainable_variables(model)
        if not self._described:
            self._described = True
            self._describe(model, bucket_of())
        self.steps += 1
        found = self._gradients()
        gradients = self._texts([found.get(id(v)) for v in variables])
        self._write(
            "step",
            training=self._training,
            epoch=epoch,
            step=step,
            gradients=gradients if any(gradients) else None,
            weights=self._hashes_of(variables),
        )

    def after_epoch(self, epoch: int, logs: Mapping[str, Any]) -> None:
        """Writes a line."""
        model = self._model_here()
        self._write(
            "epoch",
            training=self._training,
            epoch=epoch,
            weights=self._hashes_of(adapter.weights(model)),
            optimizer=self._hashes_of_state(),
            logs={name: _hex(value) for name, value in logs.items()},
        )

    def _describe(self, model: Any, bucket_of: Mapping[int, int]) -> None:
        self._write(
            "training",
            training=self._training,
            variables=[
                {"name": adapter.path(v), "dtype": adapter.dtype_of(v), "bucket": bucket_of.get(id(v))}
                for v in adapter.trainable_variables(model)
            ],
            weights=[adapter.path(v) for v in adapter.weights(model)],
            optimizer=[path for path, _ in self._view.state(model)],
            initial=self._initial,
        )

    def _write(self, kind: str, **values: Any) -> None:
        if self._log is not None:
            self._log.write(kind, **values)

    def _gradients(self) -> dict[int, int]:
        """Hashes of the gradients that this step has recorded on this rank, by the variables' ids."""
        found: dict[int, int] = {}
        for key, (slot, variables) in self._slots.items():
            count, *values = slot.numpy().tolist()
            if count != self._counts.get(key, 0):
                self._counts[key] = count
                found.update({id(v): value for v, value in zip(variables, values, strict=True)})
        return found

    def _hashes_of(self, variables: Sequence[Any]) -> list[str | None]:
        here = [v for v in variables if self._view.is_here(v)]
        found = iter(self._own_hashes(here))
        return self._texts([next(found) if self._view.is_here(v) else None for v in variables])

    def _own_hashes(self, variables: Sequence[Any]) -> list[int]:
        key = _key(variables)
        if not key:
            return []
        if key not in self._hashers:
            inner = [adapter.unwrap(v) for v in variables]
            self._hashers[key] = tf.function(lambda: _hashes([v.read_value() for v in inner]), jit_compile=False)
        hashes: list[int] = self._hashers[key]().numpy().tolist()
        return hashes

    def _hashes_of_state(self) -> list[str | None]:
        """The hashes of the optimizers' variables. What other ranks hold is read one after the other."""
        variables = [variable for _, variable in self._view.state(self._model_here())]
        whole = iter(self._own_hashes([v for v in variables if v is not None and not adapter.is_slot(v)]))
        found: list[int | None] = []
        for v in variables:
            if v is not None and adapter.is_slot(v):
                found.append(int(_hashes([tf.constant(v.numpy())])[0]))
            else:
                found.append(None if v is None else next(whole))
        return self._texts(found)

    def _texts(self, values: Sequence[int | None]) -> list[str | None]:
        return [None if value is None else _text(value) for value in self._view.together(values)]

    def _model_here(self) -> Any:
        return self._model()


class _RecordingCallback(adapter.Callback):
    """Calls the recorder before and after steps and epochs."""

    def __init__(self, recorder: Recorder, bucket_of: Callable[[], Mapping[int, int]]) -> None:
        super().__init__()
        self._recorder = recorder
        self._bucket_of = bucket_of
        self._epoch = 0

    def on_train_begin(self, logs: Any = None) -> None:
        self._recorder.begin()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._recorder.before_step()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._recorder.after_step(self._epoch, batch, self._bucket_of)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._recorder.after_epoch(epoch, logs or {})


def _hashes(tensors: Sequence[tf.Tensor]) -> tf.Tensor:
    """64 bits of the bytes of each tensor: int64, as many as there are tensors."""
    with tf.device("CPU:0"):
        return tf.bitcast(tf.stack([tf.fingerprint(tf.reshape(t, [1, -1]))[0] for t in tensors]), tf.int64)


def _key(variables: Sequence[Any]) -> tuple[int, ...]:
    return tuple(id(v) for v in variables)


def _text(value: int) -> str:
    return f"{value & _BITS:016x}"


def _hex(value: Any) -> str | list[str]:
    """One number, or several, exact to the last bit."""
    numbers = np.asarray(value, np.float64)
    return float(numbers).hex() if numbers.ndim == 0 else [float(number).hex() for number in numbers.ravel()]
