"""What tests of real runs share."""

from collections.abc import Callable, Iterator, Sized
from pathlib import Path

import pytest

from deskgrid.sleepbench import live
from deskgrid.sleepbench.live import LiveRun
from deskgrid.sleepbench.processes import ProcessError
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


@pytest.fixture
def fail_second(monkeypatch: pytest.MonkeyPatch) -> Callable[[Sized], None]:
    """Have the second pretended run fail; it is given the list that the first one is noted in."""

    def fail(made: Sized) -> None:
        good = live.run_live

        def run(*arguments: object) -> LiveRun:
            if made:
                raise ProcessError("broker ended with code 1: it said nothing")
            return good(*arguments)  # type: ignore[arg-type] # passed on as they came

        monkeypatch.setattr(live, "run_live", run)

    return fail
