"""PCs that come with a lab's line and enrol with a key of their own. Pure, except for the key files.

Rule 1: a connection has at most one request here, and requests are carried out in the order in which they came.
Rule 2: each request writes to the disk, so requests are limited per turn of the loop and per second. Other peers do not
wait long, and made-up names do not fill the disk or the log quickly. Requests above the limit wait; they are not
refused.
"""

from deskgrid import wire
from deskgrid.broker.auth.roles import Credential, CredentialError
from deskgrid.broker.model.state import BrokerState

# Requests in one turn of the loop. One takes 0.2 ms, or 6 ms on a disk that ten other programs write to.
PER_TURN = 4
# Requests in one second. A lab of a thousand PCs has enrolled after twenty.
PER_S = 50


class Enrolment:
    """The waiting requests. ``now`` is the broker's clock."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._asked: dict[bytes, tuple[Credential, wire.Enrol]] = {}
        self._second = 0
        self._left = PER_S

    @property
    def pressing(self) -> bool:
        """Whether a request waits and can be carried out, as of the last `carry_out`."""
        return bool(self._asked) and self._left > 0 and self._state.disk.state != "full"

    def ask(self, peer: bytes, line: Credential, request: wire.Enrol) -> None:
        """Add a request; it replaces an earlier one of the same connection."""
        self._asked[peer] = line, request

    def gone(self, peer: bytes) -> None:
        """A connection has ended."""
        self._asked.pop(peer, None)

    def let_go(self, credential: str) -> list[bytes]:
        """Drop the requests of a revoked credential, and return their connections."""
        peers = [peer for peer, (line, _) in self._asked.items() if line.name == credential]
        for peer in peers:
            del self._asked[peer]
        return peers

    def carry_out(self, now: float) -> None:
        """Answer some requests, unless the disk is full."""
        if self._state.disk.state == "full":
            return
        if int(now) != self._second:
            self._second, self._left = int(now), PER_S
        for peer in list(self._asked)[: min(PER_TURN, self._left)]:
            self._left -= 1
            self._answer(peer, *self._asked.pop(peer), now)

    def _answer(self, peer: bytes, line: Credential, request: wire.Enrol, now: float) -> None:
        store = self._state.credentials
        assert store is not None  # without keys nobody has a lab's line
        clock = self._state.wall.posix(now)
        try:
            name, public = store.enrol(line, request.name, request.public, clock)
        except CredentialError as error:
            self._state.send(peer, wire.Refused(str(error)))
            self._state.note("enrolment-refused", by=line.name, name=request.name, line=line.name, reason=str(error))
            return
        self._state.send(peer, wire.Enrolled(name, public, clock))
        if line.role != "worker":  # else it is a PC that has its key, and `deskgrid doctor` asks
            self._state.note("worker-enrolled", name=name, line=line.name)
