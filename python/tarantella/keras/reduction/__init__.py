"""Sums over ranks of gradients and other tensors in TensorFlow's graph. Nothing in here knows a training step."""
