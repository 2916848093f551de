"""Work with files on threads of its own, because the worker's loop never waits for a disk.

Rule: what takes long is a generator, which yields between its steps. Others have their turns in between, so the files
of one attempt, however many and however large, hold up no other. A generator that is dropped, or whose steps have taken
too long together, ends after its step.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from types import GeneratorType
from typing import Any, TypeVar, overload

from deskgrid.worker.files.turns import Turns

Found = TypeVar("Found")
# How long the end of a worker waits for what a thread does: one step. Seconds.
CLOSE_S = 5.0
# How long the steps of one piece of work may take together: in an hour, a slow disk (50 MB/s) reads 180 GB. Seconds.
LIMIT_S = 3_600.0


class Dropped(Exception):
    """Nobody needs this work any more."""


class TookTooLong(Exception):
    """The steps of the work took too long together; one line."""


class FileWork:
    """Something to do, and what follows. ``dropped``: nobody needs it any more."""

    __slots__ = ("_action", "_steps", "dropped", "spent", "then")

    def __init__(self, action: Callable[[], Any], then: Callable[[Any], None]) -> None:
        self._action = action
        self._steps: Generator[Any, None, Any] | None = None
        self.then = then
        self.spent = 0.0
        self.dropped = False

    def drop(self) -> None:
        """Do no more of it; what follows gets `Dropped`. May be called again, and when it is over."""
        self.dropped = True

    def go_on(self) -> tuple[bool, Any]:
        """Do the next step; return whether this was the last one, and what was found or raised."""
        began = time.monotonic()
        try:
            if self.dropped:
                raise Dropped
            if self._steps is None:
                found = self._action()
                if not isinstance(found, GeneratorType):
                    return True, found
                self._steps = found
            next(self._steps)
            self.spent += time.monotonic() - began
            if self.spent > LIMIT_S:
                raise TookTooLong(f"this took more than {LIMIT_S / 60:.0f} minutes of reading and writing")
        except StopIteration as end:
            return True, end.value
        except Exception as error:
            self.close()
            return True, error
        return False, None

    def close(self) -> None:
        """Let go of what the steps had open."""
        if self._steps is not None:
            self._steps.close()


class Background:
    """``wake`` is called from the threads whenever something is done; then the owner calls `poll`.

    ``most``: how many threads there may be. With one, what is done for one holder is done in order.
    """

    def __init__(self, wake: Callable[[], None], most: int = 1) -> None:
        self._most = most
        self._left = 0
        self._wake = wake
        self._todo = Turns[FileWork]()
        self._changed = threading.Condition()
        self._done: deque[tuple[Callable[[Any], None], Any]] = deque()
        self._threads: list[threading.Thread] = []
        self._closing = False

    @overload
    def do(
        self,
        action: Callable[[], Generator[Any, None, Found]],
        then: Callable[[Found | Exception], None],
        holder: str = "",
    ) -> FileWork: ...

    @overload
    def do(
        self, action: Callable[[], Found], then: Callable[[Found | Exception], None], holder: str = ""
    ) -> FileWork: ...

    def do(self, action: Callable[[], Any], then: Callable[[Any], None], holder: str = "") -> FileWork:
        """Do ``action`` on a thread; `poll` calls ``then`` with its result, or with the exception that it raised.

        ``action`` may return a generator: then its steps are done, and its result is theirs. ``holder``: whose turn it
        takes.
        """
        self._left += 1
        work = FileWork(action, then)
        with self._changed:
            self._todo.add(holder, [work])
            self._changed.notify()
        if len(self._threads) < min(self._left, self._most):
            self._threads.append(threading.Thread(target=self._run, name="deskgrid-files", daemon=True))
            self._threads[-1].start()
        return work

    def poll(self) -> None:
        """Pass on what was done since the last call."""
        while self._done:
            then, found = self._done.popleft()
            self._left -= 1
            then(found)

    def close(self) -> None:
        """End the threads; what they have not begun is not done, and what takes several steps is not ended."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(CLOSE_S)
        self._threads.clear()

    def _run(self) -> None:
        while (taken := self._take()) is not None:
            holder, work = taken
            is_over, found = work.go_on()
            if is_over:
                self._done.append((work.then, found))
                self._wake()
            else:
                with self._changed:
                    self._todo.put_back(holder, work)
                    self._changed.notify()

    def _take(self) -> tuple[str, FileWork] | None:
        """Wait for the next work; None: there will be no more."""
        with self._changed:
            while not self._todo and not self._closing:
                self._changed.wait()
            if not self._closing:
                return self._todo.take()
            for work in self._todo:
                work.close()
            self._todo = Turns()
            return None
