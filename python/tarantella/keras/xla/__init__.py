"""The model's calls in a step, compiled by XLA in segments that end where a gradient bucket begins."""
