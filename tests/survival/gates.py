"""Tasks that say that they began, and wait until the test lets them end."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.waiting import PATIENCE_S, eventually


class Gate:
    """Tasks return their item, or so many bytes; each execution leaves a file in the folder ``place``."""

    def __init__(self, place: Path, size: int = 0) -> None:
        place.mkdir()
        self.place = place
        self._size = size

    def task(self) -> Callable[[int], Any]:
        """For a bag of integers. Pickled with its code: a worker has never heard of the tests."""
        place, size = str(self.place), self._size

        def task(item: int) -> Any:
            import os
            import tempfile
            import time

            tempfile.mkstemp(prefix=f"{item}-", dir=place)
            while not os.path.exists(f"{place}/open"):
                time.sleep(0.01)
            return bytes(size) if size else item

        return task

    def open(self) -> None:
        """Let all end, also those that have not begun."""
        (self.place / "open").touch()

    def wait_for(self, count: int) -> None:
        """Until so many have begun."""
        assert eventually(lambda: len(counted(self)) >= count, PATIENCE_S)


def counted(gate: Gate) -> list[int]:
    """The items that were executed, as often as they were."""
    return sorted(int(path.name.partition("-")[0]) for path in gate.place.glob("*-*"))
