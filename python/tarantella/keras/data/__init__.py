"""Datasets of global batches become each rank's part, and predictions of all ranks one array.

`batches` takes the data of `fit`, `evaluate` and `predict`; `split` divides a batch into shards; `pushdown` moves that division
before the maps that make samples; `gather` puts the predictions of all ranks in order. Nothing here knows a model's step.
"""
