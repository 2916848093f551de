"""A grid for each directed test, and at the end of the run the counts of the sweeps."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.grid.counting import COUNTS
from tests.grid.grid import VirtualGrid


@pytest.fixture
def grid(tmp_path: Path) -> Iterator[VirtualGrid]:
    """A virtual grid whose broker is up; nothing else is there yet."""
    made = VirtualGrid(1, tmp_path / "home")
    made.broker.start()
    yield made
    made.close()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how much was tried."""
    for line in COUNTS:
        terminalreporter.write_line(f"virtual grid: {line}")
