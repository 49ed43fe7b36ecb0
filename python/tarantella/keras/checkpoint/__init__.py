"""Checkpoints of a training, from which it continues with the very next step, also on another number of ranks.

`callback` is `Checkpoint`, which the user gives to `fit`; `session` does its work in one call of `fit`. `schedule` says when a
checkpoint is due. `format` is the file, `folder` knows which files there are and which is the newest good one, `writer` writes
them in a thread. A file holds the state of the model (`state`), of callbacks (`callback_states`), of random generators
(`randomness`) and the position in the data (`position`). `restart` restores a training from a file, and `replay` goes through
the data to its position.

This room uses `callback_placement`, which does not know it. It does not know `tnt.Model` and its drivers.
"""
