"""Wait at the live edges of a test: poll with a deadline, never sleep blindly."""

import threading
import time
from collections.abc import Callable

# Between two looks. Short, so that a test ends soon after what it waits for has happened.
POLL_S = 0.005


def eventually(predicate: Callable[[], bool], seconds: float = 10.0) -> bool:
    """Whether ``predicate()`` comes true within ``seconds``; looks at least once."""
    deadline = time.monotonic() + seconds
    never = threading.Event()
    while not predicate():
        if time.monotonic() > deadline:
            return False
        never.wait(POLL_S)
    return True
