"""Keras models on many ranks. Importing anything in here imports TensorFlow."""
