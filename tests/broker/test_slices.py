"""Orders and questions of any size run in slices: the broker serves others in between, and a kill loses nothing."""

import json
from pathlib import Path
from typing import Any

import pytest

from deskgrid import wire
from deskgrid.broker.answers import overview as overview_module
from deskgrid.broker.auth.roles import Credential
from deskgrid.broker.model import quotas as quotas_module
from deskgrid.broker.work import operations as operations_module
from deskgrid.broker.work import orders as orders_module
from deskgrid.broker.work.operations import CHEAP_UNITS, Operation, SharedResult, Slices
from deskgrid.broker.work.retention import DAY_S
from deskgrid.scheduler.queues import longest_first
from tests.broker.office import CLIENT, Office, OpenOffice
from tests.peers import Client

OTHER = Credential("other", "submitter")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slice is a few tasks, and a turn a slice."""
    monkeypatch.setattr(orders_module, "CANCEL_UNITS", 20)
    monkeypatch.setattr(orders_module, "PIECE_TASKS", 7)
    monkeypatch.setattr(orders_module, "PREDICTIONS", 4)
    monkeypatch.setattr(operations_module, "TURN_UNITS", 1)


def asked(client: Client, what: str, **args: object) -> int:
    """Ask, and do not wait for the answer."""
    request = client.number()
    client.send(wire.Ask(request, what, wire.pack_record(args)))
    return request


def turns(office: Office, client: Client, most: int = 1000) -> int:
    """How many turns it takes until ``client`` is told something."""
    inbox: Any = client.line
    for turn in range(1, most):
        office.settle()
        office.sessions.state.scheduler.check(office.now)
        if inbox.inbox:
            return turn
    raise AssertionError("it is told nothing")


def killed(office: Office) -> Office:
    """Killed, and started again: what was not committed is gone."""
    office.journal.db.close()
    again = Office(office.journal.home)
    again.sessions.state.scheduler.check(0.0)
    return again


def row(client: Client, bag: str) -> tuple[int, int, int]:
    answer = client.ask("progress", bag=bag)
    return answer["total"], answer["waiting"], answer["cancelled"]


# --- cancel ----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("small")
def test_a_large_cancel_takes_many_turns_in_which_others_are_answered(office: Office) -> None:
    client, other = office.client(), office.client(OTHER)
    bag = client.submit([b"0"] * 200, last=False)
    request = asked(client, "cancel", bag=bag)
    office.settle()
    assert office.sessions.queries.operations.waiting, "the next turn is due at once"
    answer = other.ask("bags")["bags"][0]
    assert 0 < answer["cancelled"] < 200
    assert (answer["closed"], answer["note"]) == (True, "it is being cancelled")
    assert turns(office, client) > 5
    assert client.expect(wire.Answer) == wire.Answer(request, '{"cancelled": 200}')
    assert other.ask("bags")["bags"][0]["note"] == ""
    assert not office.sessions.unfinished
    assert {result.item for result in client.results(bag)} == set(range(200))


@pytest.mark.usefixtures("small")
def test_a_cancel_that_was_cut_short_by_a_kill_is_finished_at_the_restart_and_counted_once(tmp_path: Path) -> None:
    office = Office(tmp_path)
    client, worker = office.client(), office.worker()
    bag = client.submit([b"%d" % item for item in range(90)], runtime=2.0)
    worker.join()
    worker.finish(*worker.work())
    asked(client, "cancel", bag=bag)
    for _ in range(2):
        office.settle()
    office = killed(office)
    assert 1 < office.bag(bag).settled < 90
    client = office.client()
    while office.sessions.unfinished:
        office.settle()
    assert row(client, bag) == (90, 0, 89)
    results = client.results(bag)
    assert sorted(result.item for result in results) == list(range(90))
    assert office.journal.recovery.orders() == []
    office.close()


@pytest.mark.usefixtures("small")
def test_what_runs_is_spared_also_after_a_kill(tmp_path: Path) -> None:
    office = Office(tmp_path)
    client, worker = office.client(), office.worker("pc1")
    bag = client.submit([b"0"] * 60, runtime=100.0)
    worker.join()
    (work,) = worker.work()
    asked(client, "cancel", bag=bag, running=False)
    office.settle()
    office = killed(office)
    while office.sessions.unfinished:
        office.settle()
    back = office.worker("pc1", worker.session)
    back.join()
    back.finish(work, payload=b"done")
    assert sorted(bytes(result.payload) for result in office.client().results(bag)) == [b""] * 59 + [b"done"]
    office.close()


@pytest.mark.usefixtures("small")
def test_two_cancels_of_one_bag_count_each_task_once(office: Office) -> None:
    client, other = office.client(), office.client(Credential("admin", "admin"))
    bag = client.submit([b"0"] * 100)
    asked(client, "cancel", bag=bag)
    asked(other, "cancel", bag=bag)
    turns(office, client)
    turns(office, other)
    counts = [json.loads(each.expect(wire.Answer).body)["cancelled"] for each in (client, other)]
    assert sum(counts) == 100
    assert office.journal.recovery.orders() == []


@pytest.mark.usefixtures("small")
def test_a_cancel_goes_on_when_nobody_waits_for_it_and_a_question_does_not(office: Office) -> None:
    client, other = office.client(), office.client()
    bag = client.submit([b"0"] * 100)
    asked(client, "cancel", bag=bag)
    asked(client, "bags")
    client.send(wire.Goodbye("gone"))
    while office.sessions.unfinished:
        office.settle()
    assert row(other, bag) == (100, 0, 100)


@pytest.mark.usefixtures("small")
def test_a_question_that_is_repeated_while_it_is_carried_out_is_answered_once(office: Office) -> None:
    client = office.client()
    bag = client.submit([b"0"] * 100)
    request = asked(client, "cancel", bag=bag)
    office.settle()
    client.send(wire.Ask(request, "cancel", wire.pack_record({"bag": bag})))
    turns(office, client)
    assert client.expect(wire.Answer).body == '{"cancelled": 100}'
    for _ in range(5):
        office.settle()
    assert client.line.receive(0.0) is None


@pytest.mark.usefixtures("small")
def test_a_bag_that_is_forgotten_while_it_is_cancelled_ends_that(office: Office) -> None:
    client, admin = office.client(), office.client(Credential("admin", "admin"))
    bag = client.submit([b"0"] * 100)
    asked(client, "cancel", bag=bag)
    office.settle()
    for start in range(0, 100, 5):
        asked(admin, "cancel", bag=bag, items=list(range(start, start + 5)))
    request = asked(admin, "forget", bag=bag)
    while office.sessions.unfinished:
        office.settle()
    answers = [admin.receive() for _ in range(21)]
    assert answers[-1] == wire.Answer(request, "{}")
    assert isinstance(client.receive(), wire.Answer)
    assert office.journal.db.execute("SELECT count(*) FROM results").fetchone() == (0,)


# --- forget ----------------------------------------------------------------------------------------------------------


def left_of_bags(office: Office) -> list[int]:
    tables = ("bags", "batches", "results", "sent", "templates", "files", "predictions", "orders")
    return [office.journal.db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables]


@pytest.mark.usefixtures("small")
def test_a_forgotten_bag_is_gone_at_once_and_its_rows_in_time_also_after_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deskgrid.broker.store.purge.ROWS", 2)
    office = Office(tmp_path)
    client, worker = office.client(), office.worker()
    bag = client.submit([b"0"] * 10, last=False, runtime=2.0)
    for first in range(10, 50, 5):
        client.answer_to(client.batch(bag, [b"0"] * 5, first=first, runtime=2.0, last=False))
    worker.join()
    worker.finish(*worker.work())
    asked(client, "runtimes", bag=bag, items=[49, 48], runtimes=[3.0, 4.0])
    asked(client, "cancel", bag=bag)
    while office.sessions.unfinished:
        office.settle()
    for _ in range(2):
        client.expect(wire.Answer)
    request = asked(client, "forget", bag=bag)
    turns(office, client)
    assert client.expect(wire.Answer) == wire.Answer(request, "{}")
    assert left_of_bags(office)[1] > 0
    assert office.client(OTHER).ask("bags")["bags"] == []
    assert left_of_bags(office)[1] > 0
    office = killed(office)
    client = office.client()
    assert client.failed("progress", bag=bag) == f"no bag {bag}: see deskgrid bags"
    assert isinstance(client.submit([b"1"]), str)
    # The id can be another's while rows of the forgotten one are still there.
    assert isinstance(client.answer_to(client.batch(bag, [b"again"])), wire.Accepted)
    while office.sessions.unfinished:
        office.settle()
    assert left_of_bags(office) == [2, 2, 0, 0, 1, 0, 0, 0]
    office.close()
    office = Office(tmp_path)
    assert sorted(row["total"] for row in office.client().ask("bags")["bags"]) == [1, 1]
    office.close()


@pytest.mark.usefixtures("small")
def test_many_bags_expire_in_slices(open_office: OpenOffice) -> None:
    office = open_office(keep_days=1.0)
    client = office.client()
    bags = [client.submit([b"0"]) for _ in range(30)]
    for bag in bags:
        client.ask("cancel", bag=bag)
    office.settle()
    office.now += 60.0
    office.settle()
    office.now += 2 * DAY_S
    office.settle()
    while office.sessions.unfinished:
        office.settle()
    assert left_of_bags(office) == [0] * 8


# --- predictions -----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("small")
def test_predictions_are_changed_in_slices_and_are_there_after_a_restart(tmp_path: Path) -> None:
    office = Office(tmp_path)
    client = office.client()
    bag = client.submit([b"0"] * 10, runtime=5.0, last=False)
    client.answer_to(client.batch(bag, [b"0"] * 10, first=10, runtime=5.0))
    request = asked(client, "runtimes", bag=bag, items=list(range(19, -1, -1)), runtimes=[float(n) for n in range(20)])
    assert turns(office, client) >= 5
    assert client.expect(wire.Answer) == wire.Answer(request, "{}")
    assert client.failed("runtimes", bag=bag, items=[20], runtimes=[1.0]).startswith(f"bag {bag} has no item 20")
    assert client.failed("runtimes", bag=bag, items=[1, 2], runtimes=[1.0]) == "the order has 2 items and 1 runtimes"
    office = killed(office)
    runtimes = [seconds for batch in office.journal.recovery.batches() for seconds in batch.runtimes]
    assert runtimes == [float(n) for n in range(19, -1, -1)]
    office.close()


def test_predictions_wait_for_earlier_ones_that_are_still_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(longest_first, "PREDICTED_RUNS", 1)
    office = Office(tmp_path)
    client = office.client()
    office.worker("pc1").join(uptime=1.0)  # too short: all go to the priority queue
    bag = client.submit([b"0"] * 10, runtime=5.0)
    office.settle()
    for number in range(1, 4):
        asked(client, "runtimes", bag=bag, items=[0, 5], runtimes=[float(number)] * 2)
    scheduler, met, predict = office.sessions.state.scheduler, list[bool](), longest_first.LongestFirst.predict

    def noted(queue: longest_first.LongestFirst, *args: Any) -> None:
        met.append(queue.predicting)
        predict(queue, *args)

    monkeypatch.setattr(longest_first.LongestFirst, "predict", noted)
    for _ in range(30):
        office.settle()
        scheduler.check(office.now)
    assert (met, scheduler.predicting) == ([False] * 3, False)
    (category,) = scheduler.grid.categories.by_key.values()
    assert category.priority.ascending(3) == [3.0, 3.0, 5.0]
    office.close()


# --- turns -----------------------------------------------------------------------------------------------------------


def steps(said: list[str], name: str, count: int) -> Slices:
    for number in range(count):
        said.append(f"{name}{number}")
        yield 1
    return {}


def test_turns_go_round_by_credential_and_in_order_within_one(office: Office) -> None:
    said: list[str] = []
    operations = office.sessions.queries.operations
    for owner, name in (("ann", "a"), ("ann", "b"), ("ben", "c"), ("eve", "d")):
        operations.add(Operation(owner, steps(said, name, 3), order=True))
    operations.work(0.0)
    assert said[:6] == ["a0", "c0", "d0", "a1", "c1", "d1"]
    assert said[-3:] == ["b0", "b1", "b2"]
    assert not operations.waiting


def test_a_credential_may_have_only_so_much_waiting_and_others_are_heard(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations_module, "WAITING_LIMIT", 3)
    client, other = office.client(), office.client(OTHER)
    for _ in range(5):
        asked(client, "bags")
    assert isinstance(other.ask("bags"), dict)
    answers = [client.receive() for _ in range(5)]
    assert [type(answer) for answer in answers] == [wire.Failed] * 2 + [wire.Answer] * 3
    assert answers[0].reason.startswith("3 questions and orders of client are pending already")  # type: ignore[union-attr]
    monkeypatch.setattr(operations_module, "WAITING_LIMIT_ALL", 0)
    assert "are pending already: retry later" in client.failed("bags")
    monkeypatch.setattr(operations_module, "WAITING_CHARACTERS", 1)
    assert "are pending already" in client.failed("bags")
    assert client.ask("ping") == {}, "a sign of life waits for nothing"


def test_a_question_that_fails_costs_only_its_answer(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overview_module, "bisect_right", lambda *_: 1 // 0)
    client = office.client()
    assert client.failed("bags") == "the broker could not answer this; its log says why"
    assert client.failed("bags") == "the broker could not answer this; its log says why"
    notices = [line for line in office.sessions.state.take_notices() if "question-failed" in line]
    assert len(notices) == 1, "a failure is noted once a second"
    assert "ZeroDivisionError" in notices[0]
    monkeypatch.undo()
    assert client.ask("bags") == {"bags": [], "after": None}


def test_what_is_shared_is_made_once_for_all_who_ask_meanwhile_and_kept_if_it_was_costly() -> None:
    made: list[float] = []

    def make(now: float) -> Any:
        made.append(now)
        yield CHEAP_UNITS
        yield units
        return now

    units, shared = 1, SharedResult(make, 2.0)
    first, second = shared.get(0.0), shared.get(0.0)
    assert next(first) == CHEAP_UNITS
    assert next(second) == 1
    for each in (first, second):
        with pytest.raises(StopIteration) as end:
            next(each)
        assert end.value.value == 0.0
    with pytest.raises(StopIteration):
        next(shared.get(1.9))
    assert made == [0.0]
    assert len(list(shared.get(2.0))) == 2
    units = 0
    assert len(list(shared.get(4.0))) == 2
    assert len(list(shared.get(4.0))) == 2, "what is cheap is made anew"
    assert made == [0.0, 2.0, 4.0, 4.0]


def test_what_cannot_be_made_is_tried_again_by_the_next_who_asks() -> None:
    def make(now: float) -> Any:
        yield 1
        raise OSError

    shared: SharedResult[None] = SharedResult(make, 2.0)
    for _ in range(2):
        with pytest.raises(OSError, match=r"^$"):
            list(shared.get(0.0))


# --- bounds ----------------------------------------------------------------------------------------------------------


def test_bags_are_listed_in_pages(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overview_module, "PAGE", 3)
    client = office.client()
    made = [client.submit([b"0"]) for _ in range(7)]
    found, after, pages = [], None, 0
    while pages == 0 or after is not None:
        answer = client.ask("bags", after=after)
        found += [row["bag"] for row in answer["bags"]]
        after, pages = answer["after"], pages + 1
    assert (found, pages) == (made, 3)


def test_the_status_has_so_many_rows_of_bags_and_slots_and_counts_the_rest(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, most in (("BAG_ROWS", 4), ("WORKER_ROWS", 3), ("SLOT_ROWS", 6), ("SLICE_ROWS", 2), ("LOOKED_AT", 3)):
        monkeypatch.setattr(overview_module, name, most)
    client = office.client()
    bags = [client.submit([b"0"], runtime=1e6) for _ in range(6)]
    for bag in bags[1:5]:
        client.ask("cancel", bag=bag)
    for number in range(5):
        office.worker(f"pc{number}").join(slots=4, uptime=50.0)
    office.settle()
    status = client.ask("status")
    assert [row["bag"] for row in status["bags"]] == [bags[0], bags[5], bags[4], bags[3]]
    assert [(w["slot_count"], len(w["slots"])) for w in status["workers"]] == [(4, 2)] * 3
    assert status["totals"] == {
        "bags_under_way": 2,
        "bags_ended": 4,
        "workers_up": 5,
        "workers_lost": 0,
        "workers_away": 0,
        "pcs_absent": 0,
        "slots": 20,
        "busy": 0,
    }


def test_bags_of_one_submitter_and_of_all_are_bounded_until_they_are_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quotas_module, "BAGS_LIMIT", 3)
    office = Office(tmp_path)
    client, other = office.client(CLIENT), office.client(OTHER)
    bags = [client.submit([b"0"]) for _ in range(3)]
    for bag in bags:
        client.ask("cancel", bag=bag)
    said = client.answer_to(client.batch("more", [b"0"]))
    assert isinstance(said, wire.Failed)
    assert "client has 3 bags here, of 3: forget some that have ended" in said.reason
    assert isinstance(other.submit([b"0"]), str), "others have a share of their own"
    office.settle()
    office = killed(office)
    client = office.client(CLIENT)
    assert isinstance(client.answer_to(client.batch("more", [b"0"])), wire.Failed)
    client.ask("forget", bag=bags[0])
    assert isinstance(client.submit([b"0"]), str)
    monkeypatch.setattr(quotas_module, "BAGS_LIMIT_ALL", 4)
    said = office.client(OTHER).answer_to(client.batch("more", [b"0"]))
    assert isinstance(said, wire.Failed)
    assert "there are 4 bags here, of 4" in said.reason
    office.close()
