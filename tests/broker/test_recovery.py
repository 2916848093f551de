"""A broker that is started again on its home carries on: without sockets, at every step of a bag's life."""

import msgpack
import pytest

from deskgrid import wire
from deskgrid.broker.sessions import HOLD_LEASES
from deskgrid.broker.store.files import Damaged
from deskgrid.scheduler.handlers.trust import WIDER_S
from tests.broker.office import LEASE_S, Office, OpenOffice
from tests.broker.records import result_of, result_row


def test_a_bag_carries_on_where_it_was(open_office: OpenOffice) -> None:
    office = open_office()
    client = office.client()
    bag = client.submit([b"%d" % n for n in range(20)], retries=1)
    worker = office.worker()
    worker.join(slots=4)
    done = worker.work(4)
    worker.finish(*done[:3])
    worker.finish(done[3], outcome=wire.Outcome.ERROR, payload=msgpack.packb(["E", "", "", b""]))
    client.ask("cancel", bag=bag, items=[19])
    office.settle()

    office = open_office()
    client = office.client()
    row = client.ask("progress", bag=bag)
    assert (row["done"], row["cancelled"], row["total"], row["closed"]) == (3, 1, 20, True)
    office.now = LEASE_S * HOLD_LEASES
    worker = office.worker("fresh")
    worker.join(slots=4)
    for _ in range(16):
        worker.finish(*worker.work())
    assert sorted(result.item for result in client.results(bag)) == list(range(20))


def test_a_task_that_ended_twice_is_no_past_that_is_believed(open_office: OpenOffice) -> None:
    office = open_office()
    office.client().submit([b"0", b"1"])
    office.settle()
    office.journal.add_results([result_row(1, b""), result_row(0, b""), result_row(1, b"")._replace(ended=2e9)])
    office.journal.commit()
    with pytest.raises(Damaged, match=r"contradicts itself: .* twice"):
        open_office()


def test_the_log_of_a_task_is_found_in_blocks_that_overlap(open_office: OpenOffice) -> None:
    office = open_office()
    client = office.client()
    worker = office.worker()
    worker.join(slots=6)
    office.now = WIDER_S  # a new worker has all its slots used by then
    bag = client.submit([b""] * 6)
    work = worker.work(6)
    for places in ((0, 5), (1, 3), (4,)):
        worker.finish(*[work[place] for place in places], payload=b"%d" % places[0])
    for place in range(6):
        found = result_of(office.journal, work[place].task)
        assert (None if found is None else found.item) == {2: None}.get(place, place)
        assert client.ask("logs", bag=bag, item=place)["state"] == ("running" if place == 2 else "done")


@pytest.mark.parametrize("last", [True, False])
def test_an_open_bag_is_still_open(open_office: OpenOffice, last: bool) -> None:
    office = open_office()
    bag = office.client().submit([b"0"], last=last)
    office.settle()
    office = open_office()
    client = office.client()
    answer = client.answer_to(client.batch(bag, [b"1"], first=1))
    assert isinstance(answer, wire.Failed if last else wire.Accepted)


def test_what_was_never_settled_was_never_acknowledged(open_office: OpenOffice) -> None:
    office = open_office()
    client = office.client()
    bag = client.submit([b"0"], last=False)
    client.send(client.batch(bag, [b"1"], first=1))
    assert not client.line.inbox  # type: ignore[attr-defined] # nothing was said yet
    office = open_office()
    assert office.client().ask("progress", bag=bag)["total"] == 1


def running(open_office: OpenOffice) -> tuple[Office, str, wire.Work, str]:
    """A restarted broker; a bag whose only task ran at a worker when it went; that attempt and the worker's session."""
    office = open_office()
    bag = office.client().submit([b"0"], runtime=100.0)
    worker = office.worker("pc1")
    worker.join()
    (work,) = worker.work()
    office.settle()
    return open_office(), bag, work, worker.session


def test_a_task_that_ran_is_waited_for_and_its_result_counts(open_office: OpenOffice) -> None:
    office, bag, work, session = running(open_office)
    office.worker("other").join()
    office.settle()
    client = office.client()
    assert client.ask("logs", bag=bag, item=0)["state"] == "held"
    worker = office.worker("pc1", session)
    worker.join(running=(wire.Running(work.task, work.number, 0, 50.0),))
    assert client.ask("progress", bag=bag)["running"] == 1
    worker.finish(work, payload=b"late")
    assert [result.payload for result in client.results(bag)] == [b"late"]
    assert client.ask("status")["counters"]["adopted"] == 1


def test_a_result_that_waited_at_its_worker_counts_though_the_worker_no_longer_runs_it(open_office: OpenOffice) -> None:
    office, bag, work, session = running(open_office)
    worker = office.worker("pc1", session)
    worker.join()
    worker.finish(work, payload=b"late")
    assert [result.payload for result in office.client().results(bag)] == [b"late"]


def test_a_task_whose_worker_does_not_come_back_is_made_again(open_office: OpenOffice) -> None:
    office, bag, work, _ = running(open_office)
    office.now = HOLD_LEASES * LEASE_S - 0.1
    other = office.worker("other")
    other.join()
    office.settle()
    assert not other.line.inbox  # type: ignore[attr-defined] # it is still waited for
    office.now += 0.2
    (new,) = other.work()
    assert (new.task, new.number > work.number) == (work.task, True)
    other.finish(new)
    assert len(office.client().results(bag)) == 1


def test_attempts_of_an_earlier_life_are_never_numbered_again(open_office: OpenOffice) -> None:
    numbers: list[int] = []
    for life in range(3):
        office = open_office()
        office.client().submit([b"0"] * 3, runtime=0.1)
        worker = office.worker(f"pc{life}")
        worker.join(slots=9)
        numbers += [work.number for work in worker.work(3)]
        office.settle()
        office.close()
    assert len(set(numbers)) == len(numbers)
    assert numbers == sorted(numbers)


def test_a_forgotten_bag_stays_forgotten(open_office: OpenOffice) -> None:
    office = open_office()
    client = office.client()
    kept, gone = client.submit([b"0"]), client.submit([b"0"])
    client.ask("cancel", bag=gone)
    client.ask("forget", bag=gone)
    office.settle()
    office = open_office()
    assert [row["bag"] for row in office.client().ask("bags")["bags"]] == [kept]


def test_the_broker_restarts_while_it_has_no_bag_at_all(open_office: OpenOffice) -> None:
    office = open_office()
    office.worker().join()
    office.settle()
    office = open_office()
    stranger = office.worker()
    stranger.send(wire.Heartbeat(None, ()))
    stranger.expect(wire.Rejoin)
