"""What watches processes until they end: jobs here and under mpirun, joining, circles of waits, the launcher, what is left."""
