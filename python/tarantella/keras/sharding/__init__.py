"""Optimizers whose state is spread over ranks: `tnt.Model(model, shard_optimizer=True)`."""

from tarantella.keras.sharding.model import ServedCallbacks, ShardedOptimizers, refuse_shared_out

__all__ = ["ServedCallbacks", "ShardedOptimizers", "refuse_shared_out"]
