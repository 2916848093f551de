"""The order in which messages leave: acknowledgements wait for the commit, assignments of short tasks do not."""

from typing import Any, cast

import pytest

from deskgrid import wire
from deskgrid.broker.loop import Loop
from deskgrid.broker.peers.watchers import RECEIPT_S
from deskgrid.broker.port.send_queue import Parts
from deskgrid.broker.work.attempts import REMEMBERED_S
from tests.broker.office import Office
from tests.peers import BareWorker, Client

Kinds = list[type[wire.Message]]


def kinds(queued: list[tuple[bytes, wire.Message]]) -> Kinds:
    return [type(message) for _, message in queued]


class Sent:
    """In place of the sockets: the kinds of what was sent, before the commit and after it."""

    def __init__(self, office: Office, *, waits: bool) -> None:
        office.journal.waits = waits
        self._office = office
        self._loop = Loop(office.sessions, cast(Any, self), office.journal)
        self.before: Kinds = []
        self.after: Kinds = []

    def send(self, peer: bytes, parts: Parts) -> bool:
        """One message leaves."""
        message = wire.decode(bytes(parts[0]))
        (self.before if self.uncommitted else self.after).append(type(message))
        self._office.lines[peer].inbox.append(wire.encode(message))
        return True

    def wake(self) -> None:
        """Nothing here is large."""

    @property
    def uncommitted(self) -> bool:
        """Whether there is something that a crash would undo."""
        return self._office.journal.db.in_transaction

    def turn(self) -> None:
        """What the broker's loop does after a drain."""
        self._loop._finish(self._office.sessions.settle(self._office.now))

    def close(self) -> None:
        """End its thread."""
        self._loop.close()


def one_more(office: Office, runtime: float) -> tuple[Client, BareWorker]:
    """A worker is there, and a client that waits for results adds a task to its bag, of so many seconds."""
    worker, client = office.worker(), office.client()
    worker.join(slots=2)
    bag = client.submit([b"0"], last=False, runtime=runtime)
    worker.finish(*worker.work(1))
    after = client.watch(bag).after
    client.send(client.batch(bag, [b"1"], first=1, last=False, runtime=runtime, watch=78, after=after))
    return client, worker


def test_short_work_leaves_before_the_commit(office: Office) -> None:
    one_more(office, REMEMBERED_S / 2)
    leaving = office.sessions.settle(office.now)
    assert (kinds(leaving.work), kinds(leaving.words)) == ([wire.Assign], [])


def test_work_that_a_restart_is_to_remember_leaves_behind_the_commit(office: Office) -> None:
    one_more(office, REMEMBERED_S)
    leaving = office.sessions.settle(office.now)
    assert (kinds(leaving.work), kinds(leaving.words)) == ([], [wire.Assign])


def test_work_does_not_overtake_what_its_worker_is_told_before_it(office: Office) -> None:
    office.client().submit([b"0"], runtime=0.1)
    worker = office.worker()
    worker.send(worker.introduction())
    leaving = office.sessions.settle(office.now)
    assert leaving.work == []
    assert kinds(leaving.words) == [wire.Welcome, wire.Blob, wire.Assign]


@pytest.mark.parametrize("waits", [False, True])
def test_one_commit_is_enough_for_a_call_and_its_result_where_commits_wait_for_the_disk(
    office: Office, waits: bool
) -> None:
    client, worker = one_more(office, REMEMBERED_S / 2)
    sent = Sent(office, waits=waits)
    sent.turn()
    assert (sent.before, sent.after, sent.uncommitted) == ([wire.Assign], [], waits)
    (work,) = wire.decode(worker.line.inbox.popleft()).work  # type: ignore[union-attr, attr-defined]
    result = wire.Result(work.task, work.number, int(wire.Outcome.DONE), 0.0, b"value", b"", b"")
    worker.send(wire.Finished((result,)))
    sent.turn()
    assert (sent.after, sent.uncommitted) == ([wire.Outcomes, wire.Taken], False)
    assert client.expect(wire.Outcomes).receipts
    sent.close()


def test_a_call_is_committed_when_its_receipt_is_due_however_long_it_runs(office: Office) -> None:
    one_more(office, REMEMBERED_S / 2)
    sent = Sent(office, waits=True)
    sent.turn()
    assert sent.uncommitted
    office.now += RECEIPT_S
    sent.turn()
    assert (sent.after, sent.uncommitted) == ([wire.Accepted], False)
    sent.close()
