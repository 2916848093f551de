"""The client's side of its conversation with the broker: messages and ``now`` in, messages out. No socket, no clock.

Rule 1: a request stays open until it is answered or nobody waits for it any more. Whenever the broker has lost track of
this client (it was restarted, the connection broke), the client introduces itself and sends every open request again.
Rule 2: requests are sent, and sent again, in the order in which they were made: batches of a bag build on each other.
Rule 3: silence is checked only while a request is open. A long poll may legitimately stay unanswered for hours. So
after some silence the client sends a ping; it gives up the connection only if the ping stays unanswered, too.
Rule 4: a request that stays unanswered on a working connection is repeated at growing intervals. The broker carries out
a request only once, however often it is sent.
"""

import itertools
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from deskgrid import wire
from deskgrid.client.template import Template
from deskgrid.errors import DeskgridError, GridRefused, RequestFailed

log = logging.getLogger("deskgrid.client")

# After this much silence the client pings the broker. Seconds.
PING_S = 2.0
# After this much silence the client gives up the connection and makes a new one. Seconds.
SILENCE_S = 10.0
# The slowest line that we allow for: large batches take time to arrive before an answer can come. Bytes per second.
SLOW_LINE = 2 * 2**20
# How long a deferred request may wait for another request to go with. Seconds.
DEFER_S = 0.25
# A request is repeated after this time, which doubles with each repetition. Seconds.
REPEAT_S = 10.0
# How long the first introduction may stay unanswered; this doubles with each further one, up to SILENCE_S. Seconds.
GREETING_S = 2.0
# A broker that still misses a template after this many tries has another problem.
TEMPLATE_TRIES = 3
# Orders that would fail if they were carried out a second time: a broker may be killed before it answers.
FAIL_AGAIN = {"forget", "pause", "resume", "keys forget", "keys revoke"}
# The reason of a refused batch begins with this if only its template is missing.
NO_TEMPLATE = "template:"

Reply = wire.Accepted | wire.Outcomes | wire.Answer | wire.Failed | wire.Lacks | wire.Kept | wire.Part
# What a client asks of the broker.
Question = wire.Submit | wire.Watch | wire.Ask | wire.Offer | wire.Part | wire.Want
# Called on the link's thread. A handler must be quick, must not raise, and must not run the user's code.
Handler = Callable[[Reply | DeskgridError], None]


class TransferCut(DeskgridError):
    """The connection was cut while a part of a file was on its way. Perhaps it arrived: offer it again."""


@dataclass(slots=True)
class Request:
    """A request to the broker; ``template``: its batch's template, sent before it if the broker may not have it.

    ``said``: whether it was sent before.
    """

    message: Question
    answered: Handler
    template: Template | None = None
    tries: int = 0
    size: int = 0
    said: bool = False
    said_at: float = 0.0
    patience: float = 0.0

    def __post_init__(self) -> None:
        if isinstance(self.message, wire.Submit):
            self.size = sum(map(len, self.message.payloads)) + (len(self.template.data) if self.template else 0)
        elif isinstance(self.message, wire.Part | wire.Want):
            self.size = wire.PART_BYTES

    def answer(self, reply: Reply | DeskgridError) -> None:
        """Pass the answer to the request's handler. If the handler raises, only this request fails."""
        try:
            self.answered(reply)
        except Exception as error:
            log.exception("an answer cannot be used")
            if not isinstance(reply, DeskgridError):
                self.answer(RequestFailed(f"the broker's answer cannot be used: {error!r}"))


class Conversation:
    """One client and one broker, over any number of connections."""

    def __init__(self, hello: wire.Hello) -> None:
        self._hello = hello
        self._numbers = itertools.count(1)
        self._open: dict[int, Request] = {}
        # Deferred requests, which wait for another request to go with, and the time when the last was deferred.
        self._deferred: list[Request] = []
        self._deferred_at = 0.0
        # Templates that this connection's broker has.
        self._sent: set[str] = set()
        self._heard = 0.0
        self._pinged = False
        self._patience = GREETING_S
        self.greeting: wire.Greeting | None = None
        self.joined = False
        self.refusal: GridRefused | None = None

    def number(self) -> int:
        """Return a new number for a request. May be called from any thread."""
        return next(self._numbers)

    @property
    def busy(self) -> bool:
        """Whether the conversation needs regular checks: for an answer, a deferred request or a greeting."""
        return bool(self._open or self._deferred) or not self.joined

    # --- what happens ------------------------------------------------------------------------------------------------

    def connected(self, now: float) -> list[wire.Message]:
        """Return the introduction for a new connection, which may not be established yet."""
        self.joined = False
        self._pinged = False
        self._heard = now
        return [self._hello]

    def defer(self, request: Request, now: float) -> list[wire.Message]:
        """Send ``request`` together with the next request, as part of it if possible, or after DEFER_S."""
        self._deferred.append(request)
        self._deferred_at = now
        return []

    def request(self, request: Request, now: float) -> list[wire.Message]:
        """Send ``request``, and the deferred requests with it."""
        rider = None
        if isinstance(message := request.message, wire.Submit) and (rider := self._deferred_watch(message.bag)):
            request.message = replace(message, watch=rider.request, after=rider.after)
        said = self._asked(request, now) + self._asked_with_it(now)
        return said if rider is None else [message for message in said if message is not rider]

    def _deferred_watch(self, bag: str) -> wire.Watch | None:
        """Return the deferred `Watch` that can be part of a batch of ``bag``."""
        waiting = [each.message for each in self._deferred if isinstance(each.message, wire.Watch)]
        return next((watch for watch in waiting if watch.bag == bag), None)

    def _asked_with_it(self, now: float) -> list[wire.Message]:
        deferred, self._deferred = self._deferred, []
        return [message for request in deferred for message in self._asked(request, now)]

    def _asked(self, request: Request, now: float) -> list[wire.Message]:
        if self.refusal is not None:
            request.answer(self.refusal)
            return []
        if not self.busy:
            self._heard, self._pinged = now, False  # no answer was expected until now
        self._open[request.message.request] = request
        return self._said(request, now) if self.joined else []

    def withdraw(self, number: int) -> None:
        """Forget a request whose answer nobody waits for any more."""
        self._open.pop(number, None)

    def receive(self, message: wire.Message, now: float) -> list[wire.Message]:
        """Handle a message of the broker; return the messages to send."""
        self._heard = now
        self._pinged = False
        if isinstance(message, wire.Outcomes):
            said = self._answer(message, now)
            for number in message.receipts:
                said += self._answer(wire.Accepted(number, message.bag, ""), now)
            return said
        if isinstance(message, wire.Accepted | wire.Answer | wire.Failed | wire.Lacks | wire.Kept | wire.Part):
            return self._answer(message, now)
        if isinstance(message, wire.Greeting):
            return self._greeted(message, now)
        if isinstance(message, wire.Rejoin):
            # A broker that does not know us answers each of our messages like this; one introduction is enough.
            return self.connected(now) if self.joined else []
        if isinstance(message, wire.Refused):
            self.refused(message.reason)
        return []

    def gone(self, now: float) -> bool:
        """Whether the connection has been silent for too long and must be given up."""
        on_the_way = sum(request.size for request in self._open.values())
        limit = SILENCE_S + on_the_way / SLOW_LINE if self.joined else self._patience
        if not self.busy or now - self._heard < limit:
            return False
        self._patience = min(2 * self._patience, SILENCE_S)
        return True

    def overdue(self, now: float) -> list[wire.Message]:
        """Return the messages that are due: deferred requests, repeated requests, and a ping after silence."""
        if self._deferred and now - self._deferred_at >= DEFER_S:
            return self._asked_with_it(now)
        if not self._open or not self.joined:
            return []
        again = [request for request in self._open.values() if now - request.said_at >= request.patience]
        said = [message for request in again for message in self._said(request, now)]
        if not self._pinged and now - self._heard >= PING_S:
            self._pinged = True
            # Any answer will do, even that the broker does not know us.
            said.append(wire.Ask(self.number(), "ping"))
        return said

    def refused(self, reason: str) -> None:
        """Answer all open and all later requests with a refusal: the broker does not let us in."""
        self.refusal = GridRefused(reason)
        self.abandon(self.refusal)

    def abandon(self, error: DeskgridError) -> None:
        """Answer all open requests with ``error``."""
        open_ones, self._open = [*self._open.values(), *self._deferred], {}
        self._deferred = []
        for request in open_ones:
            request.answer(error)

    # --- what follows ------------------------------------------------------------------------------------------------

    def _greeted(self, greeting: wire.Greeting, now: float) -> list[wire.Message]:
        self.greeting = greeting
        self._patience = GREETING_S
        if self.joined:
            return []
        self.joined = True
        self._sent.clear()
        for number in [number for number, request in self._open.items() if isinstance(request.message, wire.Part)]:
            self._open.pop(number).answer(TransferCut("the connection was cut"))
        for request in self._open.values():
            request.patience = 0.0
        return [message for request in self._open.values() for message in self._said(request, now)]

    def _said(self, request: Request, now: float) -> list[wire.Message]:
        if request.said and isinstance(request.message, wire.Ask) and request.message.what in FAIL_AGAIN:
            request.message = replace(request.message, again=True)
        request.said = True
        request.said_at = now
        request.patience = 2 * request.patience or REPEAT_S + request.size / SLOW_LINE
        template = request.template
        if template is None or template.digest in self._sent:
            return [request.message]
        self._sent.add(template.digest)
        return [wire.Blob(template.digest, wire.payload_of(template.data)), request.message]

    def _answer(self, reply: Reply, now: float) -> list[wire.Message]:
        request = self._open.get(reply.request)
        if request is None:
            return []  # answered before, withdrawn, or a ping
        if isinstance(reply, wire.Failed) and request.template and reply.reason.startswith(NO_TEMPLATE):
            request.tries += 1
            if request.tries < TEMPLATE_TRIES:
                self._sent.discard(request.template.digest)
                self._renumber(request)
                return self._said(request, now)
        del self._open[reply.request]
        if isinstance(reply, wire.Failed) and isinstance(request.message, wire.Submit):
            self._open.pop(request.message.watch, None)  # the watch in the refused batch is void
        request.answer(reply)
        return []

    def _renumber(self, request: Request) -> None:
        """Give a refused request a new number, in the same position: later answers to the old number are ignored."""
        before = request.message.request
        request.message = replace(request.message, request=self.number())
        self._open = {
            request.message.request if number == before else number: each for number, each in self._open.items()
        }
