"""The connection of a client: one thread that owns its socket. No other file of the client uses ZeroMQ directly.

Rule 1: only that thread touches the socket. Other threads hand it actions through a queue, and a byte wakes it.
Rule 2: it never runs the user's code and never waits for other threads, so that the broker always finds us alive.
`Conversation` decides which messages are sent and when; this file has the socket, the clock and the queue.
"""

import getpass
import logging
import secrets
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress

import zmq

from deskgrid import wire
from deskgrid.addresses import addresses, endpoints
from deskgrid.client.conversation import Conversation, Handler, Question, Request
from deskgrid.client.lock import LOCK, PlainEvent, answering
from deskgrid.client.replies import wait_for
from deskgrid.client.template import Template
from deskgrid.errors import DeskgridError, GridClosed, GridUnreachable
from deskgrid.wire.dealer import connect, dealer_for, hear, say
from deskgrid.wire.joinline import LOCAL, JoinLine

log = logging.getLogger("deskgrid.client")

# Seconds between two checks for silence while an answer is expected.
LOOK_S = 0.5
# Maximum number of messages received before new requests are sent.
DRAIN = 100
# How long closing waits until the goodbye and the last orders are sent. Seconds.
LINGER_S = 1.0
# Time after which a connection that died silently is noticed. Seconds.
DEAD_LINK_S = 20.0
# How long opening waits for the broker. Seconds.
OPENING_S = 5.0
# If no broker answers, how long to check, for the error message, whether anything listens at its address. Seconds.
PROBE_S = 1.0


class Link:
    """The connection to the broker of ``join``. `open` it, ask, `close` it."""

    def __init__(self, join: JoinLine) -> None:
        self.address = join.address
        self.join = join
        self.is_private = False  # to a grid that ends with this program
        self._conversation = Conversation(_hello())
        self._todo: deque[Callable[[float], Iterable[wire.Message]]] = deque()
        self._wake, self._woken = socket.socketpair()
        self._wake.setblocking(False)
        self._woken.setblocking(False)
        # How often the thread was woken, and how often it woke up: never less than it was woken before.
        self._wakes = self._woke = 0
        self._settled = PlainEvent()  # greeted or refused, for the first time
        self._closing = False
        self._lost = False
        self._failures = 0  # connections in a row that led to no broker
        self._end: DeskgridError | None = None
        self._thread = threading.Thread(target=self._run, name="deskgrid-link", daemon=True)

    # --- for any thread ----------------------------------------------------------------------------------------------

    def open(self, seconds: float = OPENING_S) -> wire.Greeting:
        """Connect and return the broker's greeting. Raises `GridUnreachable` after ``seconds``, or `GridRefused`."""
        self._thread.start()
        settled = wait_for(self._settled, seconds)
        if self._end is not None:
            raise self._end
        if not settled or self.greeting is None:
            raise GridUnreachable(f"no broker answers at {self.address}: {_diagnosis(self.join)}")
        return self.greeting

    @property
    def greeting(self) -> wire.Greeting | None:
        """The broker's last greeting."""
        return self._conversation.greeting

    def number(self) -> int:
        """Return a number for a new request."""
        return self._conversation.number()

    def send(
        self,
        message: Question,
        answered: Handler,
        template: Template | None = None,
        *,
        defer: bool = False,
    ) -> None:
        """Send a request; ``answered`` is called with the answer on the link's thread when it comes.

        ``defer``: send it together with the next request, or after a while.
        """
        request = Request(message, answered, template)
        ask = self._conversation.defer if defer else self._conversation.request
        error = self._do(lambda now: ask(request, now))
        self.wake()
        if error is not None:
            answered(error)

    def send_latest(self, latest: Callable[[], wire.Submit | None], answered: Handler, template: Template) -> None:
        """Send, as `send` does, the message that ``latest`` returns when the link's thread calls it; None: nothing.

        The caller holds `LOCK`, and has to `wake` the link afterwards.
        """

        def ask(now: float) -> Iterable[wire.Message]:
            message = latest()
            return () if message is None else self._conversation.request(Request(message, answered, template), now)

        error = self._do(ask)
        if error is not None:
            answered(error)

    def withdraw(self, number: int) -> None:
        """Forget request ``number``, whose answer nobody waits for any more."""

        def forget(_now: float) -> Iterable[wire.Message]:
            self._conversation.withdraw(number)
            return ()

        self._do(forget)
        self.wake()

    def close(self) -> None:
        """Say goodbye and end the thread; open requests are answered with `GridClosed`. May be called twice."""
        self._closing = True
        self._awaken()
        if self._thread.ident is None:
            self._finish(GridClosed("this Grid was never opened"))
        elif self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(2 * LINGER_S)

    def forked(self, error: GridClosed) -> None:
        """Answer all requests with ``error`` from now on: in a forked child there is no thread for them."""
        self._end = error
        self._wake.close()
        self._woken.close()

    def _do(self, action: Callable[[float], Iterable[wire.Message]]) -> DeskgridError | None:
        """Have the thread do ``action``; if the thread has ended, return the reason instead."""
        with LOCK:
            if self._end is not None:
                return self._end
            self._todo.append(action)
        return None

    def wake(self) -> None:
        """Have the thread do what it has to do; after a handler's exception, it may not know."""
        # The thread itself need not be woken: it does the actions of its own handlers before it waits again.
        if self._todo and self._wakes <= self._woke and threading.get_ident() != self._thread.ident:
            self._awaken()

    def _awaken(self) -> None:
        with suppress(OSError):  # closed: the thread has ended
            self._wake.send(b"\0")
        self._wakes += 1

    # --- the thread --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        answering.add(threading.get_ident())
        context = zmq.Context()
        end: DeskgridError = GridClosed("this Grid was shut down")
        try:
            self._converse(context)
        except Exception as error:  # threads that wait for an answer must get the error
            log.exception("the connection to %s broke", self.address)
            end = GridUnreachable(f"the connection to {self.address} broke: {error!r}")
        finally:
            context.term()
            self._finish(self._conversation.refusal or end)
            answering.discard(threading.get_ident())

    def _finish(self, end: DeskgridError) -> None:
        """Answer all requests with ``end``, now and from now on."""
        with LOCK:
            self._end = end
        while self._todo:
            self._todo.popleft()(time.monotonic())
        self._conversation.abandon(end)
        self._settled.set()
        self._wake.close()
        self._woken.close()

    def _converse(self, context: "zmq.Context[zmq.Socket[bytes]]") -> None:
        while not self._over:
            with self._connected(context) as dealer:
                monitor = dealer.get_monitor_socket(zmq.EVENT_HANDSHAKE_FAILED_AUTH)
                try:
                    self._listen(dealer, monitor)
                finally:
                    dealer.disable_monitor()
                    monitor.close()
                self._failures = 0 if self._conversation.joined else self._failures + 1
                if self._closing:
                    self._take_leave(dealer)
                elif not self._over:
                    self._say_lost()

    @property
    def _over(self) -> bool:
        return self._closing or self._conversation.refusal is not None

    def _listen(self, dealer: "zmq.Socket[bytes]", monitor: "zmq.Socket[bytes]") -> None:
        """Handle events until the link is closed or refused, or this connection is given up."""
        poller = zmq.Poller()
        poller.register(monitor, zmq.POLLIN)
        poller.register(dealer, zmq.POLLIN)
        poller.register(self._woken.fileno(), zmq.POLLIN)
        while not self._over:
            ready = poller.poll(int(LOOK_S * 1000) if self._conversation.busy else None)
            if any(who is monitor for who, _ in ready):
                # Without this, ZeroMQ would retry forever: a refused key fails in the handshake, before any message.
                self._conversation.refused(f"the broker at {self.address} does not know this key: was it revoked?")
                return
            if any(who == self._woken.fileno() for who, _ in ready):
                self._woke += len(self._woken.recv(1024))
            if any(who is dealer for who, _ in ready):
                self._receive(dealer)
            self._act(dealer)
            now = time.monotonic()
            _send(dealer, self._conversation.overdue(now))
            if self._conversation.gone(now):
                return

    def _take_leave(self, dealer: "zmq.Socket[bytes]") -> None:
        self._act(dealer)
        if self._conversation.joined:
            _send(dealer, [wire.Goodbye("the client ends")])
            dealer.setsockopt(zmq.LINGER, int(LINGER_S * 1000))

    def _act(self, dealer: "zmq.Socket[bytes]") -> None:
        """Do the actions that other threads have queued."""
        while self._todo:
            _send(dealer, self._todo.popleft()(time.monotonic()))

    def _receive(self, dealer: "zmq.Socket[bytes]") -> None:
        for _ in range(DRAIN):
            try:
                message = hear(dealer)
            except wire.ProtocolError as error:
                log.warning("%s sent something that is not a message of deskgrid: %s", self.address, error)
                continue
            if message is None:
                return
            _send(dealer, self._conversation.receive(message, time.monotonic()))
            if isinstance(message, wire.Greeting):
                self._say_found()
            elif isinstance(message, wire.Goodbye):
                log.info("the broker at %s says goodbye: %s", self.address, message.reason)

    def _connected(self, context: "zmq.Context[zmq.Socket[bytes]]") -> "zmq.Socket[bytes]":
        # SNDHWM: no limit, because the submitting code limits the messages in flight.
        dealer = dealer_for(self.join, context, DEAD_LINK_S, {zmq.LINGER: 0, zmq.SNDHWM: 0})
        places = endpoints(self.join)
        connect(dealer, places[self._failures % len(places)])
        _send(dealer, self._conversation.connected(time.monotonic()))
        return dealer

    def _say_lost(self) -> None:
        if not self._lost and self._settled.is_set():
            self._lost = True
            log.warning("no answer from the broker at %s; trying again until it is back", self.address)

    def _say_found(self) -> None:
        self._settled.set()
        if self._lost:
            self._lost = False
            log.warning("the broker at %s is back", self.address)


def _hello() -> wire.Hello:
    try:
        user = getpass.getuser()
    except (OSError, KeyError, ImportError):  # no such user in the system's table, as in some containers
        user = ""
    return wire.Hello(wire.VERSION, secrets.token_hex(8), user)


def _send(dealer: "zmq.Socket[bytes]", messages: Iterable[wire.Message]) -> None:
    for message in messages:
        say(dealer, message)


def _diagnosis(join: JoinLine) -> str:
    """Explain, by trying a plain connection to each of its addresses, why no broker answered."""
    why = list[str]()
    try:
        if join.is_local:
            _try_local(join)
        else:
            for address in addresses(join):
                try:
                    socket.create_connection(address, PROBE_S).close()
                    break
                except OSError as error:
                    why.append(f"{error.strerror or error} ({address[0]})")
            else:
                return f"{'; '.join(why)}; is the broker running, and is this its address?"
    except (OSError, UnicodeError) as error:
        return f"{getattr(error, 'strerror', None) or error}; is the broker running, and is this its address?"
    return (
        "something listens there, but it does not answer to this join line; "
        "is the line from that broker (a new home has new keys), or was it revoked?"
    )


def _try_local(join: JoinLine) -> None:
    if sys.platform != "win32":
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(PROBE_S)
            line.connect(join.host.removeprefix(LOCAL))
