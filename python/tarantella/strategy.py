"""How the work of a model is spread over ranks."""

import enum


class ParallelStrategy(enum.Flag):
    """How `tarantella.Model` parallelises a model.

    ``NONE``: nothing, the model stays a plain Keras model. ``DATA``: every rank trains a copy on its part of each
    batch. ``PIPELINING``: every rank has a part of the model. ``ALL``: both.
    """

    NONE = enum.auto()
    DATA = enum.auto()
    PIPELINING = enum.auto()
    ALL = DATA | PIPELINING
