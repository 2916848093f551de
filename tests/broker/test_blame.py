"""Whose fault a failure is, as people see it: which PC gets none of a bag, why and until when; bags that are held."""

import pytest

from deskgrid import wire
from deskgrid.scheduler.commands import Hold
from deskgrid.scheduler.state.avoided import FIRST_REST_S
from tests.broker.office import Office
from tests.broker.test_environments import BEN, Pc, explained, owner, template
from tests.peers import BareWorker, Client

MISSING = wire.Failure("FileNotFoundError", "No such file: '/mnt/data'", "").packed()
NOTHING = wire.Failure("NoStart", "no process for tasks could be started: exit code 1", "").packed()


@pytest.fixture
def lab(office: Office) -> tuple[Office, Client, str, list[BareWorker]]:
    """Three tasks of a bag have failed on a bad PC, and one was done on a good one, which is busy with another."""
    good, bad = office.worker("good"), office.worker("bad")
    good.join()
    client = office.client()
    bag = client.submit([b"0"] * 9, runtime=10.0)
    good.finish(*good.work())
    good.work()
    bad.join()
    for _ in range(3):
        bad.finish(*bad.work(), outcome=wire.Outcome.ERROR, payload=MISSING)
    return office, client, bag, [good, bad]


def test_status_explain_the_note_of_the_bag_and_an_event_say_which_pc_why_and_until_when(
    lab: tuple[Office, Client, str, list[BareWorker]],
) -> None:
    office, client, bag, _ = lab
    why = "FileNotFoundError: No such file: '/mnt/data'"
    notice = f"worker-fails-bag name='bad' bag='{bag}' item=4 for_s={FIRST_REST_S} reason={why!r}"
    assert notice in office.sessions.state.take_notices()
    (event,) = [row for row in client.ask("events")["events"] if row["event"] == "worker-fails-bag"]
    assert (event["facts"]["name"], event["facts"]["bag"]) == ("bad", bag)
    office.now += 4.0
    status = client.ask("status")
    notes = {row["name"]: row["note"] for row in status["workers"]}
    text = f"tasks of bag {bag} fail here and not elsewhere, and it gets none of them for 6 s: {why}"
    assert notes == {"good": "", "bad": text}
    (row,) = status["bags"]
    assert row["note"] == f"kept from bad for 6 s ({why}), where its tasks fail"
    answer = client.ask("explain", bag=bag)
    line = f"bad slot 0: tasks of this bag fail there, and not elsewhere ({why}); it is tried again in 6 s"
    assert line in answer["text"]
    assert {slot["worker"]: slot["reason"] for slot in answer["slots"]} == {"bad": "fails there", "good": "busy"}
    assert (row["failed"], row["done"]) == (0, 1)


def test_a_task_that_waits_for_another_pc_is_told_so(lab: tuple[Office, Client, str, list[BareWorker]]) -> None:
    _, client, bag, _ = lab
    text = client.ask("explain", bag=bag, item=2)["text"]
    assert (
        text[0] == "task 2 (predicted 10 s) waits for another PC than bad, where it failed; if there is none, for any"
    )
    assert text[1].startswith("it has failed once, the last time on bad: FileNotFoundError")


def test_nothing_is_said_any_more_when_the_pc_works_again(lab: tuple[Office, Client, str, list[BareWorker]]) -> None:
    office, client, bag, workers = lab
    office.now += FIRST_REST_S
    for worker in workers:
        worker.send(wire.Heartbeat(None, None))
    office.settle()
    workers[1].finish(*workers[1].work())
    status = client.ask("status")
    assert [row["note"] for row in status["workers"] if row["name"] == "bad"] == [""]
    assert [row["note"] for row in status["bags"]] == [""]
    assert "fail" not in " ".join(client.ask("explain", bag=bag)["text"][:2])


def test_that_no_process_starts_is_told_and_no_task_pays_for_it(office: Office) -> None:
    worker, client = office.worker("pc"), office.client()
    worker.join()
    bag = client.submit([b"0"])
    worker.finish(*worker.work(), outcome=wire.Outcome.NO_START, payload=NOTHING)
    why = "no process for tasks could be started: exit code 1"
    notice = f"worker-starts-nothing name='pc' bag='{bag}' item=0 for_s={FIRST_REST_S} reason={why!r}"
    assert notice in office.sessions.state.take_notices()
    status = client.ask("status")
    note = f"could start no process for tasks of client, and gets none of them for 10 s: {why}"
    assert [row["note"] for row in status["workers"]] == [note]
    assert (status["counters"]["no_start"], status["counters"]["crashes"]) == (1, 0)
    answer = client.ask("explain", bag=bag)
    assert f"pc slot 0: could start no process for such tasks ({why}); it is tried again in 10 s" in answer["text"]
    assert f"pc could start no process for it: {why}" in answer["text"]
    assert [slot["reason"] for slot in answer["slots"]] == ["no start"]


def test_bags_whose_environment_starts_nowhere_are_held_and_say_so_and_others_go_on(office: Office) -> None:
    client, first, second = owner(office), Pc(office, "a"), Pc(office, "b")
    bag = client.submit([b"0"] * 4, template=template())
    for pc in (first, second):
        pc.prepare()
    for pc in (first, second):
        (work,) = pc.work()
        pc.worker.finish(work, outcome=wire.Outcome.NO_START, payload=NOTHING)
    office.settle()
    why = "a, b could start no process in its environment: no process for tasks could be started: exit code 1"
    assert office.bag(bag).held == why
    assert explained(client, bag).startswith(f"4 tasks wait: its bag is held: {why}")
    office.client(BEN).submit([b"1"] * 2)
    office.settle()
    assert [len(pc.work()) for pc in (first, second)] == [1, 1]
    client.ask("resume", bag=bag)
    assert not office.bag(bag).held


def test_bags_of_an_environment_in_which_nobody_answers_are_held_too(office: Office) -> None:
    client, pc = owner(office), Pc(office, "a")
    bag, plain = client.submit([b"0"] * 3, template=template()), client.submit([b"0"])
    key = pc.prepare()
    office.sessions.workers.attempts.carry_out(Hold(key, ["a"], silent=True))
    office.settle()
    office.settle()
    assert office.bag(bag).held == "a did not answer for its tasks"
    assert not office.bag(plain).held
