"""What starts processes: on this node, as forks with modules preloaded, by mpirun, and for a function of the user's."""
