"""A real broker kills itself before and after commits and sends, time after time, while a bag goes on."""

import os
import random
from pathlib import Path

import pytest

from deskgrid import Grid
from tests.chaos.book import gang_work, gangs_gathered, gathered, recorded, work
from tests.chaos.machines import LEASE_S, Machines
from tests.counting import COUNTS
from tests.live import BrokerProcess

STEPS = ("commit: before", "commit: after", "send: before", "send: after")
# How often the broker dies at each of them.
TIMES = int(os.environ.get("CHAOS_DEATHS", "1"))
TASKS, GANGS = 300 * TIMES, 6 * TIMES
SEED = 1


@pytest.mark.slow
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
        # They begin while brokers die.
        gangs = grid.bag(gang_work, [(item, 0.5) for item in range(GANGS)], runtime=0.5, gang=2)
        bag = grid.bag(work, [(item, 0.05) for item in range(TASKS)], runtime=0.05)
        assert gathered(bag, die) == TASKS
        assert gangs_gathered(gangs, 2) == GANGS
    ended = TASKS + GANGS
    assert recorded(tmp_path) == (ended, ended, ended)
    COUNTS.append(
        f"chaos: a real broker that killed itself at {deaths} steps: {TASKS} tasks and {GANGS} gangs, once each"
    )
