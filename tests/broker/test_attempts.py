"""Which reports on an attempt count, and how far: a worker can guess attempt numbers, and invent elapsed times."""

import pytest

from deskgrid import wire
from deskgrid.broker.work import attempts as attempts_module
from deskgrid.broker.work import holders as holders_module
from deskgrid.wire import SECONDS_LIMIT
from tests.broker.office import LEASE_S, Office, OpenOffice
from tests.peers import BareWorker


def given(office: Office, name: str = "pc1", runtime: float = 100.0) -> tuple[str, wire.Work, BareWorker]:
    """A bag of one task that is at a worker."""
    bag = office.client().submit([b"0"], runtime=runtime)
    worker = office.worker(name)
    worker.join()
    (work,) = worker.work()
    office.settle()
    return bag, work, worker


def lost(office: Office, worker: BareWorker) -> None:
    """The worker falls silent until its lease is over."""
    worker.close()
    office.now += LEASE_S + 1.0
    office.settle()


def with_nobody(open_office: OpenOffice, how: str) -> tuple[Office, str, wire.Work, BareWorker]:
    """A bag of one task whose worker is gone, or whose broker was started again; the broker comes first."""
    office = open_office()
    bag, work, worker = given(office)
    if how == "lost":
        lost(office, worker)
    else:
        office = open_office()
    return office, bag, work, worker


def progress(office: Office, bag: str) -> tuple[int, int]:
    """How many are done, and running."""
    row = office.client().ask("progress", bag=bag)
    return row["done"], row["running"]


def say_finished(worker: BareWorker, work: wire.Work, elapsed: float) -> None:
    worker.send(wire.Finished((wire.Result(work.task, work.number, 0, elapsed, b"forged", b"", b""),)))
    worker.expect(wire.Taken)


@pytest.mark.parametrize("how", ["lost", "restarted"])
@pytest.mark.parametrize("name", ["pc1", "other"])
def test_what_is_with_nobody_is_answered_only_by_the_worker_it_was_given_to(
    open_office: OpenOffice, how: str, name: str
) -> None:
    office, bag, work, worker = with_nobody(open_office, how)
    thief = office.worker(name)
    thief.join(uptime=1.0)  # too short to be given it by right
    say_finished(thief, work, 1.0)
    assert progress(office, bag) == (0, 0)
    back = office.worker("pc1", worker.session)
    back.join(running=(wire.Running(work.task, work.number, 0, 5.0),))
    assert progress(office, bag) == (0, 1)
    back.finish(work, payload=b"mine")
    assert [result.payload for result in office.client().results(bag)] == [b"mine"]


@pytest.mark.parametrize("how", ["lost", "restarted"])
def test_what_is_with_nobody_is_adopted_by_nobody_else_who_is_told_to_stop_it(
    open_office: OpenOffice, how: str
) -> None:
    office, bag, work, _ = with_nobody(open_office, how)
    thief = office.worker("pc1")
    thief.join(uptime=1.0, running=(wire.Running(work.task, work.number, 0, 5.0),))
    assert thief.expect(wire.Stop).attempts == (wire.Ref(work.task, work.number),)
    assert progress(office, bag) == (0, 0)


def test_a_message_of_which_no_answer_counts_is_confirmed_and_changes_nothing(office: Office) -> None:
    bag, work, holder = given(office)
    liar = office.worker("pc2")
    liar.join()
    say_finished(liar, work, 1.0)
    say_finished(liar, work._replace(task=work.task + 1), 1.0)
    liar.send(wire.Finished(()))
    liar.expect(wire.Taken)
    assert progress(office, bag) == (0, 1)
    holder.finish(work)
    assert progress(office, bag) == (1, 0)


def test_to_whom_attempts_were_given_is_not_kept_for_ever(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holders_module, "SPARE", 3)
    for _ in range(10):
        _, work, worker = given(office)
        lost(office, worker)
        back = office.worker("pc1", worker.session)
        back.join(running=(wire.Running(work.task, work.number, 0, 5.0),))
        back.finish(work)
        lost(office, back)
    assert len(office.sessions.workers.attempts.holders._given) <= 5


@pytest.mark.parametrize("away", ["at a worker", "lost", "restarted"])
def test_an_attempt_ran_no_longer_than_it_was_away(open_office: OpenOffice, away: str) -> None:
    office = open_office()
    bag, work, worker = given(office)
    office.now += 3.0
    if away == "lost":
        lost(office, worker)
    if away == "restarted":
        office.settle()
        office = open_office(wall=1_800_000_003.0)
    if away != "at a worker":
        worker = office.worker("pc1", worker.session)
        worker.join(uptime=1.0)  # too short to be given it once more
    say_finished(worker, work, SECONDS_LIMIT)
    (result,) = office.client().results(bag)
    assert result.elapsed == pytest.approx(3.0 + (LEASE_S + 1.0 if away == "lost" else 0.0))


@pytest.mark.parametrize("how", ["leave", "return"])
def test_a_worker_cannot_say_of_what_it_hands_back_or_still_has_that_it_ran_for_years(office: Office, how: str) -> None:
    client = office.client()
    bag = client.submit([b"0"], runtime=None)
    worker = office.worker("pc1")
    worker.join(uptime=3600.0)
    (work,) = worker.work()
    office.now += 5.0
    claim = wire.Running(work.task, work.number, 0, 1e10)
    if how == "leave":
        worker.send(wire.Leave("bye", True, True, (), (claim,)))
        office.settle()
        assert office.bag(bag).estimate_s <= 60.0
    else:
        lost(office, worker)
        back = office.worker("pc1", worker.session)
        back.join(uptime=3600.0, running=(claim,))
        say_finished(back, work, 1e10)
        (result,) = client.results(bag)
        assert 5.0 <= result.elapsed <= 5.0 + LEASE_S + 1.0


def test_of_several_tasks_that_are_said_to_have_run_on_one_slot_the_first_counts(office: Office) -> None:
    client, worker = office.client(), office.worker("pc1")
    bags = [client.submit([b"0"], runtime=0.1, name=name) for name in ("a", "b")]
    worker.join(uptime=3600.0)
    (first,) = worker.work()
    worker.finish(first)
    (second,) = worker.work()
    client.results(bags[0])
    bags.append(client.submit([b"0"] * 3, runtime=0.1))
    office.settle()
    held = [second, *worker.work(3)]
    office.now += 5.0
    worker.send(wire.Leave("bye", True, True, (), tuple(wire.Running(w.task, w.number, 0, 4.0) for w in held)))
    office.settle()
    runtimes = [office.sessions.state.scheduler.runtime(work.task) for work in held]
    assert (runtimes[0] > 4.0, runtimes[1:]) == (True, [0.1] * 3)


def test_a_template_that_a_worker_has_forgotten_is_sent_when_there_is_room(office: Office) -> None:
    office.client().submit([b"0"])
    worker = office.worker("pc1")
    worker.join()
    (work,) = worker.work()
    state = office.sessions.state
    state.waiting = lambda peer: attempts_module.UNTAKEN_LIMIT
    worker.send(wire.Fetch(work.template), wire.Fetch("0" * 64))
    office.settle()
    assert not worker.line.inbox  # type: ignore[attr-defined]
    assert office.sessions.workers._fetched
    state.waiting = lambda peer: 0
    office.settle()
    assert worker.expect(wire.Blob).digest == work.template
    office.settle()
    assert not office.sessions.workers._fetched


def test_templates_for_a_worker_that_has_gone_are_not_owed(office: Office) -> None:
    worker = office.worker("pc1")
    worker.join()
    worker.send(wire.Fetch("0" * 64))
    worker.send(wire.Leave("its window closed", True, False, (), ()))
    office.settle()
    assert not office.sessions.workers._fetched
