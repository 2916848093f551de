"""The broker is killed at a step of a scripted run, in a run for each; at every third, again after its restart.

`make test` tries one step in seven, `make soak` every step.
"""

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import pytest

from tests.counting import COUNTS, tried
from tests.grid.crashpoints import NEXT_STEPS, killed, steps
from tests.grid.sweep import all_cores

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
# Fewer would mean that the script does not do what it says.
ENOUGH_STEPS = 150
# Of the steps, `make test` tries one in so many.
ONE_IN = 7
# At every step of so many, the broker is killed again after its restart.
AGAIN = 3


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPoolExecutor]:
    with all_cores() as pool:
        yield pool


@pytest.fixture(scope="module")
def points() -> int:
    return steps()


def test_the_script_has_steps_enough(points: int) -> None:
    assert points >= ENOUGH_STEPS


def test_a_broker_that_is_killed_at_any_step_loses_nothing_and_repeats_nothing(
    pool: ProcessPoolExecutor, points: int
) -> None:
    others = tried([step for step in range(points) if step % AGAIN], ONE_IN)
    for failure in pool.map(killed, others, chunksize=8):
        assert not failure, failure
    COUNTS.append(f"crash points: the broker killed at {len(others)} of {points} steps")


def test_a_broker_that_is_killed_again_while_it_recovers_loses_nothing_and_repeats_nothing(
    pool: ProcessPoolExecutor, points: int
) -> None:
    first = tried(range(0, points, AGAIN), ONE_IN)
    again = [step // AGAIN * 7 % NEXT_STEPS for step in first]
    for failure in pool.map(killed, first, again, chunksize=8):
        assert not failure, failure
    COUNTS.append(f"crash points: the broker killed at {len(first)} steps, and again soon after")
