"""Pipelines: each rank has some consecutive layers of a model, and micro-batches of a batch go from rank to rank.

From the bottom: `tarantella.pipeline_schedule` (who computes what, when) knows no TensorFlow. `costs` measures layers and finds
out which belong together. `cut` applies such a partition to a model's graph of layers, `messages` sends tensors between the
stages, `step` is the training step, `weights` gathers what the ranks hold, and `pipelined_model` is what `tnt.Model` uses.
"""
