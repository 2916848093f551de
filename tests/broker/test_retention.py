"""Finished bags are forgotten after the configured number of days, and not a moment before."""

from typing import Any

import pytest

from deskgrid import wire
from deskgrid.broker.peers import clients as clients_module
from deskgrid.broker.work.retention import CALLS_DAYS, DAY_S, LOOK_S
from tests.broker.office import OpenOffice
from tests.peers import BareWorker, Client


class House:
    """An office that keeps bags for two days."""

    DAYS = 2.0

    def __init__(self, open_office: OpenOffice, days: float | None = DAYS, wall: float = 1_800_000_000.0) -> None:
        self.office = open_office(wall=wall, keep_days=days)
        self.client: Client = self.office.client()
        self.worker: BareWorker = self.office.worker()
        self.worker.join()

    def ended(self, count: int = 1, **changes: Any) -> str:
        """A bag whose tasks are done."""
        bag = self.client.submit([b"0"] * count, runtime=0.1, **changes)
        for _ in range(count):
            self.worker.finish(*self.worker.work(), payload=b"result")
        return bag

    def later(self, seconds: float) -> None:
        """Time goes by; the worker says that it is there."""
        self.office.now += seconds
        self.worker.send(wire.Heartbeat(None, ()))
        self.office.settle()

    def bags(self) -> list[str]:
        self.office.settle()
        return list(self.office.sessions.state.book.by_id)


@pytest.fixture
def house(open_office: OpenOffice) -> House:
    return House(open_office)


def test_a_bag_is_forgotten_with_its_results_when_its_days_are_over(house: House) -> None:
    bag = house.ended()
    house.later(LOOK_S)
    house.later(House.DAYS * DAY_S - LOOK_S - 1.0)
    assert house.bags() == [bag]
    house.later(2 * LOOK_S)
    assert house.bags() == []
    assert list(house.office.journal.recovery.bags()) == []
    assert any("bag-expired" in line for line in house.office.sessions.state.take_notices())


def test_calls_of_a_program_are_kept_for_a_day_unless_it_asked_for_more(house: House) -> None:
    calls = house.ended(options=wire.TaskOptions(program="p"))
    kept = house.ended(options=wire.TaskOptions(program="p", keep=True))
    house.later(LOOK_S)
    house.later(CALLS_DAYS * DAY_S - LOOK_S - 1.0)
    assert house.bags() == [calls, kept]
    house.later(2 * LOOK_S)
    assert house.bags() == [kept]


def test_the_days_begin_when_the_last_task_has_ended(house: House) -> None:
    bag = house.client.submit([b"0", b"1"], runtime=0.1)
    house.worker.finish(*house.worker.work())
    house.later(LOOK_S)
    house.later(10 * House.DAYS * DAY_S)
    assert house.bags() == [bag]


def test_a_bag_that_may_still_grow_has_no_days(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients_module, "CLIENT_GONE_S", 1e9)  # its client is there all the time
    bag = house.ended(last=False)
    house.later(3 * House.DAYS * DAY_S)
    assert house.bags() == [bag]
    assert isinstance(house.client.answer_to(house.client.batch(bag, [], first=1)), wire.Accepted)
    house.later(LOOK_S)
    house.later(House.DAYS * DAY_S - 2 * LOOK_S)
    assert house.bags() == [bag]
    house.later(3 * LOOK_S)
    assert house.bags() == []


def test_whoever_waits_for_more_of_it_is_told(house: House) -> None:
    bag = house.ended()
    house.later(LOOK_S)
    house.office.now += House.DAYS * DAY_S
    open_bag = house.office.sessions.state.book.by_id[bag]
    state = house.office.sessions.state
    house.client.send(wire.Watch(77, bag, 99))
    state.fresh.clear()
    assert open_bag.watchers
    house.office.settle()
    reasons = [m.reason for m in _received(house.client) if isinstance(m, wire.Failed)]
    assert reasons == [f"bag {bag} was forgotten 2 days after it ended"]


def _received(client: Client) -> list[wire.Message]:
    found = []
    while (data := client.line.receive(0.0)) is not None:
        found.append(wire.decode(data))
    return found


def test_without_days_bags_stay(open_office: OpenOffice) -> None:
    house = House(open_office, days=None)
    bag = house.ended()
    house.later(1000 * DAY_S)
    assert house.bags() == [bag]


def test_the_days_go_on_while_the_broker_is_away(open_office: OpenOffice) -> None:
    first = House(open_office, wall=1_800_000_000.0)
    bag = first.ended()
    first.office.settle()
    for day in range(1, 20):
        again = House(open_office, wall=1_800_000_000.0 + day * DAY_S / 10)
        assert again.bags() == [bag]
    last = House(open_office, wall=1_800_000_000.0 + House.DAYS * DAY_S - 100.0)
    assert last.bags() == [bag]
    last.later(LOOK_S)
    assert last.bags() == [bag]
    last.later(LOOK_S)
    assert last.bags() == []


@pytest.mark.parametrize("years", [0.1, 10.0])
def test_nothing_is_forgotten_in_the_first_day_after_a_long_time(open_office: OpenOffice, years: float) -> None:
    first = House(open_office)
    bag = first.ended()
    first.office.settle()
    second = House(open_office, wall=1_800_000_000.0 + years * 365 * DAY_S)
    second.later(DAY_S - LOOK_S)
    assert second.bags() == [bag]
    second.later(3 * LOOK_S)
    assert second.bags() == []


def test_a_clock_that_is_set_right_in_the_first_day_forgets_nothing(open_office: OpenOffice) -> None:
    first = House(open_office)
    bag = first.ended()
    first.office.settle()
    second = House(open_office, wall=1_800_000_000.0 + 3_650 * DAY_S)
    second.later(LOOK_S)
    second.office.sessions.state.wall.follow(second.office.now, 1_800_000_000.0 + DAY_S / 2)
    second.later(DAY_S)
    assert second.bags() == [bag]
    second.later(2 * DAY_S)
    assert second.bags() == []


def test_a_bag_that_ended_by_a_clock_that_was_never_set_is_kept(open_office: OpenOffice) -> None:
    first = House(open_office, wall=100.0)
    bag = first.ended()
    first.office.settle()
    second = House(open_office)
    second.later(DAY_S + 2 * LOOK_S)
    assert second.bags() == [bag]
    third = House(open_office, wall=1_800_000_000.0 + DAY_S)
    third.later(House.DAYS * DAY_S - LOOK_S)
    assert third.bags() == [bag]
    third.later(3 * LOOK_S)
    assert third.bags() == []


def test_a_clock_that_went_back_forgets_nothing_early(open_office: OpenOffice) -> None:
    first = House(open_office, wall=1_800_000_000.0)
    bag = first.ended()
    first.office.settle()
    second = House(open_office, wall=1_000_000_000.0)
    second.later(House.DAYS * DAY_S - LOOK_S)
    assert second.bags() == [bag]
    second.later(3 * LOOK_S)
    assert second.bags() == []


def test_a_bag_without_a_recorded_end_counts_from_the_brokers_start(
    open_office: OpenOffice, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = House(open_office)
    bag = house.ended()
    monkeypatch.setattr(house.office.journal.recovery, "last_ended", lambda number: None)
    house.later(LOOK_S)
    house.later(House.DAYS * DAY_S - LOOK_S)
    assert house.bags() == [bag]
    house.later(2 * LOOK_S)
    assert house.bags() == []


def test_short_times_are_kept_too(open_office: OpenOffice) -> None:
    house = House(open_office, days=1.0 / DAY_S)
    house.ended()
    house.later(1.5)
    house.later(1.0)
    assert house.bags() == []


def test_nothing_is_forgotten_while_nothing_can_be_written(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    bag = house.ended()
    house.later(LOOK_S)
    monkeypatch.setattr(house.office.sessions.state.disk, "state", "full")
    monkeypatch.setattr(house.office.sessions.state.disk, "look", lambda now: False)
    house.later(2 * House.DAYS * DAY_S)
    assert house.bags() == [bag]
