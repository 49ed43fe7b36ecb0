"""The launcher: starts the ranks of a job, on this node or by mpirun on several hosts, watches them, and ends them together.

What lives here: options of the command line, processes of ranks, their output, restarts and cleanup. What must not: NumPy,
TensorFlow, or anything else that takes long to import, so that `tarantella --help` answers quickly and a launcher that waits
takes a few megabytes. `tarantella.cli` is the console script.
"""
