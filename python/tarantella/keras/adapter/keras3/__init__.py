"""Functions of the adapter for Keras 3 alone."""
