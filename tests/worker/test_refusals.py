"""A worker that cannot be part of a grid says why, and ends if waiting cannot help."""

import socket
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest
import zmq
from zmq.utils import z85

from deskgrid import wire
from deskgrid.wire.joinline import JoinLine, Keys
from deskgrid.worker import agent
from deskgrid.worker import link as link_module
from deskgrid.worker import session as session_module
from deskgrid.worker.agent import WorkerError, WorkerOptions, run_worker
from deskgrid.worker.identities import Identities, PcIdentity
from deskgrid.worker.link import UnknownKey
from deskgrid.worker.work import SlotWork
from tests.live import LiveGrid, LiveWorker
from tests.waiting import PATIENCE_S, eventually


def fresh_pair() -> tuple[bytes, bytes]:
    """A key pair that no broker knows."""
    public, secret = zmq.curve_keypair()
    return z85.decode(public), z85.decode(secret)


def good_keys(grid: LiveGrid) -> Keys:
    keys = grid.broker.line("worker").keys
    assert keys is not None
    return keys


def started(grid: LiveGrid, keys: Keys | None) -> LiveWorker:
    """A worker with the broker's address and other keys."""
    good = grid.broker.line("worker")
    return grid.start_worker(line=JoinLine("worker", good.host, good.port, keys))


def failure(worker: LiveWorker) -> str:
    """Why a worker ended."""
    error = worker.failure()
    assert isinstance(error, WorkerError)
    assert str(error).isprintable()
    return str(error)


# --- by a real broker ------------------------------------------------------------------------------------------------


def test_a_key_that_the_broker_does_not_know_ends_the_worker_at_once(grid: LiveGrid) -> None:
    keys = Keys(good_keys(grid).server, *fresh_pair())
    assert "does not know this join line's key" in failure(started(grid, keys))


def test_a_client_key_ends_the_worker_at_once(grid: LiveGrid) -> None:
    worker = started(grid, grid.broker.line("client").keys)
    assert failure(worker) == "the broker refuses this worker: a submitter may not send Enrol"


# --- by what is not its broker ---------------------------------------------------------------------------------------


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers complain of silence soon, and dial again soon."""
    monkeypatch.setattr(link_module, "SILENCE_S", 0.1)
    monkeypatch.setattr(link_module, "REDIAL_S", 0.5)


def complains(worker: LiveWorker, asks: str = "is it running, and is this join line from that broker?") -> bool:
    """Whether it says within seconds that nobody answers, and ``asks``, and goes on trying."""
    said = eventually(lambda: worker.has_said("no answer from a broker at"), 10.0)
    return said and worker.has_said(asks) and not worker.ended


@pytest.mark.usefixtures("impatient")
def test_the_key_of_another_broker_is_complained_about(grid: LiveGrid) -> None:
    keys = good_keys(grid)
    assert complains(started(grid, Keys(fresh_pair()[0], keys.public, keys.secret)))


@pytest.mark.usefixtures("impatient")
def test_a_line_without_keys_is_complained_about(grid: LiveGrid) -> None:
    assert complains(started(grid, None), "If it was not started with --insecure, give its join line with --join")


@pytest.mark.usefixtures("impatient")
def test_a_broker_that_is_not_there_is_complained_about(grid: LiveGrid) -> None:
    grid.broker.stop()
    assert complains(grid.start_worker())


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\xff" * 1000])
def test_something_else_at_the_address_is_complained_about(grid: LiveGrid, answer: bytes) -> None:
    good = grid.broker.line("worker")
    with socket.create_server(("127.0.0.1", 0)) as server:
        worker = grid.start_worker(line=JoinLine("worker", good.host, server.getsockname()[1], good.keys))
        server.settimeout(PATIENCE_S)
        connection, _ = server.accept()
        with connection:
            connection.sendall(answer)
        assert complains(worker)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\xff" * 1000])
def test_a_broker_that_takes_the_place_of_something_else_is_found(grid: LiveGrid, answer: bytes) -> None:
    good = grid.broker.line("worker")
    joined: list[LiveWorker] = []

    def meanwhile() -> None:
        with socket.create_server((good.host, good.port)) as server:
            worker = grid.start_worker()
            server.settimeout(PATIENCE_S)
            connection, _ = server.accept()
            with connection:
                connection.sendall(answer)
                assert complains(worker)
        joined.append(worker)

    grid.restart(meanwhile)
    assert eventually(lambda: joined[0].has_said("joined"), PATIENCE_S)


# --- by a broker that says what the test wants -----------------------------------------------------------------------


_Said = TypeVar("_Said", bound=wire.Message)


class BareBroker:
    """A socket where a worker's broker would be, without encryption."""

    def __init__(self) -> None:
        self._context = zmq.Context()
        self._router = self._context.socket(zmq.ROUTER)
        self._router.setsockopt(zmq.LINGER, 0)
        self._port = self._router.bind_to_random_port("tcp://127.0.0.1")
        self._peer = b""

    @property
    def line(self) -> JoinLine:
        return JoinLine("worker", "127.0.0.1", self._port, None)

    def receive(self) -> wire.Message:
        assert self._router.poll(int(PATIENCE_S * 1000))
        self._peer, data = self._router.recv_multipart()
        return wire.decode(data)

    def next(self, kind: type[_Said]) -> _Said:
        """The next message of that kind; heartbeats before it are skipped."""
        while not isinstance(message := self.receive(), kind):
            assert isinstance(message, wire.Heartbeat)
        return message

    def send(self, *frames: bytes) -> None:
        """To whoever spoke last."""
        for frame in frames:
            self._router.send_multipart([self._peer, frame])

    def close(self) -> None:
        self._router.close()
        self._context.term()


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[BareBroker]:
    """One whose workers introduce themselves again soon, but not before a busy machine has answered."""
    monkeypatch.setattr(session_module, "HEARTBEAT_S", 0.5)
    with closing(BareBroker()) as opened:
        yield opened


def welcome(name: str) -> bytes:
    return wire.encode(wire.Welcome(wire.VERSION, "b", name, 0.05, 5.0, None, 86_400.0))


def test_a_refusal_ends_the_worker_with_its_reason(grid: LiveGrid, broker: BareBroker) -> None:
    worker = grid.start_worker(line=broker.line)
    assert isinstance(broker.receive(), wire.Join)
    broker.send(wire.encode(wire.Refused("the lab is closed")))
    assert failure(worker) == "the broker refuses this worker: the lab is closed"


def test_garbage_from_a_broker_is_skipped(grid: LiveGrid, broker: BareBroker) -> None:
    worker = grid.start_worker(line=broker.line)
    broker.receive()
    hello = wire.encode(wire.Greeting(wire.VERSION, "b"))  # a message, but none for workers
    broker.send(b"", b"garbage", b"\xc1" * 1000, hello, welcome("pc1~7"))
    assert isinstance(broker.receive(), wire.Heartbeat)
    assert worker.has_said("as pc1~7")


def test_a_message_that_nobody_foresaw_does_not_end_the_worker(
    grid: LiveGrid, broker: BareBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(work: object, message: object, now: float) -> None:
        raise RecursionError

    monkeypatch.setattr(SlotWork, "receive", fail)
    worker = grid.start_worker(line=broker.line)
    assert isinstance(broker.receive(), wire.Join)
    broker.send(wire.encode(wire.Recall((wire.Ref(1, 1),))))
    broker.send(welcome("pc1"))
    broker.next(wire.Heartbeat)
    assert not worker.ended
    assert "message-failed" in caplog.text


DIGEST = "d" * 64


def test_work_that_makes_no_sense_fails_or_is_skipped(grid: LiveGrid, broker: BareBroker) -> None:
    worker = grid.start_worker(line=broker.line)
    join = broker.receive()
    assert isinstance(join, wire.Join)
    broker.send(welcome("pc1"))
    rows = [wire.Work(task, 1, slot, DIGEST, 1.0, wire.TaskOptions(), 0, b"") for task, slot in ((1, 0), (2, 99))]
    broker.send(wire.encode(wire.Assign(join.opening, 0.0, tuple(rows))))
    assert broker.next(wire.Fetch) == wire.Fetch(DIGEST)
    broker.send(wire.encode(wire.Blob(DIGEST, b"not a template")))
    (result,) = broker.next(wire.Finished).results
    assert (result.task, result.outcome) == (1, wire.Outcome.ERROR)
    assert not worker.ended


def test_an_unanswered_introduction_is_repeated(grid: LiveGrid, broker: BareBroker) -> None:
    grid.start_worker(line=broker.line)
    first, second = broker.receive(), broker.receive()
    assert isinstance(first, wire.Join)
    assert isinstance(second, wire.Join)
    assert (first.session, first.opening < second.opening) == (second.session, True)


@pytest.mark.parametrize("known", [False, True])
def test_a_pc_whose_key_was_revoked_is_told_so_also_in_the_run_in_which_it_enrolled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    """The broker was restarted in between, and does not even let it in to say so."""
    server, _ = fresh_pair()
    line = JoinLine("worker", "127.0.0.1", 1, Keys(server, *fresh_pair()))
    mine = PcIdentity("pc", replace(line, keys=Keys(server, *fresh_pair())))
    if known:
        Identities(tmp_path).keep(mine)

    def revoked(*args: Any) -> None:
        raise UnknownKey

    monkeypatch.setattr(agent, "enrolled", lambda *args: mine)
    monkeypatch.setattr(agent, "_work", revoked)
    with pytest.raises(WorkerError, match="does not know this PC's key: was it revoked or forgotten"):
        run_worker(WorkerOptions(line, 1, "pc", tmp_path), lambda: False, print)
