"""The hooks that make a training step of Keras a distributed one: gradients, losses, metrics, normalisation, weights."""
