"""Two attempts of one task at a broker: who may answer for which, what is seen of them, and what a restart knows."""

import pytest

from deskgrid import wire
from tests.broker.office import LEASE_S, Office, OpenOffice
from tests.peers import BareWorker

RUNTIME = 100.0
ALLOWED = wire.TaskOptions(copies=True)


def copied(
    office: Office, runtime: float = RUNTIME
) -> tuple[str, tuple[BareWorker, wire.Work], tuple[BareWorker, wire.Work]]:
    """A bag of one task that is at ``pc1``, with a copy at ``pc2``: the bag, and who has what."""
    bag = office.client().submit([b"0"], runtime=runtime, options=ALLOWED)
    first, second = office.worker("pc1"), office.worker("pc2")
    first.join()
    (original,) = first.work()
    second.join()
    office.settle()
    office.wait(1.5 * runtime, first, second)
    (copy,) = second.work()
    return bag, (first, original), (second, copy)


def outcome(office: Office, bag: str) -> tuple[int, bytes, str]:
    (result,) = office.client().results(bag)
    return result.outcome, bytes(result.payload), result.worker


def test_each_worker_may_answer_only_for_its_own_attempt(office: Office) -> None:
    bag, (first, original), (second, copy) = copied(office)
    assert (original.task, original.number) != (copy.task, copy.number)
    third = office.worker("pc3")
    third.join(uptime=1.0)
    for worker, work in ((first, copy), (second, original), (third, original), (third, copy)):
        worker.finish(work, payload=b"forged")
    assert office.client().ask("progress", bag=bag)["done"] == 0
    second.finish(copy, payload=b"mine")
    assert outcome(office, bag) == (0, b"mine", "pc2")


def test_the_first_answer_counts_and_the_other_worker_is_told_to_stop(office: Office) -> None:
    bag, (first, original), (second, copy) = copied(office)
    second.finish(copy, payload=b"copy")
    assert first.expect(wire.Stop).attempts == (wire.Ref(original.task, original.number),)
    first.finish(original, payload=b"late")
    assert outcome(office, bag) == (0, b"copy", "pc2")


def test_status_and_explain_show_a_copy(office: Office) -> None:
    bag, _, _ = copied(office)
    client = office.client()
    text = client.ask("explain", bag=bag, item=0)["text"]
    assert text == ["task 0 (predicted 1 min 40 s) runs on pc1, or is next there; a copy runs on pc2"]
    (text,) = client.ask("explain", bag=bag)["text"]
    assert "1 running (1 with a copy)" in text
    status = client.ask("status")
    slots = {worker["name"]: worker["slots"][0] for worker in status["workers"]}
    assert [(name, slot["copy"], slot["running"]["item"]) for name, slot in sorted(slots.items())] == [
        ("pc1", False, 0),
        ("pc2", True, 0),
    ]
    assert (status["bags"][0]["running"], status["bags"][0]["copies"]) == (1, 1)
    assert (status["counters"]["attempts"], status["counters"]["copies"]) == (1, 1)


@pytest.mark.parametrize("back", ["original", "copy"])
@pytest.mark.parametrize("runtime", [RUNTIME, 0.8])
def test_after_a_restart_each_attempt_counts_if_its_own_worker_answers(
    open_office: OpenOffice, back: str, runtime: float
) -> None:
    office = open_office()
    bag, (first, original), (second, copy) = copied(office, runtime)
    office.settle()
    office = open_office()
    (worker, work), other = ((first, original), second) if back == "original" else ((second, copy), first)
    thief = office.worker(other.name, other.session)
    thief.join(uptime=0.5)
    thief.finish(work, payload=b"forged")
    owner = office.worker(worker.name, worker.session)
    owner.join(uptime=0.5)
    owner.finish(work, payload=b"mine")
    row = office.client().ask("progress", bag=bag)
    assert row["done"] == (1 if runtime >= 1.0 else 0)


def test_a_restart_knows_the_second_copy_and_the_first_that_took_the_originals_place(open_office: OpenOffice) -> None:
    office = open_office()
    bag, (first, _), (second, copy) = copied(office)
    first.close()
    office.wait(LEASE_S + 1.0, second)
    third = office.worker("pc3")
    third.join()
    office.wait(RUNTIME * 1.5, second, third)
    (again,) = third.work()
    assert again.number > copy.number
    office.settle()
    office = open_office()
    back = office.worker("pc2", second.session)
    back.join(running=(wire.Running(copy.task, copy.number, 0, 5.0),))
    also = office.worker("pc3", third.session)
    also.join(running=(wire.Running(again.task, again.number, 0, 5.0),))
    assert office.client().ask("progress", bag=bag)["copies"] == 1
    back.finish(copy, payload=b"second")
    assert outcome(office, bag) == (0, b"second", "pc2")
    assert also.expect(wire.Stop).attempts == (wire.Ref(again.task, again.number),)


def test_an_attempt_that_began_anew_makes_recorded_copies_void(open_office: OpenOffice) -> None:
    office = open_office()
    bag, (first, _), (second, copy) = copied(office)
    first.close()
    second.close()
    office.wait(LEASE_S + 1.0)
    third = office.worker("pc3")
    third.join()
    (again,) = third.work()
    office.settle()
    office = open_office()
    assert office.journal.recovery.sent(0, 1)[0][1] == again.number
    assert office.journal.recovery.copies(0, 1) == []
    back = office.worker("pc2", second.session)
    back.join(uptime=0.5, running=(wire.Running(copy.task, copy.number, 0, 5.0),))
    assert back.expect(wire.Stop).attempts == (wire.Ref(copy.task, copy.number),)
    assert office.client().ask("progress", bag=bag)["done"] == 0


def test_a_forgotten_bag_leaves_no_copies_in_the_journal(office: Office) -> None:
    bag, _, (second, copy) = copied(office)
    assert office.journal.db.execute("SELECT count(*) FROM copies").fetchone() == (1,)
    second.finish(copy)
    client = office.client()
    client.ask("forget", bag=bag)
    office.settle()
    assert office.journal.db.execute("SELECT count(*) FROM copies").fetchone() == (0,)


def test_a_copy_that_its_worker_has_no_room_for_is_not_waited_for(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    bag = office.client().submit([b"0"], runtime=RUNTIME, options=ALLOWED)
    first, second = office.worker("pc1"), office.worker("pc2")
    first.join()
    (original,) = first.work()
    second.join()
    office.settle()
    (full,) = [worker.peer for worker in office.sessions.workers.by_name.values() if worker.name == "pc2"]
    monkeypatch.setattr(office.sessions.state, "waiting", lambda peer: 2**40 if peer == full else 0)
    office.wait(1.5 * RUNTIME, first, second)
    assert office.client().ask("progress", bag=bag)["copies"] == 0
    first.finish(original, payload=b"done")
    assert outcome(office, bag) == (0, b"done", "pc1")
