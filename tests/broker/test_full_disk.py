"""A full disk: submissions are refused, accepted work goes on, nothing is lost, and the broker recovers by itself.

`Quota` makes SQLite say "database or disk is full" on any machine. `tests/survival/test_full_disk.py` uses a real full
file system.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from deskgrid import wire
from deskgrid.broker.store import disk as disk_module
from deskgrid.broker.store.disk import CALM_S, LOOK_S, RELIEF, RESERVE_BYTES, TRIAL_MOST_S, TRIAL_S, Disk
from deskgrid.broker.store.journal import Journal, JournalFull
from deskgrid.wire.questions import QUESTIONS
from tests.broker.office import ADMIN, Office
from tests.broker.records import batch_row, result_of
from tests.peers import BareWorker, Client

MIB = 1024**2
GIB = 1024**3


class FakeStorage:
    """A disk whose free space the test says."""

    def __init__(self) -> None:
        self.bytes = 100 * GIB
        self.total = 100 * GIB
        self.works = True
        self.trials = 0

    def free(self) -> tuple[int, int]:
        return self.bytes, self.total

    def trial(self) -> None:
        self.trials += 1
        if not self.works:
            raise JournalFull("database or disk is full")


@pytest.fixture
def storage() -> FakeStorage:
    return FakeStorage()


@pytest.fixture
def disk(storage: FakeStorage) -> Disk:
    return Disk(storage, "/srv/deskgrid")


# --- the disk alone --------------------------------------------------------------------------------------------------


def test_a_disk_with_room_refuses_nothing(disk: Disk) -> None:
    assert not disk.look(0.0)
    assert (disk.state, disk.refusal) == ("ok", "")
    assert disk.takes(wire.Finished(()))


def test_a_reserve_is_kept_for_results_and_no_submission_is_taken_from_it(disk: Disk, storage: FakeStorage) -> None:
    storage.bytes = RESERVE_BYTES - 1
    assert disk.look(0.0)
    assert "the disk of the broker's home /srv/deskgrid is nearly full (262,143 KiB free)" in disk.refusal
    assert disk.takes(wire.Finished(()))
    storage.bytes = int(RESERVE_BYTES * RELIEF) - 1
    assert not disk.look(LOOK_S)
    storage.bytes += 1
    assert not disk.look(LOOK_S)  # it has just been looked at
    assert disk.look(2 * LOOK_S)
    assert disk.refusal == ""


def test_the_reserve_is_a_part_of_a_small_disk(disk: Disk, storage: FakeStorage) -> None:
    storage.total = 20_000_000
    storage.bytes = 1_000_000
    assert not disk.look(0.0)
    storage.bytes -= 1
    assert disk.look(LOOK_S)


def test_what_is_larger_than_the_room_above_the_reserve_is_refused_and_what_is_smaller_is_not(
    disk: Disk, storage: FakeStorage
) -> None:
    storage.bytes = RESERVE_BYTES + 3 * MIB
    assert not disk.look(0.0)
    large = wire.Blob("d", wire.payload_of(bytes(2 * MIB)))
    assert disk.records(large)
    assert not disk.records(large)  # only 1 MiB is left
    assert disk.refusal_of(2 * MIB).startswith(
        "the disk of the broker's home /srv/deskgrid has no room for 2,048 KiB more"
    )
    assert disk.refusal_of(MIB) == disk.refusal == ""
    disk.took(MIB)
    assert disk.refusal_of(1)
    assert not disk.look(LOOK_S)
    assert disk.records(large)


def test_a_full_disk_takes_nothing_that_has_to_be_written(disk: Disk) -> None:
    disk.failed("disk I/O error", 5.0)
    assert (disk.state, disk.since) == ("full", 5.0)
    assert "is full (disk I/O error); accepted bags continue" in disk.refusal
    assert not disk.takes(wire.Finished(()))
    assert not disk.takes(wire.Blob("d", b""))
    assert not disk.takes(wire.Ask(1, "cancel"))
    assert not disk.takes(wire.Ask(1, "something of a later version"))
    assert disk.takes(wire.Ask(1, "status"))
    assert disk.takes(wire.Heartbeat(None, ()))


def test_every_operation_is_a_question_or_has_to_be_written() -> None:
    keys = {"keys add", "keys revoke", "keys forget", "keys enrol"}
    writes = {
        "cancel",
        "pause",
        "resume",
        "forget",
        "forget learned",
        "runtimes",
        "release",
        "drain",
        "drain undo",
        *keys,
    }
    assert {what for what, question in QUESTIONS.items() if question.writes} == writes


def test_a_full_disk_is_tried_until_it_takes_something(disk: Disk, storage: FakeStorage) -> None:
    storage.works = False
    disk.failed("full", 0.0)
    assert not disk.look(TRIAL_S - 0.1)
    assert storage.trials == 0
    assert not disk.look(TRIAL_S)
    assert storage.trials == 1
    storage.works = True
    assert disk.look(2 * TRIAL_S)
    assert (disk.state, disk.since) == ("ok", 2 * TRIAL_S)


def test_a_disk_that_has_little_room_again_takes_results_first(disk: Disk, storage: FakeStorage) -> None:
    disk.failed("full", 0.0)
    storage.bytes = RESERVE_BYTES
    assert disk.look(TRIAL_S)
    assert disk.state == "low"


def test_a_disk_that_is_full_again_and_again_is_tried_less_and_less_often(disk: Disk) -> None:
    now, pauses = 1000.0, []
    for _ in range(9):
        disk.failed("full", now)
        began = now
        while not disk.look(now):
            now += 0.5
        pauses.append(now - began)
    assert pauses[:4] == [TRIAL_S, 2 * TRIAL_S, 4 * TRIAL_S, 8 * TRIAL_S]
    assert pauses[-1] == TRIAL_MOST_S
    disk.failed("full", now + CALM_S)
    assert disk.look(now + CALM_S + TRIAL_S)


# --- the broker ------------------------------------------------------------------------------------------------------


class Quota(Office):
    """An office whose journal can be kept from growing, and that begins again as the server's loop does."""

    def full(self) -> None:
        """No page more than there is."""
        pages = self.journal.db.execute("PRAGMA page_count").fetchone()[0]
        self.journal.db.execute(f"PRAGMA max_page_count = {pages}")

    def freed(self) -> None:
        self.journal.db.execute("PRAGMA max_page_count = 1000000")

    def settle(self) -> None:
        try:
            super().settle()
        except JournalFull as full:
            self.begin_again(full)

    def begin_again(self, full: JournalFull) -> None:
        """What `deskgrid.broker.loop` does."""
        self.journal.rollback()
        self.sessions = self.sessions.successor(self.now, str(full))

    def filled(self) -> None:
        """Fill it, and have the broker notice by a bag that is too large for it."""
        self.full()
        stranger = self.client()
        with pytest.raises(JournalFull) as full:
            stranger.submit([bytes(100_000)])
        self.begin_again(full.value)
        self.settle()
        assert self.state == "full"

    @property
    def state(self) -> str:
        return self.sessions.state.disk.state

    def notices(self) -> str:
        return "\n".join(self.sessions.state.take_notices())


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Quota]:
    opened = Quota(tmp_path)
    yield opened
    opened.freed()
    opened.close()


def came_back(client: Client) -> None:
    """It is asked to come in again, and does."""
    client.expect(wire.Rejoin)
    client.send(wire.Hello(wire.VERSION, "again", "ada"))
    client.expect(wire.Greeting)


def rejoined(worker: BareWorker, *running: wire.Running) -> None:
    """It is asked to come in again, and does, with what it has."""
    worker.expect(wire.Rejoin)
    worker.join(running=running)


def test_the_batch_that_did_not_fit_leaves_no_trace_and_is_refused_with_the_reason(office: Quota) -> None:
    client = office.client()
    kept = client.submit([b"0"])
    office.full()
    batch = client.batch("large", [bytes(100_000)])
    with pytest.raises(JournalFull) as full:
        client.send(batch)
    office.begin_again(full.value)
    came_back(client)
    answer = client.answer_to(batch)
    assert isinstance(answer, wire.Failed)
    assert answer.reason.startswith("bag large was rejected: the disk of the broker's home ")
    assert "is full (database or disk is full)" in answer.reason
    assert [row["bag"] for row in client.ask("bags")["bags"]] == [kept]
    assert list(office.journal.recovery.bags()) == [office.bag(kept).row]


def test_a_batch_that_was_accepted_before_is_accepted_again_however_full_the_disk_is(office: Quota) -> None:
    client = office.client()
    client.submit([b"0"])
    batch = client.batch("early", [b"1"])
    assert isinstance(client.answer_to(batch), wire.Accepted)
    office.filled()
    came_back(client)
    assert isinstance(client.answer_to(batch), wire.Accepted)


def test_what_is_running_when_the_disk_fills_goes_on_and_its_result_is_taken_when_there_is_room(office: Quota) -> None:
    client = office.client()
    bag = client.submit([b"0"], runtime=100.0)
    worker = office.worker("pc1")
    worker.join()
    (work,) = worker.work()
    office.filled()
    here = wire.Running(work.task, work.number, 0, 1.0)
    rejoined(worker, here)
    worker.send(wire.Finished((wire.Result(work.task, work.number, 0, 1.0, b"done", b"", b""),)))
    office.settle()
    assert not worker.line.inbox  # type: ignore[attr-defined] # it is not acknowledged
    assert result_of(office.journal, work.task) is None
    office.freed()
    office.now += TRIAL_S
    office.settle()
    assert office.state == "ok"
    rejoined(worker, here)
    worker.finish(work, payload=b"done")
    came_back(client)
    assert [result.payload for result in client.results(bag)] == [b"done"]
    assert office.sessions.state.scheduler.counters.attempts == 1


def test_nothing_new_is_handed_out_while_it_could_not_be_written_down(office: Quota) -> None:
    client = office.client()
    bag = client.submit([b"0", b"1"], runtime=100.0)
    office.filled()
    worker = office.worker("pc1")
    worker.join(slots=2)
    office.settle()
    assert not worker.line.inbox  # type: ignore[attr-defined]
    office.freed()
    office.now += TRIAL_S
    office.settle()
    worker.expect(wire.Rejoin)
    assert {work.payload for work in worker.work(2)} == {b"0", b"1"}
    came_back(client)
    assert client.ask("progress", bag=bag)["running"] == 2


def test_no_attempt_gets_a_number_that_was_given_before_the_disk_was_full(office: Quota) -> None:
    client = office.client()
    client.submit([b"0"], runtime=0.1)  # so short that it is not remembered
    worker = office.worker("pc1")
    worker.join()
    (before,) = worker.work()
    office.filled()
    office.freed()
    office.now += TRIAL_S
    rejoined(worker)
    worker.expect(wire.Rejoin)
    (after,) = worker.work()
    assert (after.task, after.number > before.number) == (before.task, True)


def test_questions_are_answered_and_orders_refused_while_the_disk_is_full(office: Quota) -> None:
    client = office.client()
    bag = client.submit([b"0"])
    office.filled()
    came_back(client)
    facts = client.ask("status")["broker"]
    assert facts["disk"] == "full"
    assert "is full (database or disk is full)" in facts["disk_note"]
    assert client.ask("progress", bag=bag)["waiting"] == 1
    assert client.ask("ping") == {}
    assert "is full" in client.failed("cancel", bag=bag)
    assert client.ask("progress", bag=bag)["cancelled"] == 0


def test_the_log_says_when_it_begins_and_when_it_ends(office: Quota) -> None:
    office.filled()
    said = office.notices()
    assert f"disk-full reason='database or disk is full' home='{office.journal.home}'" in said
    office.freed()
    office.now += 7.0
    office.settle()
    assert "disk-ok was='full' for_s=7.0" in office.notices()


def test_a_policy_that_was_changed_stays_changed_with_its_options(office: Quota) -> None:
    office.client(ADMIN).ask("policy", name="pgs", options={"order": "fifo", "margin": 3.0})
    office.filled()
    policy = office.sessions.state.scheduler.policy
    assert (policy.name, policy.order, policy.requirement.margin) == ("pgs", "fifo", 3.0)


def test_counters_go_on_where_they_were(office: Quota) -> None:
    client = office.client()
    bag = client.submit([b"0"])
    worker = office.worker()
    worker.join()
    worker.finish(*worker.work())
    assert len(client.results(bag)) == 1
    office.filled()
    came_back(client)
    counters = client.ask("status")["counters"]
    assert (counters["done"], counters["submitted"]) == (1, 1)


def test_a_disk_that_is_nearly_full_takes_results_but_no_submissions(
    office: Quota, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = office.client()
    bag = client.submit([b"0"])
    worker = office.worker()
    worker.join()
    monkeypatch.setattr(disk_module, "RESERVE_BYTES", 2**62)
    monkeypatch.setattr(disk_module, "RESERVE_SHARE", 1e-9)
    office.now += LOOK_S
    office.settle()
    assert office.state == "low"
    answer = client.answer_to(client.batch("new", [b"1"]))
    assert isinstance(answer, wire.Failed)
    assert "is nearly full" in answer.reason
    worker.finish(*worker.work(), payload=b"done")
    assert [result.payload for result in client.results(bag)] == [b"done"]
    client.ask("forget", bag=bag)
    assert list(office.journal.recovery.bags()) == []


def test_the_journal_undoes_a_trial_that_did_not_succeed(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    pages = journal.db.execute("PRAGMA page_count").fetchone()[0]
    journal.db.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(JournalFull, match="full"):
        journal.trial()
    journal.db.execute("PRAGMA max_page_count = 100000")
    journal.trial()
    assert journal.db.execute("SELECT key FROM meta ORDER BY key").fetchall() == [("epoch",), ("format",)]
    journal.close()


def test_arguments_that_are_undone_are_not_remembered(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    for payload in (b"undone", b"kept"):
        journal.rollback()
        journal.add_batch(batch_row(0, 1, 0, 1), [payload], 1e9)
        assert journal.payload(0, 0) == payload
    journal.close()
