"""What is asked of Keras 3 and of legacy Keras in the same words."""
