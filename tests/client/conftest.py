"""A fake broker for each test, and a Grid on it."""

from collections.abc import Iterator

import pytest

from deskgrid.client.grid import Grid
from tests.client.fakebroker import FakeGrid, fake_grid


@pytest.fixture
def fake() -> Iterator[FakeGrid]:
    """A broker that does what it is told."""
    with fake_grid() as grid:
        yield grid


@pytest.fixture
def grid(fake: FakeGrid) -> Iterator[Grid]:
    """A Grid on it."""
    with Grid(fake.line) as opened:
        yield opened


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that soon notices that nothing comes."""
    monkeypatch.setattr("deskgrid.client.conversation.PING_S", 0.05)
    monkeypatch.setattr("deskgrid.client.conversation.SILENCE_S", 0.2)
    monkeypatch.setattr("deskgrid.client.conversation.REPEAT_S", 0.3)
    monkeypatch.setattr("deskgrid.client.conversation.GREETING_S", 0.1)
    monkeypatch.setattr("deskgrid.client.link.LOOK_S", 0.02)
