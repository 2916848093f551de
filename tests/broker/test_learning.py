"""What the broker assumes of tasks that nobody predicted, from those of their bag that have ended."""

from pathlib import Path

import pytest

from broker.bags import ASSUMED_RUNTIME_S, Runs
from tests.broker.office import Office


def seen(*seconds: float) -> Runs:
    runs = Runs()
    runs.add(seconds[:1])
    if len(seconds) > 1:
        runs.add(seconds[1:])
    return runs


def test_of_a_few_runs_the_longest_is_what_tasks_take() -> None:
    assert seen(1.0).usual() == 1.0
    assert seen(*[1.0] * 9, 30.0).usual() == 30.0


def test_of_many_runs_one_that_was_held_up_makes_the_others_no_longer() -> None:
    assert 0.01 < seen(*[0.01] * 10_000, 1.0).usual() < 0.05


def test_runs_that_are_all_the_same_are_what_tasks_take() -> None:
    assert seen(*[0.1] * 1000).usual() == pytest.approx(0.1)


def test_after_a_restart_a_bag_is_not_thought_to_take_no_time(tmp_path: Path) -> None:
    office = Office(tmp_path)
    client = office.client()
    bag = client.submit([b"%d" % n for n in range(5)], runtime=None)
    worker = office.worker()
    worker.join()
    worker.finish(*worker.work())
    office.settle()
    office.journal._db.close()

    office = Office(tmp_path)
    client = office.client()
    assert len(client.watch(bag).results) == 1  # so the bag was looked at, though nothing has ended in it since
    assert office.sessions.desk.book.by_id[bag].estimate_s == ASSUMED_RUNTIME_S
