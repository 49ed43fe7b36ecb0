"""What only Keras 3 answers so."""
