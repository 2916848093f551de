"""A real broker for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hostile.lab import Lab, lab


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Lab]:
    """A broker that runs, and must at the end."""
    with lab(tmp_path) as made:
        yield made
