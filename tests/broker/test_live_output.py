"""What running tasks print: it travels only while somebody watches, and only what was asked for is taken."""

import json

import pytest

from deskgrid import wire
from deskgrid.broker.auth.roles import Credential
from deskgrid.broker.work import live_output
from deskgrid.broker.work.live_output import KEPT_BYTES, KEPT_CHUNKS, PATIENCE_S, RENEW_S, WATCH_S
from tests.broker.gang_peers import begun
from tests.broker.office import Office
from tests.peers import BareWorker, Client


def running(office: Office, tasks: int = 1, retries: int = 0) -> tuple[Client, str, BareWorker, list[wire.Work]]:
    """A bag whose first tasks run, one on each slot of a worker."""
    worker = office.worker("pc1")
    worker.join(slots=tasks)
    client = office.client()
    bag = client.submit([b"x"] * tasks, runtime=100.0, retries=retries)
    return client, bag, worker, sorted(worker.work(tasks))


def shown(work: wire.Work, stdout: bytes, *, before: int = 0, rank: int = 0, stderr: bytes = b"") -> wire.OutputShown:
    """What a worker says of one task. ``before``: bytes of its stdout that were shown before."""
    row = wire.Shown(work.task, work.number, rank, before + len(stdout), stdout, len(stderr), stderr)
    return wire.OutputShown((row,))


def asked_for(worker: BareWorker) -> list[wire.Ref]:
    """The attempts whose output a worker was asked for since the last time."""
    found: list[wire.Ref] = []
    while (data := worker.line.receive(0.0)) is not None:
        message = wire.decode(data, [])
        if isinstance(message, wire.ShowOutput):
            assert message.seconds == WATCH_S
            found += message.attempts
    return found


def test_a_worker_is_asked_for_output_only_while_somebody_asks_the_broker(office: Office) -> None:
    client, bag, worker, (work,) = running(office)
    office.settle()
    assert asked_for(worker) == []
    first = client.ask("printed", bag=bag, item=0)
    assert (first["printed"], first["states"], first["complete"]) == ([], ["sent"], False)
    assert asked_for(worker) == [wire.Ref(work.task, work.number)]
    worker.send(shown(work, b"caf\xe9\n", stderr=b"!"))
    second = client.ask("printed", bag=bag, item=0, after=first["after"])
    assert second["printed"] == [
        {
            "item": 0,
            "attempt": work.number,
            "rank": None,
            "worker": "pc1",
            "stdout_bytes": 5,
            "stdout": "caf\udce9\n",
            "stderr_bytes": 1,
            "stderr": "!",
        }
    ]
    assert client.ask("printed", bag=bag, item=0, after=second["after"])["printed"] == []
    assert asked_for(worker) == []
    office.wait(RENEW_S, worker)
    client.ask("printed", bag=bag, item=0)
    assert asked_for(worker) == [wire.Ref(work.task, work.number)]
    office.wait(WATCH_S + 0.1, worker)
    worker.send(shown(work, b"more", before=5))
    assert office.sessions.workers.live.printed(work.task) == (b"", b"")


def test_the_log_of_a_running_task_waits_a_moment_for_what_its_worker_says(office: Office) -> None:
    client, bag, worker, (work,) = running(office)
    office.wait(3.0, worker)
    client.send(wire.Ask(client.number(), "logs", wire.pack_record({"bag": bag, "item": 0})))
    office.settle()
    assert asked_for(worker) == [wire.Ref(work.task, work.number)]
    worker.send(shown(work, b"line\n"))
    answer = client.expect(wire.Answer)
    log = json.loads(answer.body)
    assert (log["state"], log["worker"], log["elapsed_s"]) == ("running", "pc1", 3.0)
    assert (log["stdout"], log["stderr"], log["error"]) == ("line\n", "", None)


def test_the_log_does_not_wait_for_long_for_a_worker_that_says_nothing(office: Office) -> None:
    client, bag, worker, _ = running(office)
    client.send(wire.Ask(client.number(), "logs", wire.pack_record({"bag": bag, "item": 0})))
    (line,) = (line for line in office.lines.values() if line.who.role == "submitter")
    for _ in range(9):
        office.wait(PATIENCE_S / 10, worker)
    assert not line.inbox
    office.wait(PATIENCE_S / 2, worker)
    assert line.inbox
    assert json.loads(client.expect(wire.Answer).body)["stdout"] == ""


def test_the_log_of_a_task_that_ends_while_its_log_is_waited_for_is_the_whole(office: Office) -> None:
    client, bag, worker, (work,) = running(office)
    client.send(wire.Ask(client.number(), "logs", wire.pack_record({"bag": bag, "item": 0})))
    office.settle()
    asked_for(worker)
    worker.finish(work)
    log = json.loads(client.expect(wire.Answer).body)
    assert (log["state"], log["stdout"]) == ("done", "out")


def test_of_a_bag_its_running_tasks_are_watched(office: Office) -> None:
    client, bag, worker, works = running(office, 3)
    after = client.ask("printed", bag=bag)["after"]
    assert sorted(asked_for(worker)) == sorted(wire.Ref(work.task, work.number) for work in works)
    for work in works:
        worker.send(shown(work, b"%d\n" % work.task))
    rows = client.ask("printed", bag=bag, after=after)["printed"]
    assert [(row["item"], row["stdout"]) for row in rows] == [(n, f"{work.task}\n") for n, work in enumerate(works)]


def test_each_rank_of_a_gang_has_its_own(office: Office) -> None:
    bag, workers = begun(office, 2)
    client = office.client()
    after = client.ask("printed", bag=bag, item=0)["after"]
    for rank, worker in enumerate(workers):
        task, number = worker.ref
        worker.send(wire.OutputShown((wire.Shown(task, number, rank, 2, b"r%d" % rank, 0, b""),)))
        # A rank that runs elsewhere is not its to show.
        worker.send(wire.OutputShown((wire.Shown(task, number, 1 - rank, 5, b"false", 0, b""),)))
        worker.send(wire.OutputShown((wire.Shown(task, number, 2, 5, b"false", 0, b""),)))
    rows = client.ask("printed", bag=bag, item=0, after=after)["printed"]
    assert [(row["rank"], row["stdout"]) for row in rows] == [(0, "r0"), (1, "r1")]
    log = client.ask("logs", bag=bag, item=0)
    assert (log["state"], [(row["rank"], row["state"], row["stdout"]) for row in log["ranks"]]) == (
        "running",
        [(0, "running", "r0"), (1, "running", "r1")],
    )


def test_what_was_not_asked_for_is_not_taken(office: Office) -> None:
    client, bag, worker, (one, two) = running(office, 2)
    liar = office.worker("pc2")
    liar.join(slots=1)
    client.ask("printed", bag=bag, item=0)
    for sender, message in (
        (liar, shown(one, b"of another worker")),
        (worker, shown(two, b"of a task that nobody watches")),
        (worker, shown(one._replace(number=one.number + 99), b"of another attempt")),
        (worker, shown(one._replace(task=10**9), b"of no task")),
    ):
        sender.send(message)
    assert client.ask("printed", bag=bag, item=0)["printed"] == []


def test_what_is_kept_of_a_task_is_bounded_and_it_is_told_how_much_there_was(office: Office) -> None:
    client, bag, worker, (work,) = running(office)
    client.ask("printed", bag=bag, item=0)
    for number in range(100):
        worker.send(shown(work, b"%04d" % number * 1024, before=number * 4096))
    rows = client.ask("printed", bag=bag, item=0)["printed"]
    assert sum(len(row["stdout"]) for row in rows) == KEPT_BYTES
    assert rows[-1]["stdout_bytes"] == 100 * 4096
    assert rows[-1]["stdout"].startswith("0099")


def test_a_worker_that_shows_output_byte_by_byte_takes_no_more_room(office: Office) -> None:
    client, bag, worker, (work,) = running(office)
    client.ask("printed", bag=bag, item=0)
    row = wire.Shown(work.task, work.number, 0, 1, b"x", 0, b"")
    for _ in range(KEPT_CHUNKS // wire.SHOWN_ROWS + 2):
        worker.send(wire.OutputShown((row,) * wire.SHOWN_ROWS))
    assert len(client.ask("printed", bag=bag, item=0)["printed"]) == KEPT_CHUNKS


def test_how_many_tasks_are_watched_is_bounded_for_each_credential_and_in_all(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, bag, worker, works = running(office, 4)
    monkeypatch.setattr(live_output, "WATCHED_LIMIT", 2)
    monkeypatch.setattr(live_output, "WATCHED_IN_ALL", 3)
    client.ask("printed", bag=bag)
    assert len(asked_for(worker)) == 2
    admin = office.client(Credential("admin", "admin"))
    assert admin.ask("printed", bag=bag)["complete"] is False
    assert len(asked_for(worker)) == 1
    office.wait(WATCH_S + 0.1, worker)
    assert not office.sessions.workers.live._live
    client.ask("printed", bag=bag, item=3)
    assert asked_for(worker) == [wire.Ref(works[3].task, works[3].number)]


def test_another_attempt_begins_anew(office: Office) -> None:
    client, bag, worker, (work,) = running(office, retries=1)
    client.ask("printed", bag=bag, item=0)
    asked_for(worker)
    worker.send(shown(work, b"first"))
    worker.finish(work, outcome=wire.Outcome.ERROR, payload=wire.Failure("ValueError", "no").packed())
    (again,) = worker.work()
    log = client.ask("printed", bag=bag, item=0)
    assert (log["printed"], again.number > work.number) == ([], True)
    worker.send(shown(again, b"second"))
    assert client.ask("logs", bag=bag, item=0)["stdout"] == "second"


def test_only_the_owner_and_admins_may_watch(office: Office) -> None:
    _, bag, worker, _ = running(office)
    other = office.client(Credential("bob", "submitter"))
    for what in ("printed", "logs"):
        assert "only client and admins may do this" in other.failed(what, bag=bag, item=0)
    assert asked_for(worker) == []
    assert "has no item 7" in office.client().failed("printed", bag=bag, item=7)
