"""Checkpointable tasks on a real grid: windows that are too short for them, and brokers and workers that are killed."""

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deskgrid import Grid, checkpoint
from deskgrid.client.local import STOP_S
from deskgrid.wire import saving
from deskgrid.wire.joinline import JoinLine
from deskgrid.worker.owner import watch
from deskgrid.worker.owner.policy import Courtesy, Presence
from deskgrid.worker.windows.clocks import read_clocks
from deskgrid.worker.windows.uptime import Cycle
from tests.live import ROOT, WORKER, BrokerProcess, live_grid
from tests.waiting import eventually

LEASE_S = 2.0
STEP_S = 0.02
# How often a task saves in these tests; in life it is a minute or more. Seconds.
PERIOD_S = 1.0
# What a busy machine may take to start processes and to write files. Seconds.
SLACK_S = 5.0
# A worker whose tasks save that often, and one whose tasks save only when they have to.
OFTEN = f"""
import deskgrid.worker.checkpoints as checkpoints
from deskgrid.cli.front import main
checkpoints.PERIOD_LEAST_S = checkpoints.PERIOD_MOST_S = {PERIOD_S}
main()
"""
SELDOM = "from deskgrid.cli.front import main; main()"


def steps(log: str, count: int) -> int:
    """Make ``count`` steps, each noted in a file; returns at which step it began."""
    begun = step = checkpoint.load(0)
    with open(log, "a", encoding="ascii") as file:
        while step < count:
            time.sleep(STEP_S)
            step += 1
            print(step, file=file, flush=True)
            checkpoint.save(step, progress=step / count)
    return begun


def noted(log: Path) -> list[int]:
    """The steps that were made, in the order in which they were."""
    return [int(line) for line in log.read_text(encoding="ascii").split()] if log.exists() else []


@contextmanager
def worker_process(line: JoinLine, name: str, place: Path, program: str = OFTEN) -> Iterator["subprocess.Popen[bytes]"]:
    own = ["--home", str(place / name), "--name", name, "--slots", "1"]
    argv = [sys.executable, "-c", program, *WORKER, "--join", str(line), *own]
    environment = os.environ | {"TMPDIR": str(place)}
    with subprocess.Popen(argv, cwd=ROOT, env=environment, stderr=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.slow
def test_a_task_that_outlasts_every_window_is_done_in_pieces_and_hardly_a_step_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # An hour takes six seconds here, and so do all other times.
    monkeypatch.setattr(saving, "LEAD_LEAST_S", 0.5)
    monkeypatch.setattr(saving, "_MORE_S", 0.3)
    monkeypatch.setattr(saving, "_BEGIN_S", 0.1)
    for where in ("deskgrid.worker.checkpoints", "deskgrid.broker.model.bags"):
        monkeypatch.setattr(f"{where}.FIRST_COST_S", 0.05)
    window_s, log = 6.0, tmp_path / "log"
    count = int(2.5 * window_s / STEP_S)
    with live_grid(tmp_path / "home") as live:
        live.worker("pc", plan=Cycle([(window_s, 0.3)], read_clocks()))
        with Grid(str(live.broker.line("client"))) as grid:
            bag = grid.bag(steps_to(log), [count], runtime=36_000.0, checkpoint=True, min_piece=1.0)
            (begun,) = bag.results()
            counters = grid.status()["counters"]
    assert sorted({*noted(log)}) == [*range(1, count + 1)]
    assert begun > 0
    assert counters["planned_kills"] == 0
    assert counters["pieces"] >= 2
    assert len(noted(log)) == count, "a step was made twice"


class steps_to:  # it stands for a function
    """`steps` with its file, for tasks that have only their item."""

    def __init__(self, log: Path) -> None:
        self._log = str(log)

    def __call__(self, count: int) -> int:
        return steps(self._log, count)

    @property
    def __name__(self) -> str:
        return "steps"


@pytest.mark.skipif(os.name != "posix", reason="kills as POSIX does")
@pytest.mark.slow
def test_what_is_done_twice_after_a_worker_and_a_broker_are_killed_is_a_period_and_no_more(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "home", lease_s=LEASE_S)
    log, count = tmp_path / "log", int(25.0 / STEP_S)
    try:
        workers, client = broker.line("worker"), broker.line("client")
        with worker_process(workers, "first", tmp_path) as first, Grid(str(client)) as grid:
            bag = grid.bag(steps_to(log), [count], runtime=25.0, checkpoint=True, min_piece=1.0)
            assert eventually(lambda: len(noted(log)) > 2.5 * PERIOD_S / STEP_S, 30.0)
            broker.kill()
            broker = BrokerProcess(tmp_path / "home", broker.address, lease_s=LEASE_S)
            made = len(noted(log))
            assert eventually(lambda: len(noted(log)) > made + 1.5 * PERIOD_S / STEP_S, 30.0)
            first.kill()
            with worker_process(workers, "second", tmp_path):
                (begun,) = bag.results()
        again = len(noted(log)) - count
    finally:
        broker.stop()
    assert 0 < begun < count
    assert 0 <= again * STEP_S <= PERIOD_S + SLACK_S


@pytest.mark.skipif(os.name != "posix", reason="stops as POSIX does")
@pytest.mark.slow
def test_a_worker_that_is_stopped_lets_its_tasks_save_first(tmp_path: Path) -> None:
    log, count = tmp_path / "log", int(6.0 / STEP_S)
    with live_grid(tmp_path / "home") as live, Grid(str(live.broker.line("client"))) as grid:
        workers = live.broker.line("worker")
        with worker_process(workers, "first", tmp_path, SELDOM) as first:
            bag = grid.bag(steps_to(log), [count], runtime=6.0, checkpoint=True, min_piece=1.0)
            assert eventually(lambda: len(noted(log)) > 20, 30.0)
            first.terminate()
            assert first.wait(30.0) == 0
            made = len(noted(log))
        with worker_process(workers, "second", tmp_path, SELDOM):
            assert bag.results() == [made]
        counters = grid.status()["counters"]
    assert noted(log) == [*range(1, count + 1)]
    assert (counters["planned_kills"], counters["pieces"]) == (0, 1)


@pytest.mark.skipif(sys.platform != "linux", reason="stops what descends from a process")
@pytest.mark.slow
def test_a_pc_whose_owner_is_back_lets_its_tasks_save_before_it_hands_them_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = Presence(1000.0, seated=True)
    monkeypatch.setattr(watch.Probes, "ask", lambda probes, now: there)
    monkeypatch.setattr(watch, "LOADED", math.inf)  # the machine of these tests
    for where in ("deskgrid.worker.session", "deskgrid.wire.saving"):
        monkeypatch.setattr(f"{where}.LEAD_LEAST_S", 3.0)
    log, count = tmp_path / "log", int(6.0 / STEP_S)
    with live_grid(tmp_path / "home") as live, Grid(str(live.broker.line("client"))) as grid:
        first = live.worker("first", courtesy=Courtesy("pause", 10.0, 0.5))
        bag = grid.bag(steps_to(log), [count], runtime=6.0, checkpoint=True, min_piece=1.0)
        assert eventually(lambda: len(noted(log)) > 20, 30.0)
        there = Presence(0.0, seated=True)
        assert eventually(lambda: first.has_said("its tasks are handed back"), 30.0)
        assert eventually(lambda: grid.status()["counters"]["pieces"] == 1, 30.0)
        made = len(noted(log))
        live.worker("second")
        assert bag.results() == [made]
        assert first.has_said("its tasks are stopped: somebody uses it")
    assert noted(log) == [*range(1, count + 1)]


@pytest.mark.alone
def test_a_private_grid_is_closed_without_waiting_for_a_checkpoint(tmp_path: Path) -> None:
    begun = tmp_path / "begun"

    def never_saves(place: Path) -> None:
        place.touch()
        time.sleep(600.0)

    with Grid.local(workers=1) as grid:
        grid.bag(never_saves, [begun], runtime=600.0, checkpoint=True)
        assert eventually(begun.exists, 30.0)
        since = time.monotonic()
    assert time.monotonic() - since < STOP_S, "its worker was killed"


@pytest.mark.skipif(os.name != "posix", reason="stops as POSIX does")
def test_a_worker_that_is_stopped_twice_ends_at_once(tmp_path: Path) -> None:
    begun = tmp_path / "begun"

    def never_saves(place: Path) -> None:
        place.touch()
        time.sleep(600.0)

    with live_grid(tmp_path / "home") as live, Grid(str(live.broker.line("client"))) as grid:
        with worker_process(live.broker.line("worker"), "first", tmp_path, SELDOM) as first:
            bag = grid.bag(never_saves, [begun], runtime=600.0, checkpoint=True)
            assert eventually(begun.exists, 30.0)
            first.terminate()
            assert eventually(lambda: grid.status()["workers"][0]["plan"] == "until its tasks have saved", 30.0)
            assert first.poll() is None
            first.terminate()
            assert first.wait(30.0) == -signal.SIGTERM
        bag.cancel()
