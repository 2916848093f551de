"""Work with files on threads of its own, because the worker's loop never waits for a disk."""

import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

Found = TypeVar("Found")
# How long the end of a worker waits for what the thread does: reading a large file takes longer. Seconds.
CLOSE_S = 5.0


class Errands:
    """``wake`` is called from the threads whenever something is done; then the owner calls `poll`.

    ``most``: how many threads there may be. With one, things are done in order.
    """

    def __init__(self, wake: Callable[[], None], most: int = 1) -> None:
        self._most = most
        self._left = 0
        self._wake = wake
        self._todo: SimpleQueue[tuple[Callable[[], Any], Callable[[Any], None]] | None] = SimpleQueue()
        self._done: deque[tuple[Callable[[Any], None], Any]] = deque()
        self._threads: list[threading.Thread] = []
        self._closing = False

    def do(self, action: Callable[[], Found], then: Callable[[Found | Exception], None]) -> None:
        """Do ``action`` on the thread; `poll` calls ``then`` with its result, or with the exception that it raised."""
        self._left += 1
        if len(self._threads) < min(self._left, self._most):
            self._threads.append(threading.Thread(target=self._run, name="deskgrid-files", daemon=True))
            self._threads[-1].start()
        self._todo.put((action, then))

    def poll(self) -> None:
        """Pass on what was done since the last call."""
        while self._done:
            then, found = self._done.popleft()
            self._left -= 1
            then(found)

    def close(self) -> None:
        """End the threads; what they have not begun is not done."""
        self._closing = True
        for _ in self._threads:
            self._todo.put(None)
        for thread in self._threads:
            thread.join(CLOSE_S)
        self._threads.clear()

    def _run(self) -> None:
        while (errand := self._todo.get()) is not None:
            if self._closing:
                continue
            action, then = errand
            try:
                found = action()
            except Exception as error:
                found = error
            self._done.append((then, found))
            self._wake()
