"""A broken PC as people see it: on the status screen, in the log, and in the error of a task that fails there."""

import msgpack
import pytest

from deskgrid import wire
from deskgrid.broker.auth.roles import Credential
from deskgrid.scheduler.state.quarantine import FIRST_QUARANTINE_S
from tests.broker.office import Office
from tests.peers import BareWorker, Client

CRASHED = wire.Failure("Crash", "exit code 3", "the end of stderr").packed()


@pytest.fixture
def lab(office: Office) -> tuple[Office, BareWorker, BareWorker]:
    """A good PC that is busy, and a bad one."""
    good, bad = office.worker("good"), office.worker("bad")
    good.join()
    office.client().submit([b"long"], runtime=1000.0)
    good.work()
    bad.join()
    return office, good, bad


def pass_time(office: Office, seconds: float, *workers: BareWorker) -> None:
    """Let time pass, with heartbeats."""
    for _ in range(int(seconds)):
        office.now += 1.0
        for worker in workers:
            worker.send(wire.Heartbeat(None, ()))


def crash(worker: BareWorker, times: int) -> list[wire.Work]:
    """The next attempts there crash; they."""
    made = []
    for _ in range(times):
        (work,) = worker.work()
        worker.finish(work, outcome=wire.Outcome.CRASH, payload=CRASHED)
        made.append(work)
    return made


def crashes_of_two(office: Office, bad: BareWorker) -> tuple[Client, str]:
    """Three attempts of two people have crashed on a PC: one of them, and the bag of theirs."""
    ann, ben = (office.client(Credential(name, "submitter")) for name in ("ann", "ben"))
    first = ann.submit([b"0"])
    office.settle()
    ann.ask("pause", bag=first)
    crash(bad, 1)
    bag = ben.submit([b"0"] * 9)
    crash(bad, 2)
    return ben, bag


def test_a_worker_that_quarantine_says_why_and_for_how_long(lab: tuple[Office, BareWorker, BareWorker]) -> None:
    office, _, bad = lab
    client, _ = crashes_of_two(office, bad)
    office.now += 4.0
    rows = {row["name"]: (row["quarantine_s"], row["note"]) for row in client.ask("status")["workers"]}
    assert rows == {"good": (None, ""), "bad": (FIRST_QUARANTINE_S - 4.0, "in quarantine: 3 crashes in a row")}


def test_a_task_that_waits_beside_a_worker_in_quarantine_is_told_so(lab: tuple[Office, BareWorker, BareWorker]) -> None:
    office, _, bad = lab
    client, bag = crashes_of_two(office, bad)
    answer = client.ask("explain", bag=bag)
    reason = "in quarantine, because the last attempts there crashed; one task is tried there in 10 s"
    assert f"bad slot 0: {reason}" in answer["text"]
    assert {slot["worker"]: slot["reason"] for slot in answer["slots"]} == {"bad": "quarantined", "good": "busy"}


def test_the_log_says_when_a_rest_begins_and_when_it_is_over(lab: tuple[Office, BareWorker, BareWorker]) -> None:
    office, good, bad = lab
    crashes_of_two(office, bad)
    assert "worker-quarantined name='bad' for_s=10.0 why='3 crashes in a row'" in office.sessions.state.take_notices()
    pass_time(office, FIRST_QUARANTINE_S, good, bad)
    crash(bad, 1)
    assert "worker-quarantined name='bad' for_s=20.0 why='4 crashes in a row'" in office.sessions.state.take_notices()
    pass_time(office, 2 * FIRST_QUARANTINE_S, good, bad)
    bad.finish(*bad.work())
    assert "worker-recovered name='bad'" in office.sessions.state.take_notices()


def test_a_task_that_is_given_up_names_every_pc_on_which_it_crashed(lab: tuple[Office, BareWorker, BareWorker]) -> None:
    office, _, bad = lab
    client = office.client()
    bag = client.submit([b"0"])
    crash(bad, 3)
    other = office.worker("other")
    other.join()
    crash(other, 1)
    (result,) = client.results(bag)
    assert result.worker == "other"
    kind, message, trace, _ = msgpack.unpackb(result.payload)
    assert (kind, message) == ("Crash", "exit code 3 (crashed 4 times, on bad, bad, bad, other)")
    assert trace == "the end of stderr"


@pytest.mark.parametrize("payload", [b"", b"\xc1", msgpack.packb([1]), msgpack.packb({"a": 1})])
def test_an_account_of_a_crash_that_makes_no_sense_names_the_workers(office: Office, payload: bytes) -> None:
    client, worker = office.client(), office.worker()
    bag = client.submit([b"0"])
    worker.join()
    for _ in range(3):
        worker.finish(*worker.work(), outcome=wire.Outcome.CRASH, payload=payload)
    (result,) = client.results(bag)
    failure = wire.read_failure(result.payload)
    assert failure.kind == "unreadable account"
    assert failure.message == "what the worker said of it cannot be read (crashed 3 times, on bare, bare, bare)"
