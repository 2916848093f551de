"""Wait at the live edges of a test: poll with a deadline, never sleep blindly."""

import threading
import time
from collections.abc import Callable

# How long a test waits for what has to happen: only one that fails waits so long, so there is room for a busy machine.
PATIENCE_S = 30.0
# Between two looks. Short, so that a test ends soon after what it waits for has happened.
POLL_S = 0.005


def eventually(predicate: Callable[[], bool], seconds: float = PATIENCE_S) -> bool:
    """Whether ``predicate()`` comes true within ``seconds``; looks at least once."""
    deadline = time.monotonic() + seconds
    never = threading.Event()
    while not predicate():
        if time.monotonic() > deadline:
            return False
        never.wait(POLL_S)
    return True
