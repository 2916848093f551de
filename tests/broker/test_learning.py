"""The broker predicts tasks without a runtime from those of their bag that have ended."""

import pytest

from deskgrid.broker.bags import ASSUMED_RUNTIME_S, ObservedRuntimes
from tests.broker.office import Office, OpenOffice
from tests.peers import BareWorker


def run(office: Office, worker: BareWorker, count: int, seconds: float) -> None:
    """The worker does the next ``count`` tasks, which take so long."""
    work = worker.work(count)
    office.now += seconds
    worker.finish(*work, elapsed=seconds)


def test_a_bag_that_nobody_predicted_is_predicted_by_what_its_tasks_take_when_slots_have_done_one(
    open_office: OpenOffice,
) -> None:
    office = open_office()
    client, worker = office.client(), office.worker()
    worker.join(slots=2)
    bag = client.submit([b"%d" % n for n in range(6)], runtime=None)
    run(office, worker, 2, 3.0)
    known = office.sessions.state.book.by_id[bag]
    assert known.estimate_s == 3.0
    run(office, worker, 2, 0.1)
    assert known.estimate_s == pytest.approx(0.1)
    assert (known.runs.first.count, known.runs.others.count) == (2, 2)


def test_a_slot_that_did_another_bag_has_a_first_run_again(open_office: OpenOffice) -> None:
    office = open_office()
    client, worker = office.client(), office.worker()
    worker.join()
    bags = [client.submit([b"0"], runtime=None, last=False) for _ in range(2)]
    for turn, bag in enumerate((0, 1, 0, 0)):
        if turn > 1:
            first = office.sessions.state.book.by_id[bags[bag]].total
            client.answer_to(client.batch(bags[bag], [b"1"], first=first, last=False))
        run(office, worker, 1, 0.1)
    known = [office.sessions.state.book.by_id[bag].runs for bag in bags]
    assert [(runs.first.count, runs.others.count) for runs in known] == [(2, 1), (1, 0)]


def test_runs_that_are_all_the_same_are_what_tasks_take() -> None:
    assert seen(*[0.1] * 1000).usual() == pytest.approx(0.1)


def test_after_a_restart_a_bag_is_not_thought_to_take_no_time(open_office: OpenOffice) -> None:
    office = open_office()
    client = office.client()
    bag = client.submit([b"%d" % n for n in range(5)], runtime=None)
    worker = office.worker()
    worker.join()
    worker.finish(*worker.work())
    office.settle()

    office = open_office()
    client = office.client()
    assert len(client.watch(bag).results) == 1  # so the bag was looked at, though nothing has ended in it since
    assert office.sessions.state.book.by_id[bag].estimate_s == ASSUMED_RUNTIME_S
