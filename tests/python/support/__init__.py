"""What several of the Python tests share: starting ranks, and the training runs that are compared."""
