"""An office for a test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker.office import Office


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    """A broker without sockets that places by PGS."""
    opened = Office(tmp_path)
    yield opened
    opened.close()
