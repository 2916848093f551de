"""The client's side of its conversation with the broker: messages and ``now`` in, messages out. No socket, no clock.

Rule 1: a request stays until it is answered or nobody waits for it any more. Whenever the broker has lost track of this
client (it was restarted, the connection broke), the client introduces itself and says every open request again.
Rule 2: requests go out in the order they were made, also the second time: batches of a bag build on each other.
Rule 3: silence is checked only while something is open. A long poll may rightly stay unanswered for hours. So after a
while of silence the client sends a ping; only if that stays unanswered, too, it gives the connection up.
Rule 4: a request that stays unanswered on a connection that works is said again now and then: every one of them is
carried out once, however often it is said.
"""

import itertools
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from deskgrid import wire
from deskgrid.client.template import Template
from deskgrid.errors import DeskgridError, GridRefused, RequestFailed

log = logging.getLogger("deskgrid.client")

# After this much silence the broker is asked whether it is there. Seconds.
PING_S = 2.0
# After this much the connection is given up and made anew.
SILENCE_S = 10.0
# On a slow line large batches take a while to arrive, and nothing can have come back yet. Bytes in a second.
SLOW_LINE = 2 * 2**20
# How long what is asked may wait for company, when it is only of use once something else has been asked. Seconds.
DEFER_S = 0.25
# After this much a request is said again, and after twice as long each further time.
REPEAT_S = 10.0
# How long an introduction may stay unanswered the first time; twice as long each further time, up to SILENCE_S.
GREETING_S = 2.0
# A broker that still misses a template after this many tries has another problem.
TEMPLATE_TRIES = 3
# What a refused batch's reason begins with when only its template is missing.
NO_TEMPLATE = "template:"

Reply = wire.Accepted | wire.Outcomes | wire.Answer | wire.Failed
# Called on the thread of the link: quick, never raising, never running the user's code.
Handler = Callable[[Reply | DeskgridError], None]


@dataclass(slots=True)
class Request:
    """Something asked of the broker; ``template``: what its batch is made of, sent before it where it is unknown."""

    message: wire.Submit | wire.Watch | wire.Ask
    answered: Handler
    template: Template | None = None
    tries: int = 0
    size: int = 0
    said_at: float = 0.0
    patience: float = 0.0

    def __post_init__(self) -> None:
        if isinstance(self.message, wire.Submit):
            self.size = sum(map(len, self.message.payloads)) + (len(self.template.data) if self.template else 0)

    def answer(self, reply: Reply | DeskgridError) -> None:
        """Hand the answer to whoever asked. If they cannot use it, only this request fails."""
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
        # What waits for another request to go with, and since when.
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
        """A number for a request, never given out before. May be called from any thread."""
        return next(self._numbers)

    @property
    def busy(self) -> bool:
        """Whether there is something to look after now and then: an answer, or a request that waits for company."""
        return bool(self._open or self._deferred) or not self.joined

    # --- what happens ------------------------------------------------------------------------------------------------

    def connected(self, now: float) -> list[wire.Message]:
        """There is a new connection (or one about to be): introduce yourself."""
        self.joined = False
        self._pinged = False
        self._heard = now
        return [self._hello]

    def defer(self, request: Request, now: float) -> list[wire.Message]:
        """Ask something together with the next request, as part of it if that can be, or in a while."""
        self._deferred.append(request)
        self._deferred_at = now
        return []

    def request(self, request: Request, now: float) -> list[wire.Message]:
        """Ask something."""
        rider = None
        if isinstance(message := request.message, wire.Submit) and (rider := self._deferred_watch(message.bag)):
            request.message = replace(message, watch=rider.request, after=rider.after)
        said = self._asked(request, now) + self._asked_with_it(now)
        return said if rider is None else [message for message in said if message is not rider]

    def _deferred_watch(self, bag: str) -> wire.Watch | None:
        """What can be part of a batch of ``bag``."""
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
            self._heard, self._pinged = now, False  # until now there was nothing to hear
        self._open[request.message.request] = request
        return self._said(request, now) if self.joined else []

    def withdraw(self, number: int) -> None:
        """Nobody waits for that answer any more."""
        self._open.pop(number, None)

    def receive(self, message: wire.Message, now: float) -> list[wire.Message]:
        """One message of the broker."""
        self._heard = now
        self._pinged = False
        if isinstance(message, wire.Outcomes):
            said = self._answer(message, now)
            for number in message.receipts:
                said += self._answer(wire.Accepted(number, message.bag, ""), now)
            return said
        if isinstance(message, wire.Accepted | wire.Answer | wire.Failed):
            return self._answer(message, now)
        if isinstance(message, wire.Greeting):
            return self._greeted(message, now)
        if isinstance(message, wire.Rejoin):
            # Each message that reached a broker that does not know us is answered so; one introduction is enough.
            return self.connected(now) if self.joined else []
        if isinstance(message, wire.Refused):
            self.refused(message.reason)
        return []

    def gone(self, now: float) -> bool:
        """Whether the connection is to be given up: it has been silent for too long."""
        on_the_way = sum(request.size for request in self._open.values())
        limit = SILENCE_S + on_the_way / SLOW_LINE if self.joined else self._patience
        if not self.busy or now - self._heard < limit:
            return False
        self._patience = min(2 * self._patience, SILENCE_S)
        return True

    def overdue(self, now: float) -> list[wire.Message]:
        """What to say because nothing has come for a while, or nothing was asked that it could go with."""
        if self._deferred and now - self._deferred_at >= DEFER_S:
            return self._asked_with_it(now)
        if not self._open or not self.joined:
            return []
        again = [request for request in self._open.values() if now - request.said_at >= request.patience]
        said = [message for request in again for message in self._said(request, now)]
        if not self._pinged and now - self._heard >= PING_S:
            self._pinged = True
            # Any answer will do: "I do not know you" is one.
            said.append(wire.Ask(self.number(), "ping", "{}"))
        return said

    def refused(self, reason: str) -> None:
        """The broker will not have us: all that is open is answered with that, and so is what is asked later."""
        self.refusal = GridRefused(reason)
        self.abandon(self.refusal)

    def abandon(self, error: DeskgridError) -> None:
        """Answer everything with ``error``."""
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
        for request in self._open.values():
            request.patience = 0.0
        return [message for request in self._open.values() for message in self._said(request, now)]

    def _said(self, request: Request, now: float) -> list[wire.Message]:
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
            self._open.pop(request.message.watch, None)  # it was not heard
        request.answer(reply)
        return []

    def _renumber(self, request: Request) -> None:
        """Make another request of one that was refused, in its place: another such answer to it counts for nothing."""
        before = request.message.request
        request.message = replace(request.message, request=self.number())
        self._open = {
            request.message.request if number == before else number: each for number, each in self._open.items()
        }
