"""Random grids under random faults, seed after seed.

A failing seed is named with the line that runs it alone. ``GRID_SEEDS=20000`` tries so many of each weather (from 0
on), ``SEED=123`` one of each.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.grid.chaos import Drizzle, Storm, Sunshine, Weather
from tests.grid.counting import COUNTS

# As many as take twenty seconds together on one core of a small machine.
SEEDS = {Storm: 140, Drizzle: 80, Sunshine: 60}
# The last things that happened before a seed failed, for whoever reads it.
STORY_LINES = 60

ASKED = int(os.environ.get("GRID_SEEDS", "0"))
ALONE = os.environ.get("SEED")


def seeds(weather: type[Weather]) -> range:
    """The seeds to try."""
    if ALONE is not None:
        return range(int(ALONE), int(ALONE) + 1)
    return range(ASKED or SEEDS[weather])


def swept(weather: type[Weather], home: Path) -> None:
    """Run every seed; what was tried is said at the end of the output."""
    tasks = events = 0
    for seed in seeds(weather):
        run = weather(seed, home / str(seed))
        try:
            run.run()
        except Exception as error:
            again = f"SEED={seed} python -m pytest tests/grid/test_sweep.py -k {weather.__name__.lower()}"
            raise AssertionError(f"{error}\n\n{run.grid.world.story(STORY_LINES)}\n\nagain: {again}") from error
        finally:
            run.grid.close()
        tasks += len(run.grid.witness.recorded)
        events += run.grid.world.events
    COUNTS.append(f"{weather.__name__.lower()}: {len(seeds(weather))} seeds, {tasks} tasks, {events} events")


pytestmark = pytest.mark.timeout(0 if ASKED else 120)


@pytest.fixture(autouse=True)
def unmeasured() -> Iterator[None]:
    """No line is measured here: that would take three times as long, and no line depends on it to be covered."""
    tracer = sys.gettrace()
    sys.settrace(None)
    yield
    sys.settrace(tracer)


def test_in_a_storm_of_faults_every_accepted_task_ends_exactly_once(tmp_path: Path) -> None:
    swept(Storm, tmp_path)


def test_in_a_drizzle_of_broken_connections_and_broker_restarts_nothing_is_executed_twice(tmp_path: Path) -> None:
    swept(Drizzle, tmp_path)


def test_in_sunshine_no_task_is_killed_however_pcs_come_and_go(tmp_path: Path) -> None:
    swept(Sunshine, tmp_path)
