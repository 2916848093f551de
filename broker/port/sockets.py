"""The broker's sockets: the ROUTER that all peers connect to, the REP that answers for their keys, and the monitor.

Rule 1: an unknown key is turned away in the handshake (ZAP), before any message is read. The rights of a connection are
looked up by its key once, and again before anything is read after keys have changed. So a revoked key is invalid at
once.
Rule 2: nothing here blocks or grows without bound: connections, messages not read, bytes not taken by peers. The limits
are below, and in `connections`, `receive_budget` and `send_queue` beside this file.
"""

import logging
import socket
import struct
from collections.abc import Sequence
from contextlib import suppress
from typing import cast

import zmq
from zmq.utils import z85

from deskgrid import process_memory, wire
from deskgrid.broker.auth.keys import KeyRing
from deskgrid.broker.auth.roles import ANYBODY, Credential
from deskgrid.broker.port import receive_budget, tcp_info
from deskgrid.broker.port.allowed import connections_allowed
from deskgrid.broker.port.connections import PC_LIMIT, PROGRAMS_LIMIT, Connection, Connections
from deskgrid.broker.port.send_queue import (
    ALL_WAITING_LIMIT,
    PROGRAMS_WAITING_LIMIT,
    WAITING_LIMIT,
    OutstandingBytes,
    Parts,
    SendQueue,
    SendResult,
    size_of,
)
from deskgrid.wire.joinline import endpoint_of

log = logging.getLogger("deskgrid.broker")

# ZeroMQ may take in any number of messages that we have not read. With a limit, libzmq 4.3.5 stops reading a connection
# that reaches it, and aborts the whole process if that connection then ends while a ping waits (libzmq issue 4364).
# `deskgrid.broker.port.fair_queue` and `deskgrid.broker.port.receive_budget` limit how much may wait from one peer.
RECEIVE_HIGH_WATER = 0
# libzmq's context option ZMQ_ZERO_COPY_RECV, which pyzmq does not name. It is on by default: an unread message then
# keeps the whole buffer into which it was received. So a message of 50 bytes takes up to 5 KB, which nobody counts.
ZERO_COPY_RECV = 10
# Small messages that ZeroMQ keeps for one peer. The others wait in `SendQueue`, which counts bytes. Together with
# `LARGE` this bounds what ZeroMQ keeps for all connections of one submitter: 128 MiB.
SEND_HIGH_WATER = 16
# ZeroMQ gets messages of at least this size one at a time for each peer, so that it never holds much.
LARGE = 32 * 1024
# While `PROGRAMS_ROOM` bytes wait for all programs of a submitter or an admin together, no more messages are made for
# them. While `ALL_ROOM` bytes wait in all, no more messages are made for any peer that has something waiting.
PROGRAMS_ROOM = PROGRAMS_WAITING_LIMIT // 4
ALL_ROOM = ALL_WAITING_LIMIT // 2
# After this long ZeroMQ notices that a PC was switched off. Leases decide about its work.
DEAD_LINK_S = 30.0
# How long a stopping broker tries to send its goodbyes.
LINGER_MS = 500
# How often messages are offered again to slow peers. Seconds.
FLUSH_S = 0.005
# Questions about keys answered in one turn of the loop.
ZAP_DRAIN = 100
# Refused handshakes are logged at most once in this time, so that they do not fill the disk. Seconds.
TELL_S = 1.0
_ZAP_FRAMES = 7
KEY_DIGITS = 64
# Before the second and the third message of a turn we ask ZeroMQ whether one waits: that costs a fraction of the
# exception that says there is none. After the third, more messages are likely, and asking each time would cost more.
FEW = 3
# Plain numbers, used for each message: the operators of ZeroMQ's enumeration take a microsecond each.
_EVENTS, _POLLIN, _NOBLOCK, _MORE = (int(n) for n in (zmq.EVENTS, zmq.POLLIN, zmq.NOBLOCK, zmq.NOBLOCK | zmq.SNDMORE))
# Frames of the largest message: each large payload has short frames before it and at its end. Only a foreign program
# sends more frames, and other peers would wait while these are read.
FRAMES_LIMIT = 1 + 4 * wire.MESSAGE_LIMIT // wire.CHUNK_BYTES


class Sockets:
    """``keys``: None without encryption; then anybody may do everything."""

    def __init__(self, keys: KeyRing | None) -> None:
        """Raises `deskgrid.broker.port.allowed.TooFewFiles`."""
        process_memory.keep_freed()
        self._keys = keys
        self._known_changes = keys.changes if keys is not None else 0
        self._now = 0.0
        # How often a message was asked for since the last wait.
        self._asked = 0
        self._log_at = 0.0
        self._unknown_keys = 0
        # How many handshakes have succeeded. Each connection has the number of its own handshake, beside its key.
        self._handshakes = 0
        # Whether the monitor has something to report.
        self._monitor_ready = False
        self._look_at = 0.0
        # The least memory that this process has held since the last time when few bytes were unread.
        self._held = 0.0
        # Peers that were found to be gone, for the next `tend`.
        self._gone: list[bytes] = []
        self._outstanding = OutstandingBytes()
        self._send_queue = SendQueue(self._hand_over, self._outstanding)
        # Peers for which ZeroMQ has a large message: the tracker that tells when it has been sent, and its size.
        self._large: dict[bytes, tuple[zmq.MessageTracker, int]] = {}
        # The other end of each connection, by its descriptor, which the next connection may have.
        self._other_ends: dict[int, tcp_info.Address] = {}
        self.connections = Connections(self._cut, connections_allowed())
        self.context = zmq.Context()
        self.context.set(ZERO_COPY_RECV, 0)
        self.router = self.context.socket(zmq.ROUTER)
        self._monitor = self.router.get_monitor_socket(zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED)
        self._zap: zmq.Socket[bytes] | None = None
        self._poller = zmq.Poller()
        self._set_options()
        if keys is not None:
            self._encrypt(keys)
        for each in filter(None, (self.router, self._monitor, self._zap)):
            self._poller.register(each, zmq.POLLIN)
        self._wake, self._woken = socket.socketpair()
        self._wake.setblocking(False)
        self._poller.register(self._woken, zmq.POLLIN)

    def _set_options(self) -> None:
        for option, value in (
            (zmq.ROUTER_MANDATORY, 1),
            (zmq.LINGER, LINGER_MS),
            (zmq.SNDHWM, SEND_HIGH_WATER),
            (zmq.RCVHWM, RECEIVE_HIGH_WATER),
            (zmq.MAXMSGSIZE, wire.SAID_BYTES),
            (zmq.HEARTBEAT_IVL, int(DEAD_LINK_S * 1000) // 3),
            (zmq.HEARTBEAT_TIMEOUT, int(DEAD_LINK_S * 1000)),
        ):
            self.router.setsockopt(option, value)

    def _encrypt(self, keys: KeyRing) -> None:
        self._zap = self.context.socket(zmq.REP)
        self._zap.bind("inproc://zeromq.zap.01")
        self.router.setsockopt(zmq.CURVE_SERVER, 1)
        self.router.setsockopt(zmq.CURVE_PUBLICKEY, z85.encode(keys.server[0]))
        self.router.setsockopt(zmq.CURVE_SECRETKEY, z85.encode(keys.server[1]))

    def __enter__(self) -> "Sockets":
        return self

    def __exit__(self, *exception: object) -> None:
        self._wake.close()
        self._woken.close()
        self.router.disable_monitor()
        self._monitor.close()
        self.router.close()
        if self._zap is not None:
            self._zap.close()
        self.context.term()

    def bind(self, host: str, port: int) -> str:
        """Listen, and return the address with the port that was taken. Raises `zmq.ZMQError`."""
        self.router.setsockopt(zmq.IPV6, int(host.startswith("[")))
        self.router.bind(endpoint_of(host, port or "*"))
        return self.router.getsockopt_string(zmq.LAST_ENDPOINT)

    # --- once in each turn -------------------------------------------------------------------------------------------

    def wait(self, seconds: float) -> bool:
        """Wait at most ``seconds`` for something to do, and return whether there are messages."""
        ready = dict(self._poller.poll(int(1000 * (FLUSH_S if self.sending else seconds))))
        if self._woken.fileno() in ready:
            self._woken.recv(4096)
        if self._zap in ready:
            self._answer_zap()
        self._monitor_ready = self._monitor in ready
        self._asked = 0
        return self.router in ready

    @property
    def sending(self) -> bool:
        """Whether messages wait until peers take them."""
        return bool(self._send_queue or self._large)

    def wake(self) -> None:
        """End a `wait`; for any thread."""
        with suppress(OSError):  # enough wake-ups wait already, or the sockets are closed
            self._wake.send(b"\0")

    def tend(self, now: float) -> list[bytes]:
        """Look after the connections, and return the peers that have gone since the last call."""
        self._now = now
        if self._keys is not None and self._keys.changes != self._known_changes:
            self._known_changes = self._keys.changes
            self.connections.look_up(self._keys.who, now)
        if self._monitor_ready or now >= self._look_at:
            self._gone += self._follow_monitor()
        if now >= self._look_at:
            self._look_at = now + receive_budget.LOOK_S
            self._bound_backlog(now)
        gone, self._gone = self._gone, []
        self.connections.expire(now)
        for peer in [peer for peer, (tracker, _) in self._large.items() if tracker.done]:
            self._large_taken(peer)
        gone += self._send_queue.flush()
        for peer in self._send_queue.too_many():
            self._cut_off(peer)
            gone.append(peer)
        self._log_turned_away(now)
        return gone

    def _follow_monitor(self) -> list[bytes]:
        gone = []
        while self._monitor.poll(0):
            event, fd = struct.unpack("=Hi", self._monitor.recv_multipart()[0])
            if event == zmq.EVENT_ACCEPTED:
                self._other_ends[fd] = other_end = tcp_info.address(fd)
                self.connections.accepted(fd, other_end[0], self._now, self._handshakes)
            elif (peer := self.connections.ended(fd)) is not None:
                self._forget(peer)
                gone.append(peer)
        return gone

    def _bound_backlog(self, now: float) -> None:
        """Cut off peers with too many unread bytes; these are in this process, so check only if it has grown."""
        held, little = (
            process_memory.held(),
            min(receive_budget.BACKLOG_LIMIT, receive_budget.CREDENTIAL_LIMIT) * receive_budget.RELIEF,
        )
        self._held = min(self._held, held)
        if held < self._held + little:
            return
        waiting = self.connections.backlogs(tcp_info.received, now)
        found = receive_budget.surplus(waiting)
        if sum(each.size for each in waiting) < little:
            self._held = held  # something else has made the process grow
        for each in found:
            if (peer := self.connections.flooded(each.fd)) is not None:
                self._forget(peer)
                self._gone.append(peer)
        if found:
            who = ANYBODY if self._keys is None else self._keys.who(found[0].key)
            size = sum(each.size for each in found) // 2**20
            row = "-" if who is None else who.name, found[0].address, len(found), size
            log.warning("receive-limit first-of=%s address=%s cut-off=%d MiB=%d", *row)

    def _forget(self, peer: bytes) -> None:
        self._send_queue.drop(peer)
        self._large_taken(peer)

    def _large_taken(self, peer: bytes) -> None:
        """ZeroMQ has no large message for this peer any more."""
        _, size = self._large.pop(peer, (None, 0))
        if size:
            self._outstanding.add(peer, self._outstanding.key_of(peer), -size)

    def _log_turned_away(self, now: float) -> None:
        if (self._unknown_keys or self.connections.turned_away) and now >= self._log_at:
            self._log_at = now + TELL_S
            log.warning("turned-away unknown-keys=%d too-many=%d", self._unknown_keys, self.connections.turned_away)
            self._unknown_keys = self.connections.turned_away = 0

    def _answer_zap(self) -> None:
        """Answer ZeroMQ's questions about keys (RFC 27): a connection has a known key, or is turned away."""
        assert self._zap is not None
        assert self._keys is not None
        for _ in range(ZAP_DRAIN):
            if not self._zap.poll(0):
                return
            frames = self._zap.recv_multipart()
            # A connection is accepted before its key is asked about. So it is recorded now, even if it came while the
            # previous question was answered, and with a count of handshakes below the number of its own.
            self._gone += self._follow_monitor()
            curve = len(frames) == _ZAP_FRAMES and frames[5] == b"CURVE"
            known = curve and self._keys.who(frames[-1]) is not None
            if not known:
                self._unknown_keys += 1
                log.debug("turned-away address=%s", frames[3].decode(errors="replace"))
            self._handshakes += known
            user = f"{frames[-1].hex()}{self._handshakes:x}".encode()
            verdict = (b"200", b"OK", user) if known else (b"400", b"unknown key", b"")
            self._zap.send_multipart([frames[0], frames[1], *verdict, b""])

    # --- messages ----------------------------------------------------------------------------------------------------

    def receive(self) -> tuple[bytes, Credential | None, bytes, Sequence[memoryview]] | None:
        """(peer, credential, message, the frames behind it); None when nothing waits.

        Ignore a message without a credential: its key was revoked, or its peer was cut off.
        """
        self._asked += 1
        few = 1 < self._asked <= FEW
        if few and not cast(int, self.router.getsockopt(_EVENTS)) & _POLLIN:
            self.connections.all_read()
            return None
        try:
            head = self.router.recv(_NOBLOCK, copy=False)
        except zmq.Again:
            self.connections.all_read()
            return None
        first = frame = self.router.recv(copy=False)  # once its head has arrived, the whole message has
        chunks: list[memoryview] = []
        encrypted = self._keys is not None
        size, whole, count = receive_budget.on_wire(len(frame), encrypted), 0, 1
        while frame.more:
            frame = self.router.recv(copy=False)
            size += receive_budget.on_wire(len(frame), encrypted)
            whole, count = whole + len(frame), count + 1
            if count <= FRAMES_LIMIT:
                chunks.append(frame.buffer)
        peer = head.bytes
        user = cast(str, head.get("User-Id")) if encrypted else ""
        connection = self.connections.find(peer, user) or self._introduce(peer, head, user)
        if connection is None:
            return peer, None, b"", ()
        connection.read += size
        if count > FRAMES_LIMIT or whole > wire.MESSAGE_LIMIT:
            self.give_up(peer)
            return peer, None, b"", ()
        return peer, None if connection.dismissed else connection.who, first.bytes, chunks

    def _cut(self, fd: int) -> None:
        """End a connection. If it has ended by itself, and we have not seen that yet, nobody else is cut off."""
        tcp_info.cut(fd, self._other_ends[fd])

    def give_up(self, peer: bytes) -> None:
        """Cut a peer off now; the next `tend` reports it as gone."""
        self._cut_off(peer)
        self._gone.append(peer)

    def _cut_off(self, peer: bytes) -> None:
        self.connections.cut_off(peer)
        self._forget(peer)

    def dismiss(self, peer: bytes) -> None:
        """Read nothing more from a peer, and cut it off when it has had a moment to read the last message."""
        self.connections.dismiss(peer, self._now)

    def who(self, peer: bytes) -> Credential | None:
        """The credential of a peer; None when it is gone, or its key was revoked."""
        connection = self.connections.of(peer)
        return None if connection is None else connection.who

    def _introduce(self, peer: bytes, frame: zmq.Frame, user: str) -> Connection | None:
        # The monitor reports a connection, and the end of an earlier one with the same descriptor, before its first
        # message.
        self._gone += self._follow_monitor()
        fd = int(frame.get("__fd"))
        if self._keys is None:
            return self.connections.heard(peer, fd, b"", who=ANYBODY)
        key, handshake = bytes.fromhex(user[:KEY_DIGITS]), int(user[KEY_DIGITS:], 16)
        who = self._keys.who(key)
        most = PC_LIMIT if who is None or who.role == "worker" else PROGRAMS_LIMIT
        return self.connections.heard(peer, fd, key, most, handshake, user=user, who=who)

    def send(self, peer: bytes, parts: Parts) -> bool:
        """Send now or later; False when the peer is gone, or is cut off because too much waits for it."""
        connection = self.connections.of(peer)
        if connection is not None:
            most = PROGRAMS_WAITING_LIMIT if connection.is_program else WAITING_LIMIT
            if self._send_queue.put(peer, parts, connection.key, most):
                return True
        self._cut_off(peer)
        return False

    def waiting(self, peer: bytes) -> int:
        """Bytes that wait for a peer, not counting small messages that ZeroMQ has."""
        return self._outstanding.of_peer(peer)

    def crowded(self, peer: bytes) -> bool:
        """Whether too many bytes wait to make more for a peer: for the programs of its credential, or in all."""
        connection = self.connections.of(peer)
        if connection is None:
            return False
        if connection.is_program and self._outstanding.of_key[connection.key] >= PROGRAMS_ROOM:
            return True
        return self._outstanding.total >= ALL_ROOM and self._outstanding.of_peer(peer) > 0

    def _hand_over(self, peer: bytes, parts: Parts) -> SendResult:
        size = size_of(parts)
        if size >= LARGE and peer in self._large and not self._large[peer][0].done:
            return SendResult.WOULD_BLOCK
        frames = wire.frames_of(parts)
        try:
            self.router.send(peer, _MORE)
            for frame in frames[:-1]:
                self.router.send(frame, _MORE, copy=False)
            if size >= LARGE:
                tracker = self.router.send(frames[-1], _NOBLOCK, copy=False, track=True)
                self._large_taken(peer)
                self._large[peer] = tracker, size
                connection = self.connections.of(peer)
                self._outstanding.add(peer, b"" if connection is None else connection.key, size)
            else:
                self.router.send(frames[-1], _NOBLOCK)
        except zmq.ZMQError as error:
            if error.errno == zmq.EAGAIN:
                return SendResult.WOULD_BLOCK
            if error.errno == zmq.EHOSTUNREACH:
                return SendResult.GONE
            raise
        return SendResult.SENT
