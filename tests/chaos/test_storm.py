"""Real processes: brokers and workers are killed, frozen and cut off, and every result is right and recorded once.

``CHAOS_S=60 CHAOS_SEED=7`` makes the storm last so long, over as many more tasks, and another one.
"""

import os
from pathlib import Path

import pytest

from deskgrid import Grid
from tests.chaos.book import gathered, recorded, work
from tests.chaos.machines import Machines, Storm
from tests.counting import COUNTS

STORM_S = float(os.environ.get("CHAOS_S", "15"))
SEED = int(os.environ.get("CHAOS_SEED", "1"))
WORKERS = 6
TASK_S = 0.1
# Two thousand in a minute's storm: as many as six workers make in most of it.
TASKS = int(STORM_S * 2000 / 60)
# Nothing moves for so long only if it never will.
PATIENCE_S = 120.0

pytestmark = pytest.mark.timeout(STORM_S + 2 * PATIENCE_S)


def test_in_a_storm_over_real_processes_every_task_is_answered_once(tmp_path: Path) -> None:
    with Machines(tmp_path, WORKERS) as machines:
        with Grid(machines.client_line, timeout=PATIENCE_S) as grid:
            bag = grid.bag(work, [(item, TASK_S) for item in range(TASKS)], runtime=TASK_S)
            storm = Storm(machines, SEED)
            storm.blow(STORM_S)
            assert gathered(bag) == TASKS
            storm.calm()
        lives, faults = machines.broker.lives, storm.faults
    assert recorded(tmp_path) == (TASKS, TASKS, TASKS)
    assert lives > 1
    count = f"{TASKS:,} of {TASKS:,} tasks once each, through {len(faults)} faults, {lives} lives of the broker"
    COUNTS.append(f"chaos, seed {SEED}: {count}")


def test_kill_9_of_the_broker_in_the_middle_of_two_hundred_tasks_costs_none_of_them(tmp_path: Path) -> None:
    tasks = 200

    def strike(count: int) -> None:
        if count == tasks // 2:
            machines.broker.kill()
            machines.broker.start()

    with Machines(tmp_path, workers=4) as machines, Grid(machines.client_line, timeout=PATIENCE_S) as grid:
        bag = grid.bag(work, [(item, 0.1) for item in range(tasks)], runtime=0.1)
        assert gathered(bag, strike) == tasks
        assert machines.broker.lives == 2
    assert recorded(tmp_path) == (tasks, tasks, tasks)
    COUNTS.append(f"chaos: kill -9 of the broker in the middle of {tasks} tasks: {tasks} of {tasks}, once each")
