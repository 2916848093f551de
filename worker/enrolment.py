"""Enrolment: a PC makes its own key pair and registers it with the broker, using the lab's join line.

Rule: the secret half never leaves this PC, and the identity is on its disk before it is used.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import replace

from deskgrid import wire
from deskgrid.wire.dealer import new_pair
from deskgrid.wire.joinline import JoinLine, Keys
from deskgrid.wire.text import name_error
from deskgrid.worker.identities import Identities, IdentityError, PcIdentity
from deskgrid.worker.link import BrokerLink, UnknownKey
from deskgrid.worker.session import WorkerRefused

log = logging.getLogger("deskgrid.worker")

# A request is repeated this often until it is answered: it may have been lost with its connection. Seconds.
AGAIN_S = 2.0
# The longest wait in the loop, and so the longest delay of a stop request. Seconds.
TICK_S = 0.2


def enrolled(
    line: JoinLine, name: str, identities: Identities, stopping: Callable[[], bool], say: Callable[[str], None]
) -> PcIdentity | None:
    """Enrol this PC with the broker and return its identity; None if the worker has to stop first.

    If this PC already has an identity of that name, it is reused. A PC whose request was never sent, or was refused,
    gets none. Raises `WorkerRefused`, `UnknownKey` and `IdentityError`.
    """
    if error := name_error(name):
        raise IdentityError(f"--name: {error}")
    assert line.keys is not None  # a broker without keys has none to give
    before = identities.find(line.keys.server, name)
    pair = new_pair() if before is None else (before.keys.public, before.keys.secret)
    mine = PcIdentity(name, replace(line, keys=Keys(line.keys.server, *pair)))
    try:
        answer = _ask(line, mine, identities, stopping, say)
    except (WorkerRefused, UnknownKey):
        if before is None:
            identities.drop(mine)
        raise
    return None if answer is None else _settled(answer, mine, line, identities, say)


def _settled(
    answer: wire.Enrolled, mine: PcIdentity, line: JoinLine, identities: Identities, say: Callable[[str], None]
) -> PcIdentity:
    """Keep and return the identity that the broker agreed to."""
    # The join line may be this PC's own: then its key is the identity. The name may differ in case from ours.
    identity = PcIdentity(answer.name, mine.line if answer.public == mine.keys.public else line)
    if identity != mine:
        identities.drop(mine)
        identities.keep(identity)
    say(f"enrolled at {identity.address} as {identity.name}: from now on this PC needs no --join")
    return identity


def _ask(
    line: JoinLine, mine: PcIdentity, identities: Identities, stopping: Callable[[], bool], say: Callable[[str], None]
) -> wire.Enrolled | None:
    request = wire.Enrol(wire.VERSION, mine.name, mine.keys.public)
    with BrokerLink(line) as link:
        again = 0.0
        while not stopping():
            if link.connected and time.monotonic() >= again:
                # Before asking: if the answer were lost, and the key with it, the name would be unusable.
                identities.keep(mine)
                if link.send(request):
                    again = time.monotonic() + AGAIN_S
            link.wait(TICK_S)
            link.changes()
            if (answer := _answer(link)) is not None:
                return answer
            link.tend()
            link.complain(say)
    return None


def _answer(link: BrokerLink) -> wire.Enrolled | None:
    """Return the broker's answer if it has arrived, else None."""
    while True:
        try:
            message = link.receive()
        except wire.ProtocolError as error:
            log.error("unusable-message reason=%r", str(error))
            continue
        if isinstance(message, wire.Refused):
            raise WorkerRefused(message.reason)
        if message is None or isinstance(message, wire.Enrolled):
            return message
