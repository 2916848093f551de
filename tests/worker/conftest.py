"""A live grid for a test, and the proof that no process is left of it."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.executor.rig import alive
from tests.live import LiveGrid, live_grid


@pytest.fixture
def pids(tmp_path: Path) -> Callable[[], list[int]]:
    """The processes that ran tasks of this test: those whose tasks wrote their number into a file named ``*.pid``."""
    return lambda: [int(path.read_text() or 0) for path in tmp_path.glob("*.pid")]


@pytest.fixture
def grid(tmp_path: Path, pids: Callable[[], list[int]], monkeypatch: pytest.MonkeyPatch) -> Iterator[LiveGrid]:
    """A broker without workers yet. After the test no task's process and no temporary folder may be left."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    with live_grid(tmp_path / "home") as started:
        yield started
    assert os.getpid() not in pids()
    assert not [pid for pid in pids() if alive(pid)]
    assert not list(temporary.iterdir())
