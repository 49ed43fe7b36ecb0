"""How a training scales, from the timeline of a short run and the file of a machine: ``tarantella simulate``."""
