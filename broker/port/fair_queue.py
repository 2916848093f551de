"""Messages that were read but not handled yet, and fair shares of the loop's time. Pure.

Rule 1: each person has a share, and all PCs together have one, which is `PCS_WEIGHT` times as large. So a person need
not wait until each of a thousand busy PCs has had its turn. The PCs divide their share equally.
Rule 2: the next message comes from the share, and then from the PC, whose messages have taken the least time. One that
was silent counts as if it had used as much time as the one that is served now, so nobody saves up time. Those with
equal times take turns. (Start-time fair queueing: Goyal, Vin and Cheng, 1996.)
Rule 3: messages of one credential are handled in the order in which they were read.
"""

import heapq
import itertools
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from deskgrid.broker.auth.roles import Credential
from deskgrid.broker.port.receive_budget import CREDENTIAL_LIMIT

# Messages of one credential that may wait here. Two hundred programs of one person, each with a dozen open requests,
# have fewer. A credential with more of them sends without waiting for answers.
MESSAGES_LIMIT = 4_000
# A credential is behind if it has used more than this much time beyond what others have used. Nearly all messages take
# a twentieth of it. Seconds.
SHORT_S = 0.002
# No credential is further behind than this, so that one slow message, for example on a full disk, does not shut it out.
# Seconds.
BEHIND_MOST_S = 1.0
# How many times as large as a person's share the share of all PCs is: a person who sends without end takes a fifth of
# the loop's time from them.
PCS_WEIGHT = 4.0
# The share of the PCs. No credential has this name.
_PCS = ""


class ReadMessage(NamedTuple):
    """A message as it was read; ``chunks`` are the frames behind it."""

    peer: bytes
    who: Credential
    data: bytes
    chunks: Sequence[memoryview] = ()

    @property
    def size(self) -> int:
        """Bytes of the message."""
        return len(self.data) + sum(map(len, self.chunks))


class NamedTurns:
    """Whose turn it is, by name: Rule 2."""

    def __init__(self) -> None:
        # `_served_s`: the seconds that the one that is served now has used. `_had_s`: the seconds of those that have
        # used more.
        self._served_s = 0.0
        self._had_s: dict[str, float] = {}
        # (seconds used, turn, name) of each that waits, the next one first. The seconds may have grown since.
        self._heap: list[tuple[float, int, str]] = []
        self._turns = itertools.count()

    def __bool__(self) -> bool:
        """Whether anybody waits."""
        return bool(self._heap)

    def enter(self, name: str) -> None:
        """``name``, which does not wait, waits for its turn."""
        had_s = max(self._served_s, self._had_s.pop(name, 0.0))
        if had_s > self._served_s:
            self._had_s[name] = had_s
        heapq.heappush(self._heap, (had_s, next(self._turns), name))

    def leave(self, name: str) -> None:
        """``name`` waits no longer."""
        self._heap = [entry for entry in self._heap if entry[2] != name]
        heapq.heapify(self._heap)

    def next(self, ready: Callable[[str], bool]) -> str | None:
        """Take the next one that is ``ready``; None if none is."""
        found, passed = None, list[tuple[float, int, str]]()
        while self._heap and found is None:
            had_s, turn, name = heapq.heappop(self._heap)
            if self._had_s.get(name, 0.0) > had_s:
                heapq.heappush(self._heap, (self._had_s[name], turn, name))
            elif ready(name):
                found, self._served_s = name, max(self._served_s, had_s)
            else:
                passed.append((had_s, turn, name))
        for entry in passed:
            heapq.heappush(self._heap, entry)
        return found

    def took(self, name: str, seconds: float) -> None:
        """``name`` has used ``seconds`` more."""
        had_s = max(self._served_s, self._had_s.get(name, 0.0)) + seconds
        self._had_s[name] = min(had_s, self._served_s + BEHIND_MOST_S)

    def is_behind(self, name: str) -> bool:
        """Whether others go before ``name``, because its last messages took long."""
        return self._had_s.get(name, 0.0) > self._served_s + SHORT_S


class FairQueue:
    """Everything that waits, by the name of its credential."""

    def __init__(self) -> None:
        self._queues: dict[str, deque[ReadMessage]] = {}
        self._bytes: Counter[str] = Counter()
        self._by_peer: Counter[bytes] = Counter()
        self._shares = NamedTurns()
        # PCs among themselves.
        self._pcs = NamedTurns()
        self.size = 0

    def __bool__(self) -> bool:
        return bool(self._queues)

    def __contains__(self, peer: bytes) -> bool:
        """Whether a message of ``peer`` waits."""
        return peer in self._by_peer

    def put(self, arrival: ReadMessage) -> bool:
        """Keep a message until its turn comes; return False and drop it if its credential has too many waiting."""
        name, size = arrival.who.name, arrival.size
        queue = self._queues.get(name)
        if queue is None:
            queue = self._queues[name] = deque()
            self._enter(arrival.who)
        elif len(queue) >= MESSAGES_LIMIT or self._bytes[name] + size > CREDENTIAL_LIMIT:
            return False
        queue.append(arrival)
        self._by_peer[arrival.peer] += 1
        self._count(name, size)
        return True

    def next_is_ready(self, waits: Callable[[ReadMessage], bool]) -> bool:
        """Whether `take` would return a message."""
        return any(not waits(queue[0]) for queue in self._queues.values())

    def take(self, waits: Callable[[ReadMessage], bool]) -> ReadMessage | None:
        """The next message; None when there is none, or when the first message of every credential still ``waits``."""
        pc: str | None = None

        def is_ready(name: str) -> bool:
            return not waits(self._queues[name][0])

        def has_ready(share: str) -> bool:
            nonlocal pc
            if share != _PCS:
                return is_ready(share)
            pc = self._pcs.next(is_ready)
            return pc is not None

        share = self._shares.next(has_ready)
        if share is None:
            return None
        arrival = self._taken(share if pc is None else pc)
        if pc is not None and self._pcs:
            self._shares.enter(_PCS)
        if arrival.who.name in self._queues:
            self._enter(arrival.who)
        return arrival

    def _enter(self, who: Credential) -> None:
        """A credential that has no turn yet has something waiting."""
        if who.role != "worker":
            self._shares.enter(who.name)
            return
        if not self._pcs:
            self._shares.enter(_PCS)
        self._pcs.enter(who.name)

    def took(self, who: Credential, seconds: float) -> None:
        """A message of this credential took this many ``seconds``."""
        if who.role == "worker":
            self._pcs.took(who.name, seconds)
            self._shares.took(_PCS, seconds / PCS_WEIGHT)
        else:
            self._shares.took(who.name, seconds)

    def is_behind(self, who: Credential) -> bool:
        """Whether others go before a credential, because its last messages took long."""
        return (self._pcs if who.role == "worker" else self._shares).is_behind(who.name)

    def heaviest(self) -> tuple[str, int]:
        """The credential with the most bytes here, and how many; this queue is not empty."""
        return self._bytes.most_common(1)[0]

    def drop(self, name: str) -> set[bytes]:
        """Drop all messages of a credential, and return the peers that sent them."""
        if name not in self._queues:
            return set()
        who, peers = self._queues[name][0].who, {arrival.peer for arrival in self._queues[name]}
        while name in self._queues:
            self._taken(name)
        if who.role != "worker":
            self._shares.leave(name)
            return peers
        self._pcs.leave(name)
        if not self._pcs:
            self._shares.leave(_PCS)
        return peers

    def _taken(self, name: str) -> ReadMessage:
        queue = self._queues[name]
        arrival = queue.popleft()
        self._count(name, -arrival.size)
        if not queue:
            del self._queues[name], self._bytes[name]
        self._by_peer[arrival.peer] -= 1
        if not self._by_peer[arrival.peer]:
            del self._by_peer[arrival.peer]
        return arrival

    def _count(self, name: str, size: int) -> None:
        self._bytes[name] += size
        self.size += size
