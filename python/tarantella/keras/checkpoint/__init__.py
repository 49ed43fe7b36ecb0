"""Checkpoints of a training, from which it goes on with the very next step, also on another number of ranks.

`format` is the file, `folder` which files there are and which is the newest good one, `writer` the thread that writes them.
`state` is what a file has of the model, `callback_states` of callbacks, `randomness` of random generators, `position` of the
data. `schedule` says when one is due, `session` brings it all together for one call of `fit`, `callback` is what the user sees.
"""
