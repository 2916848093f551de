"""PCs that come with a lab's line and ask to be known by a key of their own. Pure, but for the store.

Rule 1: a connection has at most one request here, and requests are carried out in the order in which they came.
Rule 2: each is a write to the disk, so a turn carries out few, and a second not many: others do not wait for them, and
whoever makes up names with the lab's line fills neither the disk nor the log quickly. Those that wait are not refused.
"""

from deskgrid import wire
from deskgrid.broker.auth.roles import Credential, CredentialError
from deskgrid.broker.state import BrokerState

# Requests in one turn of the loop: 0.2 ms each, and 6 ms on a disk that ten other programs write to.
PER_TURN = 4
# Requests in one second. A lab of a thousand PCs is enrolled in twenty.
PER_S = 50


class Enrolment:
    """The requests that wait. ``now`` is the broker's clock."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._asked: dict[bytes, tuple[Credential, wire.Enrol]] = {}
        self._second = 0
        self._left = PER_S

    @property
    def pressing(self) -> bool:
        """Whether a request waits that this second has room for, as far as was seen last."""
        return bool(self._asked) and self._left > 0 and self._state.disk.state != "full"

    def ask(self, peer: bytes, line: Credential, request: wire.Enrol) -> None:
        """A request, in place of what this connection asked before."""
        self._asked[peer] = line, request

    def gone(self, peer: bytes) -> None:
        """A connection is no more."""
        self._asked.pop(peer, None)

    def let_go(self, credential: str) -> list[bytes]:
        """Drop what was asked by a credential that was revoked; the connections."""
        peers = [peer for peer, (line, _) in self._asked.items() if line.name == credential]
        for peer in peers:
            del self._asked[peer]
        return peers

    def carry_out(self, now: float) -> None:
        """Answer some of those that wait, unless nothing can be written down."""
        if self._state.disk.state == "full":
            return
        if int(now) != self._second:
            self._second, self._left = int(now), PER_S
        for peer in list(self._asked)[: min(PER_TURN, self._left)]:
            self._left -= 1
            self._answer(peer, *self._asked.pop(peer), now)

    def _answer(self, peer: bytes, line: Credential, request: wire.Enrol, now: float) -> None:
        store = self._state.credentials
        assert store is not None  # else nobody has a lab's line
        try:
            name, public = store.enrol(line, request.name, request.public, self._state.posix(now))
        except CredentialError as error:
            self._state.send(peer, wire.Refused(str(error)))
            self._state.note("enrolment-refused", by=line.name, name=request.name, line=line.name, reason=str(error))
            return
        self._state.send(peer, wire.Enrolled(name, public))
        self._state.note("worker-enrolled", name=name, line=line.name)
