"""Somebody removes everything that a worker has made on its PC, while it runs: no task fails because of it."""

import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from deskgrid import File, Grid
from deskgrid.homes import this_host
from tests.live import LiveGrid, live_grid
from tests.waiting import PATIENCE_S


def swept(*places: Path) -> int:
    """Remove all that is in these folders; how many there were."""
    found = [path for place in places for path in place.iterdir()]
    for path in found:
        while path.exists():
            # The worker removes and makes files there meanwhile.
            with suppress(OSError):
                shutil.rmtree(path)
    return len(found)


@pytest.mark.slow
def test_no_task_fails_when_the_folders_of_a_worker_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tmp").mkdir()
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    Path("mine.py").write_text("def both(item, file):\n    return item, file.open().read()\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path / "here"))
    Path("data.csv").write_text("1,2", encoding="utf-8")

    def task(item: tuple[int, File]) -> object:
        import tempfile

        import mine  # type: ignore[import-not-found]

        with tempfile.TemporaryFile():
            return mine.both(*item)

    live: LiveGrid
    with live_grid(tmp_path / "home") as live:
        live.worker("pc1", slots=2, files=tmp_path / "files")
        with Grid(str(live.broker.line("client"))) as grid:
            for _ in range(3):
                items = [(number, File("data.csv")) for number in range(40)]
                bag = grid.bag(task, items, runtime=0.05, modules=["mine"])
                assert bag.wait(PATIENCE_S)
                assert bag.results() == [(number, "1,2") for number in range(40)]
                script = "cat data.csv > out; mktemp"
                command = grid.command(
                    ["sh", "-c", script], [""] * 4, runtime=0.1, inputs=["data.csv"], outputs=["out"]
                )
                assert command.wait(PATIENCE_S)
                assert [path.read_text() for path in command.fetch(tmp_path / "to", 0)] == ["1,2"]
                shutil.rmtree(tmp_path / "to")
                assert swept(tmp_path / "tmp", tmp_path / "files" / this_host()) >= 3
