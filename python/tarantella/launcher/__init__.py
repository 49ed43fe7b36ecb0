"""The launcher: starts the ranks of a job, on this node or by mpirun on several hosts, watches them, and ends them together.

Kept free of heavy imports (TensorFlow above all), so that `tarantella --help` answers at once and a
launcher that only waits costs a job a few megabytes.
"""
