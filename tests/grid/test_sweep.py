"""Random grids under random faults, seed after seed, on all cores. A failing seed is named with the line that runs it.

`tests.grid.sweep` can run any number of seeds.
"""

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import pytest

from tests.counting import COUNTS
from tests.grid.sweep import all_cores, said, seeds_of, sweep

# `make soak` tries 20,000.
SEEDS = 60
# Several times what they take, for machines that are busy.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPoolExecutor]:
    with all_cores() as pool:
        yield pool


def _swept(pool: ProcessPoolExecutor, weather: str) -> None:
    runs = sweep(pool, weather, seeds_of(weather, SEEDS))
    COUNTS.append(f"virtual grid: {said(weather, runs)}")


def test_in_a_storm_of_faults_every_accepted_task_ends_exactly_once(pool: ProcessPoolExecutor) -> None:
    _swept(pool, "storm")


def test_in_a_drizzle_of_broken_connections_and_broker_restarts_nothing_is_executed_twice(
    pool: ProcessPoolExecutor,
) -> None:
    _swept(pool, "drizzle")


def test_at_dusk_what_is_done_out_of_touch_counts_when_it_is_heard_of(pool: ProcessPoolExecutor) -> None:
    _swept(pool, "dusk")


def test_in_sunshine_no_task_is_killed_however_pcs_come_and_go(pool: ProcessPoolExecutor) -> None:
    _swept(pool, "sunshine")


def test_in_a_squall_over_gangs_each_of_them_is_whole_or_not_there(pool: ProcessPoolExecutor) -> None:
    _swept(pool, "squall")
