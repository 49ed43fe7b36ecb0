"""Training with the same bits on 1, 2, 4 or 8 ranks: fixed shards, their state, and fingerprints of the gradients."""
