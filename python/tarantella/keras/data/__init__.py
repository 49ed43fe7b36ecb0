"""Datasets of global batches become each rank's part: the split, its pushdown towards the source, and gathered predictions."""
