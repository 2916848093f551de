"""Whoever connects to the port, and whatever an authenticated peer sends, the broker goes on serving the others."""

import random
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import msgpack
import pytest
import zmq
from zmq.utils import z85

from deskgrid import wire
from deskgrid.broker.auth.keys import KeyRing
from deskgrid.broker.port import tcp_info
from deskgrid.broker.port.sockets import Sockets
from deskgrid.wire.joinline import JoinLine, Keys, Side
from tests.live import LiveGrid, live_grid
from tests.peers import BareWorker, Peer, SocketLine
from tests.waiting import PATIENCE_S, eventually

# ZMTP 3.1: signature, version, mechanism NULL, as client; then filler.
GREETING = b"\xff" + bytes(8) + b"\x7f" + b"\x03\x01" + b"NULL".ljust(20, b"\0") + b"\0" + bytes(31)


@pytest.fixture(scope="module")
def grid(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveGrid]:
    """One broker for all that is thrown at it."""
    with live_grid(tmp_path_factory.mktemp("home")) as started:
        yield started


@pytest.fixture
def serves(grid: LiveGrid) -> Iterator[Callable[[], bool]]:
    """Whether the broker still answers, over a connection made before and over a new one."""
    before = grid.client()
    yield lambda: before.ask("bags") == grid.client().ask("bags")
    assert not grid.broker.ended


def raw(grid: LiveGrid) -> socket.socket:
    return socket.create_connection(("127.0.0.1", grid.broker.line("client").port), PATIENCE_S)


# --- strangers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n",
        b"GET / HTTP/1.1\r\nHost: lab-server\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
        b"SSH-2.0-OpenSSH_9.6\r\n",
        GREETING[:10],
        GREETING[:33],
        GREETING,
        GREETING + b"\x04\x19\x05READY" + bytes(19),
        GREETING.replace(b"NULL\0", b"CURVE") + b"\x04\xc8\x05HELLO" + bytes(194),
        GREETING.replace(b"NULL\0", b"CURVE") + b"\x06" + b"\xff" * 8 + bytes(1000),
        b"\xff" * 100_000,
    ],
)
def test_garbage_on_the_port_harms_nobody(grid: LiveGrid, serves: Callable[[], bool], data: bytes) -> None:
    with raw(grid) as stranger:
        with suppress(OSError):  # it may hang up on us
            stranger.sendall(data)
        assert serves()
    assert serves()


def test_random_bytes_on_many_connections_harm_nobody(grid: LiveGrid, serves: Callable[[], bool]) -> None:
    dice = random.Random(20)
    strangers = [raw(grid) for _ in range(50)]
    for stranger in strangers:
        with suppress(OSError):  # it may hang up on us
            stranger.sendall(dice.randbytes(dice.randint(1, 5000)))
    assert serves()
    for stranger in strangers:
        stranger.close()
    assert serves()


# --- wrong keys ------------------------------------------------------------------------------------------------------


def fresh_pair() -> tuple[bytes, bytes]:
    """A key pair that the broker has never seen."""
    public, secret = zmq.curve_keypair()
    return z85.decode(public), z85.decode(secret)


def with_unknown_pair(keys: Keys) -> Keys:
    return Keys(keys.server, *fresh_pair())


def with_other_server(keys: Keys) -> Keys:
    return Keys(fresh_pair()[0], keys.public, keys.secret)


def with_secret_of_another(keys: Keys) -> Keys:
    return Keys(keys.server, keys.public, fresh_pair()[1])


def without_keys(keys: Keys) -> None:
    return None


@pytest.mark.parametrize(
    ("change", "outcomes"),
    [
        (with_unknown_pair, {zmq.EVENT_HANDSHAKE_FAILED_AUTH}),
        (with_other_server, {zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL}),
        (with_secret_of_another, {zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL}),
        (without_keys, {zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL, zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL}),
    ],
)
@pytest.mark.parametrize("side", ["worker", "client"])
def test_a_wrong_key_is_turned_away_in_the_handshake(
    grid: LiveGrid,
    serves: Callable[[], bool],
    side: Side,
    change: Callable[[Keys], Keys | None],
    outcomes: set[int],
) -> None:
    good = grid.broker.line(side)
    assert good.keys is not None
    line = SocketLine(JoinLine(side, good.host, good.port, change(good.keys)), monitored=True)
    with closing(line):
        with suppress(zmq.Again):  # it may have been turned away already
            line.socket.send(wire.encode(wire.Hello(wire.VERSION, "s", "eve")), zmq.NOBLOCK)
        assert line.handshake(seconds=5.0) in outcomes
        assert serves()
        assert line.receive(0.0) is None


# --- authenticated peers ---------------------------------------------------------------------------------------------

FROM_WORKERS: tuple[wire.Message, ...] = (
    wire.Heartbeat(None, ()),
    wire.Finished(()),
    wire.Leave("", True, False, (), ()),
    wire.Returned(()),
    wire.Fetch("d" * 64),
)
FROM_CLIENTS: tuple[wire.Message, ...] = (
    wire.Hello(wire.VERSION, "s", "eve"),
    wire.Watch(1, "b", 0),
    wire.Ask(1, "bags"),
    wire.Blob("d" * 64, b""),
    wire.Goodbye(""),
)
FROM_THE_BROKER: tuple[wire.Message, ...] = (
    wire.Rejoin(),
    wire.Taken(()),
    wire.Greeting("", "b"),
    wire.Stop(()),
)


@pytest.mark.parametrize(
    ("side", "message"),
    [
        *(("client", message) for message in (*FROM_WORKERS, *FROM_THE_BROKER)),
        *(("worker", message) for message in (*FROM_WORKERS, *FROM_CLIENTS, *FROM_THE_BROKER)),
    ],
)
def test_a_key_is_good_for_its_role_only(grid: LiveGrid, side: Side, message: wire.Message) -> None:
    peer = grid.peer(grid.broker.line(side))
    peer.send(message)
    role = {"worker": "a lab's line", "client": "a submitter"}[side]
    assert peer.refusal() == f"{role} may not send {type(message).__name__}"


@pytest.mark.parametrize("message", [*FROM_CLIENTS, *FROM_THE_BROKER], ids=lambda message: type(message).__name__)
def test_the_key_of_a_pc_is_good_for_a_worker_only(grid: LiveGrid, message: wire.Message) -> None:
    peer = grid.peer(grid.pc_line("pc1"))
    peer.send(message)
    assert peer.refusal() == f"a worker may not send {type(message).__name__}"


def test_a_client_cannot_join_as_a_worker(grid: LiveGrid) -> None:
    peer = BareWorker(SocketLine(grid.broker.line("client")))
    with closing(peer):
        peer.send(peer.introduction())
        assert peer.refusal() == "a submitter may not send Join"
    assert grid.client().ask("status")["workers"] == []


@pytest.mark.parametrize("side", ["worker", "client"])
@pytest.mark.parametrize("frames", [[b""], [b"garbage"], [b"\xc1" * 1000], [b"", b""], [b"a", b"b", b"\x90"]])
def test_garbage_from_an_authenticated_peer_is_answered_and_harms_nobody(
    grid: LiveGrid, serves: Callable[[], bool], side: Side, frames: list[bytes]
) -> None:
    line = SocketLine(grid.broker.line(side))
    peer = Peer(line)
    with closing(peer):
        line.socket.send_multipart(frames)
        assert f"not a message of deskgrid {wire.VERSION}" in peer.refusal()
        assert serves()


def test_a_client_that_sends_garbage_can_go_on(grid: LiveGrid) -> None:
    client = grid.client()
    client.line.send(b"garbage")
    client.refusal()
    assert client.ask("bags") == {"bags": [], "after": None}


def test_a_message_beyond_the_limit_ends_its_connection_and_no_other(
    grid: LiveGrid, serves: Callable[[], bool]
) -> None:
    line = SocketLine(grid.broker.line("client"), monitored=True)
    with closing(line):
        assert line.handshake() == zmq.EVENT_HANDSHAKE_SUCCEEDED
        line.send(bytes(wire.MESSAGE_LIMIT + 1))
        assert line.handshake() == zmq.EVENT_HANDSHAKE_SUCCEEDED  # it was cut off, and dialled again
        assert line.receive(0.0) is None
        assert serves()


def test_a_descriptor_that_another_connection_has_by_now_is_not_cut() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as far:
        near, other_end = server.accept()
        with near:
            far.settimeout(PATIENCE_S)
            tcp_info.cut(near.fileno(), (other_end[0], other_end[1] + 1))
            near.send(b"on")
            assert far.recv(10) == b"on"
            tcp_info.cut(near.fileno(), other_end)
            assert far.recv(10) == b""


@pytest.mark.skipif(sys.platform == "win32", reason="no such sockets there")
def test_a_local_connection_has_an_address_too_and_can_be_cut(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as far:
        server.bind(str(tmp_path / "socket"))
        server.listen()
        far.connect(str(tmp_path / "socket"))
        near, _ = server.accept()
        with near:
            assert tcp_info.address(near.fileno()) == (str(tmp_path / "socket"), 0)
            assert tcp_info.received(near.fileno()) == 0
            tcp_info.cut(near.fileno(), (str(tmp_path / "socket"), 0))
            assert far.recv(10) == b""


@pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="sockets without ports as on Unix")
def test_a_descriptor_that_a_socket_without_a_port_has_by_now_is_nobodys_and_is_not_cut() -> None:
    near, far = socket.socketpair()
    with near, far:
        assert tcp_info.address(near.fileno()) == ("", 0)
        tcp_info.cut(near.fileno(), ("", 0))
        near.send(b"on")
        assert far.recv(10) == b"on"


def test_a_flood_of_questions_is_answered_in_order(grid: LiveGrid) -> None:
    client = grid.client()
    for request in range(3000):
        client.send(wire.Ask(request, "bags"))
    assert [client.expect(wire.Answer).request for _ in range(3000)] == list(range(3000))


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("0.0.9", "you are older than this broker: it speaks wire format"),
        ("0.9.0+wire99.gabc", "this broker is older than you: it speaks wire format"),
    ],
)
@pytest.mark.parametrize(("side", "kind"), [("worker", wire.Join), ("client", wire.Hello), ("worker", wire.Enrol)])
def test_a_peer_whose_introduction_has_other_fields_hears_who_is_older(
    grid: LiveGrid, side: Side, kind: type[wire.Message], version: str, said: str
) -> None:
    line = SocketLine(grid.broker.line(side))
    peer = Peer(line)
    with closing(peer):
        line.socket.send(msgpack.packb([wire.MESSAGES.index(kind), version, [["field", "of another version"]]]))
        assert peer.refusal().startswith(said)


def test_another_version_is_refused_by_name_on_both_sides(grid: LiveGrid) -> None:
    worker, client = grid.bare_worker(), grid.client(greet=False)
    worker.send(worker.introduction(version="0.0.9"))
    client.send(wire.Hello("0.0.9", "s", "ada"))
    for peer in (worker, client):
        assert peer.refusal().startswith("you are older than this broker: it speaks wire format")


@pytest.mark.parametrize("slots", [0, 2**40])
def test_a_worker_with_an_impossible_number_of_slots_is_refused(grid: LiveGrid, slots: int) -> None:
    worker = grid.bare_worker()
    worker.send(worker.introduction(slots=slots))
    assert f"Join.slots: not an integer from 1 to 1024: {slots}" in worker.refusal()


def test_who_connects_while_another_is_let_in_is_heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first message must not be taken for that of an earlier connection on the same descriptor."""
    keys = KeyRing(tmp_path)
    heard: set[bytes] = set()
    with ExitStack() as stack:
        sockets = stack.enter_context(Sockets(keys))
        host, _, port = sockets.bind("127.0.0.1", 0).removeprefix("tcp://").partition(":")
        lines: list[SocketLine] = []

        def connect() -> None:
            lines.append(stack.enter_context(closing(SocketLine(keys.line("client", host, int(port))))))
            lines[-1].send(b"%d" % len(lines))

        answer = zmq.Socket.send_multipart

        def send_multipart(its: Any, *args: Any, **options: Any) -> Any:
            answer(its, *args, **options)
            if sockets._zap is not None and its is sockets._zap and len(lines) == 1:
                connect()
                assert sockets._zap.poll(int(1000 * PATIENCE_S))

        connect()
        monkeypatch.setattr(zmq.Socket, "send_multipart", send_multipart)

        def both_are_heard() -> bool:
            arrived = sockets.wait(0.01)
            sockets.tend(0.0)
            while arrived and (message := sockets.receive()) is not None:
                heard.add(message[2])
            return heard == {b"1", b"2"}

        assert eventually(both_are_heard), f"heard are {heard}"


def test_what_was_sent_before_a_key_was_revoked_and_is_read_after_it_counts_no_more(tmp_path: Path) -> None:
    keys = KeyRing(tmp_path)
    read: list[tuple[bytes, str | None]] = []
    with Sockets(keys) as sockets:
        host, _, port = sockets.bind("127.0.0.1", 0).removeprefix("tcp://").partition(":")
        with closing(SocketLine(keys.line("client", host, int(port)))) as line:

            def reads_one() -> bool:
                arrived = sockets.wait(0.01)
                sockets.tend(0.0)
                if arrived and (message := sockets.receive()) is not None:
                    _, who, data, _ = message
                    read.append((data, None if who is None else who.name))
                    return True
                return False

            line.send(b"before")
            assert eventually(reads_one)
            line.send(b"after")
            keys.revoke("client")
            assert eventually(reads_one)
    assert read == [(b"before", "client"), (b"after", None)]
