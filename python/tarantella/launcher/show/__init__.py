"""What shows a job: the output of ranks, and their state for `tarantella status` and `explain`."""
