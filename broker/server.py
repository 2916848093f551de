"""How a broker starts: its home, keys, address and join lines. Its loop is in `deskgrid.broker.loop`."""

import errno
import logging
import secrets
import socket
import sqlite3
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import zmq

from deskgrid.broker.auth.keys import KeyRing, KeysError
from deskgrid.broker.calendar_thread import CalendarThread
from deskgrid.broker.forecasts.process import Forecasts
from deskgrid.broker.loop import Loop
from deskgrid.broker.model.clocks import WallClock
from deskgrid.broker.model.state import BrokerState, GridFacts
from deskgrid.broker.peers.sessions import Sessions
from deskgrid.broker.port.allowed import TooFewFiles
from deskgrid.broker.port.sockets import Sockets
from deskgrid.broker.store.files import Damaged
from deskgrid.broker.store.journal import NAME, Durability, Journal, JournalError
from deskgrid.private_files import is_private_folder, write_private
from deskgrid.scheduler.model import UnknownPolicy
from deskgrid.scheduler.policies import DEFAULT, make_policy
from deskgrid.wire import this_system
from deskgrid.wire.joinline import LOCAL, JoinLine, JoinLineError, Side, parse_address

log = logging.getLogger("deskgrid.broker")

_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_EVERYWHERE = ("0.0.0.0", "*", "[::]")


class BrokerError(Exception):
    """The broker cannot start, or cannot go on; one line that says why."""


@dataclass(frozen=True, slots=True)
class BrokerOptions:
    """``listen``: HOST:PORT, port 0 for any free one. ``advertise``: the host in the join lines; None: detect it.

    ``durability``: what commits survive, see `deskgrid.broker.store.journal`. ``keep_days``: bags are forgotten this
    many days after they ended; None: never.
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
    """The broker is listening."""

    address: str
    worker_line: str
    client_line: str
    home: Path


def serve(
    options: BrokerOptions,
    ready: Callable[[Ready], None],
    stopping: Callable[[], bool],
) -> None:
    """Run a broker until ``stopping()``; raises `BrokerError` when it cannot start, or cannot go on."""
    try:
        host, port = parse_address(options.listen)
        policy = make_policy(options.policy, **options.policy_options)
    except (JoinLineError, UnknownPolicy) as error:
        raise BrokerError(str(error)) from error
    if host.startswith(LOCAL) and not options.insecure:
        raise BrokerError("a local socket is not encrypted: give --insecure, too")
    if host.startswith(LOCAL):
        _check_private(Path(host.removeprefix(LOCAL)).parent)
    if options.insecure and host not in _LOOPBACK and not host.startswith(LOCAL):
        raise BrokerError(f"--insecure is only for this machine: listen on 127.0.0.1, not on {host}")
    try:
        with closing(Journal(options.home, options.durability)) as journal:
            keys = None if options.insecure else KeyRing(options.home)
            with Sockets(keys) as sockets:
                address = _bind(sockets, host, port)
                name = options.advertise or (_own_address() if host in _EVERYWHERE else host)
                announcement = _announce(
                    options.home, keys, name, 0 if host.startswith(LOCAL) else int(address.rpartition(":")[2])
                )
                forecasts = Forecasts(sockets.wake)
                facts = _facts(options, announcement.address)
                state = BrokerState(facts, journal, policy, keys)
                calendars = CalendarThread()
                state.forecaster, state.calendar_reader = forecasts, calendars
                sessions = Sessions(state, options.keep_days)
                loop = Loop(sessions, sockets, journal)
                with closing(loop), closing(forecasts), closing(calendars):
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
    except MemoryError as error:
        raise BrokerError(f"out of memory; start the broker again on {options.home}: nothing is lost") from error
    except sqlite3.DatabaseError as error:
        raise BrokerError(f"{options.home / NAME} cannot be read any more: {error}") from error


def _check_private(folder: Path) -> None:
    """Refuse a folder for a local socket that others can open: whoever reaches the socket can do everything."""
    try:
        if not is_private_folder(folder):
            raise BrokerError(f"others can open {folder}: a local socket needs a folder of yours alone (chmod 700)")
    except OSError as error:
        raise BrokerError(f"cannot listen in {folder}: {error.strerror}") from error


def _bind(sockets: Sockets, host: str, port: int) -> str:
    try:
        return sockets.bind(host, port)
    except zmq.ZMQError as error:
        raise BrokerError(
            f"cannot listen on {JoinLine('worker', host, port, None).address}: {zmq.strerror(error.errno or 0)}"
        ) from error


def _facts(options: BrokerOptions, address: str) -> GridFacts:
    return GridFacts(
        id=secrets.token_hex(6),
        python=this_system().python,
        address=address,
        encrypted=not options.insecure,
        heartbeat_s=options.heartbeat_s,
        lease_s=options.lease_s,
        wall=WallClock(time.time()),
    )


def _own_address() -> str:
    """The address at which other machines reach this one, according to its routes; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # a documentation address (RFC 5737): only the route is looked up
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


def _announce(home: Path, keys: KeyRing | None, host: str, port: int) -> Ready:
    """Write the join lines into the home, where clients and workers on this machine find them."""
    sides: tuple[Side, ...] = ("worker", "client")
    if keys is None:
        lines = [JoinLine(side, host, port, None) for side in sides]
        for name, line in zip(("worker", "admin", "client"), (*lines, lines[1]), strict=True):
            write_private(home / f"{name}.join", f"{line}\n".encode())
    else:
        lines = [keys.line(side, host, port) for side in sides]
        keys.announce(host, port)
    return Ready(lines[0].address, str(lines[0]), str(lines[1]), home)
