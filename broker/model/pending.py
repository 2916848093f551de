"""What is said to whoever asks for more at once than is taken: one wording for every such limit."""

LATER = "retry later"
WHEN_ANSWERED = "retry when some have been answered"


def pending(what: str, then: str = WHEN_ANSWERED) -> str:
    """Say that no more of these is taken now. ``what``: how many there are, and of what; ``then``: what to do."""
    return f"{what} are pending already: {then}"
