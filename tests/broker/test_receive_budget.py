"""Unread bytes that have arrived: how they are counted, and who is cut off when there are too many."""

import os
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, cast

import pytest
import zmq

from deskgrid import wire
from deskgrid.broker import loop
from deskgrid.broker.auth.roles import Credential
from deskgrid.broker.loop import Loop
from deskgrid.broker.port import fair_queue, receive_budget
from deskgrid.broker.port.connections import Connections
from deskgrid.broker.port.receive_budget import (
    BACKLOG_LIMIT,
    CREDENTIAL_LIMIT,
    ONE_PC,
    RELIEF,
    SMALL,
    ReceiveBudget,
    surplus,
)
from deskgrid.broker.port.sockets import Sockets
from deskgrid.broker.port.tcp_info import received
from deskgrid.broker.store.journal import Journal
from tests.fuzz.test_flood import OPENING
from tests.live import LiveGrid, live_grid
from tests.memory import resident
from tests.peers import SocketLine
from tests.waiting import PATIENCE_S

MIB = 2**20
KEYS = {"ann": b"a", "mallory": b"m", "workers": b"w"}


def rows(*described: tuple[str, str, float, int]) -> list[ReceiveBudget]:
    """Connections of (who, address, since when, MiB), numbered as they come."""
    return [
        ReceiveBudget(fd, KEYS[who], address, since, size * MIB)
        for fd, (who, address, since, size) in enumerate(described)
    ]


def cut(*described: tuple[str, str, float, int]) -> list[int]:
    """The numbers of those that are cut off, in that order."""
    return [each.fd for each in surplus(rows(*described))]


# --- who is cut off --------------------------------------------------------------------------------------------------


def test_within_the_limits_nobody_is_cut_off() -> None:
    assert (BACKLOG_LIMIT, CREDENTIAL_LIMIT) == (1024 * MIB, 134 * MIB)
    assert cut(("mallory", "10.0.0.1", 0.0, 134), ("ann", "10.0.0.2", 0.0, 134)) == []
    assert cut() == []


def test_one_key_is_brought_down_to_half_of_its_share_however_little_others_have() -> None:
    found = cut(("ann", "10.0.0.1", 9.0, 70), *[("mallory", "10.0.0.2", float(at), 40) for at in range(4)])
    assert found == [4, 3, 2]


def test_of_too_much_in_all_the_keys_go_first_that_have_most_until_there_is_half() -> None:
    found = surplus(
        [ReceiveBudget(number, b"%d" % number, "10.0.0.1", 0.0, (90 + number) * MIB) for number in range(11)]
    )
    assert [each.fd for each in found] == [10, 9, 8, 7, 6, 5]
    left = sum(90 + number for number in range(5))
    assert left <= 1024 * RELIEF < left + 95


def test_without_keys_only_the_limit_for_all_counts() -> None:
    assert surplus([ReceiveBudget(number, b"", "127.0.0.1", 0.0, 70 * MIB) for number in range(14)]) == []
    assert len(surplus([ReceiveBudget(number, b"", "127.0.0.1", 0.0, 70 * MIB) for number in range(15)])) == 8


def test_of_a_key_that_is_shared_the_machine_goes_first_that_has_more_than_one_needs() -> None:
    flooding = [("workers", "10.0.0.66", 0.0, 70)] * 3
    others = [("workers", f"10.0.0.{number}", 5.0, 8) for number in range(8)]
    assert set(cut(*flooding, *others)) == {0, 1, 2}


def test_of_many_that_each_have_little_those_go_that_began_last_and_come_again() -> None:
    crowd = [("workers", f"10.0.{number}.1", float(number), 2 * (600 - number) // 100) for number in range(600)]
    found = cut(*crowd)
    assert found == sorted(found, reverse=True)
    assert found[0] == 599
    assert max(size for *_, size in crowd) * MIB < ONE_PC


# --- what counts -----------------------------------------------------------------------------------------------------


class Kernel(Connections):
    """Connections of which the test says how many bytes have arrived."""

    def __init__(self) -> None:
        super().__init__(lambda fd: None)
        self.arrived: dict[int, int] = {}

    def let_in(self, fd: int) -> bytes:
        self.accepted(fd, "10.0.0.1", 0.0)
        assert self.heard(b"peer %d" % fd, fd, b"k")
        return b"peer %d" % fd

    def read(self, peer: bytes, size: int) -> None:
        connection = self.of(peer)
        assert connection is not None
        connection.read += size

    def sizes(self, now: float) -> dict[int, int]:
        return {each.fd: each.size for each in self.backlogs(lambda fd: self.arrived.get(fd, 0), now)}


def test_what_was_read_does_not_wait_and_little_is_nothing() -> None:
    kernel = Kernel()
    peer = kernel.let_in(5)
    kernel.arrived[5] = SMALL - 1
    assert kernel.sizes(0.0) == {}
    kernel.arrived[5] = 10 * SMALL
    assert kernel.sizes(0.0) == {5: 10 * SMALL}
    kernel.read(peer, 8 * SMALL)
    assert kernel.sizes(0.0) == {5: 2 * SMALL}


def test_strangers_count_too() -> None:
    kernel = Kernel()
    kernel.accepted(5, "10.0.0.1", 0.0)
    kernel.arrived[5] = SMALL
    (found,) = kernel.backlogs(lambda fd: kernel.arrived[fd], 0.0)
    assert (found.key, found.address, found.size) == (b"", "10.0.0.1", SMALL)
    assert kernel.flooded(5) is None
    assert (len(kernel), kernel.turned_away) == (0, 1)


def test_signs_of_life_of_a_year_are_no_backlog() -> None:
    kernel, year = Kernel(), 365 * 86_400.0
    kernel.let_in(5)
    kernel.arrived[5] = int(year / 5.0) * 2 * 42
    assert kernel.sizes(year) == {}


def test_a_message_on_its_way_is_as_old_as_what_was_read_before_it() -> None:
    kernel = Kernel()
    peer = kernel.let_in(5)

    def since(now: float, arrived: int) -> float:
        (found,) = kernel.backlogs(lambda fd: arrived, now)
        return found.since

    assert kernel.backlogs(lambda fd: 0, 1.0) == []
    assert [since(2.0, 10 * SMALL), since(3.0, 20 * SMALL)] == [1.0, 1.0]
    kernel.read(peer, 10 * SMALL)
    assert [since(4.0, 30 * SMALL), since(5.0, 40 * SMALL)] == [4.0, 4.0]


def test_a_peer_that_floods_is_cut_off_and_nothing_more_of_it_is_read() -> None:
    kernel = Kernel()
    peer = kernel.let_in(5)
    assert kernel.flooded(5) == peer
    assert peer not in kernel
    assert not kernel.heard(peer, 5, b"k")
    assert kernel.turned_away == 1


# --- as the kernel counts it -----------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform != "linux", reason="what has arrived is counted by Linux")
@pytest.mark.parametrize("encrypted", [True, False])
def test_the_bytes_of_every_message_are_counted_exactly(encrypted: bool) -> None:
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router, context.socket(zmq.DEALER) as dealer:
        if encrypted:
            (server, secret), (public, own) = zmq.curve_keypair(), zmq.curve_keypair()
            router.curve_server, router.curve_publickey, router.curve_secretkey = 1, server, secret
            dealer.curve_serverkey, dealer.curve_publickey, dealer.curve_secretkey = server, public, own
        dealer.connect(f"tcp://127.0.0.1:{router.bind_to_random_port('tcp://127.0.0.1')}")
        counted, beyond = 0, set()
        for size in (0, 1, 221, 222, 223, 254, 255, 256, 100_000, 5_000_000):
            dealer.send(bytes(size))
            head, frame = router.recv_multipart(copy=False)
            counted += receive_budget.on_wire(len(frame), encrypted)
            beyond.add(received(int(head.get("__fd"))) - counted)
        assert len(beyond) == 1
        assert 0 < beyond.pop() < 1000, "the handshake"


def test_of_what_is_no_connection_nothing_has_arrived(tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as file:
        assert received(file.fileno()) == 0


# --- in one turn -----------------------------------------------------------------------------------------------------


class Busy:
    """Sockets on which a message of ``size`` bytes is always waiting, of everybody in turn."""

    def __init__(self, size: int, credentials: int = 100) -> None:
        self._data = bytes(size)
        self._who = [Credential(f"user{number}", "submitter") for number in range(credentials)]
        self.taken = 0
        self.given_up: list[bytes] = []

    def receive(self) -> tuple[bytes, Credential, bytes, Sequence[memoryview]]:
        self.taken += 1
        return b"peer", self._who[self.taken % len(self._who)], self._data, ()

    def give_up(self, peer: bytes) -> None:
        self.given_up.append(peer)

    def wake(self) -> None:
        """Nothing large is on its way to the disk."""


def read_once(busy: Busy, home: Path) -> bool:
    with closing(Journal(home)) as journal, closing(Loop(cast(Any, None), cast(Any, busy), journal)) as loop:
        return loop._read()


@pytest.mark.parametrize(("size", "taken"), [(0, loop.DRAIN), (MIB, 8), (wire.MESSAGE_LIMIT, 1)])
def test_a_turn_reads_so_many_messages_or_so_many_bytes_of_them(size: int, taken: int, tmp_path: Path) -> None:
    busy = Busy(size)
    assert not read_once(busy, tmp_path)
    assert (busy.taken, busy.given_up) == (taken, [])


def test_no_more_is_read_while_too_much_waits_to_be_handled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "HELD_BYTES", 5 * MIB)
    busy = Busy(MIB)
    assert not read_once(busy, tmp_path)
    assert busy.taken == 5


def test_whoever_says_more_than_its_share_before_it_is_handled_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fair_queue, "MESSAGES_LIMIT", 10)
    busy = Busy(0, credentials=1)
    read_once(busy, tmp_path)
    assert len(busy.given_up) == loop.DRAIN - 10


# --- over real sockets -----------------------------------------------------------------------------------------------


@pytest.fixture
def grid(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveGrid]:
    with live_grid(tmp_path_factory.mktemp("home")) as started:
        yield started


def test_a_message_in_very_many_parts_ends_its_connection_and_no_other(grid: LiveGrid) -> None:
    before = grid.client()
    with closing(SocketLine(grid.broker.line("client"), monitored=True)) as line:
        assert line.handshake() == zmq.EVENT_HANDSHAKE_SUCCEEDED
        line.socket.send_multipart([b""] * 1000)
        assert line.handshake() == zmq.EVENT_HANDSHAKE_SUCCEEDED  # it was cut off, and dialled again
        assert before.ask("ping") == grid.client().ask("ping") == {}


# Connections, messages that each sends, and bytes of a message. Nobody reads them.
FLOODING, SAID_BY_EACH, SHORT_MESSAGE = 50, 200, 50
# What ZeroMQ keeps beside a message that nobody has read. Bytes.
BESIDE = 500


@pytest.mark.alone
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says how much memory a process has")
def test_short_messages_that_nobody_has_read_take_little_memory() -> None:
    """Each comes by itself: none of them may keep the buffer into which it was received."""
    with ExitStack() as stack:
        sockets = stack.enter_context(Sockets(None))
        port = int(sockets.bind("127.0.0.1", 0).rpartition(":")[2])
        senders = [stack.enter_context(greeted(port)) for _ in range(FLOODING)]
        before, frame = resident(os.getpid()), bytes([0, SHORT_MESSAGE]) + bytes(SHORT_MESSAGE)
        for _ in range(SAID_BY_EACH):
            for sender in senders:
                sender.sendall(frame)
        assert sockets.wait(PATIENCE_S)
        assert resident(os.getpid()) - before < FLOODING * SAID_BY_EACH * (SHORT_MESSAGE + BESIDE)


def greeted(port: int) -> socket.socket:
    """A connection without encryption on which the greetings have been exchanged."""
    connection = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(OPENING)
    heard = b""
    while b"READY" not in heard:
        heard += connection.recv(4096)
    return connection


def test_connections_of_one_submitter_are_few_and_those_of_others_are_let_in(
    grid: LiveGrid, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deskgrid.broker.port.sockets.PROGRAMS_LIMIT", 3)
    clients = [grid.client() for _ in range(3)]
    one_more = grid.client(greet=False)
    one_more.send(wire.Hello(wire.VERSION, "s", "eve"))
    assert one_more.line.receive(0.5) is None
    assert grid.admin().ask("ping") == {}
    for number in range(5):
        grid.bare_worker(f"pc{number}").join()
    assert [client.ask("ping") for client in clients] == [{}, {}, {}]
