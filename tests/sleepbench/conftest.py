"""What tests of real runs share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.waiting import eventually

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder that temporary files go to; at the end nothing may be left in it."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    for name in ("TMPDIR", "TEMP", "TMP"):
        monkeypatch.setenv(name, str(folder))
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    yield folder
    assert eventually(lambda: not list(folder.iterdir())), list(folder.iterdir())
