"""A grid for each directed test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.grid.grid import VirtualGrid


@pytest.fixture
def grid(tmp_path: Path) -> Iterator[VirtualGrid]:
    """A virtual grid whose broker is up; nothing else is there yet."""
    made = VirtualGrid(1, tmp_path / "home")
    made.broker.start()
    yield made
    made.close()
