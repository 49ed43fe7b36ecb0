"""The words of the launcher: the error of a command line, and numbers of things."""


class UsageError(Exception):
    """The command line cannot be run; the text is the whole message."""


def counted(number: int, noun: str) -> str:
    """A number and its noun: 1 rank, 2 ranks."""
    return f"{number} {noun}{'' if number == 1 else 'es' if noun.endswith('s') else 's'}"


def describe_cores(ranks: int, cores: int, threads: str) -> str:
    """The launcher's one line at start-up."""
    shared = " (ranks share cores)" if ranks > cores else ""
    return (
        f"{counted(ranks, 'rank')} on {counted(cores, 'core')}: "
        f"{threads} intra-op thread{'' if threads == '1' else 's'} each{shared}"
    )
