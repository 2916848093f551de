"""Real processes: brokers and workers are killed, frozen and cut off, and every result is right and recorded once.

``CHAOS_S=60 CHAOS_SEED=7`` sets the length of the storms, and with it the number of tasks (2,000 in a minute), and
their seed.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from deskgrid import Grid
from tests.chaos import namespaces
from tests.chaos.book import gathered, recorded, work
from tests.chaos.machines import Machines
from tests.chaos.proxy import Loopback
from tests.chaos.storm import CLIENT_PATIENCE_S, stormed
from tests.counting import COUNTS
from tests.live import ROOT

STORM_S = float(os.environ.get("CHAOS_S", "5"))
SEED = int(os.environ.get("CHAOS_SEED", "1"))

pytestmark = pytest.mark.timeout(STORM_S + 2 * CLIENT_PATIENCE_S)


@pytest.mark.slow
def test_in_a_storm_over_real_processes_every_task_is_answered_once(tmp_path: Path) -> None:
    COUNTS.append(f"chaos, cables cut, seed {SEED}: {stormed(tmp_path, Loopback(), seconds=STORM_S, seed=SEED)}")


@pytest.mark.slow
def test_where_cables_are_pulled_and_nobody_is_told_every_task_is_answered_once() -> None:
    if reason := namespaces.missing():
        pytest.skip(reason)
    options = ["--pulled", "--seconds", str(STORM_S), "--seed", str(SEED)]
    argv = ["unshare", "--net", "--", sys.executable, "-m", "tests.chaos.storm", *options]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert " pull" in done.stdout
    COUNTS.append(f"chaos, cables pulled in network namespaces, {done.stdout.strip()}")


def test_kill_9_of_the_broker_in_the_middle_of_two_hundred_tasks_costs_none_of_them(tmp_path: Path) -> None:
    tasks = 200

    def strike(count: int) -> None:
        if count == tasks // 2:
            machines.broker.kill()
            machines.broker.start()

    with Machines(tmp_path, workers=4) as machines, Grid(machines.client_line, timeout=CLIENT_PATIENCE_S) as grid:
        bag = grid.bag(work, [(item, 0.1) for item in range(tasks)], runtime=0.1)
        assert gathered(bag, strike) == tasks
        assert machines.broker.lives == 2
    assert recorded(tmp_path) == (tasks, tasks, tasks)
    COUNTS.append(f"chaos: kill -9 of the broker in the middle of {tasks} tasks: {tasks} of {tasks}, once each")
