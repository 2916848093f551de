"""When bags will be done: who is told, how often it is computed, why it is unknown, and what is learned from it."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from deskgrid import wire
from deskgrid.broker.forecasts import etas as etas_module
from deskgrid.broker.forecasts.etas import KEEP_S, LASTS_S, NO_PC, NOTHING_KNOWN, OLD_S, PART, SOON_S, WAIT_S
from deskgrid.broker.model.forecaster import LATE, Ticket
from deskgrid.broker.model.home_files import LICENCES
from deskgrid.broker.model.learning import WRITE_S
from deskgrid.scheduler.forecast import look as look_module
from deskgrid.scheduler.forecast.correction import ENOUGH, stage_of
from deskgrid.scheduler.forecast.picture import NOT_TOGETHER, Picture
from tests.broker.office import ADMIN, Office, OpenOffice
from tests.forecaster import InlineForecaster
from tests.peers import BareWorker, Client


class Slow:
    """Forecasts are done when the test says so. ``tickets``: those that were asked for, with their pictures."""

    def __init__(self) -> None:
        self.tickets: list[tuple[Ticket, Picture]] = []

    def submit(self, picture: Picture, seed: int, runs: int) -> Ticket:
        return self.ask(picture, "ends", {}, "")

    def ask(self, picture: Picture, what: str, args: dict[str, Any], owner: str) -> Ticket:
        self.tickets.append((Ticket(), picture))
        return self.tickets[-1][0]

    def finish(self, seconds: Sequence[float] = (10.0,), cost_s: float = 0.0, failure: str = "") -> None:
        """The last one that was asked for ends: every bag takes so long."""
        ticket, picture = self.tickets[-1]
        ticket.ends = None if failure else {bag.number: list(seconds) for bag in picture.bags}
        ticket.cost_s, ticket.failure, ticket.done = cost_s, failure, True


@pytest.fixture
def client(office: Office) -> Client:
    return office.client()


@pytest.fixture
def slow(office: Office) -> Slow:
    office.sessions.state.forecaster = slow = Slow()
    office.sessions.queries.etas._forecaster = slow
    return slow


def joined(office: Office, slots: int = 1, name: str = "pc1", **changes: Any) -> BareWorker:
    worker = office.worker(name)
    worker.join(slots=slots, **changes)
    return worker


def pending(office: Office, client: Client, bag: str) -> int:
    """Ask for an estimate without waiting for it; the number of the question."""
    number = client.number()
    client.send(wire.Ask(number, "eta", wire.pack_record({"bag": bag})))
    for _ in range(4):
        office.settle()
    return number


def made(office: Office) -> int:
    forecaster = office.sessions.state.forecaster
    assert isinstance(forecaster, InlineForecaster)
    return len(forecaster.made)


def tasks(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def end(office: Office, worker: BareWorker, seconds: float) -> None:
    """A worker does its next task, in so many seconds."""
    work = worker.work()
    office.now += seconds
    worker.finish(*work, elapsed=seconds)


def learned_from(office: Office, client: Client) -> str:
    """A bag of 30 tasks without a runtime, of which 20 have taken 4 s each on the only worker."""
    worker = joined(office)
    bag = client.submit(tasks(30), runtime=None)
    for _ in range(20):
        end(office, worker, 4.0)
    return bag


# --- what is told -----------------------------------------------------------------------------------------------------


def test_an_estimate_is_an_interval_about_its_median(office: Office, client: Client) -> None:
    joined(office, 2)
    bag = client.submit(tasks(4), runtime=10.0)
    told = client.ask("eta", bag=bag)
    assert 0.0 < told["low_s"] < told["median_s"] < told["high_s"] < 200.0
    assert (told["confidence"], told["why"]) == (0.9, "")


def test_where_nothing_is_under_way_nothing_is_forecast(office: Office, client: Client) -> None:
    joined(office)
    client.ask("status")
    office.settle()
    assert made(office) == 0
    bag = client.submit(tasks(4), runtime=10.0)
    assert client.ask("eta", bag=bag)["median_s"] > 0.0
    assert made(office) == 1


def test_what_was_learned_counts_more_than_what_was_assumed(office: Office, client: Client) -> None:
    bag = learned_from(office, client)
    told = client.ask("eta", bag=bag)
    assert 30.0 < told["median_s"] < 50.0
    said = client.submit(tasks(10), runtime=1_000.0)
    office.now += KEEP_S
    assert client.ask("eta", bag=said)["median_s"] > 1_000.0


def test_what_was_learned_is_without_the_files_of_tasks_and_estimates_are_with_them(
    office: Office, client: Client
) -> None:
    bag = learned_from(office, client)
    before = client.ask("eta", bag=bag)["median_s"]
    office.bag(bag).transfer_s = 6.0
    office.now += KEEP_S + 1.0
    assert client.ask("eta", bag=bag)["median_s"] > 2.0 * before


def test_time_passes_between_a_forecast_and_who_asks(office: Office, client: Client) -> None:
    joined(office)
    bag = client.submit(tasks(4), runtime=10.0)
    before = client.ask("eta", bag=bag)
    office.now += KEEP_S - 1.0
    after = client.ask("eta", bag=bag)
    assert after["median_s"] == pytest.approx(before["median_s"] - KEEP_S + 1.0)
    assert made(office) == 1


def test_a_bag_that_is_late_has_not_ended(office: Office, client: Client) -> None:
    joined(office)
    bag = client.submit(tasks(4), runtime=0.0)
    told = client.ask("eta", bag=bag)
    assert (told["low_s"], told["median_s"], told["high_s"]) == (SOON_S, SOON_S, SOON_S)


def test_a_bag_that_has_ended_is_done(office: Office, client: Client) -> None:
    worker = joined(office)
    bag = client.submit([b"0"], runtime=None)
    worker.finish(*worker.work(), elapsed=1.0)
    told = client.ask("eta", bag=bag)
    assert (told["median_s"], told["low_s"], told["high_s"], told["why"]) == (0.0, 0.0, 0.0, "")
    assert made(office) == 0


def test_views_of_the_grid_show_estimates(office: Office, client: Client) -> None:
    joined(office)
    client.submit(tasks(4), runtime=10.0)
    (row,) = client.ask("bags")["bags"]
    assert row["eta_low_s"] < row["eta_s"] < row["eta_high_s"]
    (row,) = client.ask("status")["bags"]
    assert row["eta_s"] > 0.0
    assert made(office) == 1


def test_nothing_is_computed_for_a_grid_without_work(office: Office, client: Client) -> None:
    joined(office)
    assert client.ask("bags")["bags"] == []
    assert made(office) == 0


# --- what is unknown --------------------------------------------------------------------------------------------------


def why(client: Client, bag: str) -> str:
    told = client.ask("eta", bag=bag)
    assert (told["median_s"], told["low_s"], told["high_s"]) == (None, None, None)
    return str(told["why"])


def test_without_a_pc_nobody_knows(office: Office, client: Client) -> None:
    bag = client.submit(tasks(3), runtime=10.0)
    assert why(client, bag) == NO_PC
    assert client.ask("progress", bag=bag, eta=True)["eta_s"] is None


def test_without_any_knowledge_of_its_tasks_nobody_knows(office: Office, client: Client) -> None:
    joined(office)
    bag = client.submit(tasks(3), runtime=None)
    assert why(client, bag) == NOTHING_KNOWN


def test_what_became_known_after_the_picture_was_taken_does_not_make_it_known(
    office: Office, client: Client, slow: Slow
) -> None:
    worker = joined(office)
    bag = client.submit(tasks(30), runtime=None)
    pending(office, client, bag)
    worker.finish(*worker.work())
    slow.finish([1_800.0])
    office.settle()
    office.settle()
    assert NOTHING_KNOWN in client.expect(wire.Answer).body
    assert office.journal.etas.rows() == []


def test_a_task_that_is_longer_than_all_windows_never_ends(office: Office, client: Client) -> None:
    joined(office, uptime=60.0)
    bag = client.submit(tasks(3), runtime=100.0)
    assert why(client, bag) == "one of its tasks needs 1 min 41 s, and the longest known window has 1 min 00 s"


def test_windows_may_be_too_few(office: Office, client: Client) -> None:
    joined(office, uptime=60.0)
    bag = client.submit(tasks(30), runtime=10.0)
    assert why(client, bag) == "the windows that are open or announced are too few"


def test_tasks_may_take_longer_than_every_window(office: Office, client: Client) -> None:
    joined(office, uptime=60.0)
    bag = client.submit(tasks(30), runtime=50.0)
    assert why(client, bag) == "some of its tasks may take longer than any window that is known"


def test_a_bag_that_may_not_run_has_no_end(office: Office, client: Client) -> None:
    joined(office)
    bag = client.submit(tasks(3), runtime=10.0)
    client.ask("pause", bag=bag)
    assert why(client, bag) == "it is paused"
    after = client.submit(tasks(3), runtime=10.0, options=_after(bag))
    assert why(client, after) == "it waits for 1 other bag"


def test_a_bag_ends_later_if_it_waits_for_a_licence_and_never_if_the_grid_has_too_few(
    open_office: OpenOffice, tmp_path: Path
) -> None:
    file = tmp_path / LICENCES
    file.write_text("matlab = 2\n")
    office = open_office()
    office.sessions.home_watch.look(office.now)
    client = office.client()
    joined(office, slots=4)
    bags = [
        client.submit(tasks(40), runtime=10.0, options=wire.TaskOptions(licences=licences))
        for licences in (("matlab=1",), ("matlab=2",))
    ]
    assert client.ask("eta", bag=bags[0])["median_s"] > 190.0, "two at a time"
    assert client.ask("eta", bag=bags[1])["median_s"] > 500.0
    file.write_text("matlab = 1\n")
    office.now += 2 * KEEP_S
    office.sessions.home_watch.look(office.now)
    assert client.ask("eta", bag=bags[0])["median_s"] > 380.0
    assert why(client, bags[1]) == "each task needs 2 of licence matlab, and this grid has 1"


def _after(bag: str) -> Any:
    return wire.TaskOptions(after=(bag,))


def test_a_forecast_that_fails_harms_nobody(office: Office, client: Client, slow: Slow) -> None:
    joined(office)
    bag = client.submit(tasks(3), runtime=10.0)
    number = pending(office, client, bag)
    slow.finish(failure="no memory")
    assert client.expect(wire.Answer).request == number
    assert why(client, bag) == "the estimate failed; the broker's log says why"
    assert any("no memory" in notice for notice in office.sessions.state.take_notices())


def test_a_forecast_for_which_there_is_no_time_is_no_fault_of_the_broker(
    office: Office, client: Client, slow: Slow
) -> None:
    joined(office)
    bag = client.submit(tasks(3), runtime=10.0)
    pending(office, client, bag)
    slow.finish(failure=LATE)
    client.receive()
    assert why(client, bag) == "the grid and its bags are too large for an estimate"
    assert not any("forecast-failed" in notice for notice in office.sessions.state.take_notices())


@pytest.mark.parametrize("ends", [{}, {1: []}, None], ids=["nobody", "no run", "nothing"])
def test_a_forecast_that_makes_no_sense_harms_nobody(office: Office, client: Client, slow: Slow, ends: Any) -> None:
    joined(office)
    bag = client.submit(tasks(3), runtime=10.0)
    pending(office, client, bag)
    ticket, _ = slow.tickets[-1]
    ticket.ends, ticket.done = ends, True
    client.receive()
    assert why(client, bag) == "the estimate failed; the broker's log says why"


def test_a_picture_that_cannot_be_taken_harms_nobody(
    office: Office, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*anything: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(etas_module, "Look", fail)
    joined(office)
    bag = client.submit(tasks(3), runtime=10.0)
    assert why(client, bag) == "the estimate failed; the broker's log says why"
    assert client.ask("progress", bag=bag)["waiting"] == 2


# --- how often --------------------------------------------------------------------------------------------------------


def test_one_forecast_serves_all_who_ask_within_a_few_seconds(office: Office, client: Client) -> None:
    joined(office)
    bags = [client.submit(tasks(3), runtime=10.0) for _ in range(3)]
    for _ in range(5):
        for bag in bags:
            client.ask("eta", bag=bag)
    assert made(office) == 1
    office.now += KEEP_S + 0.1
    client.ask("eta", bag=bags[0])
    assert made(office) == 2


def test_forecasts_take_at_most_a_part_of_the_time(office: Office, client: Client, slow: Slow) -> None:
    joined(office)
    bag = client.submit(tasks(3), runtime=10.0)
    pending(office, client, bag)
    slow.finish([100.0], cost_s=2.0)
    assert '"median_s": 100.0' in str(client.receive())
    office.now += 2.0 / PART - 1.0
    assert client.ask("eta", bag=bag)["median_s"] == pytest.approx(100.0 - 2.0 / PART + 1.0)
    assert len(slow.tickets) == 1
    office.now += 2.0
    pending(office, client, bag)
    assert len(slow.tickets) == 2


@pytest.mark.parametrize("cost_s", [10.0, 0.0], ids=["gave up", "was killed"])
def test_so_do_forecasts_that_fail(office: Office, client: Client, slow: Slow, cost_s: float) -> None:
    joined(office)
    bag = client.submit(tasks(3), runtime=10.0)
    pending(office, client, bag)
    office.now += 10.0
    slow.finish(failure="it takes too long", cost_s=cost_s)
    client.receive()
    office.now += 10.0 / PART - 11.0
    assert why(client, bag) == "the estimate failed; the broker's log says why"
    assert len(slow.tickets) == 1
    office.now += 2.0
    pending(office, client, bag)
    assert len(slow.tickets) == 2


def test_a_question_waits_for_a_forecast_without_keeping_others_waiting(
    office: Office, client: Client, slow: Slow
) -> None:
    joined(office)
    bag = client.submit(tasks(3), runtime=10.0)
    number = pending(office, client, bag)
    operations = office.sessions.queries.operations
    assert operations._parked
    assert not operations.waiting, "the loop may sleep"
    assert client.ask("ping") == {}
    slow.finish([5.0])
    office.settle()
    office.settle()
    assert client.expect(wire.Answer).request == number
    assert not operations._parked


def test_who_asks_does_not_wait_for_ever(office: Office, client: Client, slow: Slow) -> None:
    joined(office)
    bag = client.submit(tasks(3), runtime=10.0)
    pending(office, client, bag)
    office.now += WAIT_S + 1.0
    office.settle()
    office.settle()
    assert "there is no estimate yet" in str(client.receive())
    assert not office.sessions.queries.operations._parked


def test_who_hangs_up_waits_for_nothing(office: Office, slow: Slow) -> None:
    joined(office)
    client = office.client()
    bag = client.submit(tasks(3), runtime=10.0)
    pending(office, client, bag)
    client.line.close()
    office.sessions.gone(client.line.peer)  # type: ignore[attr-defined]
    office.settle()
    assert not office.sessions.queries.operations._parked


def test_a_view_of_the_grid_does_not_wait_long(office: Office, client: Client, slow: Slow) -> None:
    joined(office)
    client.submit(tasks(3), runtime=10.0)
    client.send(wire.Ask(client.number(), "bags"))
    for _ in range(4):
        office.settle()
    office.now += 1.0
    assert '"eta_s": null' in str(client.receive())


def test_a_forecast_for_very_many_bags_is_read_in_slices(
    office: Office, client: Client, slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    joined(office)
    bags = [client.submit(tasks(2), runtime=10.0) for _ in range(20)]
    number = pending(office, client, bags[0])
    slow.finish()
    monkeypatch.setattr(etas_module, "READ_UNITS", 10_000)
    turns = 0
    while not office.sessions.queries.etas._found:
        office.settle()
        turns += 1
        assert turns < 60
    assert turns >= 20
    assert isinstance(answer := client.receive(), wire.Answer)
    assert answer.request == number


def test_a_bag_may_be_forgotten_while_a_picture_is_taken(
    office: Office, client: Client, slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(look_module, "PIECE", 1)
    monkeypatch.setattr(etas_module, "ROW_UNITS", 10_000)
    joined(office)
    bags = [client.submit(tasks(2), runtime=10.0) for _ in range(4)]
    number = pending(office, client, bags[0])
    assert not slow.tickets
    other = office.client()
    other.ask("cancel", bag=bags[3])
    other.ask("forget", bag=bags[3])
    for _ in range(20):
        office.settle()
    slow.finish()
    assert isinstance(answer := client.receive(), wire.Answer)
    assert (answer.request, json.loads(answer.body)["why"]) == (number, "")


def test_old_estimates_are_not_shown(office: Office, client: Client) -> None:
    joined(office)
    bag = client.submit(tasks(400), runtime=10.0)
    assert client.ask("progress", bag=bag, eta=True)["eta_s"] > 0.0
    office.now += OLD_S + 1.0
    assert client.ask("progress", bag=bag)["eta_s"] is None


# --- what is learned --------------------------------------------------------------------------------------------------


def lasting(office: Office, worker: BareWorker, factor: float = 1.0) -> str:
    """A bag of which nobody asks anything, whose tasks take so many times as long in its second half."""
    bag = office.client().submit(tasks(24), runtime=None)
    for place in range(24):
        end(office, worker, 10.0 if place < 12 else 10.0 * factor)
        office.settle()
        office.settle()
    return bag


def test_a_bag_that_lasts_teaches_how_good_estimates_are(office: Office, client: Client) -> None:
    worker = joined(office)
    lasting(office, worker)
    assert 4 <= made(office) <= 5
    correction = office.sessions.state.learning.correction
    assert {name: len(correction.kept(name)) for name in correction.names} == {f"{n} client": 2 for n in range(4)}


def test_a_bag_that_is_done_soon_costs_nothing(office: Office, client: Client) -> None:
    worker = joined(office)
    client.submit(tasks(24), runtime=None)
    for _ in range(24):
        worker.finish(*worker.work(), elapsed=0.3)
        office.now += 0.3
        office.settle()
    assert office.now < LASTS_S
    assert made(office) == 0


@pytest.mark.slow
def test_intervals_widen_if_bags_take_longer_than_they_should(open_office: OpenOffice) -> None:
    office = open_office()
    worker = joined(office)
    for _ in range(ENOUGH):
        lasting(office, worker, 6.0)
    client = office.client()
    bag = client.submit(tasks(24), runtime=None)
    for _ in range(12):
        end(office, worker, 10.0)
    told = client.ask("eta", bag=bag)
    assert told["high_s"] / told["median_s"] > 3.0
    office.now += WRITE_S
    office.settle()
    correction = office.sessions.state.learning.correction
    before = {name: correction.kept(name) for name in correction.names}
    office.kill()
    again = open_office()
    correction = again.sessions.state.learning.correction
    assert {name: correction.kept(name) for name in correction.names} == before
    again.client(ADMIN).ask("forget learned")
    assert not again.sessions.state.learning.correction.names


def test_a_bag_that_was_cancelled_or_has_grown_teaches_nothing(office: Office, client: Client) -> None:
    worker = joined(office)
    bag = client.submit(tasks(24), runtime=10.0)
    worker.finish(*worker.work(), elapsed=10.0)
    client.ask("eta", bag=bag)
    client.ask("cancel", bag=bag)
    office.settle()
    assert not office.sessions.state.learning.correction.names


# --- the journal ------------------------------------------------------------------------------------------------------


def test_estimates_are_journaled_now_and_then_and_deleted_with_their_bags(
    office: Office, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(etas_module, "JOURNAL_S", 5.0)
    joined(office)
    bag = client.submit([b"0", b"1"], runtime=10.0)
    for _ in range(4):
        client.ask("eta", bag=bag)
        office.now += KEEP_S + 0.5
    rows = office.journal.etas.rows()
    assert [row.made for row in rows] == [office.sessions.state.wall.posix(seconds) for seconds in (0.0, 7.0)]
    assert all(row.low < row.median < row.high for row in rows)
    client.ask("cancel", bag=bag)
    client.ask("forget", bag=bag)
    for _ in range(10):
        office.settle()
    assert office.journal.etas.rows() == []


def test_each_stage_of_a_bag_has_an_estimate_in_the_journal(office: Office, client: Client) -> None:
    worker = joined(office)
    lasting(office, worker)
    stages = [stage_of(row.ended) for row in office.journal.etas.rows()]
    assert sorted(set(stages)) == [0, 1, 2, 3]


def test_the_next_life_of_a_broker_goes_on(office: Office, client: Client) -> None:
    joined(office)
    bag = client.submit([b"0", b"1"], runtime=10.0)
    assert client.ask("eta", bag=bag)["median_s"] > 0.0
    forecaster = office.sessions.state.forecaster
    office.sessions = office.sessions.successor(office.now)
    assert office.sessions.state.forecaster is forecaster


# --- parallel tasks ---------------------------------------------------------------------------------------------------


def test_bags_of_gangs_have_estimates_and_so_have_single_tasks_beside_them(office: Office, client: Client) -> None:
    for name in ("pc1", "pc2"):
        joined(office, 2, name, address="10.0.0.1", site="lab")
    gangs = client.submit(tasks(6), runtime=10.0, options=wire.TaskOptions(ranks=(4, 4), gang=True))
    single = client.submit(tasks(4), runtime=10.0)
    told = client.ask("eta", bag=gangs)
    assert 20.0 < told["low_s"] < told["median_s"] < told["high_s"] < 400.0
    assert client.ask("eta", bag=single)["median_s"] > told["median_s"]
    (row, *_) = client.ask("bags")["bags"]
    assert row["eta_s"] == pytest.approx(told["median_s"])
    large = client.submit(tasks(1), runtime=10.0, options=wire.TaskOptions(ranks=(4, 4), slots=2, gang=True))
    office.now += KEEP_S
    assert "PCs have room for" in why(client, large)


def test_a_gang_whose_pcs_are_never_there_together_has_no_estimate(office: Office, client: Client) -> None:
    joined(office, 1, "pc1", address="10.0.0.1", site="lab", uptime=100.0)
    joined(office, 1, "pc2", address="10.0.0.2", site="lab", uptime=15.0)
    bag = client.submit(tasks(1), runtime=50.0, options=wire.TaskOptions(ranks=(2, 2), gang=True))
    assert why(client, bag) == NOT_TOGETHER
