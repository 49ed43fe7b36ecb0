"""Functions of the adapter that are the same for Keras 3 and legacy Keras."""
