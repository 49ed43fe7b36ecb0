"""tools/gpu-check."""
