"""Errors of the command line."""


class UsageError(Exception):
    """The command line cannot be run; the text is the whole message."""
