"""A worker that takes work and never answers, as the broker's peers see it: no other peer suffers."""

from typing import Any, TypeVar

import pytest

from deskgrid import wire
from deskgrid.broker.auth.roles import Credential
from deskgrid.scheduler.state.deadlines import GRACE_S
from deskgrid.scheduler.state.quarantine import FIRST_QUARANTINE_S
from tests.broker.office import Office, OfficeLine
from tests.peers import BareWorker, Client

TIMEOUT_S = 1.0
_Told = TypeVar("_Told", bound=wire.Message)


@pytest.fixture
def silent(office: Office) -> BareWorker:
    """A worker of four slots that took four tasks and says nothing but that it lives."""
    worker = office.worker("hole")
    worker.join(slots=4)
    return worker


def pass_time(office: Office, seconds: float, *workers: BareWorker) -> None:
    """Let time pass, with heartbeats."""
    end = office.now + seconds
    while office.now < end:
        office.now = min(end, office.now + 1.0)
        for worker in workers:
            worker.send(wire.Heartbeat(None, ()))
        office.settle()


def told(worker: BareWorker, kind: type[_Told]) -> list[_Told]:
    """The messages of that kind that wait for a worker."""
    assert isinstance(worker.line, OfficeLine)
    inbox = worker.line.inbox
    messages = [wire.decode(data) for data in inbox]
    inbox.clear()
    return [message for message in messages if isinstance(message, kind)]


def swallowed(office: Office, worker: BareWorker, **changes: Any) -> tuple[Client, str, list[wire.Work]]:
    """A client whose bag of four tasks this worker was given; its id, and the attempts."""
    client = office.client()
    bag = client.submit([b"0"] * 4, **({"timeout": TIMEOUT_S} | changes))
    return client, bag, worker.work(4)


def test_what_is_not_answered_in_time_is_stopped_and_given_to_others(office: Office, silent: BareWorker) -> None:
    client, bag, work = swallowed(office, silent)
    pass_time(office, TIMEOUT_S + GRACE_S - 0.1, silent)
    assert not told(silent, wire.Stop)
    other = office.worker("other")
    other.join(slots=4)
    pass_time(office, 0.2, silent)
    stops = {ref for stop in told(silent, wire.Stop) for ref in stop.attempts}
    assert stops == {wire.Ref(w.task, w.number) for w in work}
    other.finish(*other.work(4))
    assert [result.outcome for result in client.results(bag)] == [wire.Outcome.DONE] * 4


def test_it_is_not_the_tasks_fault(office: Office, silent: BareWorker) -> None:
    client, bag, _ = swallowed(office, silent)
    pass_time(office, TIMEOUT_S + GRACE_S + 0.1, silent)
    progress = client.ask("progress", bag=bag)
    assert (progress["failed"], progress["waiting"]) == (0, 4)


def test_the_log_and_the_status_say_who_does_not_answer(office: Office, silent: BareWorker) -> None:
    other = office.worker("other")
    client, bag, _ = swallowed(office, silent)
    other.join(uptime=1.5)
    pass_time(office, TIMEOUT_S + GRACE_S + 0.1, silent, other)
    notices = office.sessions.state.take_notices()
    assert "worker-silent name='hole' taken_back=4" in notices
    assert "worker-not-answering name='hole' owner='client' for_s=10.0" in notices
    rows = {row["name"]: (row["quarantine_s"], row["note"]) for row in client.ask("status")["workers"]}
    assert rows["hole"] == (None, "does not answer on 4 of its slots")
    answer = client.ask("explain", bag=bag)
    assert "hole slot 0: did not answer for such tasks; it is tried again in 9.9 s" in answer["text"]
    assert {slot["reason"] for slot in answer["slots"] if slot["worker"] == "hole"} == {"silent"}


def test_a_pc_that_answers_nobody_is_in_quarantine_and_says_why(office: Office, silent: BareWorker) -> None:
    other = office.worker("other")
    office.client(Credential("ann", "submitter")).submit([b"0"] * 2, timeout=TIMEOUT_S)
    client = office.client(Credential("ben", "submitter"))
    bag = client.submit([b"0"] * 2, timeout=TIMEOUT_S)
    assert len(silent.work(4)) == 4
    other.join(uptime=1.5)
    pass_time(office, TIMEOUT_S + GRACE_S + 0.1, silent, other)
    notices = office.sessions.state.take_notices()
    assert "worker-quarantined name='hole' for_s=10.0 why='4 tasks not answered in a row'" in notices
    rows = {row["name"]: (row["quarantine_s"], row["note"]) for row in client.ask("status")["workers"]}
    assert rows["hole"] == (pytest.approx(FIRST_QUARANTINE_S, abs=0.2), "in quarantine: 4 tasks not answered in a row")
    answer = client.ask("explain", bag=bag)
    assert "hole slot 0: in quarantine, because it does not answer; one task is tried there in 9.9 s" in answer["text"]


def test_explain_says_for_how_long_a_slot_has_not_answered(office: Office) -> None:
    alone = office.worker("lab-3")
    alone.join()
    client = office.client()
    bag = client.submit([b"0"], timeout=TIMEOUT_S)
    alone.work()
    pass_time(office, 12.0, alone)
    answer = client.ask("explain", bag=bag)
    assert "lab-3 slot 0: has not answered for 12 s, and gets no work until it does" in answer["text"]
    assert [slot["reason"] for slot in answer["slots"]] == ["silent"]
    (row,) = client.ask("status")["workers"]
    assert row["note"] == "does not answer on 1 of its slots"


def test_a_worker_that_says_it_has_stopped_is_given_work_again(office: Office) -> None:
    worker = office.worker("lab-3")
    worker.join()
    office.client().submit([b"0"], timeout=TIMEOUT_S)
    (late,) = worker.work()
    pass_time(office, TIMEOUT_S + GRACE_S + 0.1, worker)
    told(worker, wire.Stop)
    worker.send(wire.Returned((wire.Ref(late.task, late.number),)))
    (again,) = worker.work()
    assert (again.task, again.number > late.number) == (late.task, True)


def test_a_late_answer_counts_when_nobody_else_has_begun(office: Office, silent: BareWorker) -> None:
    client, bag, work = swallowed(office, silent)
    pass_time(office, TIMEOUT_S + GRACE_S + 0.1, silent)
    told(silent, wire.Stop)
    silent.finish(*work, payload=b"late")
    assert client.ask("progress", bag=bag)["done"] == 4
    assert not office.sessions.state.scheduler.owed_by("hole")


def test_a_late_answer_counts_for_nobody_but_the_worker_that_had_it(office: Office, silent: BareWorker) -> None:
    client, bag, work = swallowed(office, silent)
    thief = office.worker("thief")
    thief.join(uptime=1.0)  # too short to be given any by right
    pass_time(office, TIMEOUT_S + GRACE_S + 0.1, silent)
    thief.finish(*work, payload=b"forged")
    thief.send(wire.Returned(tuple(wire.Ref(w.task, w.number) for w in work)))
    assert client.ask("progress", bag=bag)["done"] == 0
    assert len(office.sessions.state.scheduler.owed_by("hole")) == 4


def test_after_a_restart_of_the_broker_what_is_held_for_a_silent_worker_comes_back_too(office: Office) -> None:
    worker = office.worker("hole")
    worker.join()
    office.client().submit([b"0"], timeout=TIMEOUT_S)
    (work,) = worker.work()
    office.sessions = office.sessions.successor(office.now, "test")
    back = office.worker("hole", worker.session)
    back.join(running=(wire.Running(work.task, work.number, 0, 0.5),))
    assert office.sessions.state.scheduler.counters.adopted == 1
    pass_time(office, TIMEOUT_S + GRACE_S, back)
    (stop,) = told(back, wire.Stop)
    assert stop.attempts == (wire.Ref(work.task, work.number),)
