"""Gangs on real workers with a real broker: the agent's loop, what it says of its PC, and what is left."""

import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from deskgrid import Grid, TaskCrashed, TaskError
from deskgrid.worker.pc.this_pc import others_load
from tests.counting import COUNTS
from tests.live import LiveGrid
from tests.waiting import eventually

# How long a gang of 0.8 s may take that needs all slots, beside work that never stops: see the test.
WHOLE_S = 60.0


def test_ranks_on_two_workers_meet_and_their_results_are_a_list(grid: LiveGrid, tmp_path: Path) -> None:
    def run(folder: str) -> Any:
        from deskgrid import gang

        Path(folder, f"{gang.rank}.pid").write_text(str(os.getpid()))
        gang.barrier(timeout=30)
        return gang.gather(gang.rank * gang.rank), int(os.environ["MASTER_PORT"]) > 0

    grid.worker("a", slots=2)
    grid.worker("b", slots=1)
    with Grid(grid.broker.ready.client_line) as program:
        assert program.bag(run, [str(tmp_path)], gang=3, runtime=1).results() == [[([0, 1, 4], True)] * 3]
        # The slots are free again, for gangs and for others.
        assert program.bag(run, [str(tmp_path)], gang=3, runtime=1).results() == [[([0, 1, 4], True)] * 3]
        assert program.bag(abs, [-1, -2, -3], runtime=1).results() == [1, 2, 3]


def test_the_first_rank_that_fails_ends_the_gang(grid: LiveGrid, tmp_path: Path) -> None:
    def run(fate: str) -> None:
        import threading

        from deskgrid import gang

        Path(folder, f"{fate}-{gang.rank}.pid").write_text(str(os.getpid()))
        gang.barrier(timeout=30)
        if gang.rank == 1:
            if fate == "raise":
                raise ValueError("on purpose")
            os._exit(3)
        threading.Event().wait(300)

    folder = str(tmp_path)
    grid.worker("a", slots=2)
    with Grid(grid.broker.ready.client_line) as program:
        raised, died = program.bag(run, ["raise", "die"], gang=2, runtime=1).results(errors="return")
    assert isinstance(raised, TaskError | ValueError)
    assert "on purpose" in str(raised)
    assert isinstance(died, TaskCrashed)
    assert "exit code 3" in str(died)


def test_it_is_told_when_a_bag_of_gangs_will_be_done(grid: LiveGrid, tmp_path: Path) -> None:
    def run(name: str) -> None:
        import threading
        from pathlib import Path

        while not Path(name).exists():
            threading.Event().wait(0.05)

    grid.worker("a", slots=2)
    goes_on = tmp_path / "go on"
    with Grid(grid.broker.ready.client_line) as program:
        bag = program.bag(run, [str(goes_on)] * 3, gang=2, runtime=30)
        assert eventually(lambda: bag.eta().low is not None, 60)
        eta = bag.eta()
        assert eta.low is not None
        assert eta.median is not None
        assert eta.high is not None
        assert 10.0 < eta.low < eta.median < eta.high < 600.0
        goes_on.touch()
        bag.results()
        assert bag.eta().median == 0.0


def test_a_worker_says_what_its_pc_has(grid: LiveGrid) -> None:
    grid.worker("a", labels=("gpu", "matlab"), memory=5 * 2**30)
    with Grid(grid.broker.ready.client_line) as program:
        (row,) = program.status()["workers"]
        assert (row["labels"], row["memory"], row["speed"]) == (["gpu", "matlab"], 5 * 2**30, 1.0)
        assert row["processors"] >= 1
        if others_load() is not None:
            assert eventually(lambda: program.status()["workers"][0]["load"] is not None)


@pytest.mark.parametrize("slots", [1, 4])
def test_slots_may_exceed_processors(grid: LiveGrid, slots: int) -> None:
    grid.worker("a", slots=4)
    with Grid(grid.broker.ready.client_line) as program:
        threads = program.bag(lambda item: os.environ.get("OMP_NUM_THREADS"), [0], slots=slots, runtime=1).results()
    assert threads == [str(slots)]


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_gang_of_the_whole_site_starts_although_small_gangs_and_single_tasks_keep_coming(grid: LiveGrid) -> None:
    """It is overtaken for (0.8 * 4**0.3 - 0.4 * 2**0.3) / 0.05 = 14 s at most, and then waits for what runs."""

    def nap(seconds: float) -> float:
        import time

        time.sleep(seconds)
        return seconds

    for name in ("a", "b"):
        grid.worker(name, slots=2)
    with Grid(grid.broker.ready.client_line) as program:
        over = threading.Event()
        small: list[Any] = []

        def keep_coming() -> None:
            while not over.wait(0.2):
                small.append(program.bag(nap, [0.4], gang=2, runtime=0.4))
                small.append(program.bag(nap, [0.2, 0.2], runtime=0.2))

        stream = threading.Thread(target=keep_coming)
        stream.start()
        try:
            assert eventually(lambda: len(small) >= 10, 30.0)
            began = time.monotonic()
            whole = program.bag(nap, [0.8], gang=4, runtime=0.8)
            assert whole.wait(WHOLE_S), f"it did not end within {WHOLE_S} s: {whole.progress()}"
            took = time.monotonic() - began
        finally:
            over.set()
            stream.join()
        COUNTS.append(f"a gang of the whole site ended after {took:.0f} s beside {len(small)} bags that kept coming")
        assert whole.results() == [[0.8] * 4]
        for bag in small:
            bag.cancel()
