"""A broker that kills itself at a step: ``python -m tests.chaos.doomed STEP COUNT HOME HOST:PORT LEASE``.

It dies by SIGKILL when it reaches a place whose name begins with STEP (any place, for "-") for the COUNT-th time:
before or after a commit that wrote something, before or after sending a message.
"""

import os
import signal
import sys

from deskgrid.broker.port.send_queue import Parts
from deskgrid.broker.port.sockets import Sockets
from deskgrid.broker.store.journal import Journal
from tests import live


def main(step: str, count: str, home: str, listen: str, lease_s: str) -> None:
    """Run the broker, and count its steps once it has said that it is there."""
    left, prefix, counting = int(count), "" if step == "-" else step, False
    commit, send = Journal.commit, Sockets.send

    def passed(place: str) -> None:
        nonlocal left
        if counting and place.startswith(prefix):
            left -= 1
            if left <= 0:
                os.kill(os.getpid(), signal.SIGKILL)

    def doomed_commit(journal: Journal) -> None:
        wrote = journal.db.in_transaction
        if wrote:
            passed("commit: before")
        commit(journal)
        if wrote:
            passed("commit: after")

    def doomed_send(sockets: Sockets, peer: bytes, parts: Parts) -> bool:
        passed("send: before")
        sent = send(sockets, peer, parts)
        passed("send: after")
        return sent

    def begin() -> None:
        nonlocal counting
        counting = True

    setattr(Journal, "commit", doomed_commit)  # noqa: B010
    setattr(Sockets, "send", doomed_send)  # noqa: B010
    live.main(home, listen, lease_s, ready=begin)


if __name__ == "__main__":
    main(*sys.argv[1:])
