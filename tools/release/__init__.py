"""Wheels of this checkout, and environments in which they are tried: `tools/wheels` and `tools/matrix`."""
