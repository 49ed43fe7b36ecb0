"""Tools for ranks beside training: groups of ranks, and collectives on numbers, arrays, tensors and what is built of them.

The names of the predecessor are here (`tnt.Group`, `tnt.Allreduce`, `tnt.TensorAllreducer`, ...), and `tnt.broadcast_object`.
Nothing of this imports TensorFlow.
"""
