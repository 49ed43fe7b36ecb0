"""The data that `fit`, `evaluate` and `predict` are given: global batches, and this rank's part of each."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from tarantella import collectives, generations, runtime
from tarantella.errors import InvalidArgumentError, UnsupportedError
from tarantella.keras import adapter
from tarantella.keras.adapter import datasets, serial_maps
from tarantella.keras.data import causes, pushdown, split


class Sharing(NamedTuple):
    """How the ranks share a dataset."""

    distribute: bool = True
    """Whether ranks take parts of the same batches. Otherwise each rank has batches of its own."""
    micro_batch_size: int | None = None
    """How many samples of a batch each rank shall have, where the user gave this number."""
    batch_size: int | Callable[[Any], Any] | None = None
    """How many samples this rank has in a batch of its own, as the user states it: a number, or a function of the batch."""

    def batched(self, x: Any, batch_size: int | None) -> tuple[Any, int | None]:
        """The data and its batch size, which follow from the micro-batch size if the user gave one.

        A dataset without a batch is batched. Other data must have the batch size that all micro-batches make together.

        Raises:
            InvalidArgumentError: the batch size is another one, or a size that the user gave makes no sense.
        """
        self._check_stated()
        given = self.micro_batch_size
        if given is None:
            return x, batch_size
        if not isinstance(given, int) or given < 1:
            raise InvalidArgumentError(f"the micro-batch size is {given!r}: use a positive integer")
        ranks = generations.size_for_script() if self.distribute else 1
        wanted = given * ranks
        if isinstance(x, tf.data.Dataset):
            last = datasets.last_batch(x)
            if last is None:
                return x.batch(wanted), None
            batch_size = datasets.batch_size_argument(last)
        if batch_size not in (None, wanted):
            raise InvalidArgumentError(
                f"a micro-batch of {given} samples on each of {ranks} ranks makes a batch of {wanted}, and the data has "
                f"batches of {batch_size}: leave the micro-batch size out, or batch by {wanted}"
            )
        return x, None if isinstance(x, tf.data.Dataset) else wanted

    def _check_stated(self) -> None:
        stated = self.batch_size
        if stated is None:
            return
        if not callable(stated) and (isinstance(stated, bool) or not isinstance(stated, int) or stated < 1):
            raise InvalidArgumentError(
                f"tnt_batch_size is {stated!r}: use a positive integer, or a function that gives a batch's number of samples"
            )
        if self.distribute:
            raise InvalidArgumentError(
                "tnt_batch_size says how many samples a rank has in a batch of its own: use it with "
                "tnt_distribute_dataset=False. Batches that ranks share have the size of batch_size=, or that of the dataset"
            )
        if self.micro_batch_size is not None:
            raise InvalidArgumentError("tnt_batch_size and tnt_micro_batch_size cannot go together: leave one of them out")


class GlobalBatches:
    """The batches that Keras would work on, of the data that one of its methods was given.

    Args:
        name: for the log and for errors, such as ``"training data"``.
        x, y, ...: as Keras takes them; steps is ``steps_per_epoch``, or the like.
        goes_on: whether Keras goes on with the same iterator after these steps, as in training; otherwise it makes another one.
        options: as `adapter.source` takes them.

    Raises:
        ValueError: the elements of a dataset are samples, not batches.
    """

    def __init__(
        self,
        name: str,
        x: Any,
        y: Any = None,
        sample_weight: Any = None,
        batch_size: int | None = None,
        steps: int | None = None,
        shuffle: bool = False,
        class_weight: Any = None,
        goes_on: bool = False,
        **options: Any,
    ) -> None:
        self.name = name
        if isinstance(x, tf.data.Dataset):
            split.check_axis_of_samples(x.element_spec, getattr(options.get("model"), "inputs", None))
        self.source = adapter.source(x, y, sample_weight, batch_size, steps, shuffle, class_weight, **options)
        self.dataset = adapter.batches(self.source, None if goes_on else steps)
        self.batch_size = datasets.batch_size(self.dataset) or batch_size
        self._given_steps = steps

    @property
    def steps(self) -> int | None:
        """The number of batches in an epoch; None: until there are no more."""
        return adapter.steps_per_epoch(self.source, self._given_steps)

    def parts(self, sharing: Sharing, shards: int | split.Division | None, in_lockstep: bool = False) -> tf.data.Dataset:
        """This rank's parts of the batches with their shares, as `split.distribute` gives them. Collective.

        Args:
            sharing: whether ranks take parts of the same batches, or how many samples they have in their own.
            shards: the number of shards of each batch, or a division of them; None: one for each rank.
            in_lockstep: whether ranks take a step together for each batch, even where the batches are their own.

        Raises:
            MismatchError: the ranks' datasets have different lengths. InvalidArgumentError: they are empty.
            ValueError: the elements cannot be split.
        """
        distribute = sharing.distribute
        if shards is not None and not distribute:
            raise UnsupportedError(
                f"reproducible: {self.name} that each rank has of its own depend on the number of ranks: give all ranks the "
                "global batches, without tnt_distribute_dataset=False"
            )
        cardinality = int(self.dataset.cardinality())
        if self._given_steps is None and (distribute or in_lockstep):
            unknown = {tf.data.INFINITE_CARDINALITY: None, tf.data.UNKNOWN_CARDINALITY: None}
            collectives.require_same(self.name, batches=unknown.get(cardinality, cardinality))
        if cardinality == 0:
            raise InvalidArgumentError(f"{self.name}: the dataset is empty")
        return self._serial(self._distributed(shards)) if distribute else split.undivided(self.dataset, sharing.batch_size)

    def _distributed(self, shards: int | split.Division | None) -> tf.data.Dataset:
        if not datasets.is_deterministic(self.dataset):
            runtime.logger.warning(
                "%s: deterministic=False lets each rank make its batches in an order of its own, and ranks must take parts of "
                "the same batches: leave it out, in map, batch, interleave and options",
                self.name,
            )
        if generations.is_elastic() and not isinstance(shards, split.Division):
            return split.whole(self.dataset, shards)
        division = shards
        if not isinstance(division, split.Division):
            division = split.Division.among(runtime.get_size(), runtime.get_rank(), division)
        pushed_down, reason = None, "another rank cannot do otherwise"
        try:
            pushed_down = pushdown.distribute(self.dataset, division)
        except pushdown.PushdownError as error:
            reason = str(error)
        if int(collectives.all_reduce(int(pushed_down is not None), op="min")) and pushed_down is not None:
            runtime.logger.info("%s: each rank runs the maps before the batch only on its own samples", self.name)
            return pushed_down
        runtime.logger.info("%s: every rank makes whole batches and takes its part at the end: %s", self.name, reason)
        parts = split.distribute(self.dataset, division)
        self._warn_of_idle_ranks(division)
        return parts

    def _serial(self, parts: tf.data.Dataset) -> tf.data.Dataset:
        """The same without parallel maps that draw random numbers: the threads of each rank would draw in their own order."""
        parts, names = serial_maps.serial(parts)
        if names:
            runtime.logger.info(
                "%s: %s draws random numbers, which threads would share in any order: it runs one call at a time "
                "on several ranks. tf.random.stateless_* and tf.image.stateless_* stay parallel",
                self.name,
                " and ".join(names),
            )
        if serial_maps.left(parts):
            runtime.logger.warning("%s: %s", self.name, causes.PARALLEL_DRAWS)
        return parts

    def _warn_of_idle_ranks(self, division: split.Division) -> None:
        """The ranks have the same part of each tensor, so they divide the sizes' greatest common divisor."""
        sizes = datasets.batch_sizes(self.dataset)
        groups = math.gcd(*sizes)
        if len(sizes) > 1 and groups < division.shards:
            runtime.logger.warning(
                "%s: batches with tensors of %s samples can be divided into %d parts, and not into %d: some ranks have nothing "
                "to do. Use batch sizes that are multiples of %d",
                self.name,
                " and ".join(map(str, sizes)),
                groups,
                division.shards,
                division.shards,
            )
