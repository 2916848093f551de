"""A rig for a test, and the proof that it leaves nothing behind."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.executor.rig import Rig, buried
from tests.executor.scripts import Scripts


@pytest.fixture
def rigs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[..., Rig]]:
    """Makes rigs. After the test none of their processes and temporary folders may be left."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    made: list[Rig] = []

    def make(slots: int = 1, **options: Any) -> Rig:
        made.append(Rig(slots, **options))
        return made[-1]

    yield make
    pids = [process.pid for rig in made for process in rig.executor.processes if process.ready]
    pids += [pid for rig in made for pid in rig.executor._spawner.parents]
    for rig in made:
        rig.executor.close()
    assert all(buried(pid) for pid in pids)
    assert not list(temporary.iterdir())


@pytest.fixture
def rig(rigs: Callable[..., Rig]) -> Rig:
    """A rig with one slot."""
    return rigs()


@pytest.fixture
def scripts(tmp_path: Path, rig: Rig) -> Scripts:
    """Runs scripts."""
    return Scripts(tmp_path, rig)
