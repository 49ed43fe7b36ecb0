"""Training with the same bits on 1, 2, 4 or 8 ranks, and the means to compare two runs.

For others: `options` (what `reproducible=` accepts), `step.ReproducibleHooks` (steps on fixed shards of each batch), which uses
`sharded_step`, `sharded_reduction`, `shard_state` and `shards`; `fingerprint` (`TNT_FINGERPRINT`).

Not in here: the steps of ordinary training, which know nothing of this room.
"""
