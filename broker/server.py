"""The broker's loop. Its sockets are in `broker.sockets`.

Rule 1: drain what has arrived (a bounded number), settle, hand out work, commit, send: in this order, always. A message
with large payloads is heard when these are files, some turns later.
Rule 2: never block on a peer. What a slow one does not take waits for it, within bounds; others do not wait for it.
"""

import errno
import logging
import platform
import secrets
import socket
import sqlite3
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import zmq

from broker import protocol as wire
from broker.clients import RECEIPT_S
from broker.desk import Desk, GridFacts, Leaving, WindowsSource
from broker.files import Damaged
from broker.intake import Intake
from broker.joinline import JoinLine, JoinLineError, Side, parse_address
from broker.journal import NAME, Durability, Journal, JournalError, JournalFull
from broker.keys import KeyRing, KeysError
from broker.private import write_private
from broker.sessions import Sessions
from broker.sockets import Sockets, TooFewFiles
from scheduler.model import UnknownPolicy
from scheduler.policies import DEFAULT, make_policy

log = logging.getLogger("deskgrid.broker")

# Messages taken before a pass is made and answers go out: keeps answers prompt when one peer floods.
DRAIN = 1_000
# Bytes of them, likewise. The largest message of all is one turn.
DRAIN_BYTES = 64 * 2**20
# How long the loop waits for a message before it looks at leases, at the windows file and at whether to stop. What says
# nothing new, as nearly every heartbeat, is settled no sooner than that: a thousand workers send 500 in a second.
TICK_S = 0.2
# Frames that are no messages make at most one line in the log in so long, lest a peer fill the disk with them. Seconds.
GARBAGE_S = 1.0
# How often the windows file is looked at.
WINDOWS_S = 1.0
# Heartbeats that come so close on each other are taken several at a time, for which the loop rests a little when it has
# heard nothing else: to be woken costs more than to hear one. With fewer than a hundred workers it never rests, and
# with more of them only the first message after a silence waits. Seconds.
OFTEN_S = 0.02
REST_S = 0.03
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_EVERYWHERE = ("0.0.0.0", "*", "[::]")


class BrokerError(Exception):
    """The broker cannot start or go on; one line that says why."""


@dataclass(frozen=True, slots=True)
class BrokerOptions:
    """``listen``: HOST:PORT, port 0 for any free one. ``advertise``: the host in the join lines; None: found out.

    ``durability``: what commits survive, as `broker.journal` has it. ``keep_days``: finished bags are forgotten so long
    after they ended; None: never.
    """

    home: Path
    listen: str = "0.0.0.0:7077"
    advertise: str | None = None
    policy: str = DEFAULT
    policy_options: Mapping[str, object] = field(default_factory=dict)
    insecure: bool = False
    heartbeat_s: float = 2.0
    lease_s: float = 15.0
    durability: Durability = "power"
    keep_days: float | None = None


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
        with closing(Journal(options.home, options.durability)) as journal:
            keys = None if options.insecure else KeyRing(options.home)
            with Sockets(keys) as sockets:
                address = _bind(sockets, host, port)
                name = options.advertise or (_own_address() if host in _EVERYWHERE else host)
                announcement = _announce(options.home, keys, name, int(address.rpartition(":")[2]))
                desk = Desk(_facts(options, announcement.address), journal, windows, policy, keys)
                sessions = Sessions(desk, options.keep_days)
                loop = _Loop(sessions, sockets, journal)
                with closing(loop):
                    loop.restore()
                    ready(announcement)
                    log.info("started address=%s home=%s policy=%s", announcement.address, options.home, policy.name)
                    loop.run(stopping)
    except Damaged as error:
        raise BrokerError(f"{options.home} is damaged: {error}; put a copy of it in its place") from error
    except (KeysError, JournalError, TooFewFiles, OSError, zmq.ZMQError) as error:
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            raise BrokerError(f"the disk of {options.home} is full: the join lines cannot be written") from error
        raise BrokerError(str(error)) from error
    except sqlite3.DatabaseError as error:
        raise BrokerError(f"{options.home / NAME} cannot be read any more: {error}") from error


def _bind(sockets: Sockets, host: str, port: int) -> str:
    try:
        return sockets.bind(host, port)
    except zmq.ZMQError as error:
        raise BrokerError(f"cannot listen on {host}:{port}: {error.strerror}") from error


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
    sides: tuple[Side, ...] = ("worker", "client")
    if keys is None:
        lines = [JoinLine(side, host, port, None) for side in sides]
        for name, line in zip(("worker", "client", "admin"), (*lines, lines[1]), strict=True):
            write_private(home / f"{name}.join", f"{line}\n".encode())
    else:
        lines = [keys.line(side, host, port) for side in sides]
        keys.announce(host, port)
    return Ready(f"{host}:{port}", str(lines[0]), str(lines[1]), home)


class _Loop:
    """Drain, settle, hand out, commit, send."""

    def __init__(self, sessions: Sessions, sockets: Sockets, journal: Journal) -> None:
        self._sessions = sessions
        self._sockets = sockets
        self._journal = journal
        self._intake = Intake((journal.values.keep, journal.values.sum_up), sockets.wake)
        # Large payloads that were heard of in this turn: what is not recorded by its end never will be.
        self._heard: list[wire.Chunks] = []
        self._start = time.monotonic()
        self._windows_at = 0.0
        self._settle_at = 0.0
        self._quiet_at = -OFTEN_S
        self._garbage_at = 0.0

    def _now(self) -> float:
        return time.monotonic() - self._start

    def restore(self) -> None:
        """Take up what the journal remembers, before anybody is heard."""
        self._sessions.restore(self._now())

    def run(self, stopping: Callable[[], bool]) -> None:
        self._sessions.desk.waiting = self._sockets.waiting
        self._look_at_windows()
        gone: list[bytes] = []
        while not stopping():
            arrived = self._sockets.wait(self._patience)
            gone += self._sockets.tend(self._now())
            # What a peer said before it went is still waiting to be read, its goodbye among it.
            if self._turn(arrived):
                for peer in [peer for peer in gone if peer not in self._intake]:
                    self._sessions.gone(peer, self._now())
                gone = [peer for peer in gone if peer in self._intake]
        self._finish(self._sessions.farewell("the broker stops; it can be started again on the same home"))
        log.info("stopped")

    @property
    def _patience(self) -> float:
        """How long to wait for a message. Seconds."""
        if self._sessions.unfinished:
            return 0.0
        return RECEIPT_S if self._sessions.owing else TICK_S

    def close(self) -> None:
        """Wait for what is on its way to the disk."""
        self._intake.close()

    def _turn(self, arrived: bool) -> bool:
        """Read, decide, commit and send; whether everything that had arrived was read."""
        drained = True
        try:
            self._hear_waiting()
            if arrived:
                drained = self._drain()
            if self._now() >= self._windows_at:
                self._look_at_windows()
            if self._sessions.unsettled or self._now() >= self._settle_at:
                self._settle_at = self._now() + TICK_S
                self._finish(self._sessions.settle(self._now()))
            elif arrived:
                self._rest()
        except JournalFull as full:
            self._begin_again(full)
        return drained

    def _rest(self) -> None:
        if self._now() < self._quiet_at + OFTEN_S:
            time.sleep(REST_S)
        self._quiet_at = self._now()

    def _begin_again(self, full: JournalFull) -> None:
        """Go on as if killed before this batch, of which nobody was told anything, and started again."""
        self._journal.rollback()
        self._release()
        self._sessions = self._sessions.successor(str(full), self._now())

    def _drain(self) -> bool:
        size = 0
        for _ in range(DRAIN):
            if size >= DRAIN_BYTES or not self._intake.has_room():
                break
            received = self._sockets.receive()
            if received is None:
                return True
            peer, who, data, chunks = received
            if who is None:
                continue  # its key was revoked, or it was cut off: nothing of it is read any more
            size += len(data) + sum(map(len, chunks))
            try:
                message = wire.decode(data, chunks)
            except wire.ProtocolError as error:
                self._tell_of_garbage(len(data), str(error))
                self._send(peer, wire.Refused(f"that is not a message of deskgrid {wire.VERSION}: {error}"))
                continue
            values = wire.large_of(message) if chunks and self._sessions.desk.disk.records(message) else []
            if not self._intake.put(peer, who, message, values):
                self._sessions.receive(peer, who, message, self._now())
        return False

    def _hear_waiting(self) -> None:
        """Hear messages whose large payloads are files by now."""
        for arrival in self._intake.ready():
            self._heard += arrival.values
            for kept in arrival.kept:
                try:
                    kept.result()
                except OSError as error:
                    raise JournalFull(str(error)) from error
            self._sessions.receive(arrival.peer, arrival.who, arrival.message, self._now())

    def _release(self) -> None:
        """Files that nobody needs, of what was heard and of what was forgotten, go."""
        values, heard, self._heard = self._journal.values, self._heard, []
        values.release(heard)
        if names := values.take_unneeded():
            self._intake.afterwards(lambda: values.remove(names))

    def _tell_of_garbage(self, size: int, reason: str) -> None:
        if self._now() >= self._garbage_at:
            self._garbage_at = self._now() + GARBAGE_S
            log.warning("garbage bytes=%d reason=%r", size, reason)

    def _finish(self, leaving: Leaving) -> None:
        for peer, message in leaving.work:
            self._send(peer, message)
        if self._journal.waits and not leaving.words and self._sessions.owing:
            return  # soon there is a word to be sent, perhaps of how that work ended: one commit is enough for both
        self._journal.commit()
        self._release()
        for notice in self._sessions.desk.take_notices():
            log.info("%s", notice)
        for peer, message in leaving.words:
            self._send(peer, message)

    def _send(self, peer: bytes, message: wire.Message) -> None:
        if not self._sockets.send(peer, wire.parts_of(message)):
            self._sessions.gone(peer, self._now())

    def _look_at_windows(self) -> None:
        self._windows_at = self._now() + WINDOWS_S
        try:
            self._sessions.workers.refresh_windows()
        except ValueError as error:
            log.error("windows-file error=%r the last good one stays in force", str(error))
