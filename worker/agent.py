"""The worker's loop: the one file of the worker that knows ZeroMQ and reads clocks.

Rule 1: it dials out; nothing listens on a lab PC.
Rule 2: never block: what the broker does not take now is said again after the next introduction.
Rule 3: the planned windows are looked at by the clocks at every turn, so a PC that slept through a boundary notices.
"""

import logging
import platform
import secrets
import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import zmq
from zmq.utils import z85

from broker import allocation
from broker import protocol as wire
from broker.dealer import hear, say
from broker.joinline import JoinLine
from worker.clocks import read_clocks
from worker.executor import Executor
from worker.session import Identity, Refusal, Session
from worker.uptime import OpenEnded, Plan, PlanError, weekly_from_json

if TYPE_CHECKING:
    from worker.alarm import Alarm

log = logging.getLogger("deskgrid.worker")

# The longest wait in the loop: how soon a stop request is seen.
TICK_S = 0.2
# A broker that does not answer is dialled again this often, at first and at most.
RECONNECT_MS = (100, 3_000)
# ZeroMQ gives an address up for good when what answers there makes no sense to it (another program that had the
# broker's port, say). So without a connection it is dialled anew this often: far longer than a handshake. Seconds.
REDIAL_S = 5.0
# A dead connection is noticed after this long.
DEAD_LINK_S = 15.0
# How often somebody who watches the log is told that there still is no broker.
SILENCE_S = 5.0
# How long a stopping worker waits until the broker has written its last results down.
LAST_RESULTS_S = 3.0
LINGER_MS = 1_000


class WorkerError(Exception):
    """The worker cannot be part of this grid; one line that says why."""


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """``plan`` None: the broker's windows for this worker, or open-ended when it has none.

    ``task_memory``: bytes that a task's process may have; 0 for no limit.
    """

    join: JoinLine
    slots: int
    name: str
    site: str = ""
    plan: Plan | None = None
    task_memory: int = 0

    def __post_init__(self) -> None:
        for what, text in (("name", self.name), ("site", self.site)):
            if wire.is_longer(text, wire.NAME_BYTES):
                raise WorkerError(f"the {what} has more than {wire.NAME_BYTES} bytes: {text!r:.80}")
        if not 1 <= self.slots <= wire.SLOTS_LIMIT:
            raise WorkerError(f"a worker has 1 to {wire.SLOTS_LIMIT:,} slots, not {self.slots:,}")


def run_worker(options: WorkerOptions, stopping: Callable[[], bool], say: Callable[[str], None]) -> None:
    """Work until the plan is over or ``stopping()``; raises `WorkerError` when the broker will not have this worker.

    ``say`` gets a line for people whenever something changes.
    """
    wake_in, wake_out = socket.socketpair()
    wake_in.setblocking(False)
    wake_out.setblocking(False)

    def wake() -> None:
        with suppress(BlockingIOError):  # it has been woken often enough
            wake_in.send(b"\0")

    executor = Executor(options.slots, options.name, wake, task_memory=options.task_memory)
    try:
        with _Link(options.join) as link:
            _Agent(options, link, executor, wake=wake, woken=wake_out, say=say).run(stopping)
    except Refusal as refusal:
        raise WorkerError(f"the broker refuses this worker: {refusal}") from refusal
    finally:
        executor.close()
        wake_in.close()
        wake_out.close()


class _Link:
    """The connection to the broker, and what ZeroMQ reports of it."""

    def __init__(self, join: JoinLine) -> None:
        allocation.keep_freed()
        self._join = join
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.DEALER)
        for option, value in (
            # Without a connection, fail at once rather than queue for a broker that may be another when it is back.
            (zmq.IMMEDIATE, 1),
            (zmq.IPV6, int(join.host.startswith("["))),
            (zmq.LINGER, LINGER_MS),
            (zmq.MAXMSGSIZE, wire.MESSAGE_LIMIT),
            (zmq.RECONNECT_IVL, RECONNECT_MS[0]),
            (zmq.RECONNECT_IVL_MAX, RECONNECT_MS[1]),
            (zmq.HEARTBEAT_IVL, int(DEAD_LINK_S * 1000) // 3),
            (zmq.HEARTBEAT_TIMEOUT, int(DEAD_LINK_S * 1000)),
        ):
            self.socket.setsockopt(option, value)
        if join.keys is not None:
            self.socket.setsockopt(zmq.CURVE_SERVERKEY, z85.encode(join.keys.server))
            self.socket.setsockopt(zmq.CURVE_PUBLICKEY, z85.encode(join.keys.public))
            self.socket.setsockopt(zmq.CURVE_SECRETKEY, z85.encode(join.keys.secret))
        events = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED
        failures = (
            zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
        )
        self.monitor = self.socket.get_monitor_socket(events | failures)

    def __enter__(self) -> "_Link":
        self.socket.connect(self._join.endpoint)
        return self

    def __exit__(self, *exception: object) -> None:
        self.socket.disable_monitor()
        self.monitor.close()
        self.socket.close()
        self.context.term()

    def redial(self) -> None:
        """Begin again, whatever became of earlier attempts."""
        with suppress(zmq.ZMQError):  # if it was given up, there is nothing to disconnect
            self.socket.disconnect(self._join.endpoint)
        self.socket.connect(self._join.endpoint)

    def send(self, message: wire.Message) -> bool:
        """Whether there was a connection to take it."""
        try:
            say(self.socket, message)
        except zmq.Again:
            return False
        return True

    def events(self) -> list[int]:
        """What happened to the connection."""
        found = []
        while self.monitor.poll(0):
            found.append(struct.unpack_from("=H", self.monitor.recv_multipart()[0])[0])
        return found


class _Agent:
    """The loop around a session."""

    def __init__(
        self,
        options: WorkerOptions,
        link: _Link,
        executor: Executor,
        *,
        wake: Callable[[], None],
        woken: socket.socket,
        say: Callable[[str], None],
    ) -> None:
        plan = options.plan or OpenEnded()
        identity = Identity(
            name=options.name,
            session=secrets.token_hex(8),
            host=socket.gethostname(),
            site=options.site,
            python=".".join(platform.python_version_tuple()[:2]),
            slots=options.slots,
        )
        self._options = options
        self._link = link
        self._executor = executor
        self._woken = woken
        self._say = say
        self._session = Session(identity, plan, executor, follows_broker=options.plan is None)
        self._wake = wake
        self._alarm: Alarm | None = None
        self._table: str | None = None
        self._was_joined = False
        self._silent_at = time.monotonic() + SILENCE_S
        self._connected = False
        self._redial_at = time.monotonic() + REDIAL_S
        self._poller = zmq.Poller()
        self._poller.register(link.socket, zmq.POLLIN)
        self._poller.register(link.monitor, zmq.POLLIN)
        self._poller.register(woken, zmq.POLLIN)

    def run(self, stopping: Callable[[], bool]) -> None:
        self._say(f"planned uptime: {self._session.plan.describe()}")
        self._watch_windows()
        try:
            while not stopping():
                self._turn(TICK_S)
                if self._session.over(read_clocks()):
                    self._say("no window will open again")
                    break
            self._end("stopped by its user" if stopping() else "its last window closed")
        finally:
            if self._alarm is not None:
                self._alarm.close()

    def _watch_windows(self) -> None:
        """Be woken when a window opens or closes."""
        plan = self._session.plan
        if self._alarm is not None:
            self._alarm.replace(plan)
        elif not isinstance(plan, OpenEnded):
            from worker.alarm import Alarm  # here, for what it needs takes longer to load than all else of a worker

            self._alarm = Alarm(plan, self._wake)
            self._alarm.start()

    def _turn(self, longest: float) -> None:
        now = read_clocks()
        wait = min(longest, self._session.next_tick(now))
        deadline = self._executor.next_deadline(now.mono)
        if deadline is not None:
            wait = min(wait, max(0.0, deadline))
        # Rounded up: waking a moment before something is due would only mean to wait again.
        ready = dict(self._poller.poll(int(wait * 1000) + 1))
        if self._woken.fileno() in ready:
            self._woken.recv(4096)
        if self._link.monitor in ready:
            self._connection_changed()
        if self._link.socket in ready:
            self._receive()
        self._send(self._session.tick(read_clocks()))
        self._follow_broker_windows()
        self._report()
        if not self._connected and time.monotonic() > self._redial_at:
            self._redial_at = time.monotonic() + REDIAL_S
            self._link.redial()

    def _receive(self) -> None:
        while True:
            try:
                message = hear(self._link.socket)
                if message is None:
                    return
                self._session.receive(message, read_clocks())
            except wire.ProtocolError as error:
                log.error("unusable-message reason=%r", str(error))
            except Refusal:
                raise
            except Exception:  # one message that nobody foresaw must not end this worker, and with it its tasks
                log.exception("message-failed")

    def _send(self, messages: list[wire.Message]) -> None:
        for message in messages:
            if not self._link.send(message):
                self._session.disconnected()
                return

    def _connection_changed(self) -> None:
        for event in self._link.events():
            if event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
                raise WorkerError("the broker does not know this join line's key: paste the line it prints now")
            self._connected = event == zmq.EVENT_HANDSHAKE_SUCCEEDED
            if self._connected:
                self._session.reconnected()
            else:
                self._session.disconnected()
                self._redial_at = time.monotonic() + REDIAL_S

    def _follow_broker_windows(self) -> None:
        """Windows from the broker replace open-ended uptime; a plan given on this PC stays."""
        if not self._session.wants_broker_windows or self._session.windows_from_broker == self._table:
            return
        self._table = self._session.windows_from_broker
        try:
            plan = None if self._table is None else weekly_from_json(self._table)
        except PlanError as error:
            log.error("windows-from-broker error=%r", str(error))
            return
        self._session.use_plan(plan)
        self._watch_windows()
        self._say(f"planned uptime, from the broker: {self._session.plan.describe()}")

    def _report(self) -> None:
        address = f"{self._options.join.host}:{self._options.join.port}"
        if self._session.joined != self._was_joined:
            self._was_joined = self._session.joined
            self._silent_at = time.monotonic() + SILENCE_S
            state = f"joined {address} as {self._session.name}" if self._was_joined else f"lost the broker at {address}"
            self._say(state)
        elif not self._was_joined and time.monotonic() > self._silent_at:
            self._silent_at = time.monotonic() + SILENCE_S * 4
            self._say(f"no answer from a broker at {address}; still trying (is it running, and the join line its own?)")

    def _end(self, reason: str) -> None:
        self._send(self._session.stop(reason, read_clocks()))
        deadline = time.monotonic() + LAST_RESULTS_S
        while self._session.unwritten and self._session.joined and time.monotonic() < deadline:
            if self._link.socket.poll(int(TICK_S * 1000)):
                self._receive()
        self._say(f"ended: {reason}")
