"""An event that calls on a private grid wait for. In a file of its own: it travels with them."""

import secrets
from pathlib import Path

from tests.waiting import eventually


class Event:
    """As those of `threading`, for all processes of this machine: a file in a folder."""

    def __init__(self, folder: str) -> None:
        self._path = Path(folder) / secrets.token_hex(8)

    def set(self) -> None:
        """Let all go on that wait."""
        self._path.touch()

    def wait(self, timeout: float = 300.0) -> bool:
        """Wait until it is set; return whether it is."""
        return eventually(self._path.exists, timeout)
