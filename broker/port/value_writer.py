"""Writes large payloads to files before the sessions handle their messages, while other messages are handled.

Rule 1: messages of one peer are handled in order: while one waits here, the later ones wait, too.
Rule 2: the waiting bytes are limited, in all and for each credential. Further messages stay in the fair queue.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from deskgrid import wire
from deskgrid.broker.auth.roles import Credential

# Bytes that wait to be written: a few of the largest messages, so that the disk is never without work.
INTAKE_LIMIT = 4 * wire.PAYLOAD_LIMIT
# Of these, from one credential.
CREDENTIAL_LIMIT = 2 * wire.PAYLOAD_LIMIT
# Messages of one peer that wait here because of an earlier one.
ARRIVALS_LIMIT = 100


@dataclass(frozen=True, slots=True)
class LargeMessage:
    """A message, and its large payloads. ``kept``: one future for each step with each payload."""

    peer: bytes
    who: Credential
    message: wire.Message
    values: list[wire.Chunks]
    kept: list[Future[object]]

    @property
    def size(self) -> int:
        """Bytes of its large payloads."""
        return sum(map(len, self.values))


class ValueWriter:
    """``steps``: functions called with each large payload, at the same time, each on a thread of its own.

    A template is also hashed; a part of a stored file is only written and hashed. These threads call ``wake()``
    whenever a step is done.
    """

    def __init__(self, steps: Sequence[Callable[[wire.Chunks], object]], wake: Callable[[], None]) -> None:
        *self._steps, hashing = [(step, ThreadPoolExecutor(1, "deskgrid-files")) for step in (*steps, wire.sha256_of)]
        self._template_steps = [*self._steps, hashing]
        # A part of a stored file has a digest, and needs no checksum.
        self._part_steps = [self._steps[0], hashing]
        self._wake = wake
        self._waiting: dict[bytes, deque[LargeMessage]] = {}
        self._size = 0
        self._by_credential: Counter[str] = Counter()

    def __contains__(self, peer: bytes) -> bool:
        """Whether a message of ``peer`` waits."""
        return peer in self._waiting

    def put(self, peer: bytes, who: Credential, message: wire.Message, values: list[wire.Chunks]) -> bool:
        """Whether a message has to wait, for its own values or an earlier message; if not, handle it now."""
        if not values and peer not in self._waiting:
            return False
        arrival = LargeMessage(peer, who, message, values, self._begin(message, values))
        self._count(who.name, arrival.size)
        self._waiting.setdefault(peer, deque()).append(arrival)
        return True

    def _count(self, credential: str, size: int) -> None:
        self._size += size
        self._by_credential[credential] += size
        if not self._by_credential[credential]:
            del self._by_credential[credential]

    def _begin(self, message: wire.Message, values: list[wire.Chunks]) -> list[Future[object]]:
        steps = self._template_steps if isinstance(message, wire.Blob) else self._steps
        if isinstance(message, wire.Part):
            steps = self._part_steps
        kept = [thread.submit(step, value) for value in values for step, thread in steps]
        for future in kept:
            future.add_done_callback(lambda _: self._wake())
        return kept

    def peers_of(self, credential: str) -> list[bytes]:
        """The peers of a credential with messages here."""
        return [peer for peer, arrivals in self._waiting.items() if arrivals[0].who.name == credential]

    def afterwards(self, action: Callable[[], None]) -> None:
        """Run ``action`` on the first step's thread, after everything that was given to it before."""
        self._steps[0][1].submit(action)

    def close(self) -> None:
        """Wait for the threads to end."""
        for _, thread in self._template_steps:
            thread.shutdown()

    def has_room(self, peer: bytes, credential: str, large: bool) -> bool:
        """Whether `put` may be called with another message of ``peer``; ``large``: it has large payloads."""
        if len(self._waiting.get(peer, ())) >= ARRIVALS_LIMIT:
            return False
        return not large or (self._size < INTAKE_LIMIT and self._by_credential[credential] < CREDENTIAL_LIMIT)

    def ready(self) -> Iterator[LargeMessage]:
        """Take out the messages that can be handled now."""
        for peer, arrivals in list(self._waiting.items()):
            while arrivals and all(future.done() for future in arrivals[0].kept):
                arrival = arrivals.popleft()
                if not arrivals:
                    del self._waiting[peer]
                self._count(arrival.who.name, -arrival.size)
                yield arrival
