"""What needs no TensorFlow: exceptions, ranks, groups of ranks."""
