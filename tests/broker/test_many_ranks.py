"""What gangs cost the broker where there are many ranks, or many gangs: counted, not timed."""

from collections.abc import Iterator
from typing import Any

import pytest

from deskgrid import wire
from deskgrid.broker.gangs import gangs as gangs_module
from tests.broker.gang_peers import RankWorker, begun, gang_bag, rank_worker, settled_in
from tests.broker.office import Office

PCS = 40


class Looked(list[Any]):
    """The ranks of a gang. ``looks``: how often one of them was looked at."""

    looks = 0

    def __iter__(self) -> Iterator[Any]:
        for rank in super().__iter__():
            self.looks += 1
            yield rank

    def __getitem__(self, place: Any) -> Any:
        self.looks += 1
        return super().__getitem__(place)


def watched(office: Office) -> list[Looked]:
    """From now on, it is counted how often the ranks of each gang are looked at."""
    found: list[Looked] = []
    for gang in office.sessions.workers.attempts.gangs.table:
        gang.ranks = Looked(gang.ranks)
        found.append(gang.ranks)
    return found


def test_the_end_of_a_rank_costs_no_more_than_a_few_looks_at_each_rank(office: Office) -> None:
    _, workers = begun(office, PCS)
    (ranks,) = watched(office)
    workers[0].end(0)
    assert ranks.looks <= 8 * PCS


def test_a_pc_that_joins_or_leaves_costs_nothing_for_gangs_of_others(office: Office) -> None:
    begun(office, 2)
    other = rank_worker(office, "other")
    office.settle()
    (ranks,) = watched(office)
    other.join(opening=2, address="other.lab")
    other.send(wire.Leave("the day is over", True, False, (), ()))
    office.settle()
    assert ranks.looks == 0


def gather(worker: RankWorker, data: bytes = b"abc") -> Any:
    """A worker's only rank brings bytes to a meeting; what it is told at once, if anything."""
    worker.send(wire.Meet(*worker.ref, worker.ranks[0], 1, True, False, data))
    return None if (said := worker.line.receive(0.0)) is None else wire.decode(said)


def test_gangs_share_the_room_for_what_is_gathered_and_give_it_back(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gangs_module, "GATHERED_BYTES", 5)
    workers = [rank_worker(office, f"pc{number}") for number in range(4)]
    settled_in(office)
    bags = [gang_bag(office, 2) for _ in range(2)]
    for worker in workers:
        worker.prepare()
        worker.ready()
    for worker in workers:
        worker.next(wire.StartRanks)
    first, *_ = workers
    second = next(worker for worker in workers if worker.ref != first.ref)
    assert gather(first) is None
    assert "no room" in gather(second).reason
    for bag in bags:
        office.client().ask("cancel", bag=bag)
    office.settle()
    assert office.sessions.workers.attempts.gangs.table.gathered == 0
