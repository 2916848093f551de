"""A real worker that is stopped for longer than its lease and goes on, one that is killed, and what tasks do to it."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from deskgrid.client.grid import Grid
from deskgrid.errors import TaskCrashed
from tests.live import ROOT, WORKER, LiveGrid, live_grid
from tests.survival.gates import Gate, counted
from tests.waiting import PATIENCE_S, eventually

# Short, so that the test is; many heartbeats all the same, so that a busy machine loses nobody else.
LEASE_S = 4.0

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.name != "posix", reason="signals that stop and continue are POSIX's"),
]


@pytest.fixture
def live(tmp_path: Path) -> Iterator[LiveGrid]:
    with live_grid(tmp_path / "home", lease_s=LEASE_S) as grid:
        yield grid


@contextmanager
def worker_process(live: LiveGrid, name: str, place: Path, *options: str) -> Iterator["subprocess.Popen[bytes]"]:
    """A worker in a process of its own, which has joined; its temporary files are in ``place``."""
    line, own = live.broker.ready.worker_line, ["--home", f"{place}-pc", "--name", name, "--slots", "1"]
    argv = [sys.executable, "-m", "deskgrid.cli", *WORKER, "--join", line, *own, *options]
    environment = os.environ | {"TMPDIR": str(place)}
    with subprocess.Popen(argv, cwd=ROOT, env=environment, stderr=subprocess.DEVNULL) as process:
        try:
            assert eventually(lambda: state_of(live, name) == "up", PATIENCE_S)
            yield process
        finally:
            process.kill()


def status(live: LiveGrid) -> Any:
    with closing(live.client()) as client:
        return client.ask("status")


def state_of(live: LiveGrid, name: str) -> str:
    """What the broker thinks of a worker."""
    return next((worker["state"] for worker in status(live)["workers"] if worker["name"] == name), "unknown")


def test_a_worker_that_was_frozen_changes_nothing_by_its_late_answer_and_is_useful_again(
    live: LiveGrid, tmp_path: Path
) -> None:
    first, both = Gate(tmp_path / "first"), Gate(tmp_path / "both")
    with worker_process(live, "frozen", tmp_path) as process, Grid(live.broker.ready.client_line) as grid:
        bag = grid.bag(first.task(), [7], runtime=60)
        first.wait_for(1)
        process.send_signal(signal.SIGSTOP)
        assert eventually(lambda: state_of(live, "frozen") != "up", PATIENCE_S)
        live.worker("other")
        first.wait_for(2)
        first.open()  # it ends on both, and one of them cannot say so yet
        assert bag.results() == [7]
        process.send_signal(signal.SIGCONT)
        assert eventually(lambda: state_of(live, "frozen") == "up", PATIENCE_S)
        more = grid.bag(both.task(), [0, 1], runtime=60)
        both.wait_for(2)  # at the same time: on both
        both.open()
        assert more.results() == [0, 1]
        assert bag.logs(0).worker == "other"
    assert status(live)["counters"]["done"] == 3
    assert len(counted(first)) >= 2  # executed twice, which cannot be helped, and recorded once


def test_a_worker_that_was_frozen_gives_its_answer_when_nobody_else_began(live: LiveGrid, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    with worker_process(live, "frozen", tmp_path) as process, Grid(live.broker.ready.client_line) as grid:
        bag = grid.bag(gate.task(), [7], runtime=60)
        gate.wait_for(1)
        process.send_signal(signal.SIGSTOP)
        gate.open()
        assert eventually(lambda: state_of(live, "frozen") != "up", PATIENCE_S)
        process.send_signal(signal.SIGCONT)
        assert bag.results() == [7]
    assert counted(gate) == [7]
    assert status(live)["counters"]["adopted"] == 1


def test_what_a_killed_worker_left_behind_is_removed_by_its_successor(live: LiveGrid, tmp_path: Path) -> None:
    place = tmp_path / "temporary"
    place.mkdir()
    with worker_process(live, "pc", place) as process:
        left = list(place.iterdir())
        assert len(left) == 1
        process.kill()
        process.wait()
    assert list(place.iterdir()) == left
    with worker_process(live, "successor", place):
        assert not set(place.iterdir()) & set(left)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts so")
def test_a_task_over_its_memory_fails_with_the_limit_and_the_worker_goes_on(live: LiveGrid, tmp_path: Path) -> None:
    def task(size: int) -> int:
        return len(bytearray(size * 1024**2))

    options = ("--task-memory", "200M")
    with worker_process(live, "pc", tmp_path, *options) as process, Grid(live.broker.ready.client_line) as grid:
        with pytest.raises(MemoryError, match="the limit is 209,715,200 bytes for a task on pc"):
            grid.bag(task, [500], runtime=1).results()
        assert grid.bag(task, [1], runtime=1).results() == [1024**2]
        assert process.poll() is None


def test_a_task_that_crashes_is_given_up_with_its_last_words_while_its_bag_goes_on(
    live: LiveGrid, tmp_path: Path
) -> None:
    def task(item: int) -> int:
        import sys

        if item == 1:
            print("last words", file=sys.stderr, flush=True)
            os._exit(3)
        return item

    with worker_process(live, "pc", tmp_path), Grid(live.broker.ready.client_line) as grid:
        bag = grid.bag(task, range(3), runtime=1)
        results = dict(bag.as_completed(errors="return"))
        assert (results[0], results[2]) == (0, 2)
        error = results[1]
        assert isinstance(error, TaskCrashed)
        assert str(error).endswith("ended its process: exit code 3 (crashed 3 times, on pc, pc, pc)")
        assert "last words" in str(error.__cause__)
        assert "last words" in bag.logs(1).stderr
