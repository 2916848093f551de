"""The broker predicts tasks without a runtime from tasks that have ended: of their bag, function and program."""

import math
import time
from array import array
from collections.abc import Sequence
from typing import Any

import msgpack
import pytest

from deskgrid import wire
from deskgrid.broker.model import learning
from deskgrid.broker.model.bags import ASSUMED_RUNTIME_S, LATEST, OF_ONE, ObservedRuntimes
from deskgrid.broker.model.clocks import WallClock
from deskgrid.broker.model.learning import WRITE_S, Learning, WeekHere
from deskgrid.broker.peers.sessions import HOUSEKEEPING_S
from deskgrid.broker.store.rows import LearnedRow
from deskgrid.scheduler.prediction import kept
from tests.broker.office import ADMIN, Office, OpenOffice
from tests.peers import BareWorker, Client


def template(word: str) -> bytes:
    packed: bytes = msgpack.packb({"kind": "command", "argv": [word]})
    return packed


def run(office: Office, worker: BareWorker, count: int, seconds: float) -> None:
    """The worker does the next ``count`` tasks, which take so long."""
    work = worker.work(count)
    office.now += seconds
    worker.finish(*work, elapsed=seconds)


def estimate(office: Office, bag: str) -> float:
    return office.bag(bag).estimate_s


def done(office: Office, client: Client, worker: BareWorker, seconds: Sequence[float], **options: Any) -> str:
    """A bag without predictions, whose tasks take so long, one after another."""
    bag = client.submit([b"%d" % n for n in range(len(seconds))], **{"runtime": None, **options})
    for each in seconds:
        run(office, worker, 1, each)
    office.settle()
    return bag


def new_bag(client: Client, **options: Any) -> str:
    return client.submit([b"%d" % n for n in range(3)], **{"runtime": None, **options})


# --- within a bag ----------------------------------------------------------------------------------------------------


def test_workers_that_one_pc_runs_beside_each_other_count_as_one(
    open_office: OpenOffice, monkeypatch: pytest.MonkeyPatch
) -> None:
    office = open_office()
    workers = [office.worker("pc1"), office.worker("pc1")]
    assert [worker.join().name for worker in workers] == ["pc1", "pc1~2"]
    office.settle()
    office.client().submit([b"1", b"2", b"3", b"4"], runtime=None)
    seen = list[str]()
    monkeypatch.setattr(ObservedRuntimes, "add", lambda runs, elapsed, first, pc: seen.append(pc))
    for worker in workers:
        run(office, worker, 1, 2.0)
    assert seen == ["pc1", "pc1"]


def test_only_runs_of_slots_that_are_ready_count_once_there_are_any() -> None:
    runs = ObservedRuntimes()
    runs.add([3.0, 2.0], 2, "pc1")
    assert runs.take() == [(3.0, "pc1"), (2.0, "pc1")]
    runs.add([4.0, 0.1, 0.2], 1, "pc2")
    assert runs.take() == [(0.1, "pc2"), (0.2, "pc2")]
    assert not runs.only_first
    runs.add([5.0], 1, "pc3")
    assert runs.take() == []
    assert runs.count == 6


def test_of_many_runs_the_latest_are_kept() -> None:
    runs = ObservedRuntimes()
    for turn in range(30):
        runs.add([float(turn)] * 7, 0, "pc1")
    runs.add([99.0] * (LATEST - 1), 0, "pc1")
    assert runs.take() == [(29.0, "pc1"), *[(99.0, "pc1")] * (LATEST - 1)]


def test_a_pc_that_answers_at_once_leaves_the_runs_of_others_to_be_learned() -> None:
    runs = ObservedRuntimes()
    for turn in range(20):
        runs.add([10.0 + turn], 0, f"pc{turn % 4}")
        for _ in range(30):
            runs.add([0.0] * 7, 0, "broken")
    found = runs.take()
    assert [run for run in found if run[0]] == [(10.0 + turn, f"pc{turn % 4}") for turn in range(20)]
    assert len(found) == LATEST
    for turn in range(3 * LATEST):
        runs.add([float(turn)], 0, f"pc{turn % 5}")
    runs.add([0.0] * LATEST, 0, "broken")
    assert [pc for _, pc in runs.take()].count("broken") == OF_ONE


def test_a_bag_that_nobody_predicted_is_predicted_by_what_its_tasks_take_when_slots_have_done_one(
    open_office: OpenOffice,
) -> None:
    office = open_office()
    client, worker = office.client(), office.worker()
    worker.join(slots=2)
    bag = client.submit([b"%d" % n for n in range(6)], runtime=None)
    assert estimate(office, bag) == ASSUMED_RUNTIME_S
    run(office, worker, 2, 3.0)
    assert estimate(office, bag) == 3.0
    run(office, worker, 2, 0.1)
    assert estimate(office, bag) == pytest.approx(0.1)


def test_a_slot_that_did_another_bag_has_a_first_run_again(open_office: OpenOffice) -> None:
    office = open_office()
    client, worker = office.client(), office.worker()
    worker.join()
    bags = [client.submit([b"0"], runtime=None, last=False) for _ in range(2)]
    for turn, bag in enumerate((0, 1, 0, 0)):
        if turn > 1:
            first = office.bag(bags[bag]).total
            client.answer_to(client.batch(bags[bag], [b"1"], first=first, last=False))
        run(office, worker, 1, 0.1)
    assert [len(office.bag(bag).runs.take()) for bag in bags] == [1, 0]
    first, other = (office.bag(bag).runs.only_first for bag in bags)
    assert (first, other) == (False, True)


def test_tasks_that_fail_at_once_do_not_make_a_bag_look_short(open_office: OpenOffice) -> None:
    office = open_office()
    client, worker = office.client(), office.worker()
    worker.join()
    bag = new_bag(client)
    worker.finish(*worker.work(), outcome=wire.Outcome.ERROR, elapsed=0.001)
    office.settle()
    assert estimate(office, bag) == ASSUMED_RUNTIME_S


# --- across bags and restarts ----------------------------------------------------------------------------------------


def test_a_new_bag_of_a_known_function_is_predicted_at_once(open_office: OpenOffice) -> None:
    office = open_office()
    client, worker = office.client(), office.worker()
    worker.join()
    done(office, client, worker, [9.0, 2.0, 2.0])
    bag = new_bag(client)
    assert estimate(office, bag) == pytest.approx(2.0, rel=0.05)
    state = office.sessions.state
    assert state.scheduler.runtime(office.bag(bag).batches[0].first) == pytest.approx(2.0, rel=0.05)


def test_predictions_of_users_stay_what_they_are_and_teach_other_bags(open_office: OpenOffice) -> None:
    office = open_office()
    client, worker = office.client(), office.worker()
    worker.join()
    predicted = done(office, client, worker, [9.0, 2.0], runtime=5.0)
    assert office.sessions.state.scheduler.runtime(office.bag(predicted).batches[0].first) == 5.0
    assert estimate(office, new_bag(client)) == pytest.approx(2.0, rel=0.05)


def test_nobody_learns_from_the_same_function_of_another_user(open_office: OpenOffice) -> None:
    office = open_office()
    client, worker = office.client(), office.worker()
    worker.join()
    done(office, client, worker, [2.0, 2.0])
    assert estimate(office, new_bag(client)) == pytest.approx(2.0, rel=0.05)
    assert estimate(office, new_bag(office.client(ADMIN))) == ASSUMED_RUNTIME_S


@pytest.mark.parametrize("again", [False, True])
def test_many_functions_of_one_user_do_not_push_out_the_few_of_another(
    open_office: OpenOffice, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    monkeypatch.setattr(kept, "KEPT", 4)
    office = open_office()
    client, other, worker = office.client(), office.client(ADMIN), office.worker()
    worker.join()
    done(office, other, worker, [2.0, 2.0])
    for number in range(9):
        done(office, client, worker, [1.0], template=template(f"echo {number}"), name=f"program {number}")
    office.now += WRITE_S
    office.settle()
    if again:
        office = open_office()
        other = office.client(ADMIN)
    assert estimate(office, new_bag(other)) == pytest.approx(2.0, rel=0.05)
    assert len(office.sessions.state.learning._runtimes.learned["program"].names) == 4


def test_a_bag_of_another_user_with_the_same_name_is_another_program(open_office: OpenOffice) -> None:
    office = open_office()
    client, worker = office.client(), office.worker()
    worker.join()
    done(office, client, worker, [2.0, 2.0], template=template("one"))
    assert estimate(office, new_bag(client, template=template("two"))) == pytest.approx(2.0, rel=0.05)
    assert estimate(office, new_bag(office.client(ADMIN), template=template("two"))) == ASSUMED_RUNTIME_S


@pytest.mark.parametrize("killed", [False, True])
def test_what_was_learned_survives_a_restart(open_office: OpenOffice, killed: bool) -> None:
    office = open_office()
    client, worker = office.client(), office.worker()
    worker.join()
    done(office, client, worker, [9.0, 2.0, 2.0])
    waiting = new_bag(client)
    office.now += WRITE_S
    office.settle()
    if killed:
        office.kill()

    office = open_office()
    assert estimate(office, waiting) == pytest.approx(2.0, rel=0.05)
    first = office.bag(waiting).batches[0].first
    assert office.sessions.state.scheduler.runtime(first) == estimate(office, waiting)
    assert estimate(office, new_bag(office.client())) == estimate(office, waiting)
    name = f"client\n{office.bag(waiting).row.template}"
    assert office.sessions.state.learning._runtimes.learned["function"].kept(name) == [2.0, 2.0]


def test_after_a_restart_without_a_history_tasks_take_what_is_assumed(open_office: OpenOffice) -> None:
    office = open_office()
    bag = new_bag(office.client())
    office = open_office()
    assert estimate(office, bag) == ASSUMED_RUNTIME_S


def test_what_was_learned_is_forgotten_on_an_admins_order(open_office: OpenOffice) -> None:
    office = open_office()
    client, worker = office.client(), office.worker()
    worker.join()
    done(office, client, worker, [2.0, 2.0])
    assert office.client(ADMIN).ask("forget learned") == {}
    assert estimate(office, new_bag(client)) == ASSUMED_RUNTIME_S
    office = open_office()
    assert estimate(office, new_bag(office.client())) == ASSUMED_RUNTIME_S


def test_the_journal_keeps_what_was_used_last_and_is_given_a_part_at_a_time(
    open_office: OpenOffice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "KEPT", 4)
    monkeypatch.setattr(learning, "ROWS", 3)
    office = open_office()
    client, worker = office.client(), office.worker()
    worker.join()
    for number in range(6):
        done(office, client, worker, [1.0], template=template(f"echo {number}"), name=f"program {number}")
    office.now += WRITE_S
    for _ in range(5):
        office.settle()
        office.now += HOUSEKEEPING_S
    rows = office.journal.learned.rows()
    kinds = [row.kind for row in rows]
    assert (kinds.count("function"), kinds.count("program"), kinds.count("calibration")) == (4, 4, 0)
    assert [row.name for row in rows if row.kind == "program"][-1].endswith("program 5")


def test_it_is_kept_for_each_owner_how_predictions_held(open_office: OpenOffice) -> None:
    office = open_office()
    client, worker = office.client(), office.worker()
    worker.join()
    for _ in range(2):
        done(office, client, worker, [1.0] * 5, template=template("echo"), name="program")
    office.now += WRITE_S
    office.settle()
    kept = [row for row in office.journal.learned.rows() if row.kind == "calibration"]
    assert [row.name for row in kept] == ["client"]
    assert list(array("d", kept[0].values)) != []


def test_a_row_that_cannot_be_read_is_left_out(open_office: OpenOffice) -> None:
    office = open_office()
    office.journal.learned.add([LearnedRow("function", "f", b"123"), LearnedRow("calibration", "", b"12345678")], {})
    office.journal.commit()
    assert [row.kind for row in open_office().journal.learned.rows()] == ["calibration"]


# --- what predictions were worth -------------------------------------------------------------------------------------


def predicted(office: Office, client: Client, worker: BareWorker, **options: Any) -> None:
    """A bag whose tasks take half as long as predicted, or twice as long."""
    done(office, client, worker, [1.0, 4.0] * 4, **{"runtimes": (2.0,) * 8, **options})


def shown(office: Office, bag: str) -> Sequence[float]:
    """What is known of a bag's predictions at the scheduler."""
    return office.sessions.state.scheduler.grid.tasks.bags[office.bag(bag).row.number].past.wide


@pytest.mark.parametrize("killed", [False, True])
def test_what_predictions_were_worth_survives_a_restart_and_is_forgotten(open_office: OpenOffice, killed: bool) -> None:
    office = open_office()
    client, worker = office.client(), office.worker()
    worker.join()
    predicted(office, client, worker)
    waiting = new_bag(client, runtimes=(2.0,) * 3)
    assert shown(office, waiting) == (0.5,) * 8 + (2.0,) * 8
    office.now += WRITE_S
    office.settle()
    if killed:
        office.kill()

    office = open_office()
    assert shown(office, waiting) == (0.5,) * 8 + (2.0,) * 8
    office.client(ADMIN).ask("forget learned")
    assert shown(office, waiting) == ()
    assert shown(open_office(), waiting) == ()


def test_it_counts_for_the_same_user_and_the_same_function_or_program(open_office: OpenOffice) -> None:
    office = open_office()
    client, worker = office.client(), office.worker()
    worker.join()
    predicted(office, client, worker, template=template("one"), name="sweep")
    told = {"runtimes": (2.0,) * 3}
    assert shown(office, new_bag(client, **told, template=template("one"), name="other")) != ()
    assert shown(office, new_bag(client, **told, template=template("two"), name="sweep")) != ()
    assert shown(office, new_bag(client, **told, template=template("two"), name="other")) == ()
    assert shown(office, new_bag(office.client(ADMIN), **told, template=template("one"), name="sweep")) == ()


def test_predictions_that_the_broker_made_say_nothing_of_those_of_a_user(open_office: OpenOffice) -> None:
    office = open_office()
    client, worker = office.client(), office.worker()
    worker.join()
    for seconds in (1.0, 4.0) * 4:
        done(office, client, worker, [seconds])
    assert list(office.sessions.state.learning.earlier.names) == []
    assert shown(office, new_bag(client, runtimes=(2.0,) * 3)) == ()


# --- windows ---------------------------------------------------------------------------------------------------------


def test_how_a_pc_keeps_its_hours_is_explained_kept_and_forgotten(open_office: OpenOffice) -> None:
    office = open_office()
    for _ in range(2):
        worker = office.worker("pc1", "one")
        worker.join(uptime=100.0)
        office.now += 70.0
        worker.send(wire.Leave("its window closed", True, False, (), ()))
        office.settle()
    office.now += WRITE_S
    office.settle()

    office = open_office()
    office.worker("pc1", "one").join(uptime=100.0)
    bag = office.client().submit([b"0"], runtime=80.0)
    office.settle()
    why = office.client().ask("explain", bag=bag, item=0)["text"]
    assert any("it leaves on average 30 s early" in line for line in why), why
    (row,) = office.client().ask("status")["workers"]
    assert row["hours"] == {"seen": 2, "lasts_s": [70.0, 70.0], "early_s": None, "goes_s": [70.0, 70.0]}
    hours = office.sessions.state.learning.hours
    assert hours.lengths("pc1", 100.0, 0.0) == pytest.approx([70.0, 70.0])
    office.client(ADMIN).ask("forget learned")
    assert hours.lengths("pc1", 100.0, 0.0) == []


def test_the_hour_at_which_a_window_opened_is_that_of_clocks_on_the_wall(open_office: OpenOffice) -> None:
    journal = open_office().journal
    monday = time.mktime((2026, 11, 23, 0, 0, 0, 0, 0, -1))
    hours = Learning(journal, WallClock(monday)).hours
    for opened in (90.0 * 60.0, 25.0 * 3600.0, -3600.0):
        hours.add("pc1", math.inf, 3600.0, opened)
    assert hours.kept("pc1")[2::3] == [5400.0, 90_000.0, 6 * 86_400.0 + 82_800.0]
    for absurd in (1e300, -1e300):
        assert 0.0 <= WeekHere(WallClock(monday)).into(absurd) < 7 * 86_400.0


# --- speeds ----------------------------------------------------------------------------------------------------------


def test_how_fast_a_pc_is_by_its_tasks_is_shown_kept_and_forgotten(open_office: OpenOffice) -> None:
    office = open_office()
    known = office.sessions.state.learning.speeds
    for task in range(30):
        for pc, seconds in (("pc1", 20.0), ("pc2", 10.0), ("pc3", 10.0)):
            known.ran(1, task, pc, 1.0, seconds=seconds, predicted=None)
    office.now += WRITE_S
    office.settle()

    office = open_office()
    office.worker("pc1", "one").join()
    scheduler = office.sessions.state.scheduler
    assert scheduler.speed("pc1") == pytest.approx(0.5)
    (row,) = office.client(ADMIN).ask("status")["workers"]
    assert (row["speed"], row["stated_speed"]) == (pytest.approx(0.5), 1.0)
    office.client(ADMIN).ask("forget learned")
    office.settle()
    assert scheduler.speed("pc1") == 1.0


def test_what_tasks_that_wait_take_is_learned_as_it_is(open_office: OpenOffice) -> None:
    office = open_office()
    worker, client = office.worker(), office.client()
    worker.join(speed=0.5)
    bag = client.submit([b"0", b"1", b"2"], runtime=None)
    for _ in range(3):
        (work,) = worker.work(1)
        office.wait(4.0, worker)
        worker.finish(work, elapsed=4.0, waited=True)
    office.settle()
    assert estimate(office, bag) == pytest.approx(4.0, rel=0.05)


def test_what_tasks_take_on_a_slow_pc_is_learned_as_of_speed_1(open_office: OpenOffice) -> None:
    office = open_office()
    worker, client = office.worker(), office.client()
    worker.join(speed=0.5)
    assert estimate(office, done(office, client, worker, [8.0, 4.0, 4.0])) == pytest.approx(2.0, rel=0.05)
