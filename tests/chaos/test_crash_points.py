"""A real broker kills itself before and after commits and sends, time after time, while a bag goes on."""

import os
import random
from pathlib import Path

import pytest

from deskgrid import Grid
from tests.chaos.book import gathered, recorded, work
from tests.chaos.machines import LEASE_S, Machines
from tests.counting import COUNTS
from tests.live import BrokerProcess

STEPS = ("commit: before", "commit: after", "send: before", "send: after")
# How often the broker dies at each of them.
TIMES = int(os.environ.get("CHAOS_DEATHS", "1"))
TASKS = 300 * TIMES
SEED = 1


@pytest.mark.timeout(120 + 60 * TIMES)
def test_a_broker_that_dies_again_and_again_at_a_step_loses_nothing(tmp_path: Path) -> None:
    dice, deaths = random.Random(SEED), TIMES * len(STEPS)

    def die(count: int) -> None:
        """While the first results are looked at, one broker after the other dies on the same home."""
        if count == 20:
            machines.broker.kill()
            for step in STEPS * TIMES:
                command = ("tests.chaos.doomed", step, str(dice.randint(1, 15)))
                BrokerProcess(tmp_path, machines.broker.address, LEASE_S, command).outlive()
            machines.broker.start()

    with Machines(tmp_path, workers=3) as machines, Grid(machines.client_line, timeout=60.0) as grid:
        bag = grid.bag(work, [(item, 0.05) for item in range(TASKS)], runtime=0.05)
        assert gathered(bag, die) == TASKS
    assert recorded(tmp_path) == (TASKS, TASKS, TASKS)
    COUNTS.append(f"chaos: a real broker that killed itself at {deaths} steps: {TASKS} of {TASKS} tasks, once each")
