"""Pipelines: each rank has some consecutive layers of a model, and micro-batches of a batch go from rank to rank.

From the bottom: `tarantella.pipeline_schedule` (who computes what, when) and `partition` (which layers belong together) know no
TensorFlow. `cut` applies a partition to a model's graph of layers, `costs` measures its layers, `messages` sends tensors
between the stages, `step` is the training step, `weights` gathers what the ranks hold, and `pipelined_model` is what
`tnt.Model` uses.
"""
