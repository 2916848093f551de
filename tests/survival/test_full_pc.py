"""A PC whose disk is really full: no task fails because of that, the PC rests, and the tasks end when there is room."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deskgrid import File, Grid, checkpoint
from deskgrid.client.bag import Bag
from deskgrid.scheduler.state import avoided
from deskgrid.scheduler.state.timers import Backoff
from deskgrid.worker.run.child import pack_files, unpack_files
from tests.live import LiveGrid, live_grid
from tests.survival.conftest import fill
from tests.waiting import PATIENCE_S, eventually

pytestmark = pytest.mark.slow

REST_S, LONGEST_REST_S = 0.3, 2.0
# What a worker needs for itself, and the least that a disk has whose files cannot be written.
LITTLE = 20_000


@pytest.fixture
def lab(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LiveGrid]:
    """A broker, and a PC "full" whose files are all on the small file system; its rests are short."""
    monkeypatch.setattr(avoided, "_BACKOFF", Backoff(REST_S, LONGEST_REST_S))
    with live_grid(tmp_path / "home") as live:
        with monkeypatch.context() as patch:
            patch.setattr(tempfile, "tempdir", str(small))
            live.worker("full", files=small / "files")
        yield live


@pytest.fixture
def grid(lab: LiveGrid) -> Iterator[Grid]:
    with Grid(lab.broker.ready.client_line) as grid:
        yield grid


def checked(grid: Grid) -> dict[str, Any]:
    """The counters; neither an error nor a crash was counted, and nobody is in quarantine."""
    found = grid.status()
    assert (found["counters"]["errors"], found["counters"]["crashes"]) == (0, 0)
    assert [worker["quarantine_s"] for worker in found["workers"]] == [None] * len(found["workers"])
    return dict(found["counters"])


def waits(grid: Grid, bag: Bag[Any, Any], why: str) -> None:
    """The tasks of a bag are tried again and again, do not fail, and everybody can see why."""
    assert eventually(lambda: checked(grid)["no_room"] > 1, PATIENCE_S)
    told: list[str] = []
    assert eventually(lambda: why in _told(bag, told), PATIENCE_S), told[-1]
    assert eventually(lambda: "had no room for a task" in grid.status()["workers"][0]["note"], PATIENCE_S)
    assert bag.progress().failed == 0


def _told(bag: Bag[Any, Any], told: list[str]) -> str:
    told.append(bag.explain())
    return told[-1]


def test_input_files(small: Path, lab: LiveGrid, grid: Grid, tmp_path: Path) -> None:
    source, little = tmp_path / "data", tmp_path / "little"
    little.write_bytes(b"abc")
    source.write_bytes(bytes(range(256)) * 16_384)

    def size(file: Any) -> int:
        with open(file, "rb") as opened:
            return len(opened.read())

    assert grid.bag(size, [File(little)], runtime=0.1).results() == [3]  # so that its modules are there
    ballast = fill(small, LITTLE)
    bag = grid.bag(size, [File(source)], runtime=0.1)
    waits(grid, bag, "full had no room for it: its files have 4,194,304 bytes, and there is room for ")
    assert grid.bag(abs, [-1], runtime=0.1).results() == [1], "other work goes on there"
    lab.worker("roomy")
    assert bag.results() == [4 * 2**20]
    assert ballast.exists(), "the other PC had room"


def steps(count: int) -> int:
    """Travels with its module, which the PC has to unpack."""
    step = checkpoint.load(0)
    while step < count:
        step += 1
        checkpoint.save(step, progress=step / count)
    return step


def test_modules(small: Path, grid: Grid) -> None:
    ballast = fill(small, 0)
    bag = grid.bag(steps, [3], runtime=0.1)
    waits(grid, bag, "full had no room for it: the bundle cannot be unpacked: [Errno 28] No space left on device")
    ballast.unlink()
    assert bag.results() == [3]


def test_a_task_that_could_save_no_checkpoint(small: Path, grid: Grid) -> None:
    assert grid.bag(steps, [3], runtime=0.1).results() == [3]  # so that its modules are there
    ballast = fill(small, 0)
    bag = grid.bag(steps, [5], runtime=0.1, checkpoint=True)
    waits(grid, bag, "full had no room for it: [Errno 28] No space left on device")
    ballast.unlink()
    assert bag.results() == [5]


def test_a_checkpoint_of_a_command_that_finds_no_room_is_not_taken_for_a_damaged_one(
    small: Path, tmp_path: Path
) -> None:
    (tmp_path / "state").write_bytes(bytes(2**20))
    packed = pack_files(tmp_path, ["state"], {})
    fill(small, LITTLE)
    with pytest.raises(OSError, match="No space left on device"):
        unpack_files(packed, small)


def test_files_that_a_function_writes(small: Path, grid: Grid) -> None:
    place = str(small / "written")

    def write(size: int) -> int:
        with open(place, "wb") as file:
            return file.write(bytes(size))

    assert grid.bag(write, [0], runtime=0.1).results() == [0]  # so that its modules are there
    ballast = fill(small, LITTLE)
    bag = grid.bag(write, [2**20], runtime=0.1)
    waits(grid, bag, "full had no room for it: [Errno 28] No space left on device")
    ballast.unlink()
    assert bag.results() == [2**20]


def test_files_that_a_command_writes(small: Path, grid: Grid) -> None:
    ballast = fill(small, LITTLE)
    bag = grid.command(["sh", "-ec", "head -c 2000000 /dev/zero > out"], [""], outputs=["out"], runtime=0.1)
    waits(grid, bag, "full had no room for it: [Errno 28] exit code 1, and the disk is full")
    bag.pause()  # a command that fails just before there is room would be taken for one that fails by itself
    assert eventually(lambda: bag.progress().running == 0, PATIENCE_S)
    ballast.unlink()
    bag.resume()
    bag.results()


def test_a_command_that_fails_for_another_reason_fails(small: Path, grid: Grid) -> None:
    bag = grid.command(["false"], [""], runtime=0.1)
    assert bag.wait(PATIENCE_S)
    assert bag.progress().failed == 1
