"""The broker's loop: the one file of the broker that knows ZeroMQ.

Rule 1: drain what has arrived (a bounded number), settle, commit, send: in this order, always.
Rule 2: never block on a peer. One that takes nothing any more counts as gone, and is asked to introduce itself again.
Rule 3: an unknown key is turned away in the handshake (ZAP), before any message of it is read.
"""

import logging
import platform
import secrets
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import zmq
from zmq.utils import z85

from broker import protocol as wire
from broker.desk import Desk, GridFacts, WindowsSource
from broker.joinline import JoinLine, JoinLineError, Role, parse_address
from broker.journal import Journal, JournalError
from broker.keys import KeyRing, KeysError, load_keys, write_private
from broker.sessions import Sessions
from scheduler.model import UnknownPolicy
from scheduler.policies import make_policy

log = logging.getLogger("deskgrid.broker")

# Messages taken before a pass is made and answers go out: keeps answers prompt when one peer floods.
DRAIN = 1_000
# How long the loop waits for a message before it looks at leases, at the windows file and at whether to stop.
TICK_S = 0.2
# How often the windows file is looked at.
WINDOWS_S = 1.0
# Messages that may wait for one peer. The answers to a few drains fit, should one peer have asked for all of them; a
# busy worker has a handful, so that as many as this mean that it is stuck.
HIGH_WATER = 5 * DRAIN
# TCP connections of PCs that were switched off are noticed by ZeroMQ after this long; leases decide about work.
DEAD_LINK_S = 30.0
# How long a stopping broker tries to get its goodbyes out.
LINGER_MS = 500
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_EVERYWHERE = ("0.0.0.0", "*", "[::]")
_ZAP_FRAMES = 7


class BrokerError(Exception):
    """The broker cannot start or go on; one line that says why."""


@dataclass(frozen=True, slots=True)
class BrokerOptions:
    """``listen``: HOST:PORT, port 0 for any free one. ``advertise``: the host in the join lines; None: found out."""

    home: Path
    listen: str = "0.0.0.0:7077"
    advertise: str | None = None
    policy: str = "pgs"
    policy_options: Mapping[str, object] = field(default_factory=dict)
    insecure: bool = False
    heartbeat_s: float = 2.0
    lease_s: float = 15.0


@dataclass(frozen=True, slots=True)
class Ready:
    """The broker listens."""

    address: str
    worker_line: str
    client_line: str
    home: Path


def serve(
    options: BrokerOptions,
    windows: WindowsSource,
    ready: Callable[[Ready], None],
    stopping: Callable[[], bool],
) -> None:
    """Run a broker until ``stopping()``; raises `BrokerError` when it cannot start."""
    try:
        host, port = parse_address(options.listen)
        policy = make_policy(options.policy, **options.policy_options)
    except (JoinLineError, UnknownPolicy) as error:
        raise BrokerError(str(error)) from error
    if options.insecure and host not in _LOOPBACK:
        raise BrokerError(f"--insecure is only for this machine itself: listen on 127.0.0.1, not on {host}")
    try:
        with closing(Journal(options.home)) as journal:
            keys = None if options.insecure else load_keys(options.home)
            with _Sockets(keys) as sockets:
                address = sockets.bind(host, port)
                name = options.advertise or (_own_address() if host in _EVERYWHERE else host)
                announcement = _announce(options.home, keys, name, int(address.rpartition(":")[2]))
                sessions = Sessions(Desk(_facts(options, announcement.address), journal, windows, policy))
                loop = _Loop(sessions, sockets, journal)
                ready(announcement)
                log.info("started address=%s home=%s policy=%s", announcement.address, options.home, policy.name)
                loop.run(stopping)
    except (KeysError, JournalError, OSError, zmq.ZMQError) as error:
        raise BrokerError(str(error)) from error


def _facts(options: BrokerOptions, address: str) -> GridFacts:
    return GridFacts(
        id=secrets.token_hex(6),
        python=python_minor(),
        address=address,
        encrypted=not options.insecure,
        heartbeat_s=options.heartbeat_s,
        lease_s=options.lease_s,
        wall_at_zero=time.time(),
    )


def python_minor() -> str:
    """The version of Python that functions in bags must have been made by: "3.11"."""
    return ".".join(platform.python_version_tuple()[:2])


def _own_address() -> str:
    """The address by which other machines reach this one, as far as routing tells; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # a documentation address (RFC 5737): only the route is looked up
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


def _announce(home: Path, keys: KeyRing | None, host: str, port: int) -> Ready:
    """Write the join lines into the home, where clients and workers of this machine find them."""
    lines = {}
    roles: tuple[Role, ...] = ("worker", "client")
    for role in roles:
        line = JoinLine(role, host, port, None) if keys is None else keys.line(role, host, port)
        lines[role] = str(line)
        write_private(home / f"{role}.join", f"{line}\n".encode())
    return Ready(f"{host}:{port}", lines["worker"], lines["client"], home)


class _Sockets:
    """The ROUTER that all peers connect to, and the REP that answers for their keys."""

    def __init__(self, keys: KeyRing | None) -> None:
        self._keys = keys
        self.context = zmq.Context()
        self.router = self.context.socket(zmq.ROUTER)
        self.zap: zmq.Socket[bytes] | None = None
        self.poller = zmq.Poller()
        self.poller.register(self.router, zmq.POLLIN)
        for option, value in (
            (zmq.ROUTER_MANDATORY, 1),
            (zmq.LINGER, LINGER_MS),
            (zmq.SNDHWM, HIGH_WATER),
            (zmq.RCVHWM, HIGH_WATER),
            (zmq.MAXMSGSIZE, wire.MESSAGE_LIMIT),
            (zmq.HEARTBEAT_IVL, int(DEAD_LINK_S * 1000) // 3),
            (zmq.HEARTBEAT_TIMEOUT, int(DEAD_LINK_S * 1000)),
        ):
            self.router.setsockopt(option, value)
        if keys is not None:
            self.zap = self.context.socket(zmq.REP)
            self.zap.bind("inproc://zeromq.zap.01")
            self.poller.register(self.zap, zmq.POLLIN)
            self.router.setsockopt(zmq.CURVE_SERVER, 1)
            self.router.setsockopt(zmq.CURVE_PUBLICKEY, z85.encode(keys.server[0]))
            self.router.setsockopt(zmq.CURVE_SECRETKEY, z85.encode(keys.server[1]))

    def __enter__(self) -> "_Sockets":
        return self

    def __exit__(self, *exception: object) -> None:
        self.router.close()
        if self.zap is not None:
            self.zap.close()
        self.context.term()

    def bind(self, host: str, port: int) -> str:
        """Listen; the address with the port that was taken. Raises `BrokerError`."""
        self.router.setsockopt(zmq.IPV6, int(host.startswith("[")))
        try:
            self.router.bind(f"tcp://{host}:{port or '*'}")
        except zmq.ZMQError as error:
            raise BrokerError(f"cannot listen on {host}:{port}: {error.strerror}") from error
        return self.router.getsockopt_string(zmq.LAST_ENDPOINT)

    def answer_zap(self) -> None:
        """One question of ZeroMQ about a key (RFC 27): the role it stands for, or no."""
        if self.zap is None or self._keys is None:
            return
        frames = self.zap.recv_multipart()
        role = self._keys.role_of(frames[-1]) if len(frames) == _ZAP_FRAMES and frames[5] == b"CURVE" else None
        if role is None:
            log.warning("turned-away address=%s", frames[3].decode(errors="replace"))
        verdict = (b"400", b"unknown key", b"") if role is None else (b"200", b"OK", role.encode())
        self.zap.send_multipart([frames[0], frames[1], *verdict, b""])

    def receive(self) -> tuple[bytes, Role | None, bytes] | None:
        """(peer, role by its key, message), or None when nothing waits."""
        try:
            frames = self.router.recv_multipart(zmq.NOBLOCK, copy=False)
        except zmq.Again:
            return None
        role = cast(Role, frames[0].get("User-Id")) if self._keys is not None else None
        return frames[0].bytes, role, frames[-1].bytes

    def send(self, peer: bytes, data: bytes) -> bool:
        """Whether the peer is there and takes messages."""
        try:
            self.router.send_multipart([peer, data], zmq.NOBLOCK)
        except zmq.ZMQError as error:
            if error.errno in (zmq.EHOSTUNREACH, zmq.EAGAIN):
                return False
            raise
        return True


class _Loop:
    """Drain, settle, commit, send."""

    def __init__(self, sessions: Sessions, sockets: _Sockets, journal: Journal) -> None:
        self._sessions = sessions
        self._sockets = sockets
        self._journal = journal
        self._start = time.monotonic()
        self._windows_at = 0.0

    def _now(self) -> float:
        return time.monotonic() - self._start

    def run(self, stopping: Callable[[], bool]) -> None:
        self._sessions.restore(self._now())
        self._look_at_windows()
        while not stopping():
            ready = dict(self._sockets.poller.poll(int(TICK_S * 1000)))
            if self._sockets.zap in ready:
                self._sockets.answer_zap()
            if self._sockets.router in ready:
                self._drain()
            if self._now() >= self._windows_at:
                self._look_at_windows()
            self._finish(self._sessions.settle(self._now()))
        self._finish(self._sessions.farewell("the broker stops; it can be started again on the same home"))
        log.info("stopped")

    def _drain(self) -> None:
        for _ in range(DRAIN):
            received = self._sockets.receive()
            if received is None:
                return
            peer, role, data = received
            try:
                message = wire.decode(data)
            except wire.ProtocolError as error:
                log.warning("garbage bytes=%d reason=%r", len(data), str(error))
                self._send(peer, wire.Refused(f"that is not a message of deskgrid {wire.VERSION}: {error}"))
                continue
            if role is None:
                role = "worker" if isinstance(message, wire.FROM_WORKER) else "client"
            self._sessions.receive(peer, role, message, self._now())

    def _finish(self, outbox: list[tuple[bytes, wire.Message]]) -> None:
        self._journal.commit()
        for notice in self._sessions.desk.take_notices():
            log.info("%s", notice)
        for peer, message in outbox:
            self._send(peer, message)

    def _send(self, peer: bytes, message: wire.Message) -> None:
        if not self._sockets.send(peer, wire.encode(message)):
            self._sessions.gone(peer, self._now())

    def _look_at_windows(self) -> None:
        self._windows_at = self._now() + WINDOWS_S
        try:
            self._sessions.workers.refresh_windows()
        except ValueError as error:
            log.error("windows-file error=%r the last good one stays in force", str(error))
