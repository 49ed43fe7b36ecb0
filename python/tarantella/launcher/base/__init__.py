"""What all rooms of the launcher use: errors of the command line, words, the mark of a job's processes, signals, sockets."""
