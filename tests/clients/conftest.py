"""These tests need libraries of others, so they run only where ``make clients`` has installed them."""

import os
from collections.abc import Iterator

import pytest

from deskgrid import Grid

collect_ignore_glob = [] if "CLIENTS" in os.environ else ["test_*.py"]


@pytest.fixture(scope="session")
def grid() -> Iterator[Grid]:
    """A private grid of two PCs."""
    with Grid.local(workers=2, runtime=0.1) as opened:
        yield opened
