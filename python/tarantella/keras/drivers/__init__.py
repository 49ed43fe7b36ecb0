"""Keras' `fit`, `evaluate`, `predict` and single batches, run on all ranks together: the work behind `tnt.Model`.

A driver splits the data, makes the ranks start alike, installs the hooks and calls Keras' own method. `DistributedModel` holds
what the drivers share. Nothing here is public, and no driver changes what happens inside a step: that is `step`'s subject.
"""
