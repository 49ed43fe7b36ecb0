"""The command line: its options, the hosts and GPUs that they name, and the program of the user's; of other launchers, too."""
