"""The methods of `tnt.Model` that a pipeline, of which each rank holds some stages, has in place of the ordinary ones."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from tarantella import collectives, runtime
from tarantella.errors import UnsupportedError
from tarantella.keras import files
from tarantella.keras.callback_placement import placement
from tarantella.keras.data.batches import GlobalBatches, Sharing
from tarantella.keras.drivers import on_batch
from tarantella.keras.drivers.distributed_model import verbosity
from tarantella.keras.drivers.own_methods import through_class
from tarantella.keras.pipeline.pipelined_model import PipelinedModel
from tarantella.keras.step.keras_methods import keras_method


class PipelineMethods:
    """A base of the class of a `tnt.Model` that is a pipeline, before `tnt.Model` itself."""

    _tnt: PipelinedModel
    model: Any

    @through_class
    @collectives.failing_together("tnt.Model.predict")
    def predict(
        self,
        x: Any,
        batch_size: int | None = None,
        verbose: Any = "auto",
        steps: int | None = None,
        callbacks: Any = None,
        *,
        tnt_micro_batch_size: int | None = None,
        tnt_distribute_dataset: bool = True,
        tnt_output_on_all_devices: bool = True,
    ) -> Any:
        """As `tnt.Model.predict`. Each batch goes through the pipeline. Collective."""
        if not tnt_distribute_dataset:
            raise UnsupportedError(
                "a rank cannot predict alone with its part of a pipeline: leave out tnt_distribute_dataset=False"
            )
        sharing = Sharing(True, tnt_micro_batch_size)
        x, batch_size = sharing.batched(x, batch_size)
        collectives.meet("tnt.Model.predict")
        self._tnt.open_hooks()
        batches = GlobalBatches("data to predict from", model=self.model, x=x, batch_size=batch_size, steps=steps)
        parts = batches.parts(sharing, self._tnt.division)
        self._tnt.spread_weights()
        with self._tnt.running([parts]):
            predicted = keras_method(self.model, "predict")(
                parts, verbose=verbosity(verbose), steps=batches.steps, callbacks=placement.for_predict(callbacks)
            )
        return predicted if tnt_output_on_all_devices or runtime.is_master_rank() else None

    @through_class
    def predict_on_batch(self, x: Any) -> Any:
        """As `tnt.Model.predict_on_batch`. Collective."""
        self._tnt.spread_weights()
        return on_batch.predicted_part(self._tnt, x, self._tnt.division)

    def summary(self, *args: Any, **kwargs: Any) -> None:
        """Like Keras' `summary`, printed by the master, with the stages below. Collective."""
        table = self._tnt.table()
        if runtime.shows_output():
            self.model.summary(*args, **kwargs)
            kwargs.get("print_fn", print)(table)

    def get_weights(self) -> list[Any]:
        """Like Keras' `get_weights`: all weights, on every rank. Collective."""
        holdings = self._tnt.held()
        return list(self.model.get_weights()) if holdings is None else [holdings.value(v) for v in self.model.weights]

    def set_weights(self, weights: Sequence[Any]) -> None:
        """Like Keras' `set_weights`: each rank takes those of its stages, from the list that it was given."""
        with self._assigning_own():
            self.model.set_weights(weights)

    def load_weights(self, *args: Any, **kwargs: Any) -> Any:
        """Like Keras' `load_weights`: every rank reads the file, and keeps the weights of its stages. Collective."""
        with self._assigning_own():
            return files.read(lambda: self.model.load_weights(*args, **kwargs))

    def _assigning_own(self) -> AbstractContextManager[None]:
        """The context in which the weights that this rank holds take values."""
        holdings = self._tnt.held()
        return nullcontext() if holdings is None else holdings.assigning_own()

    def _tnt_plan(self) -> Any:
        raise UnsupportedError("tnt.plan shows how gradients are reduced over ranks in buckets, and a pipeline has none")
