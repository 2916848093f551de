"""An unexpected exception costs only the peer whose message caused it."""

import math
import secrets
import sqlite3
import time
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import pytest

from deskgrid import Grid, wire
from deskgrid.broker import loop as loop_module
from deskgrid.broker.peers.clients import Clients
from deskgrid.broker.peers.sessions import Sessions
from deskgrid.broker.port.penalties import FAULTS
from deskgrid.broker.work.orders import Orders
from deskgrid.broker.work.workers import NAMESAKES_LIMIT, WorkerSessions
from tests.live import LiveGrid, live_grid
from tests.peers import COMMAND, BareWorker, SocketLine
from tests.waiting import PATIENCE_S, eventually

# A name at which the handlers below stumble.
BOOM = "boom"
FAILED = "your message made the broker fail; its log says why"


@pytest.fixture
def grid(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveGrid]:
    with live_grid(tmp_path_factory.mktemp("home"), workers=1) as started:
        yield started


def stumble(monkeypatch: pytest.MonkeyPatch, kind: type, method: str, error: Exception) -> list[Exception]:
    """Have ``method`` do its work and then raise, where a message is of something named `BOOM`; what was raised."""
    handler, raised = getattr(kind, method), list[Exception]()

    def fail(self: Any, *args: Any) -> Any:
        answer = handler(self, *args)
        if any(getattr(arg, "name", "") == BOOM for arg in args):
            raised.append(error)
            raise error
        return answer

    monkeypatch.setattr(kind, method, fail)
    return raised


def refusal_of_boom(grid: LiveGrid) -> str:
    """What a client is told that submits a bag of that name."""
    eve = grid.client()
    eve.send(wire.Blob(sha256(COMMAND).hexdigest(), COMMAND))
    eve.send(eve.batch(secrets.token_hex(6), [b"0"], name=BOOM))
    return eve.refusal()


@pytest.mark.parametrize("error", [KeyError("nobody"), RecursionError("deep"), sqlite3.IntegrityError("twice")])
def test_a_message_that_makes_the_broker_fail_costs_its_peer_and_nobody_else_anything(
    grid: LiveGrid, error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stumble(monkeypatch, Clients, "_submit", error)
    with Grid(grid.broker.ready.client_line) as ann:
        bag = ann.bag(abs, range(-30, 0), runtime=0.01)
        future = ann.submit(abs, -7)
        assert refusal_of_boom(grid) == FAILED
        assert bag.results() == list(range(30, 0, -1))
        assert future.result(PATIENCE_S) == 7
        assert BOOM not in [row["name"] for row in ann.bags()], "what it had half done is undone"
    (record,) = [record for record in caplog.records if record.getMessage().startswith("fault")]
    assert record.getMessage() == "fault credential='client'"
    assert record.exc_info is not None
    assert record.exc_info[1] is error


def test_a_worker_that_makes_the_broker_fail_is_cut_off_and_may_come_again_and_the_others_go_on(
    grid: LiveGrid, monkeypatch: pytest.MonkeyPatch
) -> None:
    raised = stumble(monkeypatch, WorkerSessions, "_join", ZeroDivisionError("nobody"))
    worker = grid.bare_worker(BOOM)
    worker.send(worker.introduction())
    assert eventually(lambda: len(raised) == 1, PATIENCE_S)
    with Grid(grid.broker.ready.client_line) as ann:
        assert ann.submit(abs, -7).result(PATIENCE_S) == 7
        assert [row["name"] for row in ann.status()["workers"]] == ["pc1"]
    assert worker.line.receive(0.0) is None, "if it were refused, it would end"
    monkeypatch.undo()
    grid.closing(BareWorker(SocketLine(grid.pc_line(BOOM)), BOOM)).join()


def test_a_credential_by_which_the_broker_fails_again_and_again_is_kept_out_for_a_while(
    grid: LiveGrid, monkeypatch: pytest.MonkeyPatch
) -> None:
    raised = stumble(monkeypatch, Clients, "_submit", KeyError("nobody"))
    assert [refusal_of_boom(grid) for _ in range(FAULTS)] == [FAILED] * FAULTS
    late = grid.client(greet=False)
    late.send(wire.Hello(wire.VERSION, "s", "eve"))
    assert late.refusal().startswith("messages of client made the broker fail; try again in ")
    assert len(raised) == FAULTS
    assert grid.admin().ask("ping") == {}


def test_where_nobody_is_to_blame_at_once_messages_are_handled_one_by_one_until_somebody_is(
    grid: LiveGrid, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle, failures = Sessions.settle, list[str]()

    def fail(self: Sessions, now: float) -> Any:
        for bag in self.state.book.by_id.values():
            if bag.row.name == BOOM:
                failures.append(bag.row.id)
                raise ValueError("what it submitted cannot be settled")
        return settle(self, now)

    monkeypatch.setattr(Sessions, "settle", fail)
    with Grid(grid.broker.ready.client_line) as ann, Grid(grid.broker.ready.client_line) as eve:
        bag = ann.bag(abs, range(-30, 0), runtime=0.01)
        with pytest.raises(Exception, match="your message made the broker fail"):
            eve.bag(abs, [1], name=BOOM)
        assert bag.results() == list(range(30, 0, -1))
    assert 2 <= len(failures) <= 3


def test_a_broker_that_fails_whatever_it_does_gives_up(grid: LiveGrid, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_module, "CAREFUL_S", PATIENCE_S)
    monkeypatch.setattr(loop_module, "FAILURES_LIMIT", 3)

    def fail(self: Sessions, now: float) -> Any:
        raise ValueError("always")

    monkeypatch.setattr(Sessions, "settle", fail)
    grid.workers[0].ask_to_stop()
    grid.workers[0].wait()
    assert str(grid.broker.failure()) == "always"


def short_of_memory(monkeypatch: pytest.MonkeyPatch, kind: type, method: str, times: float) -> list[None]:
    """Have ``method`` do its work and then run out of memory, so many times; the failures so far."""
    handler, failed = getattr(kind, method), list[None]()

    def fail(self: Any, *args: Any, **options: Any) -> Any:
        answer = handler(self, *args, **options)
        if len(failed) < times:
            failed.append(None)
            raise MemoryError
        return answer

    monkeypatch.setattr(kind, method, fail)
    return failed


@pytest.mark.parametrize(("kind", "method"), [(Clients, "_submit"), (Sessions, "settle"), (Orders, "_cancel_now")])
def test_nobody_is_blamed_if_memory_runs_out_and_what_they_asked_for_is_done(
    grid: LiveGrid, kind: type, method: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with Grid(grid.broker.ready.client_line) as ann:
        failed = short_of_memory(monkeypatch, kind, method, FAULTS + 1)
        assert ann.bag(abs, range(-30, 0), runtime=0.01).results() == list(range(30, 0, -1))
        assert ann.bag(time.sleep, [PATIENCE_S] * 3).cancel() == 3
        assert len(failed) == FAULTS + 1
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert any(line.startswith("out-of-memory") for line in told)
    assert not any(line.startswith("fault") for line in told)


def test_a_broker_that_runs_out_of_memory_again_and_again_ends_and_loses_nothing(
    grid: LiveGrid, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_module, "FAILURES_LIMIT", 3)
    grid.workers[0].ask_to_stop()
    grid.workers[0].wait()
    short_of_memory(monkeypatch, Sessions, "settle", math.inf)
    assert "out of memory; start the broker again" in str(grid.broker.failure())


def test_a_disk_that_fails_is_no_fault_of_a_peer(grid: LiveGrid, monkeypatch: pytest.MonkeyPatch) -> None:
    stumble(monkeypatch, Clients, "_submit", sqlite3.DatabaseError("database disk image is malformed"))
    eve = grid.client()
    eve.send(wire.Blob(sha256(COMMAND).hexdigest(), COMMAND))
    eve.send(eve.batch("b" * 12, [b"0"], name=BOOM))
    assert "journal.sqlite3 cannot be read any more" in str(grid.broker.failure())


def test_an_order_that_makes_the_broker_fail_costs_who_gave_it_and_is_not_gone_on_with(
    grid: LiveGrid, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = list[int]()

    def fail(self: Orders, *args: Any) -> Any:
        failures.append(len(failures))
        raise ValueError("what is to be cancelled cannot be")

    monkeypatch.setattr(Orders, "_cancel_now", fail)
    with Grid(grid.broker.ready.client_line) as ann, Grid(grid.broker.ready.client_line) as eve:
        bag = ann.bag(abs, range(-30, 0), runtime=0.01)
        with pytest.raises(Exception, match="your message made the broker fail"):
            eve.bag(time.sleep, [0.3] * 5, name=BOOM).cancel()
        assert bag.results() == list(range(30, 0, -1))
        assert ann.submit(abs, -7).result(PATIENCE_S) == 7
    assert len(failures) == 1


def test_who_hangs_up_after_an_order_that_makes_the_broker_fail_is_to_blame_all_the_same(
    grid: LiveGrid, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_module, "FAILURES_LIMIT", 1)

    def fail(self: Orders, *args: Any) -> Any:
        raise ValueError("what is to be cancelled cannot be")

    monkeypatch.setattr(Orders, "_cancel_now", fail)
    bag = grid.client().submit([b"0"] * 3)
    for _ in range(FAULTS):
        eve = grid.client()
        eve.send(wire.Ask(1, "cancel", wire.pack_record({"bag": bag, "items": [1]})), wire.Goodbye("gone"))
        assert eventually(lambda: grid.admin().ask("ping") == {}, PATIENCE_S)
    late = grid.client(greet=False)
    late.send(wire.Hello(wire.VERSION, "s", "eve"))
    assert late.refusal().startswith("messages of client made the broker fail; try again in ")


def test_workers_of_one_pc_are_few(grid: LiveGrid) -> None:
    grid.bare_worker("pc9").join()
    line = grid.pc_line("pc9")
    others = [grid.closing(BareWorker(SocketLine(line), "pc9")) for _ in range(NAMESAKES_LIMIT)]
    for other in others[:-1]:
        other.join()
    others[-1].send(others[-1].introduction())
    assert others[-1].refusal() == f"{NAMESAKES_LIMIT} workers of the PC pc9 have joined already"
