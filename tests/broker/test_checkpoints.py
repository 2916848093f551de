"""Checkpoints at the broker: which are kept, who may send them, what they count, and what goes on from them."""

from typing import Any

import pytest

from deskgrid import wire
from deskgrid.broker.model import quotas
from deskgrid.broker.model.window_log import FIRST_LOSS_S
from deskgrid.broker.peers.sessions import HOLD_LEASES
from deskgrid.broker.work.attempts import NO_PROGRESS
from deskgrid.broker.work.checkpoints import EACH_S
from deskgrid.scheduler.model import State
from deskgrid.wire.saving import LEAD_LEAST_S, LEAD_MOST_S, lead_s, reserve_s
from tests.broker.office import LEASE_S, Office, OpenOffice
from tests.peers import BareWorker, Client

HOUR_S = 3600.0
LARGE = 2 * wire.LARGE_BYTES


def submitted(office: Office, **changes: Any) -> tuple[Client, str]:
    """A checkpointable bag of one task of ten hours."""
    client = office.client()
    return client, client.submit([b"0"], **{"runtime": 10 * HOUR_S, "checkpoint": True} | changes)


def given(office: Office, name: str = "pc1", **changes: Any) -> tuple[BareWorker, wire.Work]:
    """A worker for an hour that was given a task."""
    worker = office.worker(name)
    worker.join(**{"uptime": HOUR_S} | changes)
    (work,) = worker.work()
    return worker, work


def save(
    worker: BareWorker, work: wire.Work, data: bytes = b"state", serial: int = 1, progress: float | None = 0.5
) -> int:
    """Send a checkpoint; the number under which it is kept."""
    worker.send(wire.Saved(work.task, work.number, serial, progress, 60.0, 1.0, 0, len(data), wire.payload_of(data)))
    while not isinstance(message := worker.receive(), wire.CheckpointKept):
        assert isinstance(message, wire.Assign | wire.Blob)
    assert (message.task, message.serial) == (work.task, serial)
    return message.checkpoint


def leave(worker: BareWorker, *held: wire.Running) -> None:
    worker.send(wire.Leave("its window closed", True, False, (), held))


def rows(office: Office) -> list[tuple[int, int, int, float | None, float, int]]:
    return list(office.journal.recovery.checkpoints())


def resumed(worker: BareWorker, work: wire.Work) -> bytes:
    """What a worker is sent to go on from."""
    worker.send(wire.Resume(work.task, work.number, work.checkpoint, 0))
    return bytes(worker.expect(wire.Checkpoint).data)


@pytest.mark.parametrize("data", [b"state", bytes(LARGE)])
@pytest.mark.parametrize("restart", [False, True])
def test_the_next_attempt_goes_on_from_the_newest_checkpoint(
    open_office: OpenOffice, data: bytes, restart: bool
) -> None:
    office = open_office()
    submitted(office)
    worker, work = given(office)
    assert work.checkpoint == 0
    office.now += 100.0
    first = save(worker, work, b"old")
    second = save(worker, work, data, serial=2, progress=0.6)
    assert second > first > 0
    worker.finish(work, outcome=wire.Outcome.PIECE)
    leave(worker)
    office.settle()
    if restart:
        office.kill()
        office = open_office()
        office.now += HOLD_LEASES * LEASE_S  # for so long it waits for workers that may still run something
        office.settle()
    other, again = given(office, "pc2")
    assert again.checkpoint == second
    assert again.number > work.number
    assert again.runtime == pytest.approx(40.0)  # 60 s for the first 60 % of it
    assert resumed(other, again) == data


def part(
    worker: BareWorker, work: wire.Work, start: int, size: int, data: bytes, *, serial: int = 1
) -> tuple[int, int]:
    """Send a part of a checkpoint; what the broker says of it."""
    worker.send(wire.Saved(work.task, work.number, serial, 0.5, 60.0, 1.0, start, size, wire.payload_of(data)))
    said = worker.expect(wire.CheckpointKept)
    return said.checkpoint, said.taken


@pytest.mark.parametrize("each", [3, LARGE])
def test_a_large_checkpoint_comes_in_parts_and_goes_out_in_the_same(
    open_office: OpenOffice, monkeypatch: pytest.MonkeyPatch, each: int
) -> None:
    monkeypatch.setattr(wire, "CHECKPOINT_BYTES", each)
    office = open_office()
    submitted(office)
    worker, work = given(office)
    pieces = [bytes([number]) * each for number in (1, 2, 3)]
    size = 3 * each
    assert part(worker, work, 0, size, pieces[0]) == (0, each)
    assert rows(office) == []
    assert part(worker, work, 0, size, pieces[0], serial=2) == (0, each)  # a newer one takes its place
    assert part(worker, work, each, size, pieces[1], serial=1) == (0, 0)
    assert part(worker, work, 0, size, pieces[0], serial=3) == (0, each)
    assert part(worker, work, each, size, pieces[1], serial=3) == (0, 2 * each)
    assert part(worker, work, each, size, pieces[1], serial=3) == (0, 2 * each)  # it came twice
    number, taken = part(worker, work, 2 * each, size, pieces[2], serial=3)
    assert number > 0
    assert taken == 0
    worker.finish(work, outcome=wire.Outcome.PIECE)
    leave(worker)
    office.kill()
    office = open_office()
    office.now += HOLD_LEASES * LEASE_S
    office.settle()
    other, again = given(office, "pc2")
    assert again.checkpoint == number
    found = []
    for start in (0, each, 2 * each, 3 * each, 1):
        other.send(wire.Resume(again.task, again.number, number, start))
        message = other.expect(wire.Checkpoint)
        found.append((message.start, message.size, bytes(message.data)))
    assert found[:3] == [(start, size, piece) for start, piece in zip((0, each, 2 * each), pieces, strict=True)]
    assert found[3:] == [(0, 0, b"")] * 2  # no part begins there
    other.finish(again)
    assert values_left(office) == 0


def test_what_came_of_a_checkpoint_is_gone_when_its_task_ends_or_the_broker_starts_again(
    open_office: OpenOffice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "CHECKPOINT_BYTES", LARGE)
    office = open_office()
    submitted(office)
    worker, work = given(office)
    assert part(worker, work, 0, 2 * LARGE, bytes(LARGE)) == (0, LARGE)
    assert values_left(office) == 1
    worker.finish(work)
    assert values_left(office) == 0
    submitted(office)
    (work,) = worker.work()
    assert part(worker, work, 0, 2 * LARGE, bytes(LARGE)) == (0, LARGE)
    office.kill()
    office = open_office()
    assert values_left(office) == 0


@pytest.mark.parametrize(
    ("start", "size", "data"),
    [(0, 2, b"abc"), (0, 5, b""), (0, 5, b"a"), (3, 5, b"ab"), (0, wire.CHECKPOINT_LIMIT, b"")],
)
def test_a_checkpoint_whose_parts_make_no_sense_is_not_kept(office: Office, start: int, size: int, data: bytes) -> None:
    submitted(office)
    worker, work = given(office)
    assert part(worker, work, start, size, data) == (0, 0)
    assert rows(office) == []
    assert save(worker, work, b"state", serial=9) > 0


def values_left(office: Office) -> int:
    """Checkpoints, and parts of others, in the journal."""
    counts = [
        office.journal.db.execute(f"SELECT count(*) FROM {table}") for table in ("checkpoints", "checkpoint_parts")
    ]
    return sum(count.fetchone()[0] for count in counts)


def test_two_checkpoints_are_kept_and_the_one_before_is_used_if_the_newest_cannot_be_read(office: Office) -> None:
    client, bag = submitted(office)
    worker, work = given(office)
    numbers = [save(worker, work, b"state %d" % serial, serial, 0.1 * serial) for serial in range(1, 5)]
    assert [row[2] for row in rows(office)] == numbers[-2:]
    worker.finish(work, outcome=wire.Outcome.PIECE)
    for left, expected in ((numbers[-1], b"state 4"), (numbers[-2], b"state 3")):
        (again,) = worker.work()
        assert again.checkpoint == left
        assert resumed(worker, again) == expected
        worker.finish(again, outcome=wire.Outcome.UNREADABLE)
    (again,) = worker.work()
    assert again.checkpoint == 0
    assert rows(office) == []
    assert again.runtime == 10 * HOUR_S
    said = [row["facts"] for row in client.ask("events")["events"] if row["event"] == "checkpoint-unreadable"]
    assert said == [{"bag": bag, "item": "0", "goes_on_from": which} for which in ("the one before", "the beginning")]
    # What is there no more is not sent.
    worker.send(wire.Resume(again.task, again.number, numbers[-1], 0))
    assert bytes(worker.expect(wire.Checkpoint).data) == b""


@pytest.mark.parametrize("how", ["done", "failed", "cancelled", "stuck"])
@pytest.mark.parametrize("size", [5, LARGE])
def test_nothing_is_left_of_the_checkpoints_of_a_task_that_has_ended(office: Office, how: str, size: int) -> None:
    client, bag = submitted(office)
    worker, work = given(office, uptime=None)
    before = office.bag(bag).size
    save(worker, work, bytes(size))
    assert office.bag(bag).size == before + size
    if how == "cancelled":
        client.ask("cancel", bag=bag)
    elif how == "stuck":
        for _ in range(4):
            worker.finish(work, outcome=wire.Outcome.PIECE)
            if office.sessions.state.scheduler.state(work.task) == State.FAILED:
                break
            (work,) = worker.work()
        (result,) = client.results(bag)
        failure = wire.read_failure(result.payload)
        assert (failure.kind, failure.message) == ("NoProgress", NO_PROGRESS)
    else:
        worker.finish(work, outcome=wire.Outcome.DONE if how == "done" else wire.Outcome.ERROR)
    office.settle()
    assert rows(office) == []
    assert office.bag(bag).checkpoints == {}
    assert office.journal.db.execute("SELECT count(*) FROM files").fetchone() == (0,)
    assert office.bag(bag).size < before + 1000


def test_windows_that_close_over_a_task_that_never_saves_are_an_error(office: Office) -> None:
    _, bag = submitted(office)
    for _ in range(3):
        worker, work = given(office)
        office.now += HOUR_S - 1.0
        leave(worker, wire.Running(work.task, work.number, 0, HOUR_S - 1.0))
        office.settle()
    (result,) = office.client().results(bag)
    assert result.outcome == wire.Outcome.ERROR
    assert wire.read_failure(result.payload).kind == "NoProgress"


# --- who may save ----------------------------------------------------------------------------------------------------


def test_only_the_worker_that_was_given_the_newest_attempt_may_save(office: Office) -> None:
    submitted(office)
    worker, work = given(office)
    thief = office.worker("thief")
    thief.join(uptime=1.0)
    large = bytes(LARGE)
    for forged in (work, work._replace(number=work.number + 1), work._replace(task=99), work._replace(number=0)):
        assert save(thief, forged, large) == 0
        assert not office.sessions.workers.expects(_peer(thief), wire.Saved(*forged[:2], 1, 0.9, 1.0, 1.0, 0, 0, b""))
    assert save(worker, work._replace(number=work.number - 1)) == 0
    assert rows(office) == []
    assert save(worker, work) > 0
    thief.send(wire.Resume(work.task, work.number, 1, 0), wire.Resume(99, 1, 1, 0))
    office.settle()
    assert not [m for m in map(wire.decode, thief.line.inbox) if isinstance(m, wire.Checkpoint)]  # type: ignore[attr-defined]


def test_a_worker_that_asks_again_and_again_and_reads_nothing_is_sent_its_checkpoint_once(office: Office) -> None:
    submitted(office)
    worker, work = given(office)
    number = save(worker, work)
    worker.finish(work, outcome=wire.Outcome.PIECE)
    (again,) = worker.work()
    state = office.sessions.state
    state.waiting = lambda peer: wire.BATCH_BYTES
    for _ in range(50):
        worker.send(wire.Resume(again.task, again.number, number, 0))
    office.settle()
    assert office.sessions.workers.attempts._checkpoints._owed
    assert not worker.line.inbox  # type: ignore[attr-defined]
    state.waiting = lambda peer: 0
    office.settle()
    assert isinstance(worker.receive(), wire.Checkpoint)
    office.settle()
    assert not worker.line.inbox  # type: ignore[attr-defined]


def _peer(worker: BareWorker) -> bytes:
    peer: bytes = worker.line.peer  # type: ignore[attr-defined]
    return peer


def test_an_old_attempt_saves_nothing_once_another_worker_has_the_task(office: Office) -> None:
    submitted(office)
    worker, work = given(office)
    worker.close()
    office.now += LEASE_S + 1.0
    office.settle()
    other, again = given(office, "pc2")
    back = office.worker("pc1", worker.session)
    back.join(uptime=1.0)
    assert save(back, work) == 0
    assert save(other, again) > 0


def test_a_lost_worker_that_is_back_may_save_what_nobody_else_has_begun(office: Office) -> None:
    submitted(office)
    worker, work = given(office)
    worker.close()
    office.now += LEASE_S + 1.0
    office.settle()
    back = office.worker("pc1", worker.session)
    back.join(uptime=1.0)
    assert save(back, work) > 0


def test_a_task_that_is_not_checkpointable_saves_nothing(office: Office) -> None:
    submitted(office, checkpoint=False, runtime=10.0)
    worker, work = given(office)
    assert save(worker, work) == 0
    assert rows(office) == []


@pytest.mark.parametrize("progress", [1e-12, 5e-324])
def test_however_little_a_task_says_is_done_another_worker_can_be_sent_it(office: Office, progress: float) -> None:
    client, bag = submitted(office)
    worker, work = given(office)
    office.now += 100.0
    assert save(worker, work, progress=progress)
    leave(worker)
    _, again = given(office, "pc2")
    assert (again.task, again.runtime) == (work.task, wire.SECONDS_LIMIT)
    assert client.ask("progress", bag=bag)["left_s"] == wire.SECONDS_LIMIT
    office.sessions.state.scheduler.check(office.now)


def test_an_elapsed_time_is_believed_only_as_far_as_it_can_be_true(office: Office) -> None:
    submitted(office)
    worker, work = given(office)
    office.now += 30.0
    save(worker, work, progress=0.5)  # it says that it has run for 60 s
    worker.finish(work, outcome=wire.Outcome.PIECE)
    (again,) = worker.work()
    assert again.runtime == pytest.approx(30.0)


def test_parts_count_in_the_quota_however_many_checkpoints_are_on_their_way(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "CHECKPOINT_BYTES", 100)
    client = office.client()
    bag = client.submit([b"0", b"1", b"2"], runtime=10 * HOUR_S, checkpoint=True)
    worker = office.worker("pc1")
    worker.join(uptime=HOUR_S, slots=3)
    works = worker.work(3)
    monkeypatch.setattr(quotas, "BYTES_LIMIT", 1000)
    # 1,200 bytes of checkpoints that each would fit alone.
    told = [[part(worker, work, start, 600, bytes(100)) for work in works] for start in (0, 100, 200, 300)]
    said = told[-1]
    assert (0, 400) in said
    assert (0, 0) in said
    assert office.bag(bag).size <= 1000


def test_checkpoints_count_in_the_quota_and_the_task_goes_on_without(
    open_office: OpenOffice, monkeypatch: pytest.MonkeyPatch
) -> None:
    office = open_office()
    submitted(office)
    worker, work = given(office)
    monkeypatch.setattr(quotas, "BYTES_LIMIT", 1000)
    assert save(worker, work, bytes(500)) > 0
    assert save(worker, work, bytes(900), serial=2) == 0
    office.kill()
    office = open_office()
    back = office.worker("pc1", worker.session)
    back.join(uptime=HOUR_S, running=(wire.Running(work.task, work.number, 0, 5.0),))
    assert save(back, work, bytes(900), serial=3) == 0
    assert len(rows(office)) == 1


def test_one_that_was_damaged_on_the_disk_is_left_out_and_the_one_before_counts(open_office: OpenOffice) -> None:
    office = open_office()
    submitted(office)
    worker, work = given(office)
    save(worker, work, b"first", progress=0.25)
    save(worker, work, b"second", serial=2)
    worker.finish(work, outcome=wire.Outcome.PIECE)
    leave(worker)
    office.settle()
    office.journal.db.execute("UPDATE checkpoints SET data = ? WHERE progress = 0.5", (b"sedond",))
    office = open_office()
    assert [row[3] for row in rows(office)] == [0.25]
    office.now += HOLD_LEASES * LEASE_S
    office.settle()
    worker, work = given(office)
    assert resumed(worker, work) == b"first"


def test_while_the_disk_is_nearly_full_no_checkpoint_is_kept(office: Office) -> None:
    submitted(office)
    worker, work = given(office)
    office.sessions.state.disk.state = "low"
    assert save(worker, work) == 0


def test_while_the_disk_is_full_a_checkpoint_waits_at_its_worker(office: Office) -> None:
    saved = wire.Saved(0, 1, 1, 0.5, 1.0, 1.0, 0, 0, b"")
    office.sessions.state.disk.state = "full"
    assert not office.sessions.state.disk.takes(saved)


# --- what else is told -----------------------------------------------------------------------------------------------


def test_a_worker_is_told_how_long_workers_stay_before_they_vanish(open_office: OpenOffice) -> None:
    office = open_office()
    worker = office.worker("pc1")
    assert worker.join(uptime=HOUR_S).loss == FIRST_LOSS_S
    office.now += HOUR_S
    leave(worker)
    lost = office.worker("pc2")
    assert lost.join().loss == FIRST_LOSS_S + HOUR_S
    office.now += HOUR_S
    lost.close()
    office.settle()
    expected = (FIRST_LOSS_S + 2 * HOUR_S) / 2
    assert office.worker("pc3").join().loss == pytest.approx(expected)
    office.kill()
    assert open_office().worker("pc4").join().loss == pytest.approx(expected, rel=0.1)


def test_workers_join_after_a_clock_that_was_wrong_by_centuries(open_office: OpenOffice) -> None:
    office = open_office()
    office.worker("pc1").join()
    office.settle()
    wall = office.sessions.state.wall
    wall.follow(0.0, wall.posix(0.0) + 2 * wire.SECONDS_LIMIT)
    office.client().submit([b"x"])
    office.settle()
    open_office().settle()  # it was killed: its windows ended when that bag came, as far as is known
    assert open_office().worker("pc2").join().loss == wire.SECONDS_LIMIT


def test_workers_whose_windows_close_together_save_at_different_times(office: Office) -> None:
    client = office.client()
    for number in range(4):
        office.worker(f"pc{number}").join(uptime=HOUR_S)
    client.submit([b"0"], runtime=1.0)
    client.submit([b"0"], runtime=10 * HOUR_S, checkpoint=True)
    office.settle()
    spreads = {
        message.spread
        for line in office.lines.values()
        for message in map(wire.decode, line.inbox)
        if isinstance(message, wire.Assign) and message.work[0].options.checkpoint
    }
    assert spreads == {4 * EACH_S}


@pytest.mark.parametrize(("cost", "lead"), [(0.0, LEAD_LEAST_S), (10.0, 25.0), (1e9, LEAD_MOST_S)])
def test_a_piece_ends_as_long_before_its_window_as_saving_may_take(cost: float, lead: float) -> None:
    assert lead_s(cost) == lead
    assert lead < reserve_s(cost) <= 2 * LEAD_MOST_S + 1.0


def test_the_bag_of_a_long_checkpointable_task_has_no_note_that_it_is_too_long(office: Office) -> None:
    worker = office.worker("pc1")
    worker.join(uptime=HOUR_S)
    client, bag = submitted(office)
    assert office.bag(bag).note == ""
    _, short = submitted(office, min_piece=2 * HOUR_S)
    assert "no window known is long enough for a piece of 1 of 1 tasks" in office.bag(short).note
    _, plain = submitted(office, checkpoint=False)
    assert "longer than any window" in office.bag(plain).note
    text = client.ask("explain", bag=short, item=0)["text"]
    assert "a piece of it needs" in text[0]


def test_what_is_done_of_a_task_is_explained(office: Office) -> None:
    client, bag = submitted(office)
    worker, work = given(office)
    save(worker, work, progress=0.25)
    worker.finish(work, outcome=wire.Outcome.PIECE)
    leave(worker)
    office.settle()
    (line, *_) = client.ask("explain", bag=bag, item=0)["text"]
    assert "25% of it is done" in line


def test_the_last_piece_does_not_teach_how_long_the_tasks_of_a_bag_take(office: Office) -> None:
    client = office.client()
    bag = client.submit([b"0"], checkpoint=True, runtime=None)
    worker, work = given(office)
    save(worker, work)
    worker.finish(work, outcome=wire.Outcome.PIECE)
    (again,) = worker.work()
    worker.finish(again, elapsed=1.0)
    assert office.bag(bag).runs.count == 0
    office.settle()
    assert office.bag(bag).estimate_s == 60.0
