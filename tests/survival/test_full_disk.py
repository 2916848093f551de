"""A broker whose home is on a file system that is really full. Where nobody may mount one, this is skipped:
`tests/broker/test_full_disk.py` does the same with a limit inside SQLite.
"""

import os
import sys
from contextlib import closing
from pathlib import Path

import pytest

from deskgrid.broker.server import BrokerError
from deskgrid.broker.store.journal import Journal
from deskgrid.client.grid import Grid
from deskgrid.errors import BagRejected
from tests.broker.records import result_of
from tests.live import LiveBroker, live_grid
from tests.survival.conftest import SIZE, fill
from tests.survival.gates import Gate, counted
from tests.waiting import PATIENCE_S, eventually


def disk_of(grid: Grid) -> str:
    """What the status says."""
    return grid.status()["broker"]["disk"]


def test_the_reserve_takes_results_and_no_submissions(small: Path, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    with live_grid(small, workers=1) as live, Grid(live.broker.ready.client_line) as grid:
        bag = grid.bag(gate.task(), range(3), runtime=0.1)
        gate.wait_for(1)
        ballast = fill(small, 500_000)
        assert eventually(lambda: disk_of(grid) == "low", PATIENCE_S)
        with pytest.raises(BagRejected, match=r"was rejected: the disk of the broker's home .* is nearly full"):
            # Not a function, with which the tests themselves would travel: for these there is no room at all.
            grid.command([sys.executable], ["a"], runtime=0.1)
        gate.open()
        assert bag.results() == [0, 1, 2]
        ballast.unlink()
        assert eventually(lambda: disk_of(grid) == "ok", PATIENCE_S)
        assert grid.bag(abs, [-1], runtime=0.1).results() == [1]
    assert counted(gate) == [0, 1, 2]


def test_a_broker_starts_without_a_byte_left_and_begins_when_there_is_room(small: Path) -> None:
    with live_grid(small) as live, Grid(live.broker.ready.client_line) as grid:
        live.worker("pc1").stop()  # so that it is known: it could not enrol on a full disk
        bag_id = grid.bag(abs, range(-3, 0), runtime=5.0).id
        address = live.broker.ready.address
    ballast = fill(small, 0)
    with live_grid(small, workers=1, listen=address) as live, Grid(live.broker.ready.client_line) as grid:
        assert disk_of(grid) == "full"
        bag = grid.attach(bag_id)
        with pytest.raises(BagRejected, match=r"was rejected: the disk of the broker's home .* is full"):
            grid.bag(abs, range(3), runtime=0.1)
        assert bag.progress().done == 0
        ballast.unlink()
        assert bag.results() == [3, 2, 1]
    with closing(Journal(small)) as journal:
        numbers = [row.number for task in range(3) if (row := result_of(journal, task)) is not None]
        assert [number >> 40 for number in numbers] == [2, 2, 2], "numbers of that life, which was written down"
        assert journal.epoch == 3


def test_a_new_home_on_a_full_disk_is_refused_in_one_line(small: Path) -> None:
    fill(small, 0)
    broker = LiveBroker(small / "home")
    with pytest.raises(BrokerError, match=r"the disk of .*/home is full: a journal can neither be created"):
        broker.start()


def test_nothing_is_lost_when_there_is_no_byte_left_and_it_goes_on_by_itself(small: Path, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate", size=100_000)
    with live_grid(small, workers=2) as live, Grid(live.broker.ready.client_line) as grid:
        bag = grid.bag(gate.task(), range(6), runtime=5.0)
        gate.wait_for(2)
        ballast = fill(small, 0)
        gate.open()
        assert eventually(lambda: disk_of(grid) == "full", PATIENCE_S)
        with pytest.raises(BagRejected, match=r"was rejected: the disk of the broker's home .* is full"):
            grid.bag(abs, range(3), runtime=0.1)
        assert bag.progress().done == 0
        ballast.unlink()
        assert [len(value) for value in bag.results()] == [100_000] * 6
        assert eventually(lambda: disk_of(grid) == "ok", PATIENCE_S)
        assert grid.bag(abs, [-1], runtime=0.1).results() == [1]
    assert counted(gate) == list(range(6))


def test_files_that_do_not_fit_are_refused_and_others_are_kept(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, size in (("little", 2 * 2**20), ("large", 2 * SIZE)):
        Path(name).write_bytes(os.urandom(size))
    with live_grid(small, workers=1) as live, Grid(live.broker.ready.client_line) as grid:
        with pytest.raises(BagRejected, match=r"the files of bag .* were rejected: the disk .* has no room for"):
            grid.command(["true"], [""], inputs=["large"])
        assert grid.bags() == []
        bag = grid.command(["true"], [""], runtime=1, inputs=["little"], outputs=["little"])
        assert [path.read_bytes() for path in bag.fetch("to", 0)] == [Path("little").read_bytes()]


@pytest.mark.slow
def test_files_that_a_task_leaves_wait_at_the_pc_until_there_is_room(small: Path, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    script = f"while [ ! -e {gate} ]; do sleep 0.05; done; head -c 3000000 /dev/urandom > out"
    with live_grid(small, workers=1) as live, Grid(live.broker.ready.client_line) as grid:
        bag = grid.command(["sh", "-c", script], [""], runtime=1, outputs=["out"])
        assert eventually(lambda: bag.progress().running == 1, PATIENCE_S)
        ballast = fill(small, 500_000)
        assert eventually(lambda: disk_of(grid) == "low", PATIENCE_S)
        gate.touch()
        assert not bag.wait(1.0)
        ballast.unlink()
        assert bag.wait(PATIENCE_S)
        (path,) = bag.fetch(tmp_path / "to", 0)
        assert path.stat().st_size == 3_000_000
