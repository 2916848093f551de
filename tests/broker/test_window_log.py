"""Windows of workers in the journal: a row when one opens, its end when it closes, whatever happens to the broker."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from deskgrid import wire
from deskgrid.broker.model.window_log import SEEN_S
from deskgrid.broker.store.journal import NAME, Journal
from deskgrid.broker.store.rows import WindowEnd, WindowRow
from deskgrid.broker.store.tables import KEPT_S
from tests.broker.office import LEASE_S, Office, OpenOffice
from tests.broker.records import result_of
from tests.peers import BareWorker

# POSIX seconds when an office's clock shows 0.
WALL_S = 1_800_000_000.0
HOUR = 3600.0


def rows(journal: Journal, columns: str) -> list[tuple[Any, ...]]:
    """Those columns of all windows, in the order of opening; times as seconds of the first broker's clock."""
    found = journal.db.execute(f"SELECT {columns} FROM windows ORDER BY number").fetchall()
    return [tuple(v - WALL_S if isinstance(v, float) and v >= WALL_S else v for v in row) for row in found]


def joined(office: Office, name: str = "pc1", session: str | None = None, **changes: Any) -> BareWorker:
    worker = office.worker(name, session)
    worker.join(**changes)
    return worker


def leave(office: Office, worker: BareWorker, held: tuple[wire.Running, ...] = (), planned: bool = True) -> None:
    worker.send(wire.Leave("its window closes", planned, False, (), held))
    office.settle()


@pytest.fixture
def busy(office: Office) -> tuple[Office, BareWorker, wire.Work]:
    """A worker of two slots, one of which has run a task for 30 seconds."""
    office.client().submit([b"0"], runtime=50.0)
    worker = joined(office, uptime=100.0, slots=2, site="lab4")
    (work,) = worker.work()
    office.now = 30.0
    return office, worker, work


def test_a_window_is_written_down_as_it_opens(office: Office) -> None:
    office.now = 5.0
    worker = joined(office, uptime=100.0, slots=2, site="lab4")
    joined(office, "pc2")
    office.settle()
    assert rows(office.journal, "worker, site, slots, opened, planned, closed, how") == [
        ("pc1", "lab4", 2, 5.0, 105.0, None, None),
        ("pc2", "lab3", 1, 5.0, None, None, None),
    ]
    assert rows(office.journal, "session")[0] == (worker.session,)


def test_a_worker_that_joins_between_windows_has_none_yet(office: Office) -> None:
    worker = joined(office, uptime=0.0, windows=((10.0, 50.0),))
    office.settle()
    assert rows(office.journal, "worker") == []
    office.now = 10.0
    worker.join(uptime=50.0)
    office.settle()
    assert rows(office.journal, "opened, planned") == [(10.0, 60.0)]


def test_a_departure_kills_what_ran_and_says_how_long_that_had_taken(
    busy: tuple[Office, BareWorker, wire.Work],
) -> None:
    office, worker, work = busy
    leave(office, worker, (wire.Running(work.task, work.number, 0, 29.0),))
    assert rows(office.journal, "closed, how, kills, wasted_s") == [(30.0, "departure", 1, 30.0)]


def test_each_window_counts_its_own_kills(busy: tuple[Office, BareWorker, wire.Work]) -> None:
    office, worker, work = busy
    leave(office, worker, (wire.Running(work.task, work.number, 0, 30.0),))
    office.now = 40.0
    worker.join(uptime=100.0)
    (work,) = worker.work()
    office.now = 45.0
    leave(office, worker, (wire.Running(work.task, work.number, 0, 5.0),))
    assert rows(office.journal, "kills, wasted_s") == [(1, 30.0), (1, 5.0)]


def test_a_window_is_written_down_once(office: Office) -> None:
    leave(office, joined(office, uptime=60.0))
    office.sessions.settle(office.now)
    assert not office.journal.db.in_transaction


def test_a_departure_with_nothing_running_kills_nothing(office: Office) -> None:
    worker = joined(office, uptime=60.0)
    office.now = 60.0
    leave(office, worker)
    assert rows(office.journal, "closed, how, kills, wasted_s") == [(60.0, "departure", 0, 0.0)]


def test_a_worker_that_is_stopped_before_its_time_is_told_apart(busy: tuple[Office, BareWorker, wire.Work]) -> None:
    office, worker, work = busy
    leave(office, worker, (wire.Running(work.task, work.number, 0, 30.0),), planned=False)
    assert rows(office.journal, "closed, how, kills") == [(30.0, "stop", 1)]


def test_a_worker_that_falls_silent_is_lost_when_its_lease_is_out(busy: tuple[Office, BareWorker, wire.Work]) -> None:
    office, _, _ = busy
    office.now = 30.0 + LEASE_S
    office.settle()
    assert rows(office.journal, "closed, how, kills, wasted_s") == [(40.0, "loss", 1, 40.0)]


def test_a_lost_worker_that_is_back_has_another_window(busy: tuple[Office, BareWorker, wire.Work]) -> None:
    office, worker, work = busy
    office.now = 30.0 + LEASE_S
    office.settle()
    office.now = 50.0
    joined(office, "pc1", worker.session, uptime=50.0, running=(wire.Running(work.task, work.number, 0, 50.0),))
    office.settle()
    assert rows(office.journal, "opened, how") == [(0.0, "loss"), (50.0, None)]


def test_a_predecessor_that_was_up_is_lost_when_its_successor_joins(office: Office) -> None:
    joined(office)
    office.settle()
    office.now = 3.0
    (peer,) = office.sessions.workers.by_peer
    office.sessions.gone(peer)
    joined(office)
    office.settle()
    assert rows(office.journal, "opened, closed, how") == [(0.0, 3.0, "loss"), (3.0, None, None)]


def test_a_worker_that_introduces_itself_again_is_in_the_same_window(office: Office) -> None:
    worker = joined(office, uptime=9.0)
    office.now = 4.0
    back = joined(office, "pc1", worker.session, uptime=5.0)
    office.now = 9.0
    leave(office, back)
    assert rows(office.journal, "opened, planned, closed, how") == [(0.0, 9.0, 9.0, "departure")]


def test_windows_that_were_open_when_the_broker_was_killed_close_when_it_was_last_seen(open_office: OpenOffice) -> None:
    office = open_office(wall=WALL_S)
    worker = joined(office, uptime=1000.0)
    for now in (0.0, SEEN_S, SEEN_S + 50.0):  # the last look is too soon after the one before to be written down
        office.now = now
        worker.send(wire.Heartbeat(1000.0 - now, ()))
        office.settle()
    office = open_office(wall=WALL_S + 500.0)
    joined(office, "pc2")
    office.settle()
    columns = "worker, opened, closed, how, kills, wasted_s"
    assert rows(office.journal, columns) == [
        ("pc1", 0.0, SEEN_S, "broker", 0, 0.0),
        ("pc2", 500.0, None, None, None, None),
    ]


def test_a_result_tells_too_that_the_broker_was_there(open_office: OpenOffice) -> None:
    office = open_office(wall=WALL_S)
    office.client().submit([b"0"])
    worker = joined(office)
    work = worker.work()
    office.now = 20.0
    worker.finish(*work)
    office = open_office(wall=WALL_S + 500.0)
    office.settle()
    assert rows(office.journal, "closed") == [(20.0,)]


def test_a_broker_that_stops_in_good_order_closes_what_is_open(office: Office) -> None:
    joined(office)
    office.now = 3.0
    office.settle()
    office.sessions.farewell("it stops")
    assert not office.journal.db.in_transaction
    assert rows(office.journal, "closed, how, kills") == [(3.0, "broker", 0)]


def test_a_window_is_in_the_same_transaction_as_the_batch_of_messages(open_office: OpenOffice) -> None:
    office = open_office(wall=WALL_S)
    office.settle()
    worker = office.worker()
    worker.send(worker.introduction())
    office.sessions.settle(office.now)
    assert rows(office.journal, "worker") == [("bare",)]
    office = open_office(wall=WALL_S + 9.0)
    assert rows(office.journal, "worker") == []


def test_while_the_disk_is_full_windows_wait_to_be_written_down(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    office.settle()
    with monkeypatch.context() as patch:
        patch.setattr(office.sessions.state.disk, "state", "full")
        patch.setattr(office.sessions.state.disk, "look", lambda now: False)
        worker = joined(office, uptime=10.0)
        office.now = 10.0
        leave(office, worker)
        assert rows(office.journal, "worker") == []
    office.now = 30.0
    office.settle()
    assert rows(office.journal, "opened, closed, how") == [(0.0, 10.0, "departure")]


def test_a_result_says_when_it_ended_and_a_batch_when_it_arrived(open_office: OpenOffice) -> None:
    office = open_office(wall=WALL_S)
    client = office.client()
    office.now = 3.0
    bag = client.submit([b"0", b"1"], last=False)
    office.now = 4.0
    client.answer_to(client.batch(bag, [b"2"], first=2))
    worker = joined(office)
    work = worker.work()
    office.now = 7.0
    worker.finish(*work)
    office.now = 8.0
    client.ask("cancel", bag=bag, items=[2])
    arrived = office.journal.db.execute("SELECT arrived FROM batches ORDER BY first").fetchall()
    assert [at - WALL_S for (at,) in arrived] == [3.0, 4.0]
    first, last = result_of(office.journal, 0), result_of(office.journal, 2)
    assert first is not None
    assert last is not None
    assert (first.ended, last.ended) == (WALL_S + 7.0, WALL_S + 8.0)
    assert next(office.journal.recovery.bags()).session == next(iter(office.sessions.clients.by_peer.values())).session


# --- the table -------------------------------------------------------------------------------------------------------


def window(number: int, opened: float) -> WindowRow:
    return WindowRow(number, "pc1", "s", "", 1, opened, None)


def test_windows_that_closed_long_ago_are_dropped_at_the_next_opening(tmp_path: Path) -> None:
    with closing(Journal(tmp_path)) as journal:
        journal.windows.add([window(1, 1.0), window(2, 100.0), window(3, 200.0)])
        journal.windows.end([WindowEnd(50.0, "departure", 0, 0.0, 1), WindowEnd(150.0, "loss", 2, 9.0, 2)])
        journal.seen(100.0 + KEPT_S)
    with closing(Journal(tmp_path)) as journal:
        assert [number for (number,) in rows(journal, "number")] == [2, 3]
        assert journal.recovery.next_window() == 4


def test_a_window_that_opened_after_the_broker_was_last_seen_was_empty(tmp_path: Path) -> None:
    with closing(Journal(tmp_path)) as journal:
        journal.windows.add([window(1, 70.0)])
        journal.windows.end_all(60.0)
        assert rows(journal, "closed, how") == [(70.0, "broker")]


def test_a_new_journal_knows_of_no_time(tmp_path: Path) -> None:
    with closing(Journal(tmp_path)) as journal:
        assert journal.recovery.last_known() == 0.0
    with closing(sqlite3.connect(tmp_path / NAME)) as db:
        assert db.execute("SELECT count(*) FROM windows").fetchone() == (0,)


def test_a_pc_whose_owner_comes_at_the_same_hour_is_expected_to_be_gone_then(office: Office) -> None:
    worker = office.worker("desk")
    for _ in range(4):
        worker.join(uptime=10 * HOUR, kind="windows")
        office.settle()
        office.now += 7 * HOUR
        # It was in use for longer than its tasks were to wait: they are handed back.
        worker.send(wire.Leave("its owner uses it", False, False, (wire.Window(17 * HOUR, 10 * HOUR),), ()))
        office.settle()
        office.now += 17 * HOUR
    worker.join(uptime=10 * HOUR, kind="windows")
    hours = office.client().ask("worker", name="desk")["hours"]
    assert hours["lasts_s"] == pytest.approx([7 * HOUR, 7 * HOUR], abs=1.0)
    assert hours["goes_s"] == pytest.approx([7 * HOUR, 7 * HOUR], abs=1.0)
