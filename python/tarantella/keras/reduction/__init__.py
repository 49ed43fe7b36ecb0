"""Sums over ranks in TensorFlow: of gradients in fused buckets, of sparse gradients, and collectives of single tensors.

For others: `registry` (all reducers of a model), `reducer`, `gradients`, `sparse`, `collectives` (`tnt.all_reduce` of tensors,
`tnt.broadcast_variables`), `weights` (variables across ranks), `plan` (`tnt.plan`), `autotune`, `statistics`, `ops`.

Not in here: anything that knows a training step, a batch, a metric or a loop. This room imports `keras.adapter`, `keras.files`,
`keras.context`, and no other room of `keras`.
"""
