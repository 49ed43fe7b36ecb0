"""What scripts write that were made for legacy Keras: it takes all of that."""


def accept_old_spellings() -> None:
    """Nothing to do."""
