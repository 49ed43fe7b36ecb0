"""The hooks that make a training step of a Keras model a distributed one.

For others: `hooks` (installs all hooks; `create_hooks` makes them for a model), `current_step` (this rank's part of the batch),
`gradient_reduction` and `metric_reduction`, `accumulation` (optimizers, also those of training loops), `losses`,
`normalization`, `noise` (random numbers of each rank's own), `checks` (between steps), `batch_check` (ranks have parts of one
batch), `patch`, `unwrapped_models` (plain models in a distributed job).

Not in here: what is found out about losses and steps before the first one (`trial`), `fit` and its arguments, callbacks of the
user, shards (`reproducible`), and the reducers themselves (`reduction`).
"""
