"""What is wrong with a command line, as one sentence."""


class UsageError(Exception):
    """The command line cannot be run; the text is the whole message."""
