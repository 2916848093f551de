"""A pseudo-terminal with a Python program in it, whose keys a test presses."""

import os
import pty
import subprocess
import sys
import termios
import threading
from collections.abc import Sequence

from tests.live import ROOT
from tests.waiting import PATIENCE_S, eventually


class Terminal:
    """``arguments``: of Python. ``size``: lines and columns; (0, 0) for a terminal that does not say."""

    def __init__(self, arguments: Sequence[str], size: tuple[int, int] = (24, 80), **environment: str) -> None:
        self.ours, self.its = pty.openpty()
        termios.tcsetwinsize(self.its, size)
        self.before = termios.tcgetattr(self.its)
        self._seen = b""
        self._mark = 0
        # The size is that of the terminal, and not of the one that the tests were started in.
        inherited = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
        self.process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=ROOT,
            env=inherited | {"TERM": "xterm", "PYTHONPATH": str(ROOT)} | environment,
            stdin=self.its,
            stdout=self.its,
            stderr=self.its,
            start_new_session=True,
        )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        while self.ours >= 0:
            try:
                self._seen += os.read(self.ours, 65_536)
            except OSError:  # on Linux the end of a terminal is an error
                return

    @property
    def text(self) -> str:
        """All that it was sent since the last key."""
        return self._seen[self._mark :].decode("utf-8", "replace")

    def type(self, keys: str) -> None:
        """Press keys; what was on the screen before does not count any more."""
        self._mark = len(self._seen)
        os.write(self.ours, keys.encode())

    def resize(self, size: tuple[int, int]) -> None:
        """Another size; the program is told, as terminals do."""
        self._mark = len(self._seen)
        termios.tcsetwinsize(self.its, size)

    def shows(self, text: str) -> bool:
        """Whether this is on the screen, in one stretch, soon after the last key."""
        return eventually(lambda: text in self.text, PATIENCE_S)

    def close(self) -> None:
        """End the program and the terminal."""
        self.process.kill()
        self.process.wait()
        os.close(self.its)
        os.close(self.ours)
