"""The benchmark's task. Alone in its file, so that the process that runs it loads nothing else of ours."""

import time


def nap(seconds: float) -> float:
    """Sleep for ``seconds``; returns how long that really took."""
    started = time.monotonic()
    time.sleep(seconds)
    return time.monotonic() - started
